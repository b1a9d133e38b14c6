//! The driver against the software GPU: bring-up, tables, channels, events.

use std::sync::Arc;

use std::os::fd::AsFd;

use super::*;
use crate::{GpuDriverExt as _, HostRange, HostTarget};
use gpuvmk_chip::Chip;
use gpuvmk_chip::addr::{GpuVa, HostChannel};
use gpuvmk_pci::PciFunction;
use gpuvmk_pci::mapping::{Access, Mapping};
use gpuvmk_softgpu::Core;
use gpuvmk_units::gf100::{Gf100Config, Gf100Function};

const VRAM: u64 = 128 << 20;

fn driver() -> RegisterDriver {
    let core = Core::new(VRAM).expect("memory");
    let gpu = Gf100Function::new(Arc::new(core), Gf100Config::default()).expect("a function");
    RegisterDriver::new(Arc::new(gpu)).expect("brought up")
}

fn vram_page(va: u64, pages: u32, at: HostVram) -> HostMapping {
    let (page_shift, read_only, kind) = (12, false, 0);
    HostMapping { va: GpuVa(va), pages, page_shift, target: HostTarget::Vram(at), read_only, kind }
}

#[test]
fn bring_up_reports_what_tenants_can_have() {
    let driver = driver();
    let info = driver.info();
    assert_eq!(info.chip, Chip::GF100);
    assert_eq!(info.partition_granule, 16 << 20);
    assert_eq!(info.tenant_vram.0, 16 << 20);
    assert_eq!(info.tenant_vram_size, VRAM - (16 << 20));
    assert_eq!(info.engines, EngineSet::GRAPHICS | EngineSet::COPY0 | EngineSet::COPY1);
}

#[test]
fn shared_partition_is_the_vram_and_scrubbing_zeroes_it() {
    let mut driver = driver();
    let start = driver.info().tenant_vram;
    let shared = driver.share_vram(start, 32 << 20).expect("shared");
    let total: u64 = shared.iter().map(|piece| piece.size).sum();
    assert_eq!(total, 32 << 20);
    let pieces: Vec<_> = shared
        .iter()
        .map(|p| gpuvmk_pci::mapping::FilePiece { fd: p.fd.as_fd(), offset: p.offset, size: p.size })
        .collect();
    let window = Mapping::contiguous(&pieces, Access::ReadWrite).expect("mapped");
    window.write(0x1234, b"secret").expect("inside");

    window.write(0x10_1234, b"keep").expect("inside");
    driver.scrub_vram(start, 1 << 20).expect("scrubbed");

    let mut kept = [0; 4];
    window.read(0x10_1234, &mut kept).expect("inside");
    assert_eq!(&kept, b"keep", "a part of a granule is scrubbed alone");
    let mut seen = [0xff; 6];
    window.read(0x1234, &mut seen).expect("inside");
    assert_eq!(seen, [0; 6]);
    assert!(driver.scrub_vram(HostVram(0), 1 << 20).is_err(), "the host's own memory is not for tenants");
}

#[test]
fn space_counts_pages_and_tables_and_gives_them_back() {
    let mut driver = driver();
    let before = driver.memory.free_bytes();
    let space = driver.create_space().expect("a space");
    let target = driver.info().tenant_vram;
    let empty = driver.space_usage(space).expect("known");

    // Crosses a border of directory entries.
    let run = vram_page((128 << 20) - 0x4000, 8, target);
    driver.update_space(space, &[], &[run], u64::MAX).expect("mapped");

    let full = driver.space_usage(space).expect("known");
    assert_eq!((empty.pages, full.pages), (0, 8));
    assert_eq!(full.table_bytes - empty.table_bytes, 2 * (256 << 10));
    let range = HostRange { va: GpuVa((128 << 20) - 0x4000), pages: 3, page_shift: 12 };
    driver.update_space(space, &[range], &[], u64::MAX).expect("unmapped");
    assert_eq!(driver.space_usage(space).expect("known").pages, 5);
    driver.clear_space(space).expect("cleared");
    assert_eq!(driver.space_usage(space).expect("known").pages, 0);
    driver.destroy_space(space).expect("destroyed");
    assert_eq!(driver.memory.free_bytes(), before);
}

#[test]
fn table_budget_is_kept() {
    let mut driver = driver();
    let space = driver.create_space().expect("a space");
    let budget = driver.space_usage(space).expect("known").table_bytes + (256 << 10);
    let target = driver.info().tenant_vram;
    driver.update_space(space, &[], &[vram_page(0, 1, target)], budget).expect("one table fits");
    let second = driver.update_space(space, &[], &[vram_page(128 << 20, 1, target)], budget);
    assert!(matches!(second, Err(GpuError::Exhausted { .. })), "{second:?}");
}

#[test]
fn revoked_system_memory_leaves_other_pages() {
    let mut driver = driver();
    let space = driver.create_space().expect("a space");
    let system = |iova| HostTarget::System { iova: Iova(iova), coherent: true };
    let base = driver.info().first_iova.0;
    let maps = [
        HostMapping { target: system(base), ..vram_page(0, 4, HostVram(0)) },
        vram_page(0x10_0000, 4, driver.info().tenant_vram),
    ];
    driver.update_space(space, &[], &maps, u64::MAX).expect("mapped");
    assert_eq!(driver.revoke_system(space, Iova(base + 0x1000), 0x2000).expect("known"), 2);
    assert_eq!(driver.space_usage(space).expect("known").pages, 6);
}

#[test]
fn channels_run_out_cleanly_and_their_memory_comes_back() {
    let mut driver = driver();
    let space = driver.create_space().expect("a space");
    let before = driver.memory.free_bytes();
    let spec = ChannelSpec {
        context_of: None,
        space,
        gpfifo: GpuVa(0x10_0000),
        gpfifo_entries_log2: 10,
        userd: driver.info().tenant_vram,
        engines: EngineSet::all(),
    };
    let mut made = Vec::new();
    let refused = loop {
        match driver.create_channel(spec) {
            Ok(channel) => made.push(channel),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, GpuError::Exhausted { what: "channels", .. }), "{refused}");
    assert_eq!(made.len(), usize::from(driver.info().channels));
    assert!(driver.destroy_space(space).is_err(), "channels still use it");
    driver.commit_runlist(&made).expect("committed");
    for channel in made {
        driver.destroy_channel(channel).expect("destroyed");
    }
    assert_eq!(driver.memory.free_bytes(), before);
    assert!(driver.doorbell(HostChannel(5)).is_err());
}

#[test]
fn preemption_of_an_idle_channel_is_reported() {
    let mut driver = driver();
    let space = driver.create_space().expect("a space");
    let spec = ChannelSpec {
        context_of: None,
        space,
        gpfifo: GpuVa(0x10_0000),
        gpfifo_entries_log2: 10,
        userd: driver.info().tenant_vram,
        engines: EngineSet::GRAPHICS,
    };
    let channel = driver.create_channel(spec).expect("created");
    driver.preempt_channel(channel).expect("started");
    let mut events = Vec::new();
    for _ in 0..1000 {
        driver.take_events(&mut events);
        if !events.is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(events, [GpuEvent::Preempted(channel)]);
}

#[test]
fn foreign_chip_is_refused_by_name() {
    struct Other;
    impl PciFunction for Other {
        fn regions(&self) -> gpuvmk_pci::RegionTable {
            [gpuvmk_pci::RegionInfo::ABSENT; 8]
        }
        fn read(
            &self,
            _: gpuvmk_pci::Region,
            _: u64,
            data: &mut [u8],
        ) -> Result<(), gpuvmk_pci::AccessError> {
            data.copy_from_slice(&0x1180_00a1u32.to_le_bytes()[..data.len()]);
            Ok(())
        }
        fn write(&self, _: gpuvmk_pci::Region, _: u64, _: &[u8]) -> Result<(), gpuvmk_pci::AccessError> {
            panic!("an unknown chip must not be written to")
        }
        fn dma_map(&self, _: DmaMapping) -> Result<(), gpuvmk_pci::DmaError> {
            Ok(())
        }
        fn dma_unmap(&self, _: u64, _: u64) -> Result<(), gpuvmk_pci::DmaError> {
            Ok(())
        }
        fn dma_unmap_all(&self) {}
        fn connect_interrupts(&self, _: Option<Arc<dyn gpuvmk_pci::InterruptSink>>) {}
        fn reset(&self) {}
        fn most_dma_ranges(&self) -> usize {
            1
        }
        fn client_gone(&self) {}
        fn card_use(&self) -> Option<CardUse> {
            None
        }
        fn direct_map(&self) -> Option<&dyn gpuvmk_pci::DirectMap> {
            None
        }
        fn message_owner(&self) -> Option<&dyn gpuvmk_pci::MessageOwner> {
            None
        }

        fn queue_events(&self) -> Option<&dyn gpuvmk_pci::QueueEvents> {
            None
        }
        fn shared_regions(&self) -> Option<&dyn gpuvmk_pci::SharedRegions> {
            None
        }
    }
    let error = RegisterDriver::new(Arc::new(Other)).expect_err("refused");
    assert!(error.to_string().contains("GF100"), "{error}");
}

#[test]
fn engines_that_had_nothing_to_do_have_worked_for_no_time() {
    let mut driver = driver();
    std::thread::sleep(Duration::from_millis(2));

    let rest = [Engine::Graphics, Engine::COPY0, Engine::COPY1].map(|engine| (engine, Duration::ZERO));
    assert_eq!(driver.engine_times(), rest);
}

/// A channel whose ring is nowhere: it stops with a fault as soon as it is rung.
fn faulting(driver: &mut RegisterDriver, window: &Mapping, userd: u64) -> HostChannel {
    let space = driver.create_space().expect("a space");
    let base = driver.info().tenant_vram;
    window.write_u32(userd + USERD_GP_PUT, 1).expect("inside");
    let spec = ChannelSpec {
        context_of: None,
        space,
        gpfifo: GpuVa(0x10_0000),
        gpfifo_entries_log2: 10,
        userd: HostVram(base.0 + userd),
        engines: EngineSet::COPY0,
    };
    driver.create_channel(spec).expect("created")
}

fn wait_for_interrupt(driver: &RegisterDriver) {
    let fd = rustix::event::PollFd::from_borrowed_fd(driver.event_fd(), rustix::event::PollFlags::IN);
    let most = rustix::event::Timespec { tv_sec: 20, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut [fd], Some(&most)), Ok(1), "no interrupt");
}

#[test]
fn what_stopped_a_channel_is_not_told_of_the_next_with_its_number() {
    let mut driver = driver();
    let base = driver.info().tenant_vram;
    let shared = driver.share_vram(base, driver.info().partition_granule).expect("shared");
    let bank = shared.first().expect("a bank");
    let window =
        Mapping::of_file(bank.fd.as_fd(), bank.offset, bank.size, Access::ReadWrite).expect("mapped");
    let run = |driver: &mut RegisterDriver, channels: &[HostChannel], rung: HostChannel| {
        driver.enable_channel(rung, true).expect("known");
        driver.commit_runlist(channels).expect("committed");
        driver.doorbell(rung).expect("rung");
        wait_for_interrupt(driver);
        std::thread::sleep(Duration::from_millis(20));
    };
    let first = faulting(&mut driver, &window, 0);
    run(&mut driver, &[first], first);

    driver.destroy_channel(first).expect("destroyed");
    let second = faulting(&mut driver, &window, 0x1000);
    assert_eq!(first, second);
    let mut events = Vec::new();
    driver.take_events(&mut events);
    assert!(events.iter().all(|event| event.channel() != Some(second)), "{events:?}");

    // What is known of others then is kept, and told.
    run(&mut driver, &[second], second);
    let third = faulting(&mut driver, &window, 0x2000);
    driver.destroy_channel(third).expect("destroyed");
    wait_for_interrupt(&driver);
    driver.take_events(&mut events);
    assert!(events.iter().any(|event| event.channel() == Some(second)), "{events:?}");
}
