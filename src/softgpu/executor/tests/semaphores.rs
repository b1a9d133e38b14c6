use super::rig::*;
use gpuvmk_chip::gh100::methods::host;
use gpuvmk_chip::stream::GP_ENTRY1::OPCODE;
use gpuvmk_chip::{Engine, EngineSet};
use gpuvmk_gpu::GpuEvent;

const SEM: u64 = 0x1f0_0000_0000;
const DONE: u64 = SEM + 0x800;

fn setup(rig: &mut Rig) -> (Channel, u64) {
    let space = rig.space();
    let channel = rig.channel(space, EngineSet::COPY1);
    let memory = rig.buffer(space, SEM, 0x1000);
    (channel, memory)
}

#[test]
fn releases_write_words_and_reports() {
    let mut rig = Rig::new();
    let (mut channel, memory) = setup(&mut rig);
    let (wide, timed) = (host::SEM_EXECUTE::PAYLOAD_SIZE.mask(), host::SEM_EXECUTE::RELEASE_TIMESTAMP.mask());
    rig.write(memory, &[0xff; 0x80]);

    let words = [
        semaphore(SEM, 0x5_0000_0001, host::SEM_EXECUTE::OPERATION::RELEASE),
        semaphore(SEM + 0x10, 0x5_0000_0002, host::SEM_EXECUTE::OPERATION::RELEASE | wide),
        semaphore(SEM + 0x20, 0x5_0000_0003, host::SEM_EXECUTE::OPERATION::RELEASE | timed | 1 << 20),
        semaphore(SEM + 0x30, 0x5_0000_0004, host::SEM_EXECUTE::OPERATION::RELEASE | timed | wide),
    ];
    rig.run(&mut channel, &words.concat());

    assert_eq!(rig.read_u64(memory), 0xffff_ffff_0000_0001);
    assert_eq!(rig.read_u64(memory + 0x10), 0x5_0000_0002);
    assert_eq!((rig.read_u64(memory + 0x18), rig.read_u64(memory + 0x20)), (u64::MAX, 3));
    assert_eq!(rig.read_u64(memory + 0x30), 0x5_0000_0004);
    let times = [0x28, 0x38].map(|offset| rig.read_u64(memory + offset));
    assert!(0 < times[0] && times[0] <= times[1] && times[1] < u64::MAX, "{times:?}");
}

#[test]
fn old_form_of_semaphores_does_the_same_with_words() {
    let old = |va: u64, payload: u32, data: u32| inc(0, host::SEMAPHORE_A, &[hi(va), lo(va), payload, data]);
    let reduction = |number: u32| {
        host::SEMAPHORE_D::OPERATION::REDUCTION
            | host::SEM_EXECUTE::REDUCTION.of(number)
            | host::SEM_EXECUTE::REDUCTION_FORMAT.mask()
    };
    let mut rig = Rig::new();
    let space = rig.space();
    let mut channel = rig.channel(space, EngineSet::COPY1);
    // The old form has 40 address bits.
    let va = 0xf0_0000_0000;
    let memory = rig.buffer(space, va, 0x1000);
    rig.write(memory, &[0xff; 0x40]);

    let words = [
        old(va, 7, host::SEMAPHORE_D::OPERATION::RELEASE | host::SEMAPHORE_D::RELEASE_SIZE.mask()),
        old(va + 0x10, 8, host::SEMAPHORE_D::OPERATION::RELEASE),
        old(va, 5, reduction(5)),
        old(va, 12, host::SEMAPHORE_D::OPERATION::ACQUIRE),
        old(va, 11, host::SEMAPHORE_D::OPERATION::ACQ_GEQ | 1 << 12),
        old(va, 4, host::SEMAPHORE_D::OPERATION::ACQ_AND),
        old(va + 0x20, 9, host::SEMAPHORE_D::OPERATION::RELEASE | host::SEMAPHORE_D::RELEASE_SIZE.mask()),
    ];
    rig.run(&mut channel, &words.concat());

    assert_eq!(rig.read_u64(memory), 0xffff_ffff_0000_000c);
    assert_eq!(rig.read_u64(memory + 0x10), 8);
    assert!((1..u64::MAX).contains(&rig.read_u64(memory + 0x18)), "the time");
    assert_eq!(rig.read_u64(memory + 0x20), 0xffff_ffff_0000_0009);
}

#[test]
fn acquires_wait_for_their_condition() {
    let wide = host::SEM_EXECUTE::PAYLOAD_SIZE.mask();
    // Operation, payload, a value that does not do, one that does.
    let cases: [(u32, u64, u64, u64); 9] = [
        (host::SEM_EXECUTE::OPERATION::ACQUIRE, 5, 6, 5),
        (host::SEM_EXECUTE::OPERATION::ACQUIRE | wide, 5 << 32, 5, 5 << 32),
        (host::SEM_EXECUTE::OPERATION::ACQ_STRICT_GEQ, 5, 4, 0xffff_ffff),
        (host::SEM_EXECUTE::OPERATION::ACQ_CIRC_GEQ | 1 << 12, 5, 0xffff_ffff, 6),
        (
            host::SEM_EXECUTE::OPERATION::ACQ_CIRC_GEQ,
            0xffff_fffe,
            0x7fff_0000_u64.wrapping_neg() & 0xffff_ffff,
            1,
        ),
        (host::SEM_EXECUTE::OPERATION::ACQ_CIRC_GEQ | wide, 5, u64::MAX, 1 << 62),
        (host::SEM_EXECUTE::OPERATION::ACQ_AND, 6, 9, 2),
        (host::SEM_EXECUTE::OPERATION::ACQ_NOR, !1 & 0xffff_ffff, 1, 0xff00),
        (host::SEM_EXECUTE::OPERATION::ACQ_NOR | wide, u64::MAX >> 1, 1 << 63, 0),
    ];
    let mut rig = Rig::new();
    let (mut channel, memory) = setup(&mut rig);
    for (number, (operation, payload, not, value)) in (1..).zip(cases) {
        rig.write(memory, &not.to_le_bytes());
        let words = [
            semaphore(SEM, payload, operation),
            semaphore(DONE, number, host::SEM_EXECUTE::OPERATION::RELEASE),
        ]
        .concat();
        rig.submit(&mut channel, &words);
        rig.settle();
        assert_ne!(rig.read_u64(memory + 0x800), number, "case {number}: {not:#x} must not do");
        rig.write(memory, &value.to_le_bytes());
        rig.wait(|rig| rig.read_u64(memory + 0x800) == number);
    }
    assert!(rig.errors().is_empty(), "{:?}", rig.events);
}

#[test]
fn reductions_change_memory() {
    let op = |number: u32| {
        host::SEM_EXECUTE::OPERATION::REDUCTION
            | host::SEM_EXECUTE::REDUCTION.of(number)
            | host::SEM_EXECUTE::REDUCTION_FORMAT.mask()
    };
    let signed =
        |number: u32| host::SEM_EXECUTE::OPERATION::REDUCTION | host::SEM_EXECUTE::REDUCTION.of(number);
    // Operation, value in memory, payload, value then.
    let cases: [(u32, u64, u64, u64); 11] = [
        (op(0), 7, 5, 5),
        (op(1), 7, 0xffff_ffff, 0xffff_ffff),
        (signed(1), 7, 0xffff_ffff, 7),
        (op(2), 0xf0, 0xff, 0x0f),
        (op(3), 0xf0, 0x3c, 0x30),
        (op(4), 0xf0, 0x0c, 0xfc),
        (op(5), 0xffff_ffff, 2, 1),
        (op(5) | host::SEM_EXECUTE::PAYLOAD_SIZE.mask(), 0xffff_ffff, 2, 0x1_0000_0001),
        (op(6), 3, 3, 0),
        (op(6), 2, 3, 3),
        (op(7), 0, 9, 9),
    ];
    let mut rig = Rig::new();
    let (mut channel, memory) = setup(&mut rig);
    for (operation, value, payload, expected) in cases {
        rig.write(memory, &value.to_le_bytes());
        rig.run(&mut channel, &semaphore(SEM, payload, operation));
        assert_eq!(rig.read_u64(memory), expected, "{operation:#x}");
    }
    rig.run(&mut channel, &semaphore(SEM, 1, op(5) | host::SEM_EXECUTE::RELEASE_TIMESTAMP.mask()));
    assert_eq!(rig.read_u64(memory), 10);
    assert_ne!(rig.read_u64(memory + 8), 0);
}

#[test]
fn reductions_of_many_channels_all_count() {
    let mut rig = Rig::new();
    let space = rig.space();
    let memory = rig.buffer(space, SEM, 0x1000);
    let mut channels: Vec<_> = (0..4).map(|_| rig.channel(space, EngineSet::COPY1)).collect();
    let add = semaphore(
        SEM,
        1,
        host::SEM_EXECUTE::OPERATION::REDUCTION
            | host::SEM_EXECUTE::REDUCTION.of(5)
            | host::SEM_EXECUTE::REDUCTION_FORMAT.mask(),
    );
    let many: Vec<u32> = std::iter::repeat_n(add, 500).flatten().collect();
    for channel in &mut channels {
        rig.submit(channel, &many);
    }
    for channel in &channels {
        rig.wait_done(channel);
    }
    assert_eq!(rig.read_u32(memory), 2000);
}

#[test]
fn channels_wake_each_other() {
    let mut rig = Rig::new();
    let space = rig.space();
    let memory = rig.buffer(space, SEM, 0x1000);
    let mut waits = rig.channel(space, EngineSet::COPY1);
    let mut releases = rig.channel(space, graphics());
    for round in 1..50u64 {
        let acquire = semaphore(SEM, round, host::SEM_EXECUTE::OPERATION::ACQ_STRICT_GEQ);
        rig.submit(
            &mut waits,
            &[acquire, semaphore(DONE, round, host::SEM_EXECUTE::OPERATION::RELEASE)].concat(),
        );
        rig.submit(&mut releases, &semaphore(SEM, round, host::SEM_EXECUTE::OPERATION::RELEASE));
        rig.wait(|rig| u64::from(rig.read_u32(memory + 0x800)) == round);
    }
}

#[test]
fn fence_of_the_kernel_is_executed_and_notifies() {
    for (engines, engine) in [(graphics(), Engine::Graphics), (EngineSet::COPY2, Engine::COPY2)] {
        let mut rig = Rig::new();
        let space = rig.space();
        let memory = rig.buffer(space, SEM, 0x1000);
        let mut channel = rig.channel(space, engines);
        let words = [
            inc(0, host::SEM_ADDR_LO, &[lo(SEM), hi(SEM), 77]),
            inc(0, host::SEM_EXECUTE, &[0x0010_0001]),
            inc(0, host::MEM_OP_A, &[0, 0, 0, 5 << 27]),
            inc(0, host::NON_STALL_INTERRUPT, &[0]),
            inc(0, host::WFI, &[1]),
            inc(0, host::YIELD, &[2]),
            inc(0, host::NOP, &[1]),
        ];
        rig.run(&mut channel, &words.concat());
        assert_eq!(rig.read_u32(memory), 77);
        rig.wait_event(|event| (*event == GpuEvent::NonStall(engine)).then_some(()));
        assert!(rig.errors().is_empty(), "{:?}", rig.events);
    }
}

#[test]
fn entries_without_words_control_the_fetch() {
    let mut rig = Rig::new();
    let (mut channel, memory) = setup(&mut rig);
    // A segment beyond 40 bits.
    let push = rig.alloc(0x1000);
    let va = 0x1ab << 40 | 0x5000;
    rig.map(channel.space, va, push, 0x1000);
    let words = semaphore(SEM, 5, host::SEM_EXECUTE::OPERATION::RELEASE);
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    rig.write(push, &bytes);

    rig.prepare_entry(&mut channel, 0);
    rig.prepare_entry(&mut channel, u64::from(OPCODE::SET_PB_SEGMENT_EXTENDED_BASE) << 32 | 0x1ab << 8);
    rig.prepare_entry(&mut channel, 0x5000 | (words.len() as u64) << 42 | 1 << 63);
    rig.prepare_entry(&mut channel, u64::from(OPCODE::SET_PB_SEGMENT_EXTENDED_BASE) << 32);
    rig.submit(&mut channel, &semaphore(DONE, 6, host::SEM_EXECUTE::OPERATION::RELEASE));
    rig.wait_done(&channel);

    assert_eq!((rig.read_u32(memory), rig.read_u32(memory + 0x800)), (5, 6));
}
