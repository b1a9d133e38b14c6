//! Macros that channels load and call.

mod code;

use code::*;
use gpuvmk_chip::channel_event::{ChannelStop, GraphicsError, StopCause};
use gpuvmk_chip::gh100::methods::{
    CLASS_2D, CLASS_3D, CLASS_COMPUTE, CLASS_INLINE, compute, host, macros as m, report,
};
use gpuvmk_chip::mme::{Encoded, Operation as O, Register};
use gpuvmk_chip::qmd::layout::V4_0;
use gpuvmk_gpu::GpuEvent;
use gpuvmk_kernels::launch::{self, Parameters, Place, Size3};
use gpuvmk_kernels::{Kernel, SM90, spin};

use super::rig::*;

const SPIN: Kernel = SM90.spin;
const BASE: u64 = 0x31_0000_0000;
const SIZE: u64 = 0x10_0000;

/// What a channel is told whose macro cannot go on.
const GR_EXCEPTION: StopCause = StopCause::Manager(13);

struct Fixture {
    rig: Rig,
    channel: Channel,
    memory: u64,
}

impl Fixture {
    fn new() -> Self {
        let mut rig = Rig::new();
        let space = rig.space();
        let channel = rig.channel(space, graphics());
        let memory = rig.buffer(space, BASE, SIZE);
        Self { rig, channel, memory }
    }

    /// Has commands run to their end.
    fn run(&mut self, commands: &[u32]) {
        self.rig.run(&mut self.channel, commands);
        assert!(self.rig.errors().is_empty(), "{:?}", self.rig.events);
    }

    /// Why commands stop the channel.
    fn stopped(&mut self, commands: &[u32]) -> StopCause {
        self.rig.submit(&mut self.channel, commands);
        self.rig.wait_event(|event| match event {
            GpuEvent::Stopped(ChannelStop { cause, .. }) => Some(*cause),
            _ => None,
        })
    }

    fn word(&self, at: u64) -> u32 {
        self.rig.read_u32(self.memory + at)
    }

    fn write_words(&self, at: u64, words: &[u32]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.rig.write(self.memory + at, &bytes);
    }
}

/// Loads a macro on subchannel 0 and calls it.
fn run_macro(groups: &[Group], data: &[u32]) -> Vec<u32> {
    [load_macro(0, 3, 30, &words(groups)), call(0, 3, data)].concat()
}

fn stop_of(groups: &[Group], data: &[u32]) -> StopCause {
    Fixture::new().stopped(&run_macro(groups, data))
}

#[test]
fn macros_compute_with_what_they_are_given() {
    let mut fixture = Fixture::new();
    // Two words at once, and their product of 64 bits.
    let both = Group::new().alu(0, O::Add, r(0), Register::Load1, Register::Zero).alu(
        1,
        O::Add,
        r(1),
        Register::Load0,
        Register::Zero,
    );
    let product =
        Group::new().alu(0, O::MulU, r(2), r(0), r(1)).alu(1, O::MulH, r(3), Register::Zero, Register::Zero);
    let groups = [vec![both, product], store_at(BASE, 2), store_at(BASE + 4, 3)].concat();
    fixture.run(&run_macro(&groups, &[0x1234_5678, 0xffff_0000]));
    assert_eq!(fixture.rig.read_u64(fixture.memory), 0x1234_5678 * 0xffff_0000);
}

#[test]
fn data_may_come_in_pieces_and_other_channels_run_meanwhile() {
    let mut fixture = Fixture::new();
    let groups = [vec![load(0), load(1)], store_at(BASE, 1)].concat();
    fixture.run(&[load_macro(0, 3, 30, &words(&groups)), call(0, 3, &[7])].concat());
    // Another channel has the engine, and macros of its own.
    let mut other = fixture.rig.channel(fixture.channel.space, graphics());
    let theirs = run_macro(&[vec![load(5)], store_at(BASE + 8, 5)].concat(), &[6]);
    fixture.rig.run(&mut other, &theirs);
    fixture.run(&inc(0, m::CALL_MME + 8 * 3 + 4, &[9]));
    assert_eq!((fixture.word(0), fixture.word(8)), (9, 6));
}

#[test]
fn what_methods_were_sent_is_read_back() {
    let mut fixture = Fixture::new();
    let state = |to: u8, method: u16| {
        Group::new().alu(0, O::State, r(to), Register::Immediate, Register::Zero).immediate(0, method / 4)
    };
    // By the stream, by the macro, and in a scratch word.
    let groups = [
        vec![to(0x1c10), send_value(0xabc), state(0, 0x1c00), state(1, 0x1c10), state(2, 0x3404)],
        store_at(BASE, 0),
        store_at(BASE + 4, 1),
        store_at(BASE + 8, 2),
    ];
    let set = [inc(0, 0x1c00, &[0x123]), inc(1, m::SET_MME_SHADOW_SCRATCH + 4, &[0x456])];
    fixture.run(&[set.concat(), run_macro(&groups.concat(), &[0])].concat());
    assert_eq!([0, 4, 8].map(|at| fixture.word(at)), [0x123, 0xabc, 0x456]);
}

#[test]
fn loops_and_branches_count() {
    let mut fixture = Fixture::new();
    let increase =
        |number: u8| Group::new().alu(0, O::Add, r(number), r(number), Register::Immediate).immediate(0, 1);
    let looped = |count| {
        let count = Group::new().alu(0, O::Loop, Register::Zero, r(count), Register::Zero);
        [count.immediate(0, 3), increase(0), increase(0)]
    };
    // Back while r1 is less than r4; then over what would spoil r0; then out of the macro.
    let back = Group::new().alu(0, O::Blt, Register::Zero, r(1), r(4)).immediate(0, 1 << 15 | 0x1fff);
    let over = Group::new().alu(0, O::Jal, Register::Zero, Register::Zero, Register::Zero);
    let out = Group::new().alu(0, O::Beq, Register::Zero, r(1), r(4)).immediate(0, 1 << 15 | 0x1000);
    let groups = [
        vec![load(4)],
        looped(4).to_vec(),
        vec![increase(1), back, over.immediate(0, 1 << 15 | 2), set(0, 0)],
        store_at(BASE, 0),
        store_at(BASE + 4, 1),
        vec![out],
        store_at(BASE + 8, 1),
    ];
    fixture.run(&run_macro(&groups.concat(), &[5]));
    assert_eq!([0, 4, 8].map(|at| fixture.word(at)), [10, 5, 0]);
    // Once at least.
    fixture.run(&call(0, 3, &[0]));
    assert_eq!(fixture.word(0), 2);
}

#[test]
fn predicates_switch_parts_of_a_group() {
    let mut fixture = Fixture::new();
    // TFUU: the first ALU where the register is zero, the second one where it is not.
    let one_of = Group::new()
        .alu(0, O::Add, r(1), Register::Immediate, Register::Zero)
        .immediate(0, 11)
        .alu(1, O::Add, r(2), Register::Immediate, Register::Zero)
        .immediate(1, 22)
        .predicated(5, r(0));
    let groups = [vec![load(0), one_of], store_at(BASE, 1), store_at(BASE + 4, 2)].concat();
    for (given, wanted) in [(0, [11, 0]), (9, [0, 22])] {
        fixture.run(&run_macro(&groups, &[given]));
        assert_eq!([0, 4].map(|at| fixture.word(at)), wanted);
    }
}

#[test]
fn data_ram_moves_to_and_from_memory() {
    let mut fixture = Fixture::new();
    fixture.write_words(0x100, &[1, 2, 3]);
    // Doubles words 8 to 10 of data RAM.
    let double = |index: u16| {
        let read = Group::new().alu(0, O::DRead, r(0), Register::Immediate, Register::Zero);
        let sum = Group::new().alu(0, O::Add, r(0), r(0), r(0));
        let write = Group::new().alu(0, O::DWrite, Register::Zero, Register::Immediate, r(0));
        [read.immediate(0, index), sum, write.immediate(0, index)]
    };
    let transfer = |va: u64, method, count| {
        let place = inc(0, m::SET_MME_MEM_ADDRESS_A, &[hi(va), lo(va), 8]);
        [place, immediate(0, method, count)].concat()
    };
    let commands = [
        transfer(BASE + 0x100, m::MME_DMA_READ, 3),
        run_macro(&[double(8), double(9), double(10)].concat(), &[0]),
        transfer(BASE + 0x200, m::MME_DMA_WRITE, 4),
    ];
    fixture.write_words(0x20c, &[7]);
    fixture.run(&commands.concat());
    assert_eq!([0x200, 0x204, 0x208, 0x20c].map(|at| fixture.word(at)), [2, 4, 6, 0]);
}

#[test]
fn words_of_memory_take_the_place_of_data_that_nobody_read() {
    let mut fixture = Fixture::new();
    fixture.write_words(0x100, &[1000, 1001]);
    let groups = [
        vec![set(0, lo(BASE + 0x100)), set(1, hi(BASE + 0x100))],
        read_fifoed([0, 1], 2),
        vec![load(2), load(3)],
        store_at(BASE, 2),
        store_at(BASE + 4, 3),
    ];
    let size = immediate(0, m::SET_MME_DATA_FIFO_CONFIG, 1);
    fixture.run(&[size, run_macro(&groups.concat(), &[7])].concat());
    assert_eq!([0, 4].map(|at| fixture.word(at)), [1000, 1001]);
}

#[test]
fn firmware_answers_a_driver_that_writes_a_register() {
    let mut fixture = Fixture::new();
    // Waits until scratch word 0 is 1, as drivers do.
    let state = Group::new()
        .alu(0, O::State, r(1), Register::Immediate, Register::Zero)
        .immediate(0, m::SET_MME_SHADOW_SCRATCH / 4);
    let again = Group::new().alu(0, O::Beq, Register::Zero, r(1), r(2)).immediate(0, 0x1fff);
    let groups = [
        vec![to(m::SET_MME_SHADOW_SCRATCH), send_value(0), send_value(0), send_value(8)],
        vec![to(0x2310), send_value(0x41_9ba4), set(2, 1), state, again],
        store_at(BASE, 1),
    ];
    fixture.run(&run_macro(&groups.concat(), &[0]));
    assert_eq!(fixture.word(0), 1);
}

/// Where the parts of a launch are.
const CONSTANTS: u64 = 0x1_0000;
const QMD: u64 = 0x1_1000;
const TABLE: u64 = 0x2_0000;
const COUNTS: u64 = 0x3_0000;
const DATA: u64 = 0x4_0000;

/// What Mesa's driver does for an indirect dispatch: the macro reads three counts from memory, stores them in
/// a table and in the QMD, and adds the number of threads to two scratch words, the upper one first.
fn dispatch_indirect() -> Vec<Group> {
    let [counts, table, qmd, local] = [[1, 0], [3, 2], [5, 4], [6, 6]];
    let count_of_threads = [
        Group::new().alu(0, O::MulU, r(10), r(7), r(8)),
        Group::new().alu(0, O::MulU, r(10), r(10), r(9)),
        Group::new().alu(0, O::MulU, r(10), r(10), r(local[0])).alu(
            1,
            O::MulH,
            r(11),
            Register::Zero,
            Register::Zero,
        ),
    ];
    let scratch = |to: u8, number: u16| {
        let method = m::SET_MME_SHADOW_SCRATCH / 4 + number;
        Group::new().alu(0, O::State, r(to), Register::Immediate, Register::Zero).immediate(0, method)
    };
    let sum = Group::new().alu(0, O::Add, r(13), r(13), r(10)).alu(1, O::AddC, r(12), r(12), r(11));
    [
        (0..7).map(load).collect(),
        read_fifoed(counts, 3),
        vec![load(7), load(8), load(9)],
        store(table, 7),
        vec![advance(table, 4)],
        store(table, 8),
        vec![advance(table, 4)],
        store(table, 9),
        vec![advance(qmd, 128)],
        store(qmd, 7),
        vec![advance(qmd, 4)],
        store(qmd, 8),
        vec![advance(qmd, 4)],
        store(qmd, 9),
        count_of_threads.to_vec(),
        vec![scratch(12, 20), scratch(13, 21), sum],
        vec![to(m::SET_MME_SHADOW_SCRATCH + 80), send(12), send(13)],
    ]
    .concat()
}

#[test]
fn indirect_dispatch_takes_its_counts_from_memory() {
    let mut fixture = Fixture::new();
    let [width, height, depth] = V4_0.grid;
    assert_eq!((width.low, height.low, depth.low), (128 * 8, 132 * 8, 136 * 8), "where the macro stores");
    let place = Place { code: BASE, constants: BASE + CONSTANTS, qmd: BASE + QMD };
    let parameters = Parameters::default().pointer(BASE + DATA).word(10).word(5);
    // The grid comes from memory.
    let (none, block) = (Size3(1, 1, 1), Size3(32, 1, 1));
    let made = launch::launch(&SPIN, place, none, block, parameters.bytes()).unwrap();
    let qmd: Vec<u8> = made.qmd.words().iter().flat_map(|word| word.to_le_bytes()).collect();
    for (at, bytes) in [(0, SPIN.code), (CONSTANTS, &made.constants[..]), (QMD, &qmd)] {
        fixture.rig.write(fixture.memory + at, bytes);
    }
    fixture.write_words(COUNTS, &[3, 1, 1]);
    let compute = |methods: &[(u16, u32)]| -> Vec<u32> {
        methods.iter().flat_map(|(method, data)| inc(1, *method, &[*data])).collect()
    };
    let addresses = [BASE + COUNTS, BASE + TABLE, BASE + QMD].into_iter();
    let data: Vec<u32> = addresses.flat_map(|va| [hi(va), lo(va)]).chain([32]).collect();
    let commands = [
        inc(1, host::SET_OBJECT, &[u32::from(CLASS_COMPUTE)]),
        compute(&launch::set_up()),
        immediate(0, m::SET_MME_DATA_FIFO_CONFIG, 1),
        run_macro(&dispatch_indirect(), &data),
        compute(&made.methods),
        call(0, 3, &data),
    ];
    fixture.run(&commands.concat());
    let ends = [0, 95, 96].map(|thread| fixture.word(DATA + 4 * thread));
    assert_eq!(ends, [spin::result(5, 10), spin::result(5 + 95, 10), 0], "three blocks of 32 threads");
    assert_eq!([0, 4, 8].map(|at| fixture.word(TABLE + at)), [3, 1, 1]);
    // Both calls were counted.
    let read = [Group::new()
        .alu(0, O::State, r(0), Register::Immediate, Register::Zero)
        .immediate(0, m::SET_MME_SHADOW_SCRATCH / 4 + 21)];
    let told = load_macro(0, 4, 3000, &words(&[read.to_vec(), store_at(BASE + TABLE, 0)].concat()));
    fixture.run(&[told, call(0, 4, &[0])].concat());
    assert_eq!(fixture.word(TABLE), 192);
}

#[test]
fn macro_of_the_compute_class_launches() {
    let mut fixture = Fixture::new();
    let place = Place { code: BASE, constants: BASE + CONSTANTS, qmd: BASE + QMD };
    // Long enough that the engine's own thread goes on with it.
    let (rounds, lanes) = (60_000, Size3(64, 1, 1));
    let parameters = Parameters::default().pointer(BASE + DATA).word(rounds).word(5);
    let made = launch::launch(&SPIN, place, Size3(1, 1, 1), lanes, parameters.bytes()).unwrap();
    let qmd: Vec<u8> = made.qmd.words().iter().flat_map(|word| word.to_le_bytes()).collect();
    for (at, bytes) in [(0, SPIN.code), (CONSTANTS, &made.constants[..]), (QMD, &qmd)] {
        fixture.rig.write(fixture.memory + at, bytes);
    }
    let mut groups = vec![load(0)];
    for (method, data) in &made.methods {
        groups.extend([to(*method), send_value(*data)]);
    }
    // What follows the launch waits for it.
    groups.extend(store_at(BASE + TABLE, 0));
    let set_up = launch::set_up();
    let set_up = set_up.iter().flat_map(|(method, data)| inc(1, *method, &[*data]));
    let commands = [
        inc(1, host::SET_OBJECT, &[u32::from(CLASS_COMPUTE)]),
        set_up.collect(),
        load_macro(1, 3, 30, &words(&groups)),
        call(1, 3, &[77]),
    ];
    fixture.rig.submit(&mut fixture.channel, &commands.concat());
    fixture.rig.wait(|rig| rig.read_u32(fixture.memory + TABLE) == 77);
    assert_eq!(fixture.word(DATA), spin::result(5, rounds));
}

#[test]
fn hostile_macros_stop_their_channel() {
    let nothing = Group::new();
    let alu = |operation: O, a, b| nothing.alu(0, operation, Register::Zero, a, b);
    let (zero, immediate) = (Register::Zero, Register::Immediate);
    let cases = [
        ("a call of a macro", vec![to(m::CALL_MME), send_value(0)]),
        ("code of its own", vec![to(m::LOAD_MME_INSTRUCTION_RAM), send_value(0)]),
        ("a method of the host", vec![to(0x10), send_value(0)]),
        ("data RAM", vec![alu(O::DRead, immediate, zero).immediate(0, 0xc00)]),
        ("data RAM, negative", vec![alu(O::DWrite, immediate, zero).immediate(0, 0xffff)]),
        ("code that is not there", vec![alu(O::Jal, zero, zero).immediate(0, 1 << 15 | 0x7000)]),
        ("a transfer of all addresses", vec![to(m::MME_DMA_WRITE), send_value(u32::MAX)]),
        ("a transfer beyond data RAM", vec![to(m::MME_DMA_READ), send_value(0xc01)]),
        ("more than the FIFO holds", vec![to(m::MME_DMA_READ_FIFOED), send_value(0x401)]),
        ("a FIFO of no size", vec![to(m::SET_MME_DATA_FIFO_CONFIG), send_value(5)]),
        ("a carry of nothing", vec![alu(O::AddC, zero, zero)]),
        ("an extension", vec![alu(O::Extended, immediate, zero).immediate(0, 0x2000)]),
        ("a reduction", vec![to(m::MME_DMA_REDUCTION), send_value(0)]),
        ("state twice", vec![alu(O::State, zero, zero).alu(1, O::State, zero, zero, zero)]),
        ("a loop of nothing", vec![alu(O::Loop, zero, zero).immediate(0, 1)]),
        ("no more data in the FIFO", {
            let source = alu(O::Extended, immediate, Register::ImmediatePair);
            vec![source.immediate(0, 0x1000).immediate(1, 1), load(0)]
        }),
    ];
    for (what, groups) in cases {
        assert_eq!(stop_of(&groups, &[0]), GR_EXCEPTION, "{what}");
    }
    let outside = [to(m::SET_MME_MEM_ADDRESS_A), send_value(0x77), send_value(0)];
    let read = [to(m::MME_DMA_READ_FIFOED), send_value(1)];
    let StopCause::Fault(fault) = stop_of(&[&outside[..], &read].concat(), &[0]) else { panic!("a fault") };
    assert_eq!(fault.address.0, 0x77_0000_0000);
}

#[test]
fn command_streams_that_leave_macros_in_the_lurch_are_stopped() {
    let waiting = [load_macro(0, 3, 30, &words(&[load(0), load(1)])), call(0, 3, &[1])].concat();
    let after = |more: Vec<u32>| [waiting.clone(), more].concat();
    let cases = [
        ("another method", after(inc(0, 0x1c00, &[0]))),
        ("another subchannel's data", after(inc(1, m::CALL_MME + 8 * 3 + 4, &[0]))),
        ("another call", after(call(0, 4, &[0]))),
        ("a class without macros", after(inc(2, 0x180, &[0]))),
        ("another class", after(inc(3, host::SET_OBJECT, &[u32::from(CLASS_2D)]))),
        ("data for no macro", inc(0, m::CALL_MME + 4, &[0])),
        ("more data than it loads", after(fixed(0, m::CALL_MME + 28, &[2, 0]))),
        ("a macro that was not loaded", call(0, 200, &[0])),
        ("code beyond its RAM", inc(0, m::LOAD_MME_INSTRUCTION_RAM_POINTER, &[0x3000, 0])),
        ("a start beyond its RAM", inc(0, m::LOAD_MME_START_ADDRESS_RAM_POINTER, &[256, 0])),
        ("the FIFO by the stream", immediate(0, m::MME_DMA_READ_FIFOED, 1)),
    ];
    for (what, commands) in cases {
        assert_eq!(Fixture::new().stopped(&commands), GR_EXCEPTION, "{what}");
    }
}

#[test]
fn draws_of_macros_are_refused() {
    let StopCause::Graphics(GraphicsError { class, .. }) = stop_of(&[to(0x19d0), send_value(1)], &[0]) else {
        panic!("an error of the class")
    };
    assert_eq!(class, CLASS_3D);
}

#[test]
fn endless_macros_leave_when_their_channel_has_to() {
    let mut fixture = Fixture::new();
    let again = Group::new().alu(0, O::Beq, Register::Zero, Register::Zero, Register::Zero);
    // One that only turns, and one that sends methods.
    let sends = [to(report::SET_REPORT_SEMAPHORE_C), send_value(1)];
    for (groups, back) in [(vec![], 0), (sends.to_vec(), 0x1ffe)] {
        let groups = [groups, vec![again.immediate(0, 1 << 15 | back)]].concat();
        let mut endless = fixture.rig.channel(fixture.channel.space, graphics());
        fixture.rig.submit(&mut endless, &run_macro(&groups, &[0]));
        // Another channel has its turns meanwhile.
        for round in 1..4 {
            fixture.run(&run_macro(&[vec![load(0)], store_at(BASE, 0)].concat(), &[round]));
            assert_eq!(fixture.word(0), round);
        }
        fixture.rig.destroy(&endless);
    }
}

#[test]
fn classes_without_macros_have_none() {
    let mut fixture = Fixture::new();
    // Inline to memory, and Turing's compute class, which only has the scratch words.
    let bind = |subchannel, class: u16| inc(subchannel, host::SET_OBJECT, &[u32::from(class)]);
    fixture.run(&[bind(2, CLASS_INLINE), call(2, 3, &[1, 2, 3])].concat());
    fixture.run(&[bind(1, 0xc5c0), call(1, 3, &[1, 2, 3]), inc(1, compute::SEND_PCAS_A, &[0])].concat());
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 24, ..Default::default() })]

    /// Whatever a macro is made of, it ends, waits, or is stopped or taken away, and others go on.
    #[test]
    fn random_macros_harm_nobody(words in proptest::collection::vec(proptest::num::u32::ANY, 3..60)) {
        let mut fixture = Fixture::new();
        let mut hostile = fixture.rig.channel(fixture.channel.space, graphics());
        // Registers and outputs that exist are likelier than chance has them.
        let tamed: Vec<u32> = words.chunks_exact(3).flat_map(|group| {
            let group = Encoded::from([group[0], group[1], group[2]]);
            let fields = gpuvmk_chip::mme::fields::DESTINATION.into_iter();
            let sources = gpuvmk_chip::mme::fields::SOURCES.into_iter().flatten();
            let outputs = gpuvmk_chip::mme::fields::OUTPUT_METHOD.into_iter();
            let outputs = outputs.chain(gpuvmk_chip::mme::fields::OUTPUT_EMIT);
            let group = fields.fold(group, |group, bits| group.with(bits, group.get(bits) % 25));
            let group = sources.fold(group, |group, bits| group.with(bits, group.get(bits) % 30));
            outputs.fold(group, |group, bits| group.with(bits, group.get(bits) % 7)).words()
        }).collect();
        let commands = [load_macro(0, 3, 0, &tamed), call(0, 3, &words[..3])].concat();
        fixture.rig.submit(&mut hostile, &commands);
        let own = run_macro(&[vec![load(0)], store_at(BASE, 0)].concat(), &[5]);
        fixture.rig.run(&mut fixture.channel, &own);
        proptest::prop_assert_eq!(fixture.word(0), 5);
        fixture.rig.destroy(&hostile);
    }
}
