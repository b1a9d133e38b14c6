//! What the host unit and the engines refuse.

use super::commands::*;
use super::rig::*;
use gpuvmk_backend::EngineBackend;
use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_chip::gf100::methods::{CLASS_2D, CLASS_3D, CLASS_COMPUTE, m2mf};
use gpuvmk_chip::gf100::ramin::{RAMFC_SIGNATURE, USERD_GET, USERD_GET_HI, USERD_GP_GET};
use gpuvmk_chip::gf100::regs::pfifo::NV_PPBDMA_INTR_0;
use gpuvmk_chip::gf100::regs::pgraph::NV_PGRAPH_INTR;

/// Runs words that must stop channel 1 in the host unit.
fn refused(words: &[u32]) -> (u32, u32, u32) {
    let rig = Rig::new();
    let mut space = rig.space();
    let mut channel = rig.channel(1, &mut space);
    rig.submit(&mut channel, words);
    let (stopped, error) = rig.events.wait_host_error();
    assert_eq!(stopped, GuestChannel(1));
    rig.submit(&mut channel, &immediate(0, 8, 0));
    rig.settle();
    assert!(!rig.done(&channel), "the channel still runs");
    (error.status, error.method, error.data)
}

#[test]
fn unknown_host_method_is_illegal() {
    assert_eq!(refused(&inc(3, 0x30, &[0x55])), (NV_PPBDMA_INTR_0::METHOD.mask(), 3 << 16 | 0x30, 0x55));
    assert_eq!(refused(&inc(0, 0x04, &[0])), (NV_PPBDMA_INTR_0::METHOD.mask(), 4, 0));
}

#[test]
fn method_without_an_object_is_for_software() {
    assert_eq!(refused(&inc(5, 0x100, &[7])), (NV_PPBDMA_INTR_0::DEVICE.mask(), 5 << 16 | 0x100, 7));
    let words = [inc(7, 0, &[0x1f_906e]), inc(7, 0x200, &[8])].concat();
    assert_eq!(refused(&words), (NV_PPBDMA_INTR_0::DEVICE.mask(), 7 << 16 | 0x200, 8));
}

#[test]
fn object_of_an_engine_that_is_not_there_is_illegal() {
    assert_eq!(refused(&inc(1, 0, &[0x2_1234])), (NV_PPBDMA_INTR_0::METHOD.mask(), 1 << 16, 0x2_1234));
}

#[test]
fn headers_of_the_old_form_are_illegal() {
    assert_eq!(refused(&[1 << 18 | 0x40, 0]).0, NV_PPBDMA_INTR_0::PBENTRY.mask());
    assert_eq!(refused(&[6 << 29, 0]).0, NV_PPBDMA_INTR_0::PBENTRY.mask());
    assert_eq!(refused(&[2 << 29 | 1 << 18, 0]).0, NV_PPBDMA_INTR_0::PBENTRY.mask());
}

#[test]
fn unknown_semaphore_operation_is_illegal() {
    assert_eq!(refused(&semaphore(0x1000, 0, 3)), (NV_PPBDMA_INTR_0::SEMAPHORE.mask(), 0x1c, 3));
}

#[test]
fn wrong_stream_sum_is_an_error() {
    assert_eq!(refused(&inc(0, 0x7c, &[1])).0, NV_PPBDMA_INTR_0::METHODCRC.mask());
}

#[test]
fn copy_engine_refuses_what_its_firmware_does_not_know() {
    for (method, data) in [(0x104, 0), (0x324, 0x1_0000), (0x328, 0x2000), (0x300, 0x111), (0x344, 0)] {
        let words = [inc(4, 0, &[0x90b5]), inc(4, method, &[data])].concat();
        let expected = (NV_PPBDMA_INTR_0::METHOD.mask(), 4 << 16 | u32::from(method), data);
        assert_eq!(refused(&words), expected, "{method:#x}");
    }
}

#[test]
fn padding_and_control_entries_do_nothing() {
    let rig = Rig::new();
    let mut space = rig.space();
    let mut channel = rig.channel(1, &mut space);
    rig.prepare_entry(&mut channel, 0);
    rig.prepare(&mut channel, &[0, 0, 1 << 16, 1 << 29, 7 << 29, 0xffff_ffff]);
    rig.run(&mut channel, &immediate(0, 8, 0));
    assert!(rig.events.all().is_empty());
}

#[test]
fn control_entry_that_is_unknown_is_an_error() {
    let rig = Rig::new();
    let mut space = rig.space();
    let mut channel = rig.channel(1, &mut space);
    rig.prepare_entry(&mut channel, 1 << 32);
    rig.ring_doorbell(&channel);
    assert_eq!(rig.events.wait_host_error().1.status, NV_PPBDMA_INTR_0::GPENTRY.mask());
}

#[test]
fn put_outside_the_ring_is_an_error() {
    let rig = Rig::new();
    let mut space = rig.space();
    let mut channel = rig.channel(1, &mut space);
    channel.put = 1 << RING_ENTRIES_LOG2;
    rig.ring_doorbell(&channel);
    assert_eq!(rig.events.wait_host_error().1.status, NV_PPBDMA_INTR_0::GPPTR.mask());
}

#[test]
fn ring_wraps() {
    let rig = Rig::new();
    let mut space = rig.space();
    let mut channel = rig.channel(1, &mut space);
    let page = rig.alloc(0x1000);
    rig.map(&mut space, 0x4000_0000, vram(page), 0x1000);
    for count in 1..=200 {
        rig.run(&mut channel, &semaphore(0x4000_0000, count, 2 | 1 << 24));
        assert_eq!(rig.read_u32(page), count);
    }
    assert_eq!(rig.read_u32(channel.userd + USERD_GP_GET), 200 % (1 << RING_ENTRIES_LOG2));
}

#[test]
fn address_after_the_last_segment_is_published() {
    let rig = Rig::new();
    let mut space = rig.space();
    let mut channel = rig.channel(1, &mut space);
    let page = rig.alloc(0x1000);
    rig.map(&mut space, 0x4000_0000, vram(page), 0x1000);
    for count in 1..=3 {
        rig.run(&mut channel, &semaphore(0x4000_0000, count, 2 | 1 << 24));
        let [low, high] = [USERD_GET, USERD_GET_HI].map(|at| u64::from(rig.read_u32(channel.userd + at)));
        assert_eq!(high << 32 | low, channel.push_va + channel.pushed);
    }
}

#[test]
fn ramfc_without_signature_is_an_error() {
    let rig = Rig::new();
    let mut space = rig.space();
    let mut channel = rig.unlisted_channel(1, &mut space);
    rig.write_u32(channel.instance + RAMFC_SIGNATURE, 0);
    rig.core.enable_channel(GuestChannel(1), true);
    rig.list(1);
    rig.submit(&mut channel, &immediate(0, 8, 0));
    assert_eq!(rig.events.wait_host_error().1.status, NV_PPBDMA_INTR_0::SIGNATURE.mask());
}

/// Runs words that must stop channel 1 in the graphics engine.
fn refused_by_graphics(words: &[u32]) -> (u32, u16, u16, u32) {
    let rig = Rig::new();
    let mut space = rig.space();
    let mut channel = rig.channel(1, &mut space);
    rig.submit(&mut channel, words);
    let (channel, error) = rig.events.wait_graphics_error();
    assert_eq!(channel, GuestChannel(1));
    (error.status, error.class, error.method, error.data)
}

#[test]
fn unknown_class_and_method_are_graphics_errors() {
    let error = refused_by_graphics(&inc(1, 0, &[0x1234]));
    assert_eq!(error, (NV_PGRAPH_INTR::ILLEGAL_CLASS.mask(), 0x1234, 0, 0x1234));
    let words = [inc(2, 0, &[u32::from(m2mf::CLASS)]), inc(2, 0x400, &[5])].concat();
    assert_eq!(refused_by_graphics(&words), (NV_PGRAPH_INTR::ILLEGAL_METHOD.mask(), m2mf::CLASS, 0x400, 5));
    let words = [inc(2, 0, &[u32::from(m2mf::CLASS)]), inc(2, m2mf::DATA, &[5])].concat();
    assert_eq!(refused_by_graphics(&words), (NV_PGRAPH_INTR::CLASS_ERROR.mask(), m2mf::CLASS, m2mf::DATA, 5));
}

#[test]
fn state_of_drawing_classes_is_accepted() {
    let rig = Rig::new();
    let mut space = rig.space();
    let mut channel = rig.channel(1, &mut space);
    let mut words = Vec::new();
    for (subchannel, class) in [(0, CLASS_3D), (1, CLASS_COMPUTE), (3, CLASS_2D)] {
        words.extend(inc(subchannel, 0, &[u32::from(class)]));
        words.extend(inc(subchannel, 0x200, &[0xffff_ffff; 64]));
        words.extend(fixed(subchannel, 0x3ffc, &[1, 2, 3]));
    }
    words.extend(inc(7, 0, &[0x1f_906e]));

    rig.run(&mut channel, &words);

    assert!(rig.events.all().is_empty());
}
