//! Context images: saved and restored for real, by virtual or physical address, patch lists applied.

use super::commands::*;
use super::recorder::*;
use super::rig::*;
use gpuvmk_backend::{Backend, EngineBackend};
use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_chip::channel_event::FaultUnit;
use gpuvmk_chip::gf100::methods::{CLASS_3D, m2mf, query};
use gpuvmk_chip::gf100::ramin::{COPY0_CONTEXT_LO, GRAPHICS_CONTEXT_LO};
use gpuvmk_chip::{Aperture, Engine, FaultReason};

const VA: u64 = 0x4000_0000;
const IMAGE_VA: u64 = 0x6000_0000;
const LIST_VA: u64 = 0x6100_0000;

/// Binds 3D to subchannel 0 and sets up a query at VA + `offset`, without writing it.
fn set_query(offset: u64, sequence: u32) -> Vec<u32> {
    let address = VA + offset;
    [inc(0, 0, &[u32::from(CLASS_3D)]), inc(0, query::ADDRESS_HIGH, &[hi(address), lo(address), sequence])]
        .concat()
}

fn get_query() -> Vec<u32> {
    inc(0, query::GET, &[0x1000_f010])
}

#[test]
fn state_survives_a_switch_between_channels() {
    let rig = Rig::new();
    let mut space = rig.space();
    let page = rig.alloc(0x1000);
    rig.map(&mut space, VA, vram(page), 0x1000);
    let mut first = rig.channel(1, &mut space);
    let mut second = rig.channel(2, &mut space);

    rig.run(&mut first, &set_query(0x10, 0x1111));
    rig.run(&mut second, &set_query(0x20, 0x2222));
    rig.run(&mut first, &get_query());
    rig.run(&mut second, &get_query());

    assert_eq!((rig.read_u32(page + 0x10), rig.read_u32(page + 0x20)), (0x1111, 0x2222));
    let image = rig.read(first.graphics_image, 0x2000);
    assert!(image.windows(4).any(|word| word == 0x1111u32.to_le_bytes()), "not in the image");
    assert!(image[..0x100].iter().all(|&byte| byte == 0), "the header was overwritten");
}

#[test]
fn what_the_image_says_is_what_the_engine_does() {
    let rig = Rig::new();
    let mut space = rig.space();
    let page = rig.alloc(0x1000);
    rig.map(&mut space, VA, vram(page), 0x1000);
    let mut first = rig.channel(1, &mut space);
    let mut second = rig.channel(2, &mut space);
    rig.run(&mut first, &set_query(0x10, 0x1111));
    rig.run(&mut second, &set_query(0x20, 0x2222));

    let image = rig.read(first.graphics_image, 0x2000);
    let at = image.windows(4).position(|word| word == 0x1111u32.to_le_bytes()).unwrap();
    rig.write_u32(first.graphics_image + at as u64, 0x3333);
    rig.run(&mut first, &get_query());

    assert_eq!(rig.read_u32(page + 0x10), 0x3333);
}

#[test]
fn copy_engines_keep_their_context_too() {
    let rig = Rig::new();
    let mut space = rig.space();
    let page = rig.alloc(0x1000);
    rig.map(&mut space, VA, vram(page), 0x1000);
    rig.write(page, &pattern(1, 64));
    let mut first = rig.channel(1, &mut space);
    let mut second = rig.channel(2, &mut space);

    let setup = pcopy_copy(0x90b5, VA, VA + 0x100, 64, 64, 1);
    rig.run(&mut first, &setup[..setup.len() - 2]);
    rig.run(&mut second, &pcopy_copy(0x90b5, VA + 0x800, VA + 0x900, 64, 64, 1));
    rig.run(&mut first, &inc(4, 0x300, &[0x110]));

    assert_eq!(rig.read(page + 0x100, 64), pattern(1, 64));
    let image = rig.read(first.copy_images[0], 256);
    assert!(image.windows(4).any(|word| word == (VA as u32 + 0x100).to_le_bytes()));
}

#[test]
fn virtual_pointer_goes_through_the_channels_own_tables() {
    let rig = Rig::new();
    let mut space = rig.space();
    let (page, image) = (rig.alloc(0x1000), rig.alloc(0x2000));
    rig.map(&mut space, VA, vram(page), 0x1000);
    let privileged = PageFlags { privileged: true, ..PageFlags::default() };
    rig.map_pages(&mut space, IMAGE_VA, vram(image), 0x2000, 12, privileged);
    let mut first = rig.channel(1, &mut space);
    let mut second = rig.channel(2, &mut space);
    rig.write_u64(
        first.instance + GRAPHICS_CONTEXT_LO,
        IMAGE_VA | u64::from(GRAPHICS_CONTEXT_LO::VIRTUAL.mask()),
    );

    rig.run(&mut first, &set_query(0x10, 0x1111));
    rig.run(&mut second, &set_query(0x20, 0x2222));
    rig.run(&mut first, &get_query());

    assert_eq!(rig.read_u32(page + 0x10), 0x1111);
    assert!(rig.read(image, 0x2000).windows(4).any(|word| word == 0x1111u32.to_le_bytes()));
    assert!(rig.read(first.graphics_image, 0x2000).iter().all(|&byte| byte == 0));
}

#[test]
fn patch_list_is_written_to_registers() {
    let rig = Rig::new();
    let mut space = rig.space();
    let (image, list) = (rig.alloc(0x2000), rig.alloc(0x1000));
    rig.map(&mut space, IMAGE_VA, vram(image), 0x2000);
    rig.map(&mut space, LIST_VA, vram(list), 0x1000);
    rig.write_u32(image, 2);
    rig.write_u32(image + 4, (LIST_VA >> 8) as u32);
    for (index, (register, value)) in [(0x40_8004, 0xabcd), (0x10_0cb8, 0x1234)].into_iter().enumerate() {
        rig.write_u32(list + 8 * index as u64, register);
        rig.write_u32(list + 8 * index as u64 + 4, value);
    }
    let mut channel = rig.channel(1, &mut space);
    rig.write_u64(
        channel.instance + GRAPHICS_CONTEXT_LO,
        IMAGE_VA | u64::from(GRAPHICS_CONTEXT_LO::VIRTUAL.mask()),
    );

    rig.run(&mut channel, &inc(0, 0, &[u32::from(CLASS_3D)]));
    rig.run(&mut channel, &inc(0, 0x100, &[0]));

    assert_eq!(rig.events.all(), [Event::Patch(0x40_8004, 0xabcd), Event::Patch(0x10_0cb8, 0x1234)]);
    rig.core.preempt_channel(GuestChannel(1));
    assert_eq!(rig.read_u32(image), 2);
}

#[test]
fn absurd_patch_count_is_bounded() {
    let rig = Rig::new();
    let mut space = rig.space();
    let mut channel = rig.channel(1, &mut space);
    rig.write_u32(channel.graphics_image, u32::MAX);
    rig.run(&mut channel, &inc(0, 0, &[u32::from(CLASS_3D)]));
    assert_eq!(rig.events.all().len(), 512);
}

#[test]
fn channel_without_a_context_faults() {
    let rig = Rig::new();
    let mut space = rig.space();
    let mut channel = rig.channel(1, &mut space);
    rig.write_u64(channel.instance + COPY0_CONTEXT_LO, 0);
    rig.submit(&mut channel, &inc(4, 0, &[0x90b5]));
    let (_, fault) = rig.events.wait_fault();
    assert_eq!((fault.unit, fault.reason), (FaultUnit::Engine(Engine::COPY0), FaultReason::NoChannel));
}

#[test]
fn context_outside_memory_faults() {
    let rig = Rig::new();
    let mut space = rig.space();
    let mut channel = rig.channel(1, &mut space);
    rig.write_u64(channel.instance + GRAPHICS_CONTEXT_LO, rig.core.vram_size());
    rig.submit(&mut channel, &inc(0, 0, &[u32::from(CLASS_3D)]));
    let (channel, fault) = rig.events.wait_fault();
    assert_eq!((channel, fault.reason), (Some(GuestChannel(1)), FaultReason::UnsupportedAperture));
}

#[test]
fn golden_context_is_saved_on_command() {
    let rig = Rig::new();
    let mut space = rig.space();
    let channel = rig.unlisted_channel(1, &mut space);
    rig.write(channel.graphics_image, &[0xaa; 0x2000]);
    rig.write_u32(channel.graphics_image, 0);
    rig.write(channel.graphics_image + 0x100, &[0; 0x1000]);
    let instance = vram(channel.instance);

    rig.core.bind_graphics_context(Some(instance));
    assert_eq!(rig.core.engine_status(Engine::Graphics).channel, None);
    rig.write(channel.graphics_image + 0x100, &[0x55; 0x100]);
    rig.core.save_graphics_context(instance);
    rig.core.bind_graphics_context(None);

    let image = rig.read(channel.graphics_image, 0x2000);
    assert_eq!(image[0x100..0x200], [0; 0x100]);
    assert_eq!((image[0], image[8], image[0x1fff]), (0, 0xaa, 0xaa));
    assert!(rig.events.all().is_empty());
}

#[test]
fn paused_copy_is_in_the_image() {
    let rig = Rig::new();
    let mut space = rig.space();
    let memory = rig.alloc(4 << 20);
    rig.map_pages(&mut space, VA, vram(memory), 4 << 20, 17, PageFlags::default());
    let mut channel = rig.channel(1, &mut space);
    let data = pattern(5, 1 << 20);
    rig.write(memory, &data);
    rig.submit(&mut channel, &m2mf_copy(VA, VA + (2 << 20), 0, 1 << 20, 500));
    rig.wait(|| rig.core.engine_status(Engine::Graphics).busy);
    rig.core.enable_channel(GuestChannel(1), false);
    rig.core.preempt_channel(GuestChannel(1));
    rig.wait(|| !rig.core.preempt_pending());
    assert!(!rig.done(&channel));

    // The context moves to another place, as a driver may do with a channel that is off.
    let moved = rig.alloc(0x2000);
    rig.write(moved, &rig.read(channel.graphics_image, 0x2000));
    rig.write_u64(channel.instance + GRAPHICS_CONTEXT_LO, moved);
    rig.core.enable_channel(GuestChannel(1), true);
    rig.wait_done(&channel);

    assert!(rig.read(memory + (2 << 20), 1 << 20) == data);
}

#[test]
fn inline_transfer_survives_a_switch() {
    let rig = Rig::new();
    let mut space = rig.space();
    let page = rig.alloc(0x1000);
    rig.map(&mut space, VA, vram(page), 0x1000);
    let mut first = rig.channel(1, &mut space);
    let mut second = rig.channel(2, &mut space);
    let mut words = inc(2, 0, &[u32::from(m2mf::CLASS)]);
    words.extend(inc(2, m2mf::OFFSET_OUT_HIGH, &[hi(VA), lo(VA)]));
    words.extend(inc(2, m2mf::LINE_LENGTH_IN, &[8, 1]));
    words.extend(inc(2, m2mf::EXEC, &[m2mf::EXEC::PUSH.mask() | 0x110]));
    words.extend(inc(2, m2mf::DATA, &[0x1111_1111]));
    rig.run(&mut first, &words);
    rig.run(&mut second, &inc(2, 0, &[u32::from(m2mf::CLASS)]));

    rig.run(&mut first, &inc(2, m2mf::DATA, &[0x2222_2222]));

    assert_eq!(rig.read_u64(page), 0x2222_2222_1111_1111);
    assert_eq!(vram(0).aperture, Aperture::Vram);
}
