//! Macros that channels load and call.

mod code;
mod hostile;
mod launches;

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
