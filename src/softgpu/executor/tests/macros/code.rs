//! Macros, written group by group.

use gpuvmk_chip::gh100::methods::{macros as m, report};
use gpuvmk_chip::mme::{Encoded, Operation, Register, fields};

use crate::executor::tests::rig::{fixed, hi, inc, lo};

/// What outputs put out, by number.
pub const ALU0: u16 = 1;
pub const IMM0: u16 = 5;
pub const IMM32: u16 = 10;

/// One word, in SET_REPORT_SEMAPHORE_D.
const ONE_WORD: u32 = 1 << 28;

pub fn r(number: u8) -> Register {
    Register::General(number)
}

/// A group, made part by part.
#[derive(Clone, Copy)]
pub struct Group(pub Encoded);

impl Group {
    /// One that does nothing.
    pub fn new() -> Self {
        let zero = u16::from(Register::Zero.number());
        let nothing = [fields::PREDICATE, fields::DESTINATION[0], fields::DESTINATION[1]];
        let all = nothing.into_iter().chain(fields::SOURCES.into_iter().flatten());
        Self(all.fold(Encoded::default(), |group, bits| group.with(bits, zero)))
    }

    pub fn alu(self, index: usize, operation: Operation, to: Register, a: Register, b: Register) -> Self {
        let [first, second] = fields::SOURCES[index];
        let number = |register: Register| u16::from(register.number());
        let group = self.0.with(fields::OPERATION[index], operation as u16);
        let group = group.with(fields::DESTINATION[index], number(to));
        Self(group.with(first, number(a)).with(second, number(b)))
    }

    pub fn immediate(self, index: usize, value: u16) -> Self {
        Self(self.0.with(fields::IMMEDIATE[index], value))
    }

    pub fn immediate32(self, value: u32) -> Self {
        self.immediate(0, (value >> 16) as u16).immediate(1, value as u16)
    }

    /// The first output goes to a method, by the first immediate, and from it to the following ones.
    pub fn method(self, method: u16) -> Self {
        let group = self.immediate(0, (1 << 12) | (method / 4));
        Self(group.0.with(fields::OUTPUT_METHOD[0], IMM0))
    }

    pub fn emit(self, index: usize, output: u16) -> Self {
        Self(self.0.with(fields::OUTPUT_EMIT[index], output))
    }

    pub fn predicated(self, mode: u16, register: Register) -> Self {
        let group = self.0.with(fields::PREDICATE_MODE, mode);
        Self(group.with(fields::PREDICATE, register.number().into()))
    }
}

/// Loads a word of data into a register.
pub fn load(to: u8) -> Group {
    Group::new().alu(0, Operation::Add, r(to), Register::Load0, Register::Zero)
}

/// Sets a register.
pub fn set(to: u8, value: u32) -> Group {
    Group::new().alu(0, Operation::Add, r(to), Register::Immediate32, Register::Zero).immediate32(value)
}

/// Sends a register to where the method is.
pub fn send(register: u8) -> Group {
    Group::new().alu(0, Operation::Add, Register::Zero, r(register), Register::Zero).emit(0, ALU0)
}

/// Sends a constant to where the method is.
pub fn send_value(value: u32) -> Group {
    Group::new().immediate32(value).emit(0, IMM32)
}

/// Points outputs at a method.
pub fn to(method: u16) -> Group {
    Group::new().method(method)
}

/// Adds a constant to an address in two registers, the lower one first.
pub fn advance([low, high]: [u8; 2], by: u16) -> Group {
    Group::new().alu(0, Operation::Add, r(low), r(low), Register::Immediate).immediate(0, by).alu(
        1,
        Operation::AddC,
        r(high),
        r(high),
        Register::Zero,
    )
}

/// Stores a register at an address in registers, by a report of one word.
pub fn store([low, high]: [u8; 2], value: u8) -> Vec<Group> {
    vec![to(report::SET_REPORT_SEMAPHORE_A), send(high), send(low), send(value), send_value(ONE_WORD)]
}

/// Stores a register at a constant address.
pub fn store_at(va: u64, value: u8) -> Vec<Group> {
    vec![
        to(report::SET_REPORT_SEMAPHORE_A),
        send_value(hi(va)),
        send_value(lo(va)),
        send(value),
        send_value(ONE_WORD),
    ]
}

/// Reads words into the FIFO, and has loads take them.
pub fn read_fifoed([low, high]: [u8; 2], count: u32) -> Vec<Group> {
    let barrier = Group::new()
        .alu(0, Operation::Extended, Register::Zero, Register::Immediate, Register::ImmediatePair)
        .immediate(0, 0x1000)
        .immediate(1, 1);
    vec![
        to(m::SET_MME_MEM_ADDRESS_A),
        send(high),
        send(low),
        to(m::MME_DMA_READ_FIFOED),
        send_value(count),
        barrier,
    ]
}

/// The words of a macro: these groups, and two that end it.
pub fn words(groups: &[Group]) -> Vec<u32> {
    let end = [Group(Group::new().0.with(fields::END_NEXT, 1)), Group::new()];
    groups.iter().chain(&end).flat_map(|group| group.0.words()).collect()
}

/// Commands that load a macro.
pub fn load_macro(subchannel: u32, number: u32, place: u32, words: &[u32]) -> Vec<u32> {
    let pointer = inc(subchannel, m::LOAD_MME_START_ADDRESS_RAM_POINTER, &[number, place]);
    let code = inc(subchannel, m::LOAD_MME_INSTRUCTION_RAM_POINTER, &[place]);
    [pointer, code, fixed(subchannel, m::LOAD_MME_INSTRUCTION_RAM, words)].concat()
}

/// Commands that call a macro: the first word goes to its call, the others are more data.
pub fn call(subchannel: u32, number: u16, data: &[u32]) -> Vec<u32> {
    let method = m::CALL_MME + 8 * number;
    let increase_once = 5 << 29 | (data.len() as u32) << 16 | subchannel << 13 | u32::from(method) >> 2;
    [&[increase_once], data].concat()
}
