//! The whole sequence that nouveau 7.2 goes through from boot to its first user channel, as observed on a
//! running guest, with what it does with the answers.

use super::config;
use super::driver::{
    ALLOC_MEMORY, Driver, SPEAKS, STATIC_INFO, UNLOADING, UPDATE_BAR_PDE, poke, static_info, words,
};
use crate::model::{DoorbellTarget, Effect, GspConfig};
use gpuvmk_backend::GspChannel;
use gpuvmk_backend::testing::BackCall;
use gpuvmk_chip::addr::{Chid, GpuVa, GuestChannel};
use gpuvmk_chip::{Aperture, Engine, EngineSet, PhysicalAddress, TextureClusters};

const INTERNAL: u32 = 0xc1e0_0004;
const INTERNAL_DEVICE: u32 = 0xabcd_0080;
const INTERNAL_SUBDEVICE: u32 = 0xabcd_2080;
pub const DEVICE: u32 = 0xde1d_0000;
pub const SUBDEVICE: u32 = 0x5d1d_0000;
pub const SPACE: u32 = 0x90f1_0000;

/// A client with device, subdevice and address space.
pub fn client(driver: &mut Driver, handle: u32, external: bool) {
    let mut root = vec![0; SPEAKS.get().root];
    poke(&mut root, 0, &words(&[handle, !0]));
    assert_eq!(driver.alloc(handle, handle, handle, 0, &root), 0);
    let mut device = vec![0; 0x38];
    poke(&mut device, 4, &words(&[handle]));
    assert_eq!(driver.alloc(handle, handle, DEVICE, 0x80, &device), 0);
    assert_eq!(driver.alloc(handle, DEVICE, SUBDEVICE, 0x2080, &[0; 4]), 0);
    let mut space = vec![0; 0x30];
    poke(&mut space, 4, &words(&[if external { 8 } else { 0 }]));
    assert_eq!(driver.alloc(handle, DEVICE, SPACE, 0x90f1, &space), 0);
}

/// SET_PAGE_DIRECTORY: the status.
pub fn set_page_directory(driver: &mut Driver, client: u32, address: u64) -> u32 {
    let mut parameters = vec![0; 0x20];
    poke(&mut parameters, 0, &address.to_le_bytes());
    poke(&mut parameters, 8, &words(&[2, 0, SPACE]));
    driver.control(client, DEVICE, 0x0080_1813, &parameters).0
}

/// Parameters of a channel.
pub fn channel(engine: u32, chid: u32, ring: u64, userd: u64) -> Vec<u8> {
    let mut raw = vec![0; SPEAKS.get().channel];
    poke(&mut raw, 8, &ring.to_le_bytes());
    poke(
        &mut raw,
        0x10,
        &words(&[1024, ((chid % 8) << 8) | ((chid / 8) << 12) | (1 << 21) | (1 << 5), 0, SPACE]),
    );
    poke(&mut raw, 0x80, &words(&[engine]));
    for (at, base) in [(0x90, userd + 0x1000), (0xa8, userd), (0xc0, userd + 0x1000)] {
        poke(&mut raw, at, &base.to_le_bytes());
        poke(&mut raw, at + 16, &words(&[2, 1]));
    }
    poke(&mut raw, 0xd8, &0x8000u64.to_le_bytes());
    poke(&mut raw, 0xe8, &words(&[1]));
    raw
}

/// Binds and schedules a channel.
pub fn start(driver: &mut Driver, client: u32, handle: u32, engine: u32) {
    assert_eq!(driver.control(client, handle, 0xa06f_0104, &words(&[engine])).0, 0);
    assert_eq!(driver.control(client, handle, 0xa06f_0103, &[1, 0]).0, 0);
}

fn internal(driver: &mut Driver, cmd: u32, size: usize) -> super::driver::Message {
    let (status, reply) = driver.control(INTERNAL, INTERNAL_SUBDEVICE, cmd, &vec![0; size]);
    assert_eq!(status, 0, "{cmd:#x}");
    reply
}

#[test]
pub fn static_info_names_memory_handles_and_the_page_tables_of_the_bars() {
    let mut driver = Driver::booted(config());

    let info = driver.call(STATIC_INFO, &static_info());

    assert_eq!(info.result, 0);
    assert_eq!(info.word(0x158), 2);
    assert_eq!((info.long(0x160), info.long(0x168)), (1 << 20, (252 << 20) - 1));
    assert_eq!(info.body[0x160 + 0x1c..0x160 + 0x1f], [1, 1, 0]);
    assert_eq!((info.long(0x190), info.long(0x198)), (256 << 20, (4 << 30) - 1));
    assert_eq!(info.body[0x190 + 0x1c..0x190 + 0x1f], [0, 0, 0]);
    assert_eq!((info.long(0x600), info.long(0x608)), (driver.gsp.bar1_root(), driver.gsp.bar2_root()));
    assert_eq!(
        [info.word(0x640), info.word(0x644), info.word(0x648)],
        [INTERNAL, INTERNAL_DEVICE, INTERNAL_SUBDEVICE]
    );
    assert_eq!(info.long(0x668), 252 << 20);
    assert_eq!(info.long(0x670) + 0x10_0000 - (info.long(0x668) + 0x20_0000), 0x10_1000);
    assert_eq!(info.long(0x4c8), 256 << 20);
    assert!(info.body[0x4ec..].starts_with(b"Virtual GH100\0"));
}

#[test]
pub fn graphics_units_are_answered_for_each_cluster() {
    let mut driver = Driver::booted(config());

    let clusters = internal(&mut driver, 0x2080_0137, 4).word(0);
    let units: Vec<_> = (0..9)
        .map(|gpc| {
            let (status, reply) =
                driver.control(INTERNAL, INTERNAL_SUBDEVICE, 0x2080_0138, &words(&[gpc, 0]));
            (status, reply.word(4))
        })
        .collect();

    assert_eq!(clusters, 0xff);
    assert_eq!(units[..8], [(0, 0x1ff); 8]);
    assert_eq!(units[8].0, 0x1f);
}

/// Who launches as many blocks as there are multiprocessors, and waits for all, must know how many there are.
#[test]
pub fn card_with_some_clusters_switched_off_says_which_it_has() {
    let graphics = Some(TextureClusters::of(&[9, 8]));
    let mut driver = Driver::booted(GspConfig { graphics, ..config() });

    assert_eq!(internal(&mut driver, 0x2080_0137, 4).word(0), 0b11);
    let (_, reply) = driver.control(INTERNAL, INTERNAL_SUBDEVICE, 0x2080_0138, &words(&[1, 0]));
    assert_eq!(reply.word(4), 0xff);
    let (status, _) = driver.control(INTERNAL, INTERNAL_SUBDEVICE, 0x2080_0138, &words(&[2, 0]));
    assert_ne!(status, 0, "there is no third one");
}

#[test]
pub fn interrupt_table_has_gsp_and_every_engine() {
    let mut driver = Driver::booted(config());

    let table = internal(&mut driver, 0x2080_0a5c, 0x814);

    let entries: Vec<_> = (0..table.word(0) as usize)
        .map(|index| {
            let at = 4 + 16 * index;
            (table.word(at) & 0xffff, table.word(at + 8), table.word(at + 12))
        })
        .collect();
    assert_eq!(entries, [(50, 0x60, !0), (84, !0, 0x20), (15, !0, 0x21), (16, !0, 0x22), (17, !0, 0x23)]);
}

#[test]
pub fn device_table_has_a_copy_engine_on_the_graphics_runlist_and_lone_ones() {
    let mut driver = Driver::booted(config());

    let table = internal(&mut driver, 0x2080_1112, 0xc8c);

    let entries: Vec<_> = (0..table.word(4) as usize)
        .map(|index| 12 + 0x64 * index)
        .map(|at| (table.word(at + 8), table.word(at + 12), table.word(at + 44), table.body[at + 0x54]))
        .collect();
    assert_eq!(
        entries,
        [(1, 0, 0x1_0000, b'G'), (9, 0, 0x1_0000, b'C'), (10, 1, 0x2_0000, b'C'), (11, 2, 0x3_0000, b'C')]
    );
    assert_eq!(table.body[8], 0);
}

#[test]
pub fn engines_that_are_not_configured_are_in_no_table() {
    let engines = EngineSet::GRAPHICS | EngineSet::COPY0;
    let mut driver = Driver::booted(GspConfig { engines, ..config() });

    assert_eq!(internal(&mut driver, 0x2080_1112, 0xc8c).word(4), 2);
    assert_eq!(internal(&mut driver, 0x2080_0a5c, 0x814).word(0), 3);
}

#[test]
pub fn context_buffers_and_zcull_are_answered() {
    let mut driver = Driver::booted(config());

    let buffers = internal(&mut driver, 0x2080_0a32, 0x680);
    let zcull = internal(&mut driver, 0x2080_1206, 0x28);

    let sized: Vec<_> = (0..0x1a * 8).filter(|id| buffers.word(8 * id) == 0x1000).collect();
    assert_eq!(sized, [0x00, 0x0d, 0x10, 0x11, 0x13, 0x14, 0x17, 0x18]);
    assert_eq!(zcull.body, words(&[1; 10]));
    assert_eq!(internal(&mut driver, 0x2080_01b0, 0x504).word(0), 0);
}

#[test]
pub fn buffer_for_methods_that_faulted_is_a_page() {
    let mut driver = Driver::booted(config());

    assert_eq!(internal(&mut driver, 0x2080_2a08, 4).word(0), 0x1000);
}

#[test]
pub fn bar2_root_is_handed_to_the_face_and_another_level_is_refused() {
    let mut driver = Driver::booted(config());
    driver.effects.clear();
    let body = |shift: u64| [1u64.to_le_bytes(), 0xabc0_0002u64.to_le_bytes(), shift.to_le_bytes()].concat();

    let taken = driver.call(UPDATE_BAR_PDE, &body(56)).result;
    let refused = driver.call(UPDATE_BAR_PDE, &body(47)).result;

    assert_eq!((taken, refused), (0, 0x1f));
    assert_eq!(driver.effects, [Effect::Bar2Root(0xabc0_0002)]);
}

#[test]
pub fn bar1_root_is_written_where_the_driver_was_told_it_is() {
    let mut driver = Driver::booted(config());

    let body = [0u64.to_le_bytes(), 0x123u64.to_le_bytes(), 56u64.to_le_bytes()].concat();
    let result = driver.call(UPDATE_BAR_PDE, &body).result;

    assert_eq!(result, 0);
    assert_eq!(driver.back.vram(driver.gsp.bar1_root(), 8), 0x123u64.to_le_bytes());
}

#[test]
pub fn golden_context_is_made_and_freed_without_a_channel_at_the_back() {
    let mut driver = Driver::booted(config());
    let golden = 0xc1d0_0001;
    client(&mut driver, golden, false);
    let mut pdes = vec![0; 0xb8];
    poke(&mut pdes, 8, &(512u64 << 20).to_le_bytes());
    poke(&mut pdes, 0x10, &0x1_0000_0000u64.to_le_bytes());
    poke(&mut pdes, 0x18, &0x1_1fff_ffffu64.to_le_bytes());
    poke(&mut pdes, 0x20, &words(&[4]));
    for level in 0..4u64 {
        let at = 0x28 + 24 * level as usize;
        poke(&mut pdes, at, &(0x70_0000 + 0x1000 * level).to_le_bytes());
        poke(&mut pdes, at + 16, &words(&[1]));
    }
    assert_eq!(driver.control(golden, SPACE, 0x90f1_0106, &pdes).0, 0);

    let made = driver.alloc(golden, DEVICE, 0xf1f0_0000, 0xc86f, &channel(1, 1, 0, 0x80_1000));
    let mut promote = vec![0; 0x230];
    poke(&mut promote, 0, &words(&[1, 0, 0, golden, 0xf1f0_0000]));
    poke(&mut promote, 0x28, &words(&[9]));
    let promoted = driver.control(golden, SUBDEVICE, 0x2080_012b, &promote).0;
    let threed = driver.alloc(golden, 0xf1f0_0000, 0x9700_0000, 0xcb97, &[]);
    let freed = [0x9700_0000, 0xf1f0_0000, SPACE, SUBDEVICE, DEVICE, golden]
        .map(|object| driver.free(golden, object));

    assert_eq!((made, promoted, threed, freed), (0, 0, 0, [0; 6]));
    assert_eq!(driver.back.calls(), []);
    assert_eq!(driver.gsp.objects(), 3);
}

#[test]
pub fn whole_probe_ends_with_two_running_channels_and_unloads_cleanly() {
    let mut driver = Driver::booted(config());
    let kernel = 0xc1d0_0000;
    client(&mut driver, kernel, true);
    assert_eq!(set_page_directory(&mut driver, kernel, 0x123_4000), 0);

    let graphics = driver.alloc(kernel, DEVICE, 0xf1f0_0001, 0xc86f, &channel(1, 1, 0x1_1000, 0x90_0200));
    start(&mut driver, kernel, 0xf1f0_0001, 1);
    let copy = driver.alloc(kernel, DEVICE, 0xf1f0_0002, 0xc86f, &channel(10, 2, 0x2_1000, 0x91_0000));
    start(&mut driver, kernel, 0xf1f0_0002, 10);
    let object = driver.alloc(kernel, 0xf1f0_0002, 0xc8b5, 0xc8b5, &words(&[1, 10]));

    assert_eq!((graphics, copy, object), (0, 0, 0));
    let page_directory = PhysicalAddress { aperture: Aperture::Vram, address: 0x123_4000 };
    let expected = |gpfifo, userd, engines| GspChannel {
        context_of: None,
        page_directory,
        gpfifo: GpuVa(gpfifo),
        gpfifo_entries_log2: 10,
        userd,
        engines,
    };
    assert_eq!(
        driver.back.calls(),
        [
            BackCall::Create(0, expected(0x1_1000, 0x90_0200, EngineSet::GRAPHICS | EngineSet::COPY0)),
            BackCall::Schedule(0, true),
            BackCall::Create(1, expected(0x2_1000, 0x91_0000, EngineSet::COPY1)),
            BackCall::Schedule(1, true),
            BackCall::Object(1, 0xc8b5, Engine::COPY1),
        ]
    );
    assert_eq!(
        driver.gsp.doorbell_target(0, Chid(1)),
        Some(DoorbellTarget { channel: GuestChannel(0), userd: 0x90_0200 })
    );
    assert_eq!(
        driver.gsp.doorbell_target(1, Chid(2)),
        Some(DoorbellTarget { channel: GuestChannel(1), userd: 0x91_0000 })
    );
    assert_eq!(driver.gsp.doorbell_target(0, Chid(2)), None);

    driver.effects.clear();
    assert_eq!(driver.call(UNLOADING, &words(&[0, 0])).result, 0);

    assert_eq!(driver.effects, [Effect::Halted { suspend: false }]);
    assert_eq!(driver.back.calls(), [BackCall::Destroy(0), BackCall::Destroy(1)]);
    assert_eq!((driver.gsp.objects(), driver.gsp.counters().refused), (0, 0));
}

#[test]
pub fn suspend_and_resume_keep_channels_and_hold_them_back_in_between() {
    let mut driver = Driver::booted(config());
    let kernel = 0xc1d0_0000;
    client(&mut driver, kernel, true);
    assert_eq!(set_page_directory(&mut driver, kernel, 0x123_4000), 0);
    assert_eq!(driver.alloc(kernel, DEVICE, 0xf1f0_0001, 0xc86f, &channel(1, 1, 0x1_1000, 0x90_0000)), 0);
    start(&mut driver, kernel, 0xf1f0_0001, 1);
    driver.back.calls();
    let toggle = |driver: &mut Driver, disable| {
        driver.control(INTERNAL, INTERNAL_SUBDEVICE, 0x2080_0ac3, &[disable]).0
    };

    // 2 MiB + 128 KiB of pages for firmware's memory, as nouveau lists them: one RPC of 4,440 bytes.
    assert_eq!(toggle(&mut driver, 1), 0);
    let pages = 544u32;
    let mut list = words(&[INTERNAL, INTERNAL_DEVICE, 0xcaf0_0003, 0x81, 0x4000_0010, 0, 0, 0]);
    list.extend(u64::from(pages * 4096).to_le_bytes());
    list.extend(words(&[pages, 0, pages << 16, 0]));
    list.extend((0..u64::from(pages)).flat_map(|page| page.to_le_bytes()));
    assert_eq!(driver.call(ALLOC_MEMORY, &list).result, 0);
    // A driver that names no memory for what is kept: it stays in the process.
    let fbsr = words(&[INTERNAL, 0xcaf0_0003, 0, 0, 0, 0]);
    assert_eq!(driver.control(INTERNAL, INTERNAL_SUBDEVICE, 0x2080_0ac2, &fbsr).0, 0);
    assert_eq!(driver.free(INTERNAL, 0xcaf0_0003), 0);
    driver.effects.clear();
    assert_eq!(driver.call(UNLOADING, &words(&[1, 3])).result, 0);
    assert_eq!(driver.effects, [Effect::Halted { suspend: true }]);
    assert_eq!(driver.back.calls(), [BackCall::Schedule(0, false)]);

    driver.effects.clear();
    driver.events.clear();
    driver.boot(0).unwrap();
    driver.poll();
    assert_eq!(
        driver.effects,
        [Effect::Running],
        "an interrupt's handler would take the event from the poll"
    );
    assert_eq!(driver.events[0].function, 0x1001);
    assert_eq!(driver.back.calls(), []);

    assert_eq!(toggle(&mut driver, 0), 0);
    assert_eq!(driver.back.calls(), [BackCall::Schedule(0, true)]);
    assert_eq!(
        driver.gsp.doorbell_target(0, Chid(1)),
        Some(DoorbellTarget { channel: GuestChannel(0), userd: 0x90_0000 })
    );
}
