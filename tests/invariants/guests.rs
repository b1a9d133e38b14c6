//! The same for guests of a GH100: page tables, channels and doorbells as a driver's firmware calls have
//! them, by several guests at once, some of which rewrite their page tables while they are read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gpuvmk::addr::GpuVa;
use gpuvmk::aggregator::ScrubPolicy;
use gpuvmk::aggregator::protocol::{Hello, PROTOCOL_VERSION, TenantLimits};
use gpuvmk::aggregator::{ServiceHandle, connect_in_process};
use gpuvmk::backend::{Backend, GspBackend, GspChannel};
use gpuvmk::chip::addr::GuestChannel;
use gpuvmk::chip::gmmu::{Gmmu, Pte};
use gpuvmk::chip::{Aperture, Chip, Engine, EngineSet, PhysicalAddress};
use gpuvmk::scheduler::policy::PolicyKind;
use gpuvmk::scheduler::share::Share;
use gpuvmk::vgpu::{GspChannels, Mediator, MediatorConfig, State};
use proptest::prelude::*;

use crate::gsp_driver::{DATA, GspDriver, RAM, RAM_BYTES, RAM_VA, Tables, VRAM_VA};
use crate::soft_host::soft_host;
use crate::{cases, foreign};

const VRAM: u64 = 32 << 20;
const GUESTS: usize = 3;

type Driver = GspDriver<Mediator<GspChannels>>;

/// One thing that a guest does.
#[derive(Clone, Debug)]
enum Op {
    /// A page-table entry, of the page of system memory with this number.
    Page(u64, PhysicalAddress),
    /// Any word anywhere in the tables.
    Word(u64, u64),
    Flush,
    Create(u16, GspChannel),
    Object(u16, u32, Engine),
    Schedule(u16, bool),
    Destroy(u16),
    Ring(u16, u32),
    Copy(u16, u64, u64),
    Words(u16, Vec<u32>),
    Reset,
}

fn address() -> impl Strategy<Value = PhysicalAddress> {
    let apertures =
        prop_oneof![Just(Aperture::Vram), Just(Aperture::SystemCoherent), Just(Aperture::SystemNonCoherent)];
    let addresses = prop_oneof![
        (0..VRAM / 0x1000).prop_map(|page| page << 12),
        (0u64..4).prop_map(|page| VRAM - 0x2000 + page * 0x1000),
        (1u64..6).prop_map(|count| count * VRAM + DATA),
        (0u64..4).prop_map(|page| RAM + RAM_BYTES - 0x2000 + page * 0x1000),
        (0u64..1 << 40).prop_map(|page| page << 12),
    ];
    (apertures, addresses).prop_map(|(aperture, address)| PhysicalAddress { aperture, address })
}

/// Few pages, so that what is mapped is what is used.
fn page() -> impl Strategy<Value = u64> {
    RAM_BYTES / 0x2000..RAM_BYTES / 0x2000 + 6
}

fn operand() -> impl Strategy<Value = u64> {
    prop_oneof![4 => page().prop_map(|page| RAM_VA + page * 0x1000), 2 => Just(VRAM_VA + DATA), 1 => va()]
}

fn va() -> impl Strategy<Value = u64> {
    prop_oneof![
        (0..VRAM / 0x1000).prop_map(|page| VRAM_VA + page * 0x1000),
        (0..RAM_BYTES / 0x1000).prop_map(|page| RAM_VA + page * 0x1000),
        any::<u64>(),
    ]
}

/// Of the copy engines that there are, and one more.
fn copy_engine() -> impl Strategy<Value = Engine> {
    prop::sample::select(vec![Engine::COPY0, Engine::COPY1, Engine::COPY2, Engine::COPY3])
}

fn channel() -> impl Strategy<Value = GspChannel> {
    let engines = prop_oneof![
        Just(EngineSet::GRAPHICS | EngineSet::COPY0),
        Just(EngineSet::COPY1),
        Just(EngineSet::COPY2),
        Just(EngineSet::all()),
    ];
    let directory = prop_oneof![
        3 => Just(PhysicalAddress { aperture: Aperture::Vram, address: Tables::ROOT }),
        1 => address(),
    ];
    let userd = prop_oneof![Just(4u64 << 20), Just(VRAM - 0x200), Just(VRAM), any::<u64>()];
    (directory, va(), 0u8..24, userd, engines).prop_map(
        |(page_directory, gpfifo, gpfifo_entries_log2, userd, engines)| GspChannel {
            context_of: None,
            page_directory,
            gpfifo: GpuVa(gpfifo),
            gpfifo_entries_log2,
            userd,
            engines,
        },
    )
}

fn op() -> impl Strategy<Value = Op> {
    let slot = || 0u16..6;
    prop_oneof![
        6 => (page(), address()).prop_map(|(page, target)| Op::Page(page, target)),
        2 => (0u64..0x8000, any::<u64>()).prop_map(|(word, value)| Op::Word(Tables::ROOT + word * 8, value)),
        4 => Just(Op::Flush),
        2 => (slot(), channel()).prop_map(|(slot, channel)| Op::Create(slot, channel)),
        1 => (slot(), any::<u32>(), copy_engine()).prop_map(|(slot, class, engine)| Op::Object(slot, class, engine)),
        1 => (slot(), any::<bool>()).prop_map(|(slot, on)| Op::Schedule(slot, on)),
        1 => slot().prop_map(Op::Destroy),
        1 => (any::<u16>(), any::<u32>()).prop_map(|(slot, put)| Op::Ring(slot, put)),
        6 => (0u16..2, operand(), operand()).prop_map(|(slot, from, to)| Op::Copy(slot, from, to)),
        2 => (0u16..2, prop::collection::vec(any::<u32>(), 1..40)).prop_map(|(slot, words)| Op::Words(slot, words)),
        1 => Just(Op::Reset),
    ]
}

impl Op {
    /// Does it, whatever the answer.
    fn apply(&self, driver: &mut Driver) {
        match self {
            Self::Page(page, target) => {
                let back = Arc::clone(&driver.back);
                // Tables that were overwritten lead anywhere; the guest writes where it knows them to be.
                driver.tables.map_again(&*back, RAM_VA + page * 0x1000, 12, *target);
            }
            Self::Word(at, value) => driver.write(*at, &value.to_le_bytes()),
            Self::Flush => driver.flush(),
            Self::Create(slot, channel) => {
                let _ = driver.back.create_channel(GuestChannel(*slot), *channel);
            }
            Self::Object(slot, class, engine) => {
                let _ = driver.back.create_object(GuestChannel(*slot), *class, *engine);
            }
            Self::Schedule(slot, on) => {
                let _ = driver.back.schedule_channel(GuestChannel(*slot), *on);
            }
            Self::Destroy(slot) => driver.back.destroy_channel(GuestChannel(*slot)),
            Self::Ring(slot, put) => driver.back.doorbell(GuestChannel(*slot), *put),
            Self::Copy(slot, from, to) => {
                // A channel that has faulted works again.
                let engines = [EngineSet::COPY1, EngineSet::GRAPHICS | EngineSet::COPY0][usize::from(*slot)];
                driver.back.destroy_channel(GuestChannel(*slot));
                if driver.try_channel(*slot, engines).is_ok() {
                    driver.copy(*slot, *from, *to, 0x2000);
                    driver.finishes_within(*slot, Duration::from_millis(1));
                }
            }
            Self::Words(slot, words) => driver.submit(*slot, words),
            Self::Reset => {
                driver.back.reset();
                driver.map_everything();
            }
        }
    }
}

fn service() -> ServiceHandle {
    soft_host(Chip::GH100, 256 << 20, PolicyKind::BestEffort, ScrubPolicy::default())
}

fn guest(service: &ServiceHandle, name: &str) -> Driver {
    let hello = Hello {
        version: PROTOCOL_VERSION,
        name: name.to_owned(),
        chip: Chip::GH100.into(),
        vram: VRAM,
        channels: 8,
        share: Share::default(),
        limits: TenantLimits::default(),
    };
    let (link, grant) = connect_in_process(service, hello).unwrap();
    let mut driver =
        GspDriver::new(Arc::new(Mediator::new(link, grant, Gmmu::V3, MediatorConfig::default()).unwrap()));
    driver.channel(0, EngineSet::COPY1);
    driver.channel(1, EngineSet::GRAPHICS | EngineSet::COPY0);
    driver
}

/// The worker's bytes go to VRAM and come back.
fn work(driver: &mut Driver, seed: u8) {
    let data = crate::gsp_driver::pattern(seed, 0x4000);
    driver.ram.write(0, &data).unwrap();
    driver.copy(0, RAM_VA, VRAM_VA + DATA, 0x4000);
    driver.copy(0, VRAM_VA + DATA, RAM_VA + 0x8000, 0x4000);
    driver.finish(0);
    let mut back = vec![0; 0x4000];
    driver.ram.read(0x8000, &mut back).unwrap();
    assert!(back == data, "the worker's data came back changed");
}

/// Writes one page-table entry to and fro until told to stop: own memory, a neighbour's.
fn scribble(back: &Mediator<GspChannels>, entry: u64, stop: &AtomicBool) {
    let pte = |address| {
        let target = PhysicalAddress { aperture: Aperture::Vram, address };
        let page = Pte { target, read_only: false, privileged: false, kind: 6 };
        Gmmu::V3.encode_page(page).to_le_bytes()
    };
    let values = [pte(DATA), pte(VRAM), pte(2 * VRAM + DATA), pte(DATA + 0x1000)];
    let at = PhysicalAddress { aperture: Aperture::Vram, address: entry };
    for value in values.iter().cycle() {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        back.write_memory(at, value).unwrap();
    }
}

proptest! {
    #![proptest_config(cases())]

    /// 1. and 2. for guests: several at once do what they like, one works, no access leaves its guest.
    #[test]
    fn guests_reach_nothing_of_each_other(
        scripts in prop::collection::vec(prop::collection::vec(op(), 1..40), GUESTS),
    ) {
        let service = service();
        let mut worker = guest(&service, "worker");
        let mut guests: Vec<Driver> =
            (0..GUESTS).map(|number| guest(&service, &format!("guest-{number}"))).collect();
        std::thread::scope(|scope| {
            for (driver, script) in guests.iter_mut().zip(&scripts) {
                scope.spawn(move || script.iter().for_each(|op| op.apply(driver)));
            }
            (0..5).for_each(|seed| work(&mut worker, seed));
        });
        work(&mut worker, 9);
        prop_assert_eq!(foreign(&service), 0);
        for driver in &mut guests {
            driver.back.reset();
            prop_assert_eq!(driver.back.status().state, State::Running);
        }
        prop_assert_eq!(foreign(&service), 0);
    }

    /// 2. Nothing that the guest can rewrite is used after it was checked.
    #[test]
    fn page_tables_rewritten_while_they_are_read_lead_nowhere_else(
        page in 0..RAM_BYTES / 0x1000, rounds in 5u16..30,
    ) {
        let service = service();
        let mut worker = guest(&service, "worker");
        let mut driver = guest(&service, "scribbler");
        let back = Arc::clone(&driver.back);
        let va = RAM_VA + page * 0x1000;
        let entry = driver.tables.entry_of(va);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| scribble(&back, entry, &stop));
            for round in 0..rounds {
                driver.flush();
                driver.copy(0, va, VRAM_VA + DATA + 0x10_0000, 0x1000);
                driver.copy(0, VRAM_VA + DATA + 0x10_0000, va, 0x1000);
                if round % 8 == 7 {
                    work(&mut worker, round as u8);
                    // A channel that has faulted on the way works again.
                    driver.back.destroy_channel(GuestChannel(0));
                    driver.channel(0, EngineSet::COPY1);
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        work(&mut worker, 7);
        prop_assert_eq!(foreign(&service), 0);
    }
}
