use super::rig::*;
use gpuvmk_chip::Engine;
use gpuvmk_chip::channel_event::{ChannelStop, GraphicsError, StopCause};
use gpuvmk_chip::gh100::methods::graphics::{self, NV_PGRAPH_INTR};
use gpuvmk_chip::gh100::methods::inline;
use gpuvmk_chip::gh100::methods::{CLASS_2D, CLASS_3D, CLASS_COMPUTE, CLASS_INLINE, compute, host, report};
use gpuvmk_gpu::GpuEvent;

const DST: u64 = 0x31_0000_0000;

fn setup(rig: &mut Rig) -> (Channel, u64) {
    let space = rig.space();
    let channel = rig.channel(space, graphics());
    let memory = rig.buffer(space, DST, 0x1_0000);
    (channel, memory)
}

fn bind(subchannel: u32, class: u16) -> Vec<u32> {
    inc(subchannel, host::SET_OBJECT, &[u32::from(class)])
}

fn stopped(words: &[u32]) -> GraphicsError {
    let mut rig = Rig::new();
    let (mut channel, _) = setup(&mut rig);
    rig.submit(&mut channel, words);
    rig.wait_event(|event| {
        if let GpuEvent::Stopped(ChannelStop { cause: StopCause::Graphics(error), .. }) = event {
            Some(*error)
        } else {
            None
        }
    })
}

#[test]
fn inline_data_of_every_class_reaches_memory() {
    for (subchannel, class) in [(0, CLASS_3D), (1, CLASS_COMPUTE), (2, CLASS_INLINE)] {
        let mut rig = Rig::new();
        let (mut channel, memory) = setup(&mut rig);
        let sem = DST + 0x800;
        let words = [
            bind(subchannel, class),
            inc(subchannel, inline::LINE_LENGTH_IN, &[6, 2, hi(DST), lo(DST) + 2, 0x100]),
            inc(subchannel, inline::SET_I2M_SEMAPHORE_A, &[hi(sem), lo(sem), 0x77]),
            inc(
                subchannel,
                inline::LAUNCH_DMA,
                &[inline::LAUNCH_DMA::DST_MEMORY_LAYOUT.mask()
                    | inline::LAUNCH_DMA::COMPLETION_TYPE
                        .of(inline::LAUNCH_DMA::COMPLETION_TYPE::RELEASE_SEMAPHORE)
                    | 1 << 8],
            ),
            fixed(subchannel, inline::LOAD_INLINE_DATA, &[0x0403_0201, 0x0807_0605, 0x0c0b_0a09]),
        ];

        rig.run(&mut channel, &words.concat());

        assert_eq!(rig.read(memory, 9), [0, 0, 1, 2, 3, 4, 5, 6, 0], "{class:#x}");
        assert_eq!(rig.read(memory + 0x100, 9), [0, 0, 7, 8, 9, 10, 11, 12, 0]);
        assert_eq!(rig.read_u32(memory + 0x800), 0x77);
        assert_ne!(rig.read_u64(memory + 0x808), 0);
        rig.wait_event(|event| (*event == GpuEvent::NonStall(Engine::Graphics)).then_some(()));
    }
}

#[test]
fn inline_data_goes_into_blocks() {
    let mut rig = Rig::new();
    let (mut channel, memory) = setup(&mut rig);
    let words = [
        bind(2, CLASS_INLINE),
        inc(2, inline::LINE_LENGTH_IN, &[8, 2, hi(DST), lo(DST), 0, 1 << 4, 128, 16, 1, 0, 60, 7]),
        inc(2, inline::LAUNCH_DMA, &[0]),
        fixed(2, inline::LOAD_INLINE_DATA, &[1, 2, 3, 4]),
    ];
    rig.run(&mut channel, &words.concat());
    let word = |offset: u64| rig.read_u32(memory + offset);
    // Line 7 is the last of the first GOB, line 8 the first of the one below; x 60 its last word, x 64 in the
    // next block of two GOBs.
    let last_line = 15 * 32 + 16 + 12;
    let below = 512 + 10 * 32 + 12;
    assert_eq!([word(last_line), word(1024 + 5 * 32 + 16), word(below), word(1024 + 512)], [1, 2, 3, 4]);
}

#[test]
fn inline_data_without_a_launch_is_an_error() {
    let error = stopped(&[bind(2, CLASS_INLINE), immediate(2, inline::LOAD_INLINE_DATA, 1)].concat());
    assert_eq!(
        (error.status, error.class, error.subchannel),
        (NV_PGRAPH_INTR::CLASS_ERROR.mask(), CLASS_INLINE, 2)
    );
}

#[test]
fn reports_of_both_forms_are_written() {
    let mut rig = Rig::new();
    let (mut channel, memory) = setup(&mut rig);
    let old = |subchannel: u32, offset: u64, payload: u32, data: u32| {
        let operands = [hi(DST + offset), lo(DST + offset), payload, data];
        inc(subchannel, report::SET_REPORT_SEMAPHORE_A, &operands)
    };
    let new = |subchannel: u32, offset: u64, payload: u64, data: u32| {
        let va = DST + offset;
        let operands = [lo(payload), hi(payload), lo(va), hi(va), data];
        inc(subchannel, report::SET_REPORT_SEMAPHORE_PAYLOAD_LOWER, &operands)
    };
    rig.write(memory, &[0xff; 0x100]);
    let words = [
        old(0, 0, 1, 1 << 28),
        // A timestamp, as Vulkan asks for it.
        old(0, 0x10, 2, 2 | 0xf << 12 | 0x14 << 23),
        old(1, 0x20, 3, 1 << 20),
        new(0, 0x30, 0x4_0000_0005, report::THREED_EXECUTE::PAYLOAD_SIZE64.mask() | 2 << 13),
        new(1, 0x40, 0x4_0000_0006, 1 << 3),
        new(1, 0x50, 0x4_0000_0007, 0),
        // Two more.
        new(1, 0x50, 2, report::COMPUTE_EXECUTE::REDUCTION_ENABLE.mask() | 1 << 3),
    ];
    rig.run(&mut channel, &words.concat());

    let at = |offset: u64| rig.read_u64(memory + offset);
    assert_eq!(at(0), 0xffff_ffff_0000_0001);
    assert_eq!((at(0x10), at(0x20), at(0x30)), (0, 3, 0x4_0000_0005));
    assert_eq!((at(0x38), at(0x40), at(0x50)), (u64::MAX, 0xffff_ffff_0000_0006, 9));
    let times = [0x18, 0x28, 0x58].map(at);
    assert!(0 < times[0] && times[0] <= times[1] && times[1] <= times[2], "{times:?}");
    assert!(times[2] < u64::MAX);
    rig.wait_event(|event| (*event == GpuEvent::NonStall(Engine::Graphics)).then_some(()));
}

#[test]
fn trap_notifies_the_driver_and_stores_nothing() {
    let mut rig = Rig::new();
    let (mut channel, memory) = setup(&mut rig);
    rig.write(memory, &[0xff; 16]);
    let trap = report::ANY::OPERATION::TRAP;
    rig.run(&mut channel, &inc(1, report::SET_REPORT_SEMAPHORE_A, &[hi(DST), lo(DST), 7, trap]));

    rig.wait_event(|event| (*event == GpuEvent::NonStall(Engine::Graphics)).then_some(()));
    assert_eq!(rig.read_u64(memory), u64::MAX);
    // Acquires are not known there.
    let GraphicsError { method, .. } =
        stopped(&inc(1, report::SET_REPORT_SEMAPHORE_A, &[hi(DST), lo(DST), 7, 1]));
    assert_eq!(method, report::SET_REPORT_SEMAPHORE_D);
}

#[test]
fn draws_are_refused_and_not_skipped() {
    let cases = [
        // A PCAS action that nobody knows.
        (1, CLASS_COMPUTE, compute::SEND_SIGNALING_PCAS2_B, 0xf),
        (0, CLASS_3D, 0x0d78, 3),
        (0, CLASS_3D, 0x19d0, 1),
        (3, CLASS_2D, 0x08dc, 0),
    ];
    for (subchannel, class, method, data) in cases {
        let error = stopped(&[bind(subchannel, class), immediate(subchannel, method, data)].concat());
        assert_eq!(error.status, NV_PGRAPH_INTR::ILLEGAL_METHOD.mask());
        assert_eq!((error.class, error.method, error.data), (class, method, data));
    }
}

#[test]
fn start_up_of_a_driver_is_accepted() {
    let mut rig = Rig::new();
    let (mut channel, memory) = setup(&mut rig);
    let mut words = Vec::new();
    for (subchannel, class) in [(0, CLASS_3D), (1, CLASS_COMPUTE), (3, CLASS_2D)] {
        words.extend(bind(subchannel, class));
    }
    // State everywhere that does not start anything. Macros have tests of their own.
    for method in (0x1000u16..0x1200).chain(0x2000..0x3400).step_by(4) {
        words.extend(immediate(0, method, 3));
    }
    // But for what would launch a QMD in the stream, and for transfers of the MME.
    for method in (0x4a0u16..0x550).chain(0x578..0x1a00).step_by(4) {
        words.extend(immediate(1, method, 1));
    }
    words.extend(immediate(1, compute::SEND_SIGNALING_PCAS2_B, 1));
    words.extend(semaphore(DST, 9, 1));
    rig.run(&mut channel, &words);
    assert_eq!(rig.read_u32(memory), 9);
    assert!(rig.errors().is_empty(), "{:?}", rig.events);
}

#[test]
fn classes_have_subchannels_without_being_bound() {
    let mut rig = Rig::new();
    let (mut channel, memory) = setup(&mut rig);
    let notify = inc(1, graphics::SET_NOTIFY_A, &[hi(DST), lo(DST), 1]);
    // NVK never binds subchannel 4.
    let copy = copy_lines(DST, DST + 0x100, 0, 16, 1, 0);
    rig.run(&mut channel, &[notify, copy].concat());
    assert_ne!(rig.read_u64(memory), 0);
    assert_eq!(rig.read(memory, 16), rig.read(memory + 0x100, 16));
    rig.wait_event(|event| (*event == GpuEvent::NonStall(Engine::Graphics)).then_some(()));
}

#[test]
fn unknown_class_is_an_error() {
    let error = stopped(&bind(1, 0xc6c0));
    assert_eq!((error.status, error.class), (NV_PGRAPH_INTR::ILLEGAL_CLASS.mask(), 0xc6c0));
}
