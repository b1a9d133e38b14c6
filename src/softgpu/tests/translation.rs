//! Page tables, the TLB, and faults of each reason.

use super::commands::*;
use super::rig::*;
use gpuvmk_backend::{Backend, EngineBackend, FlushScope};
use gpuvmk_chip::addr::{GpuVa, GuestChannel};
use gpuvmk_chip::channel_event::FaultUnit;
use gpuvmk_chip::gf100::mmu::LargePages;
use gpuvmk_chip::gf100::ramin::{PAGE_DIRECTORY_LO, VA_LIMIT_LO};
use gpuvmk_chip::{AccessKind, Engine, FaultReason};

const SRC: u64 = 0x4000_0000;
const DST: u64 = 0x5000_0000;

/// A channel, and a page each at SRC and DST.
fn setup(rig: &Rig) -> (Space, Channel, u64, u64) {
    let mut space = rig.space();
    let channel = rig.channel(1, &mut space);
    let (from, to) = (rig.alloc(0x1000), rig.alloc(0x1000));
    rig.map(&mut space, SRC, vram(from), 0x1000);
    rig.map(&mut space, DST, vram(to), 0x1000);
    rig.write(from, &pattern(1, 0x1000));
    (space, channel, from, to)
}

#[test]
fn old_translation_is_used_until_flushed() {
    let rig = Rig::new();
    let (mut space, mut channel, _, old) = setup(&rig);
    let new = rig.alloc(0x1000);
    let copy = m2mf_copy(SRC, DST, 0x1000, 0x1000, 1);
    rig.run(&mut channel, &copy);
    rig.write(old, &[0; 0x1000]);

    rig.map(&mut space, DST, vram(new), 0x1000);
    rig.run(&mut channel, &copy);
    assert!(rig.read(old, 0x1000) == pattern(1, 0x1000));
    assert!(rig.read(new, 0x1000) == [0; 0x1000]);

    rig.flush(&space);
    rig.run(&mut channel, &copy);
    assert!(rig.read(new, 0x1000) == pattern(1, 0x1000));
}

#[test]
fn flush_of_another_directory_or_of_the_hub_leaves_engines_alone() {
    let rig = Rig::new();
    let (mut space, mut channel, _, _) = setup(&rig);
    let new = rig.alloc(0x1000);
    let copy = m2mf_copy(SRC, DST, 0x1000, 0x1000, 1);
    rig.run(&mut channel, &copy);

    rig.map(&mut space, DST, vram(new), 0x1000);
    rig.core.flush_tlb(FlushScope { page_directory: vram(space.directory + 0x1000), hub_only: false });
    rig.core.flush_tlb(FlushScope { page_directory: vram(space.directory), hub_only: true });
    rig.run(&mut channel, &copy);

    assert!(rig.read(new, 0x1000) == [0; 0x1000]);
}

#[test]
fn absence_is_not_remembered() {
    let rig = Rig::new();
    let (mut space, mut channel, _, _) = setup(&rig);
    rig.submit(&mut channel, &m2mf_copy(SRC, DST + 0x1000, 0x1000, 0x1000, 1));
    rig.events.wait_fault();
    let to = rig.alloc(0x1000);
    rig.map(&mut space, DST + 0x1000, vram(to), 0x1000);

    let mut second = rig.channel(2, &mut space);
    rig.run(&mut second, &m2mf_copy(SRC, DST + 0x1000, 0x1000, 0x1000, 1));

    assert!(rig.read(to, 0x1000) == pattern(1, 0x1000));
}

#[test]
fn large_pages_of_both_sizes_translate() {
    for (is_64k, large) in [(false, LargePages::K128), (true, LargePages::K64)] {
        let rig = Rig::new();
        rig.core.set_fifo_state(gpuvmk_backend::FifoState { large_pages_64k: is_64k, ..Rig::running() });
        let mut space = rig.space();
        // 64 KiB pages have a directory twice as large.
        space.directory = rig.alloc(16384 * 8);
        space.large = large;
        let mut channel = rig.channel(1, &mut space);
        let (from, to) = (rig.alloc(0x4_0000), rig.alloc(0x4_0000));
        rig.map_pages(&mut space, SRC, vram(from), 0x4_0000, large.page_shift(), PageFlags::default());
        rig.map_pages(&mut space, 0x7c00_0000, vram(to), 0x4_0000, large.page_shift(), PageFlags::default());
        let data = pattern(7, 0x4_0000);
        rig.write(from, &data);

        rig.run(&mut channel, &m2mf_copy(SRC, 0x7c00_0000, 0x1000, 0x1000, 64));

        assert!(rig.read(to, 0x4_0000) == data, "64k: {is_64k}");
    }
}

#[test]
fn small_page_wins_over_the_large_one() {
    let rig = Rig::new();
    let (mut space, mut channel, _, _) = setup(&rig);
    let (large, small) = (rig.alloc(0x2_0000), rig.alloc(0x1000));
    let va = 0x6000_0000;
    rig.map_pages(&mut space, va, vram(large), 0x2_0000, 17, PageFlags::default());
    rig.map(&mut space, va + 0x1000, vram(small), 0x1000);

    let words = [m2mf_copy(SRC, va + 0x1000, 16, 16, 1), m2mf_copy(SRC, va + 0x2000, 16, 16, 1)].concat();
    rig.run(&mut channel, &words);

    assert_eq!(rig.read(small, 16), pattern(1, 16));
    assert_eq!(rig.read(large + 0x1000, 16), [0; 16]);
    assert_eq!(rig.read(large + 0x2000, 16), pattern(1, 16));
}

/// Runs a copy of 16 bytes that must fault on the graphics engine.
fn faulting(rig: &Rig, channel: &mut Channel, from: u64, to: u64) -> (AccessKind, u64, FaultReason) {
    rig.submit(channel, &m2mf_copy(from, to, 16, 16, 1));
    let (channel, fault) = rig.events.wait_fault();
    assert_eq!((channel, fault.unit), (Some(GuestChannel(1)), FaultUnit::Engine(Engine::Graphics)));
    (fault.access, fault.address.0, fault.reason)
}

#[test]
fn no_table_is_page_table_not_present() {
    let rig = Rig::new();
    let (_space, mut channel, ..) = setup(&rig);
    let fault = faulting(&rig, &mut channel, 0x3f_0000_0000, DST);
    assert_eq!(fault, (AccessKind::Read, 0x3f_0000_0000, FaultReason::PageTableNotPresent));
}

#[test]
fn invalid_entry_is_page_not_present() {
    let rig = Rig::new();
    let (_space, mut channel, ..) = setup(&rig);
    let fault = faulting(&rig, &mut channel, SRC, DST + 0x1000);
    assert_eq!(fault, (AccessKind::Write, DST + 0x1000, FaultReason::PageNotPresent));
}

#[test]
fn write_to_read_only_page_faults_and_read_does_not() {
    let rig = Rig::new();
    let (mut space, mut channel, ..) = setup(&rig);
    let page = rig.alloc(0x1000);
    let flags = PageFlags { read_only: true, ..PageFlags::default() };
    rig.map_pages(&mut space, DST + 0x1000, vram(page), 0x1000, 12, flags);
    rig.run(&mut channel, &m2mf_copy(DST + 0x1000, DST, 16, 16, 1));
    let fault = faulting(&rig, &mut channel, SRC, DST + 0x1000);
    assert_eq!(fault, (AccessKind::Write, DST + 0x1000, FaultReason::WriteToReadOnly));
}

#[test]
fn privileged_page_faults() {
    let rig = Rig::new();
    let (mut space, mut channel, ..) = setup(&rig);
    let flags = PageFlags { privileged: true, ..PageFlags::default() };
    rig.map_pages(&mut space, SRC + 0x1000, vram(0), 0x1000, 12, flags);
    let fault = faulting(&rig, &mut channel, SRC + 0x1000, DST);
    assert_eq!(fault, (AccessKind::Read, SRC + 0x1000, FaultReason::PageSystemOnly));
}

#[test]
fn invalid_kind_faults() {
    let rig = Rig::new();
    let (mut space, mut channel, ..) = setup(&rig);
    let flags = PageFlags { kind: 0xff, ..PageFlags::default() };
    rig.map_pages(&mut space, SRC + 0x1000, vram(0), 0x1000, 12, flags);
    let fault = faulting(&rig, &mut channel, SRC + 0x1000, DST);
    assert_eq!(fault, (AccessKind::Read, SRC + 0x1000, FaultReason::CompressionFault));
}

#[test]
fn page_outside_memory_faults() {
    let rig = Rig::new();
    let (mut space, mut channel, ..) = setup(&rig);
    rig.map(&mut space, DST + 0x1000, vram(rig.core.vram_size()), 0x1000);
    let fault = faulting(&rig, &mut channel, SRC, DST + 0x1000);
    assert_eq!(fault, (AccessKind::Write, DST + 0x1000, FaultReason::UnsupportedAperture));
}

#[test]
fn bus_address_that_nobody_mapped_faults() {
    let rig = Rig::new();
    let (mut space, mut channel, ..) = setup(&rig);
    rig.map(&mut space, SRC + 0x1000, system(0x1234_5000), 0x1000);
    let fault = faulting(&rig, &mut channel, SRC + 0x1000, DST);
    assert_eq!(fault, (AccessKind::Read, SRC + 0x1000, FaultReason::UnsupportedAperture));
}

#[test]
fn address_above_the_limit_faults() {
    let rig = Rig::new();
    let (_space, mut channel, ..) = setup(&rig);
    rig.write_u64(channel.instance + VA_LIMIT_LO, DST + 0x7ff);
    rig.core.bind_channel(GuestChannel(1), Some(vram(channel.instance)));
    let fault = faulting(&rig, &mut channel, SRC, DST + 0x7f8);
    assert_eq!(fault, (AccessKind::Write, DST + 0x800, FaultReason::VmLimitExceeded));
}

#[test]
fn instance_without_directory_faults_in_the_host_unit() {
    let rig = Rig::new();
    let (_space, mut channel, ..) = setup(&rig);
    rig.write_u64(channel.instance + PAGE_DIRECTORY_LO, 1);
    rig.core.bind_channel(GuestChannel(1), Some(vram(channel.instance)));
    rig.submit(&mut channel, &immediate(0, 8, 0));
    let (_, fault) = rig.events.wait_fault();
    assert_eq!((fault.unit, fault.reason), (FaultUnit::Host, FaultReason::NoChannel));
}

#[test]
fn push_buffer_that_is_not_mapped_faults_in_the_host_unit() {
    let rig = Rig::new();
    let (_space, mut channel, ..) = setup(&rig);
    rig.prepare_entry(&mut channel, 0x3f_0000_0000 | 4 << 42);
    rig.ring_doorbell(&channel);
    let (channel, fault) = rig.events.wait_fault();
    assert_eq!((channel, fault.unit), (Some(GuestChannel(1)), FaultUnit::Host));
    assert_eq!((fault.address, fault.reason), (GpuVa(0x3f_0000_0000), FaultReason::PageTableNotPresent));
}

#[test]
fn others_go_on_after_a_fault() {
    let rig = Rig::new();
    let (mut space, mut channel, _, to) = setup(&rig);
    let mut other = rig.channel(2, &mut space);
    rig.submit(&mut channel, &m2mf_copy(0, DST, 16, 16, 1));
    rig.events.wait_fault();

    rig.run(&mut other, &m2mf_copy(SRC, DST, 16, 16, 1));
    assert_eq!(rig.read(to, 16), pattern(1, 16));

    rig.submit(&mut channel, &m2mf_copy(SRC, DST, 16, 16, 1));
    rig.settle();
    assert!(!rig.done(&channel));
}
