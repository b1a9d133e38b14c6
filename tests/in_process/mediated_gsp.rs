//! The mediated path of a GH100 end to end, in one process: a driver at the GspBackend seam over the
//! mediator, the aggregator's owner thread, the executor. Bytes move, channels stop and nobody else does, and
//! the executor, which knows the true owner of every page, sees no foreign access.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "a test that cannot go on panics"
)]

use std::sync::Arc;
use std::time::Duration;

use crate::gsp_driver::{DATA, GspDriver, RAM, RAM_VA, Told, VRAM_VA, methods, pattern, wait_until};
use crate::soft_host::soft_host;
use gpuvmk::aggregator::ScrubPolicy;
use gpuvmk::aggregator::protocol::{Hello, PROTOCOL_VERSION};
use gpuvmk::aggregator::{ServiceHandle, connect_in_process};
use gpuvmk::backend::{Backend, ChannelRefusal, GspBackend, GspChannel};
use gpuvmk::chip::addr::GuestChannel;
use gpuvmk::chip::gh100::methods::{CLASS_COMPUTE, host};
use gpuvmk::chip::gmmu::Gmmu;
use gpuvmk::chip::{Aperture, Chip, Engine, EngineSet, PhysicalAddress};
use gpuvmk::pci::{PciFunction, Region};
use gpuvmk::scheduler::policy::PolicyKind;
use gpuvmk::scheduler::share::Share;
use gpuvmk::vgpu::{GspChannels, LinkFactory, Mediator, MediatorConfig, State, Vgpu, VgpuConfig};
use gpuvmk_control_client::TenantStatus;

const VRAM: u64 = 64 << 20;
const GR: EngineSet = EngineSet::GRAPHICS.union(EngineSet::COPY0);
const ENGINES: [EngineSet; 3] = [GR, EngineSet::COPY1, EngineSet::COPY2];

type Driver = GspDriver<Mediator<GspChannels>>;

/// A physical GPU and its aggregator.
struct Host {
    service: Arc<ServiceHandle>,
}

fn hello(name: &str) -> Hello {
    Hello {
        version: PROTOCOL_VERSION,
        name: name.to_owned(),
        chip: Chip::GH100.into(),
        vram: VRAM,
        channels: 8,
        share: Share::default(),
        limits: gpuvmk::aggregator::protocol::TenantLimits::default(),
    }
}

impl Host {
    fn new(policy: PolicyKind) -> Self {
        Self { service: Arc::new(soft_host(Chip::GH100, 512 << 20, policy, ScrubPolicy::default())) }
    }

    fn mediator(&self, name: &str, format: Gmmu) -> Arc<Mediator<GspChannels>> {
        let (link, grant) = connect_in_process(&self.service, hello(name)).unwrap();
        Arc::new(Mediator::new(link, grant, format, MediatorConfig::default()).unwrap())
    }

    fn driver(&self, name: &str) -> Driver {
        GspDriver::new(self.mediator(name, Gmmu::V3))
    }

    fn tenant(&self, name: &str) -> TenantStatus {
        let status = self.service.status().unwrap();
        status.tenants.into_iter().find(|tenant| tenant.name == name).unwrap()
    }
}

/// Bytes of each copy of a round trip.
const SIZE: usize = 0x3_0000;

/// From system memory through VRAM in both sizes of large pages and back, on one channel.
fn round_trip(driver: &mut Driver, slot: u16, seed: u8) {
    let data = pattern(seed, SIZE);
    let place = u64::from(slot) * 0x10_0000;
    let (source, back) = (place, place + 0x8_0000);
    driver.ram.write(source, &data).unwrap();
    driver.ram.fill(back, SIZE as u64, 0).unwrap();

    driver.copy(slot, RAM_VA + source, VRAM_VA + DATA + place, SIZE as u32);
    driver.copy(slot, driver.big_va() + DATA + place, VRAM_VA + DATA + place + 0x8_0000, SIZE as u32);
    driver.copy(slot, driver.big_va() + DATA + place + 0x8_0000, RAM_VA + back, SIZE as u32);
    driver.finish(slot);

    assert!(driver.read(DATA + place, SIZE) == data, "VRAM differs");
    let mut copied = vec![0; SIZE];
    driver.ram.read(back, &mut copied).unwrap();
    assert!(copied == data, "system memory differs");
}

fn unharmed(host: &Host, driver: &Driver, name: &str) {
    assert_eq!(driver.back.status().state, State::Running);
    assert_eq!(host.tenant(name).foreign_accesses, Some(0));
}

#[test]
fn copies_on_every_engine_move_the_bytes_and_are_told() {
    Gmmu::ALL.into_iter().for_each(copies_with_tables);
}

fn copies_with_tables(format: Gmmu) {
    let host = Host::new(PolicyKind::Fifo);
    let mut driver = GspDriver::with_tables(host.mediator("one", format), format);
    for (slot, engines) in (0..).zip(ENGINES) {
        driver.channel(slot, engines);
        round_trip(&mut driver, slot, slot as u8);
    }
    driver.wait_told(|told| *told == Told::NonStall(Engine::COPY2));
    let counts = driver.back.status().counts;
    assert_eq!((counts.doorbells, counts.pages_withheld, counts.refused_to_guest), (9, 0, 0));
    // Three copies on each.
    let tenant = host.tenant("one");
    for name in ["copy0", "copy1", "copy2"] {
        let account = tenant.engines.iter().find(|account| account.engine == name).unwrap();
        assert_eq!(account.copied_bytes, 3 * SIZE as u64, "{name}");
    }
    assert_eq!((tenant.copied_bytes, tenant.unread_entries), (9 * SIZE as u64, 0));
    unharmed(&host, &driver, "one");
}

#[test]
fn fault_stops_its_channel_and_no_other_and_the_slot_can_be_used_again() {
    let host = Host::new(PolicyKind::Fifo);
    let mut driver = host.driver("one");
    driver.channel(3, EngineSet::COPY1);
    driver.channel(4, EngineSet::COPY1);

    driver.copy(3, 0xdead_0000_0000, VRAM_VA + DATA, 0x1000);

    let told = driver.wait_told(|told| matches!(told, Told::Fault(..) | Told::Stopped(_)));
    let Some(Told::Fault(channel, fault)) = told.iter().find(|told| matches!(told, Told::Fault(..))) else {
        panic!("{told:?}")
    };
    assert_eq!((*channel, fault.address.0 >> 12), (GuestChannel(3), 0xdead_0000_0000 >> 12));
    assert!(!driver.done(3));
    round_trip(&mut driver, 4, 7);

    driver.back.destroy_channel(GuestChannel(3));
    driver.channel(3, EngineSet::COPY1);
    round_trip(&mut driver, 3, 9);
    unharmed(&host, &driver, "one");
}

#[test]
fn what_engines_reach_changes_with_the_flush() {
    let host = Host::new(PolicyKind::Fifo);
    let mut driver = host.driver("one");
    driver.channel(0, EngineSet::COPY2);
    driver.write(DATA, &pattern(1, 0x1000));
    driver.write(DATA + 0x1000, &pattern(2, 0x1000));
    let page = RAM_VA + 0x7f_0000;
    let target = |address| PhysicalAddress { aperture: Aperture::Vram, address };

    driver.tables.map(&*driver.back, page, 12, target(DATA));
    driver.flush();
    driver.copy(0, page, RAM_VA, 0x1000);
    driver.finish(0);
    assert_eq!(driver.ram.read_u32(0).unwrap().to_le_bytes(), pattern(1, 4)[..]);

    driver.tables.map(&*driver.back, page, 12, target(DATA + 0x1000));
    driver.copy(0, page, RAM_VA, 0x1000);
    driver.finish(0);
    assert_eq!(driver.ram.read_u32(0).unwrap().to_le_bytes(), pattern(1, 4)[..], "before the flush");

    driver.flush();
    driver.copy(0, page, RAM_VA, 0x1000);
    driver.finish(0);
    assert_eq!(driver.ram.read_u32(0).unwrap().to_le_bytes(), pattern(2, 4)[..]);

    // A large page in place of what was there in two other sizes.
    let place = VRAM_VA + DATA;
    driver.tables.unmap(&*driver.back, place, 21);
    driver.tables.map(&*driver.back, place, 21, target(DATA + 0x20_0000));
    driver.write(DATA + 0x20_0000, &pattern(3, 0x1000));
    driver.flush();
    driver.copy(0, place, RAM_VA, 0x1000);
    driver.finish(0);
    assert_eq!(driver.ram.read_u32(0).unwrap().to_le_bytes(), pattern(3, 4)[..]);
    unharmed(&host, &driver, "one");
}

#[test]
fn memory_that_goes_is_a_fault() {
    let host = Host::new(PolicyKind::Fifo);
    let mut driver = host.driver("one");
    driver.channel(0, EngineSet::COPY1);
    round_trip(&mut driver, 0, 5);

    driver.back.dma_unmap_all();
    driver.copy(0, RAM_VA, VRAM_VA + DATA, 0x1000);

    driver.wait_told(|told| matches!(told, Told::Fault(GuestChannel(0), _)));
    unharmed(&host, &driver, "one");
}

#[test]
fn channel_runs_only_while_it_is_scheduled() {
    let host = Host::new(PolicyKind::Fifo);
    let mut driver = host.driver("one");
    driver.channel(0, EngineSet::COPY1);
    driver.back.schedule_channel(GuestChannel(0), false).unwrap();
    driver.copy(0, VRAM_VA + DATA, VRAM_VA + DATA + 0x1000, 0x1000);
    std::thread::sleep(Duration::from_millis(50));
    assert!(!driver.done(0));

    // What was rung for meanwhile is made up for.
    driver.back.schedule_channel(GuestChannel(0), true).unwrap();
    driver.finish(0);
}

#[test]
fn refusals_are_the_drivers_to_handle() {
    let host = Host::new(PolicyKind::Fifo);
    let mut driver = host.driver("one");
    driver.channel(0, GR);
    assert_eq!(
        driver.back.create_object(GuestChannel(0), 0x9039, Engine::Graphics),
        Err(ChannelRefusal::Unsupported)
    );
    driver.back.create_object(GuestChannel(0), CLASS_COMPUTE.into(), Engine::Graphics).unwrap();
    let outside = GspChannel { userd: VRAM, ..Driver::wish(1, GR) };
    assert_eq!(driver.back.create_channel(GuestChannel(1), outside), Err(ChannelRefusal::Invalid));
    assert_eq!(
        driver.back.create_channel(GuestChannel(8), Driver::wish(1, GR)),
        Err(ChannelRefusal::Invalid)
    );
    round_trip(&mut driver, 0, 1);
    unharmed(&host, &driver, "one");
}

#[test]
fn reset_and_a_second_bring_up_work() {
    let host = Host::new(PolicyKind::Fifo);
    let mut driver = host.driver("one");
    for round in 0..3 {
        driver.channel(0, EngineSet::COPY1);
        driver.channel(1, GR);
        round_trip(&mut driver, 0, round);
        round_trip(&mut driver, 1, round);
        driver.back.reset();
        let status = driver.back.status();
        assert_eq!((status.channels_placed, status.spaces), (0, 0));
        driver.map_everything();
    }
    unharmed(&host, &driver, "one");
}

#[test]
fn two_vgpus_work_at_once_and_never_meet() {
    for policy in [PolicyKind::Fifo, PolicyKind::BestEffort] {
        let host = Host::new(policy);
        let mut drivers = ["one", "two"].map(|name| host.driver(name));
        std::thread::scope(|scope| {
            for (seed, driver) in (0..).zip(&mut drivers) {
                scope.spawn(move || {
                    for (slot, engines) in (0..).zip(ENGINES) {
                        driver.channel(slot, engines);
                    }
                    for round in 0..5 {
                        for slot in 0..3 {
                            round_trip(driver, slot, round * 16 + seed);
                        }
                    }
                });
            }
        });
        for (driver, name) in drivers.iter().zip(["one", "two"]) {
            unharmed(&host, driver, name);
        }
    }
}

#[test]
fn page_tables_of_one_vgpu_reach_nothing_of_the_other() {
    let host = Host::new(PolicyKind::Fifo);
    let (mut bad, good) = (host.driver("bad"), host.driver("good"));
    good.write(DATA, &pattern(0x5a, 0x1000));
    // Beyond its own VRAM, and system memory that was never announced.
    for (page, target) in [
        (RAM_VA + 0x7e_0000, PhysicalAddress { aperture: Aperture::Vram, address: VRAM + DATA }),
        (RAM_VA + 0x7f_0000, PhysicalAddress { aperture: Aperture::SystemCoherent, address: RAM * 2 }),
    ] {
        bad.tables.map(&*bad.back, page, 12, target);
        bad.channel(0, EngineSet::COPY1);
        bad.copy(0, page, VRAM_VA + DATA, 0x1000);
        bad.wait_told(|told| matches!(told, Told::Fault(..)));
        bad.back.destroy_channel(GuestChannel(0));
    }
    assert_eq!(bad.back.status().counts.pages_withheld, 3);
    unharmed(&host, &bad, "bad");
    unharmed(&host, &good, "good");
}

#[test]
fn command_that_hardware_does_not_know_stops_its_channel() {
    let host = Host::new(PolicyKind::Fifo);
    let mut driver = host.driver("one");
    driver.channel(0, EngineSet::COPY1);
    driver.submit(0, &methods(0, host::ILLEGAL, &[0]));
    driver.wait_told(|told| *told == Told::Stopped(GuestChannel(0)));
    unharmed(&host, &driver, "one");
}

#[test]
fn dead_aggregator_is_told_until_a_reset_finds_a_new_one() {
    let (first, second) = (Host::new(PolicyKind::Fifo), Host::new(PolicyKind::Fifo));
    let service = second.service.clone();
    let reconnect: LinkFactory = Box::new(move || connect_in_process(&service, hello("one")));
    let (link, grant) = connect_in_process(&first.service, hello("one")).unwrap();
    let config = MediatorConfig { reconnect: Some(reconnect), ..MediatorConfig::default() };
    let mut driver = GspDriver::new(Arc::new(Mediator::new(link, grant, Gmmu::V3, config).unwrap()));
    driver.channel(0, EngineSet::COPY1);

    first.service.stop();
    driver.wait_told(|told| *told == Told::Lost);
    assert_eq!(driver.back.create_channel(GuestChannel(1), Driver::wish(1, GR)), Err(ChannelRefusal::Lost));

    driver.back.reset();
    driver.map_everything();
    driver.channel(0, EngineSet::COPY1);
    round_trip(&mut driver, 0, 3);
    unharmed(&second, &driver, "one");
}

#[test]
fn vgpu_of_the_chip_shows_its_registers() {
    let host = Host::new(PolicyKind::Fifo);
    let (link, grant) = connect_in_process(&host.service, hello("one")).unwrap();
    let vgpu = Vgpu::new(link, grant, VgpuConfig::of(Chip::GH100).unwrap()).unwrap();
    let read = |offset| {
        let mut word = [0; 4];
        vgpu.read(Region::Bar(0), offset, &mut word).unwrap();
        u32::from_le_bytes(word)
    };
    // NV_PMC_BOOT_0, and the register that tells VRAM in MiB.
    assert_eq!((read(0), read(0x11_83a4)), (0x1800_00a1, 64));
    wait_until("a running vGPU", || vgpu.status().state == State::Running);
}
