//! One VM that hangs its engine, and neighbours that copy beside it and note how long they stood still.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gpuvmk::addr::GuestChannel;
use gpuvmk::aggregator::ScrubPolicy;
use gpuvmk::aggregator::protocol::{Event, Hello, PROTOCOL_VERSION, Request, TenantLimits};
use gpuvmk::aggregator::{Config, Service, ServiceHandle, connect_in_process};
use gpuvmk::backend::GspBackend as _;
use gpuvmk::chip::channel_event::{ChannelStop, StopCause};
use gpuvmk::chip::gh100::methods::{CLASS_COPY, SUBCHANNEL_COPY, copy, host as hopper};
use gpuvmk::chip::gmmu::Gmmu;
use gpuvmk::chip::{Chip, EngineSet, Face};
use gpuvmk::gpu::register::RegisterDriver;
use gpuvmk::gpu::{GpuDriver, OwnershipLedger};
use gpuvmk::scheduler::HangLimits;
use gpuvmk::scheduler::policy::PolicyKind;
use gpuvmk::scheduler::share::Share;
use gpuvmk::softgpu::Preemption;
use gpuvmk::softgpu::executor::{Executor, ExecutorConfig};
use gpuvmk::softgpu::{SoftGpu, SoftGpuConfig};
use gpuvmk::vgpu::{GspChannels, Mediator, MediatorConfig};

use crate::gsp_driver::{self, GspDriver, Told, methods};
use crate::soft_host;
use crate::tenant::{self, Tenant, wait_until};

const MIB: u64 = 1 << 20;
const PARTITION: u64 = 64 * MIB;
/// A line of the endless copy, and how often: half a terabyte.
const LINE: u32 = 1 << 20;
const LINES: u32 = 0x7ffff;
/// What a GF100's tenant calls its graphics engine.
const GRAPHICS: u8 = 2;
/// Bytes of a neighbour's copy.
const COPY: u64 = 64 << 10;

/// What the hog does.
#[derive(Clone, Copy, Debug)]
pub enum Harm {
    /// One copy without an end.
    Endless,
    /// An acquire that nobody releases.
    Acquire,
}

/// A VM with one channel on the engine that all share.
enum Vm {
    Fermi(Box<Tenant>),
    Hopper(Box<GspDriver<Mediator<GspChannels>>>),
}

impl Vm {
    fn join(service: &ServiceHandle, chip: Chip, name: &str) -> Self {
        let hello = Hello {
            version: PROTOCOL_VERSION,
            name: name.to_owned(),
            chip: chip.into(),
            vram: PARTITION,
            channels: 8,
            share: Share::default(),
            limits: TenantLimits::default(),
        };
        let (link, grant) = connect_in_process(service, hello).unwrap();
        let mut vm = match chip.face {
            Face::Registers => Self::Fermi(Box::new(Tenant::new(link, &grant))),
            Face::Gsp => {
                let mediator = Mediator::new(link, grant, Gmmu::V3, MediatorConfig::default()).unwrap();
                Self::Hopper(Box::new(GspDriver::new(Arc::new(mediator))))
            }
        };
        vm.channel();
        vm
    }

    fn channel(&mut self) {
        match self {
            Self::Fermi(tenant) => {
                tenant.channel(0, GRAPHICS);
                tenant.list(&[0]);
            }
            Self::Hopper(driver) => driver.channel(0, EngineSet::COPY1),
        }
    }

    /// As a driver recovers: the channel goes, and a new one comes.
    fn renew(&mut self) {
        match self {
            Self::Fermi(tenant) => {
                tenant.link.request(&Request::DestroyChannel(GuestChannel(0)), None).unwrap();
            }
            Self::Hopper(driver) => driver.back.destroy_channel(GuestChannel(0)),
        }
        self.channel();
    }

    /// Copies and compares.
    fn work(&mut self, seed: u8) {
        match self {
            Self::Fermi(tenant) => {
                let data = tenant::pattern(seed, COPY);
                tenant.ram.write(0, &data).unwrap();
                tenant.copy(0, GRAPHICS, tenant::RAM_VA, tenant::VRAM_VA + tenant::DATA, COPY);
                tenant.finish(0);
                let mut back = vec![0; data.len()];
                tenant.window.read(tenant::DATA, &mut back).unwrap();
                assert!(back == data, "a neighbour's bytes differ");
            }
            Self::Hopper(driver) => {
                let data = gsp_driver::pattern(seed, COPY as usize);
                driver.ram.write(0, &data).unwrap();
                let to = gsp_driver::VRAM_VA + gsp_driver::DATA;
                driver.copy(0, gsp_driver::RAM_VA, to, COPY as u32);
                driver.finish(0);
                assert!(driver.read(gsp_driver::DATA, data.len()) == data, "a neighbour's bytes differ");
            }
        }
    }

    fn harm(&mut self, harm: Harm) {
        match (self, harm) {
            (Self::Fermi(tenant), Harm::Endless) => {
                let to = tenant::VRAM_VA + tenant::DATA;
                let line = u64::from(LINE);
                // GF100's copy engines end after half a gigabyte; M2MF does not. Without pitch, it is the
                // same line again and again.
                let mut words = tenant::copy_words(GRAPHICS, to, to + line, LINE, LINES);
                let pitches = words.len() - 6;
                words[pitches..pitches + 2].fill(0);
                tenant.submit(0, &words);
            }
            (Self::Fermi(tenant), Harm::Acquire) => tenant.acquire_for_ever(0),
            (Self::Hopper(driver), Harm::Endless) => {
                let to = gsp_driver::VRAM_VA + gsp_driver::DATA;
                let operands = [hi(to), lo(to), hi(to), lo(to + u64::from(LINE)), 0, 0, LINE, LINES];
                let words = [
                    methods(SUBCHANNEL_COPY, hopper::SET_OBJECT, &[CLASS_COPY.into()]),
                    methods(SUBCHANNEL_COPY, copy::OFFSET_IN_UPPER, &operands),
                    methods(SUBCHANNEL_COPY, copy::LAUNCH_DMA, &[0x386]),
                ];
                driver.submit(0, &words.concat());
            }
            (Self::Hopper(driver), Harm::Acquire) => {
                let at = gsp_driver::VRAM_VA + gsp_driver::DATA + MIB;
                let acquire = hopper::SEM_EXECUTE::OPERATION::ACQUIRE;
                driver.submit(0, &methods(0, hopper::SEM_ADDR_LO, &[lo(at), hi(at), 0xdead, 0, acquire]));
            }
        }
    }

    /// Waits until the driver is told of its hung channel.
    fn wait_told(&self) {
        match self {
            Self::Fermi(tenant) => loop {
                let event = tenant.next_event();
                if let Event::Stopped(ChannelStop { channel, cause: StopCause::Hang(_) }) = event {
                    assert_eq!(channel, GuestChannel(0));
                    return;
                }
                assert!(matches!(event, Event::NonStall(_)), "told something else: {event:?}");
            },
            Self::Hopper(driver) => {
                driver.wait_told(|told| matches!(told, Told::Stopped(GuestChannel(0))));
            }
        }
    }
}

/// How long the neighbours stood still, by hang: the longest of them.
#[derive(Debug, Default)]
pub struct Pauses(Vec<Duration>);

impl Pauses {
    pub fn longest(&self) -> Duration {
        self.0.iter().copied().max().unwrap_or_default()
    }

    /// The smallest that is not exceeded by so many of a hundred.
    pub fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let index = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
        sorted.get(index).copied().unwrap_or_default()
    }
}

/// What a neighbour notes.
#[derive(Default)]
struct Notes {
    copies: AtomicU64,
    longest: Mutex<Duration>,
}

/// A GPU, a hog, and neighbours at work.
pub struct Field {
    pub service: ServiceHandle,
    hog: Option<Vm>,
    neighbours: Vec<Arc<Notes>>,
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Field {
    pub fn new(chip: Chip, policy: PolicyKind, hang: HangLimits, neighbours: usize) -> Self {
        let config = Config { hang, ..soft_host::config(policy, ScrubPolicy::default()) };
        let (driver, ledger) = stubborn_gpu(chip);
        let service = Service::start(driver, Some(ledger), &config).unwrap();
        let hog = Some(Vm::join(&service, chip, "hog"));
        let over = Arc::new(AtomicBool::new(false));
        let (mut notes, mut threads) = (Vec::new(), Vec::new());
        for number in 0..neighbours {
            let vm = Vm::join(&service, chip, &format!("neighbour{number}"));
            let (note, over) = (Arc::<Notes>::default(), Arc::clone(&over));
            notes.push(Arc::clone(&note));
            threads.push(std::thread::spawn(move || neighbour(vm, &note, &over)));
        }
        let field = Self { service, hog, neighbours: notes, over, threads };
        field.all_copy();
        field
    }

    /// Waits until every neighbour has done some more work.
    fn all_copy(&self) {
        for notes in &self.neighbours {
            let before = notes.copies.load(Ordering::Relaxed);
            wait_until("a neighbour's copies", || notes.copies.load(Ordering::Relaxed) >= before + 2);
        }
    }

    fn reset_pauses(&self) {
        for notes in &self.neighbours {
            *notes.longest.lock().unwrap() = Duration::ZERO;
        }
    }

    fn longest(&self) -> Duration {
        self.neighbours.iter().map(|notes| *notes.longest.lock().unwrap()).max().unwrap_or_default()
    }

    /// Hangs so often, one after the other.
    pub fn hang(&mut self, harm: Harm, times: u32) -> Pauses {
        let mut pauses = Pauses::default();
        for turn in 0..times {
            let mut hog = self.hog.take().unwrap();
            self.reset_pauses();
            hog.harm(harm);
            hog.wait_told();
            self.all_copy();
            pauses.0.push(self.longest());
            hog.renew();
            hog.work(turn as u8);
            self.hog = Some(hog);
        }
        pauses
    }

    /// The hog goes in the middle of it.
    pub fn abandon(&mut self, harm: Harm) -> Pauses {
        self.reset_pauses();
        let mut hog = self.hog.take().unwrap();
        hog.harm(harm);
        std::thread::sleep(Duration::from_millis(20));
        drop(hog);
        let gone = || self.service.status().unwrap().tenants.iter().all(|tenant| tenant.name != "hog");
        wait_until("the hog's end", gone);
        self.all_copy();
        Pauses(vec![self.longest()])
    }
}

impl Drop for Field {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "a neighbour failed");
        }
    }
}

fn neighbour(mut vm: Vm, notes: &Notes, over: &AtomicBool) {
    let mut last = Instant::now();
    while !over.load(Ordering::Relaxed) {
        let turn = notes.copies.load(Ordering::Relaxed);
        vm.work(turn as u8);
        let pause = last.elapsed();
        last = Instant::now();
        let mut longest = notes.longest.lock().unwrap();
        *longest = pause.max(*longest);
        drop(longest);
        notes.copies.store(turn + 1, Ordering::Relaxed);
    }
}

/// A software GPU whose engines let go of work between methods only.
fn stubborn_gpu(chip: Chip) -> (Box<dyn GpuDriver>, Arc<dyn OwnershipLedger>) {
    let (vram, preemption) = (512 * MIB, Preemption::Methods);
    match chip.face {
        Face::Registers => {
            let gpu = SoftGpu::new(SoftGpuConfig { vram, preemption, ..SoftGpuConfig::default() }).unwrap();
            let ledger = gpu.ledger();
            (Box::new(RegisterDriver::new(gpu).unwrap()), ledger)
        }
        Face::Gsp => {
            let gpu = Executor::new(ExecutorConfig { vram, ..ExecutorConfig::default() })
                .unwrap()
                .with_preemption(preemption);
            let ledger = gpu.ledger();
            (Box::new(gpu), ledger)
        }
    }
}

fn hi(address: u64) -> u32 {
    (address >> 32) as u32
}

fn lo(address: u64) -> u32 {
    address as u32
}
