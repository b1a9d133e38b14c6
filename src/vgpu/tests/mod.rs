//! The mediator over a link that records requests and checks that they respect the aggregator's contract.

#![allow(clippy::cast_possible_truncation, reason = "numbers of a test are small")]

mod channels;
mod copies;
mod counters;
mod failures;
mod gsp;
mod hand_over;
mod hostile;
mod memory;
mod placement;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::{FermiChannels, Mediator, MediatorConfig};
use gpuvmk_aggregator::link::{AggregatorLink, Deferred, EventHandler, Grant, LinkError};
use gpuvmk_aggregator::protocol::{Doorbell, Event, MAX_UPDATE_RUNS, RefusalKind, Request, SpaceId};
use gpuvmk_aggregator::report::{FailSafeReason, Report};
use gpuvmk_backend::{
    Backend, Completions as _, EngineBackend, EngineEvents, EngineTime, FifoState, FlushScope,
    InterruptInterest,
};
use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_chip::channel_event::{ChannelStop, MmuFault};
use gpuvmk_chip::gf100::mmu::{Pde, Pte};
use gpuvmk_chip::gf100::ramin;
use gpuvmk_chip::{Aperture, Engine, EngineSet, PhysicalAddress};
use gpuvmk_fifo_virt::CopiedBytes;
use gpuvmk_pci::SharedMemory;
use gpuvmk_pci::mapping::create_memory_file;
use gpuvmk_shadow_pagetable::Fermi;
use gpuvmk_units::DriverCounters;

const VRAM: u64 = 4 << 20;
const CHANNELS: u16 = 8;
const SPACES: u16 = 4;

fn vram(address: u64) -> PhysicalAddress {
    PhysicalAddress { aperture: Aperture::Vram, address }
}

type Refuse = Box<dyn Fn(&Request) -> Option<LinkError> + Send>;

/// A link whose aggregator does everything, keeps a record, and panics when the contract is broken.
#[derive(Default)]
struct FakeLink {
    log: Mutex<Vec<Request>>,
    doorbells: Mutex<Vec<Doorbell>>,
    files: Mutex<usize>,
    refuse: Mutex<Option<Refuse>>,
    handler: Mutex<Option<Arc<dyn EventHandler>>>,
    /// Events delivered on the caller's thread while it is inside a preemption request.
    in_request: Mutex<Vec<Event>>,
    world: Mutex<World>,
    report: Mutex<Report>,
    copied: Mutex<CopiedBytes>,
    trapped: AtomicU64,
    driver: Mutex<DriverCounters>,
    /// Notifications that are not told before the driver is interested or asks for them, and what they are to
    /// it.
    notified: Mutex<Deferred>,
    interest: Mutex<Option<InterruptInterest>>,
}

/// What exists on the host.
#[derive(Default)]
struct World {
    spaces: BTreeSet<SpaceId>,
    channels: BTreeMap<GuestChannel, (SpaceId, bool)>,
    ranges: BTreeMap<u64, u64>,
}

impl World {
    /// Takes ranges and parts of them. Both ends must be memory that is there; what lies between may be
    /// memory or nothing.
    fn unmap(&mut self, first: u64, end: u64) {
        let is_there =
            |at: u64| self.ranges.range(..=at).next_back().is_some_and(|(start, size)| at < start + size);
        assert!(is_there(first) && is_there(end - 1), "memory is taken away that was never announced");
        let all: Vec<_> = self.ranges.iter().map(|(start, size)| (*start, start + size)).collect();
        for (start, last) in all.into_iter().filter(|(start, last)| *start < end && first < *last) {
            self.ranges.remove(&start);
            self.ranges.extend((start < first).then(|| (start, first - start)));
            self.ranges.extend((end < last).then(|| (end, last - end)));
        }
    }

    fn apply(&mut self, request: &Request) {
        match request {
            Request::Hello(_) => panic!("the tenant was admitted already"),
            Request::DmaMap { gpa, size, .. } => assert!(self.ranges.insert(gpa.0, *size).is_none()),
            Request::DmaUnmap { gpa, size } => self.unmap(gpa.0, gpa.0 + size),
            Request::CreateSpace(id) => {
                assert!(id.0 < SPACES);
                assert!(self.spaces.insert(*id), "{id:?} exists");
            }
            Request::DestroySpace(id) => {
                assert!(self.spaces.remove(id), "{id:?} does not exist");
                assert!(self.channels.values().all(|(space, _)| space != id), "{id:?} is in use");
            }
            Request::UpdateSpace { space, unmap, map } => {
                assert!(self.spaces.contains(space), "{space:?} does not exist");
                assert!((1..=MAX_UPDATE_RUNS).contains(&(unmap.len() + map.len())));
            }
            Request::CreateChannel { channel, space, .. } => {
                assert!(channel.0 < CHANNELS && self.spaces.contains(space));
                assert!(self.channels.insert(*channel, (*space, false)).is_none(), "{channel:?} exists");
            }
            Request::DestroyChannel(channel) => {
                assert!(self.channels.remove(channel).is_some(), "{channel:?} does not exist");
            }
            Request::CreateObject { channel, .. } => {
                assert!(self.channels.contains_key(channel), "{channel:?} does not exist");
            }
            Request::SetEngines { channel, .. } => {
                assert!(!self.channels[channel].1, "{channel:?} is enabled");
            }
            Request::EnableChannel { channel, enabled } => {
                self.channels.get_mut(channel).expect("an existing channel").1 = *enabled;
            }
            Request::SetRunlist(list) => {
                let distinct: BTreeSet<_> = list.iter().collect();
                assert_eq!(distinct.len(), list.len());
                assert!(list.iter().all(|channel| self.channels.contains_key(channel)));
            }
            Request::MessageEvent { .. } => {}
            Request::Preempt(channel) => assert!(self.channels.contains_key(channel)),
            Request::Reset { .. } => {
                self.spaces.clear();
                self.channels.clear();
            }
        }
    }
}

impl AggregatorLink for FakeLink {
    fn is_ending(&self) -> bool {
        false
    }

    fn request(&self, request: &Request, file: Option<OwnedFd>) -> Result<(), LinkError> {
        self.log.lock().unwrap().push(request.clone());
        let carries = matches!(request, Request::DmaMap { .. } | Request::MessageEvent { given: true });
        assert_eq!(file.is_some(), carries);
        *self.files.lock().unwrap() += usize::from(file.is_some());
        if let Some(error) = self.refuse.lock().unwrap().as_ref().and_then(|refuse| refuse(request)) {
            return Err(error);
        }
        self.world.lock().unwrap().apply(request);
        if matches!(request, Request::Preempt(_)) {
            let handler = self.handler.lock().unwrap().clone();
            for event in self.in_request.lock().unwrap().drain(..) {
                handler.as_ref().unwrap().event(event);
            }
        }
        Ok(())
    }

    fn doorbell(&self, doorbell: Doorbell) {
        self.doorbells.lock().unwrap().push(doorbell);
    }

    fn report(&self, report: &Report) {
        *self.report.lock().unwrap() = report.clone();
    }

    fn report_copied(&self, copied: &CopiedBytes) {
        *self.copied.lock().unwrap() = *copied;
    }

    fn report_trapped(&self, accesses: u64) {
        self.trapped.store(accesses, Ordering::Relaxed);
    }

    fn report_driver(&self, counters: &DriverCounters) {
        *self.driver.lock().unwrap() = *counters;
    }

    fn set_notification_interest(&self, interest: InterruptInterest) -> Deferred {
        *self.interest.lock().unwrap() = Some(interest);
        if interest == InterruptInterest::Masked { Deferred::default() } else { self.take_notifications() }
    }

    fn engine_time(&self) -> EngineTime {
        EngineTime::default()
    }

    fn take_notifications(&self) -> Deferred {
        std::mem::take(&mut self.notified.lock().unwrap())
    }

    fn connect(&self, handler: Arc<dyn EventHandler>) {
        *self.handler.lock().unwrap() = Some(handler);
    }
}

impl FakeLink {
    /// The requests since the last call.
    fn take(&self) -> Vec<Request> {
        std::mem::take(&mut self.log.lock().unwrap())
    }

    fn handler(&self) -> Arc<dyn EventHandler> {
        self.handler.lock().unwrap().clone().expect("a connected handler")
    }

    fn refuse_with(&self, refuse: impl Fn(&Request) -> Option<LinkError> + Send + 'static) {
        *self.refuse.lock().unwrap() = Some(Box::new(refuse));
    }

    fn refuse_nothing(&self) {
        *self.refuse.lock().unwrap() = None;
    }
}

fn refused(kind: RefusalKind) -> LinkError {
    LinkError::Refused { kind, message: format!("{kind:?}, says the test") }
}

/// An event that the register face got.
#[derive(Clone, Debug, PartialEq)]
enum Told {
    NonStall(Engine),
    Posted(EngineSet),
    Unsent,
    Stopped(ChannelStop<GuestChannel>),
    Fault(MmuFault),
    Lost(String),
}

#[derive(Default)]
struct FakeFace(Mutex<Vec<Told>>);

impl FakeFace {
    fn take(&self) -> Vec<Told> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    fn log(&self) -> MutexGuard<'_, Vec<Told>> {
        self.0.lock().unwrap()
    }
}

impl EngineEvents for FakeFace {
    fn monitor(&self, _size: Option<(u16, u16)>) {}

    fn non_stall(&self, engine: Engine) {
        self.log().push(Told::NonStall(engine));
    }

    fn message_delivered(&self, engines: EngineSet) {
        self.log().push(Told::Posted(engines));
    }

    fn unsent(&self) {
        self.log().push(Told::Unsent);
    }

    fn stopped(&self, stop: ChannelStop<GuestChannel>) {
        self.log().push(Told::Stopped(stop));
    }

    fn fault(&self, fault: MmuFault) {
        self.log().push(Told::Fault(fault));
    }

    fn preempted(&self, channel: GuestChannel) {
        panic!("the face is asked, and not told: {channel:?}");
    }

    fn patch_register(&self, _offset: u32, _value: u32) {
        panic!("contexts of guests are never loaded");
    }

    fn lost(&self, reason: &str) {
        self.log().push(Told::Lost(reason.to_owned()));
    }
}

/// A grant of two pieces.
fn grant() -> Grant {
    let piece =
        |name| SharedMemory { fd: create_memory_file(name, VRAM).unwrap(), offset: VRAM / 2, size: VRAM / 2 };
    Grant {
        vram: VRAM,
        channels: CHANNELS,
        spaces: SPACES,
        engines: EngineSet::all(),
        va_bits: 40,
        page_shifts: vec![12, 17],
        slow_vram_reads: false,
        texture_clusters: None,
        window: vec![piece(c"one"), piece(c"two")],
    }
}

struct Fixture {
    link: Arc<FakeLink>,
    face: Arc<FakeFace>,
    mediator: Mediator<FermiChannels>,
}

/// A vGPU whose driver has set up PFIFO.
fn fixture() -> Fixture {
    fixture_with(MediatorConfig::default())
}

fn fixture_with(config: MediatorConfig) -> Fixture {
    fixture_of(grant(), config)
}

fn fixture_of(grant: Grant, config: MediatorConfig) -> Fixture {
    let link = Arc::new(FakeLink::default());
    let face = Arc::new(FakeFace::default());
    let mediator = Mediator::new(link.clone(), grant, Fermi::default(), config).unwrap();
    mediator.connect_events(face.clone());
    mediator.set_fifo_state(FIFO_ON);
    Fixture { link, face, mediator }
}

const FIFO_ON: FifoState =
    FifoState { enabled: true, pbdma_mask: 7, ready: EngineSet::all(), large_pages_64k: false };

/// Where the test driver keeps things in its VRAM.
const INSTANCE: u64 = 0x1_0000;
const USERD: u64 = 0x2_0000;
const RUNLIST: u64 = 0x3_0000;
const DIRECTORY: u64 = 0x4_0000;
const SMALL_TABLE: u64 = 0x8_0000;
const GPFIFO: u64 = 0x10_0000;

impl Fixture {
    fn write_u32(&self, address: u64, value: u32) {
        self.mediator.write_memory(vram(address), &value.to_le_bytes()).unwrap();
    }

    fn write_u64(&self, address: u64, value: u64) {
        self.mediator.write_memory(vram(address), &value.to_le_bytes()).unwrap();
    }

    /// Writes an instance block as nouveau does: number `n`, USERD page `n`.
    fn write_instance(&self, n: u16) {
        let block = INSTANCE + u64::from(n) * 0x1000;
        let userd = USERD + u64::from(n) * 0x1000;
        self.write_u64(block + ramin::RAMFC_USERD_LO, userd);
        self.write_u32(block + ramin::RAMFC_SIGNATURE, ramin::SIGNATURE);
        self.write_u32(block + ramin::RAMFC_GP_BASE_LO, GPFIFO as u32);
        self.write_u32(block + ramin::RAMFC_GP_BASE_HI, 10 << 16);
        self.write_u64(block + ramin::PAGE_DIRECTORY_LO, DIRECTORY);
    }

    /// Maps page `page` of the first table through [`DIRECTORY`].
    fn write_pte(&self, page: u64, target: PhysicalAddress) {
        let pde = Pde { large: None, small: Some(vram(SMALL_TABLE)) };
        self.write_u64(DIRECTORY, pde.encode());
        let pte = Pte { target, read_only: false, privileged: false, kind: 0 };
        self.write_u64(SMALL_TABLE + page * 8, pte.encode());
    }

    fn bind(&self, n: u16) {
        self.mediator.bind_channel(GuestChannel(n), Some(vram(INSTANCE + u64::from(n) * 0x1000)));
    }

    fn commit(&self, channels: &[u32]) {
        for (index, channel) in (0u64..).zip(channels) {
            self.write_u32(RUNLIST + index * 8, *channel);
            self.write_u32(RUNLIST + index * 8 + 4, ramin::RUNLIST_ENTRY_CHANNEL);
        }
        self.mediator.commit_runlist(vram(RUNLIST), channels.len() as u32);
    }

    fn flush(&self) {
        self.mediator.flush_tlb(FlushScope { page_directory: vram(DIRECTORY), hub_only: false });
    }

    /// Binds and starts channel `n` and forgets the requests.
    fn start(&self, n: u16) {
        self.write_instance(n);
        self.bind(n);
        self.mediator.enable_channel(GuestChannel(n), true);
        self.link.take();
    }
}
