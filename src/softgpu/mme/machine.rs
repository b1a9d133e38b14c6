//! A macro that runs: one group after the other.

use std::collections::VecDeque;

use super::alu::{self, Chain};
use super::rams::{Code, Data};
use super::shadow::ShadowRam;
use super::trap::Trap;
use gpuvmk_chip::gh100::methods::macros::Shadow;
use gpuvmk_chip::mme::{
    Alu, BRANCH, Group, JAL, METHOD, Operation as O, Out, Output, REGISTERS, Register, branch_distance,
};

/// What EXTENDED sets by its first operand: where loads take their words from. Drivers set it to 1 behind
/// MME_DMA_READ_FIFOED; that 0 is the way back is inferred.
const LOAD_SOURCE: u32 = 0x1000;

/// Where loads take their words from (LOADSOURCE of NV_PGRAPH_PRI_MME_HWW_ESR_INFO_EX).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LoadSource {
    /// The command stream.
    #[default]
    Method,
    /// The FIFO, which holds words of memory.
    Dma,
}

/// A LOOP under way.
#[derive(Clone, Copy, Debug)]
struct Repeat {
    left: u32,
    first: u16,
    last: u16,
}

/// A method that a macro sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) method: u16,
    pub(crate) data: u32,
}

/// How far a macro got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// There is more to do.
    Ran,
    /// It sends a method, which is to be executed before it goes on.
    Sends(Sent),
    /// It waits for data from the command stream.
    Waits,
    /// It is over.
    Ended,
}

/// Where a macro goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// With the next group.
    Following,
    /// With this one.
    Place(u16),
    /// Nowhere.
    End,
}

/// Both immediates of a group.
fn immediate32(group: &Group) -> u32 {
    let [high, low] = group.immediates;
    u32::from(high) << 16 | u32::from(low)
}

/// The method at this number of words.
fn method(words: u32) -> u16 {
    METHOD::ADDRESS.get_u16(words).wrapping_mul(4)
}

/// What a macro works with.
pub(super) struct Around<'a> {
    pub(super) code: &'a Code,
    pub(super) data: &'a mut Data,
    pub(super) shadow: &'a mut ShadowRam,
}

/// A macro that runs.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    class: Shadow,
    /// The word at which it begins.
    start: u32,
    place: u16,
    registers: [u32; REGISTERS],
    /// What the ALUs computed last.
    results: [u32; 2],
    /// The method that outputs go to, in words, and by how many it moves on.
    method: u32,
    increment: u32,
    repeat: Option<Repeat>,
    /// This group is the last one.
    last: bool,
    over: bool,
    /// Words from the command stream.
    parameters: VecDeque<u32>,
    source: LoadSource,
    sent: VecDeque<Sent>,
}

impl Machine {
    /// Macro `start` with its first word of data.
    pub(super) fn new(class: Shadow, start: u32, data: u32) -> Self {
        Self {
            class,
            start,
            place: 0,
            registers: [0; REGISTERS],
            results: [0; 2],
            method: 0,
            increment: 0,
            repeat: None,
            last: false,
            over: false,
            parameters: VecDeque::from([data]),
            source: LoadSource::default(),
            sent: VecDeque::new(),
        }
    }

    /// More data from the command stream, for which it waits.
    pub(super) fn give(&mut self, data: u32) {
        self.parameters.push_back(data);
    }

    /// Executes one group, or sends what the last one put out.
    pub(super) fn step(&mut self, around: &mut Around<'_>) -> Result<Step, Trap> {
        if let Some(sent) = self.sent.pop_front() {
            return Ok(Step::Sends(sent));
        }
        if self.over {
            return Ok(Step::Ended);
        }
        let group = around.code.group(self.start, self.place)?;
        let Some(loads) = self.load(group.loads(), around.data)? else { return Ok(Step::Waits) };
        self.execute(&group, loads, around)?;
        Ok(Step::Ran)
    }

    /// Takes the words that a group loads. `None` while they are not there.
    fn load(&mut self, count: usize, data: &mut Data) -> Result<Option<[u32; 2]>, Trap> {
        let from = match self.source {
            LoadSource::Method => &mut self.parameters,
            LoadSource::Dma => data.fifo(),
        };
        if from.len() < count {
            // Nothing comes into the FIFO while the macro stands still.
            return if self.source == LoadSource::Dma { Err(Trap::MissingData) } else { Ok(None) };
        }
        let mut loads = [0; 2];
        for (load, word) in loads.iter_mut().zip(from.drain(..count)) {
            *load = word;
        }
        Ok(Some(loads))
    }

    fn execute(&mut self, group: &Group, loads: [u32; 2], around: &mut Around<'_>) -> Result<(), Trap> {
        let both_state = group.alus.iter().all(|alu| alu.operation == O::State);
        if both_state {
            return Err(Trap::IllegalOpcode);
        }
        let predicate = self.operand(group, loads, 0, group.predicate);
        let mut next = Next::Following;
        let mut chain = None;
        for (index, alu) in group.alus.iter().enumerate() {
            if group.is_on(predicate, index) {
                chain = self.alu(group, loads, (index, alu), chain, around, &mut next)?;
            }
        }
        for (index, out) in group.outputs.iter().enumerate() {
            if group.is_on(predicate, index.saturating_add(2)) {
                self.output(group, loads, out);
            }
        }
        self.advance(next, group.end_next)
    }

    fn advance(&mut self, next: Next, end_next: bool) -> Result<(), Trap> {
        if self.last {
            self.over = true;
            return if next == Next::Following { Ok(()) } else { Err(Trap::BranchInDelaySlot) };
        }
        self.last = end_next;
        let following = self.place.wrapping_add(1);
        self.place = match (next, &mut self.repeat) {
            (Next::End, _) => {
                self.over = true;
                return Ok(());
            }
            (_, Some(repeat)) if repeat.last == self.place => {
                let first = repeat.first;
                repeat.left = repeat.left.saturating_sub(1);
                if repeat.left == 0 {
                    self.repeat = None;
                }
                first
            }
            (Next::Place(place), _) => place,
            (Next::Following, _) => following,
        };
        Ok(())
    }

    fn operand(&self, group: &Group, loads: [u32; 2], index: usize, register: Register) -> u32 {
        let signed = |index: usize| {
            let immediate = group.immediates.get(index).copied().unwrap_or(0);
            i32::from(immediate.cast_signed()).cast_unsigned()
        };
        let [load0, load1] = loads;
        match register {
            Register::General(number) => self.registers.get(usize::from(number)).copied().unwrap_or(0),
            Register::Zero => 0,
            Register::Immediate => signed(index),
            Register::ImmediatePair => signed(1_usize.saturating_sub(index)),
            Register::Immediate32 => immediate32(group),
            Register::Load0 => load0,
            Register::Load1 => load1,
        }
    }

    fn alu(
        &mut self,
        group: &Group,
        loads: [u32; 2],
        (index, alu): (usize, &Alu),
        chain: Option<Chain>,
        around: &mut Around<'_>,
        next: &mut Next,
    ) -> Result<Option<Chain>, Trap> {
        let operands @ [x, y] = alu.sources.map(|source| self.operand(group, loads, index, source));
        let immediate = group.immediates.get(index).copied().unwrap_or(0);
        let mut left = None;
        let result = match alu.operation {
            O::Extended => self.extended(x, y)?,
            O::State => around.shadow.read(self.class, method(x.wrapping_add(y))),
            O::DRead => around.data.read(x)?,
            O::DWrite => {
                around.data.write(x, y)?;
                0
            }
            O::Loop => self.begin_loop(x, immediate)?,
            O::Jal => {
                *next = self.jump(immediate)?;
                0
            }
            O::Blt | O::BltU | O::Ble | O::BleU | O::Beq => {
                let holds = alu::holds(alu.operation, x, y).unwrap_or(false);
                if holds == BRANCH::IF_TRUE.is_set(immediate.into()) {
                    *next = self.branch(immediate)?;
                }
                0
            }
            operation => {
                let (result, chain) =
                    alu::compute(operation, operands, immediate, chain).ok_or(Trap::IllegalOpcode)?;
                left = chain;
                result
            }
        };
        if let Some(word) = self.results.get_mut(index) {
            *word = result;
        }
        let register = alu.destination.and_then(|number| self.registers.get_mut(usize::from(number)));
        if let Some(register) = register {
            *register = result;
        }
        Ok(left)
    }

    fn extended(&mut self, what: u32, value: u32) -> Result<u32, Trap> {
        self.source = match (what, value) {
            (LOAD_SOURCE, 0) => LoadSource::Method,
            (LOAD_SOURCE, 1) => LoadSource::Dma,
            _ => return Err(Trap::NotExecuted("EXTENDED, but for the source of loads,")),
        };
        Ok(0)
    }

    /// What follows runs `count` times, and once at least.
    fn begin_loop(&mut self, count: u32, length: u16) -> Result<u32, Trap> {
        if self.repeat.is_some() {
            return Err(Trap::NotExecuted("a LOOP in another one"));
        }
        if length < 2 {
            return Err(Trap::NotExecuted("a LOOP of nothing"));
        }
        let first = self.place.wrapping_add(1);
        let last = self.place.wrapping_add(length).wrapping_sub(1);
        let left = count.saturating_sub(1);
        self.repeat = (left > 0).then_some(Repeat { left, first, last });
        Ok(0)
    }

    fn jump(&self, immediate: u16) -> Result<Next, Trap> {
        if !JAL::JUMP.is_set(immediate.into()) {
            return Err(Trap::NotExecuted("JAL that links"));
        }
        Ok(Next::Place(self.place.wrapping_add(JAL::DISTANCE.get_u16(immediate.into()))))
    }

    fn branch(&self, distance: u16) -> Result<Next, Trap> {
        let immediate = distance.into();
        if BRANCH::OTHER.is_set(immediate) {
            return Err(Trap::NotExecuted("branches with bits 14:13"));
        }
        if BRANCH::DISTANCE.get(immediate) == BRANCH::DISTANCE::END {
            return Ok(Next::End);
        }
        Ok(Next::Place(self.place.wrapping_add_signed(branch_distance(distance))))
    }

    fn output(&mut self, group: &Group, loads: [u32; 2], out: &Out) {
        if let Some(output) = out.method {
            let word = self.put_out(group, loads, output);
            self.method = METHOD::ADDRESS.get(word);
            self.increment = METHOD::INCREMENT.get(word);
        }
        if let Some(output) = out.emit {
            let data = self.put_out(group, loads, output);
            self.sent.push_back(Sent { method: method(self.method), data });
            self.method = self.method.wrapping_add(self.increment);
        }
    }

    fn put_out(&self, group: &Group, loads: [u32; 2], output: Output) -> u32 {
        let immediate = |index: usize| group.immediates.get(index).copied().unwrap_or(0);
        match output {
            Output::Alu(index) => self.results.get(index).copied().unwrap_or(0),
            Output::Load(index) => loads.get(index).copied().unwrap_or(0),
            Output::Immediate(index) => immediate(index).into(),
            Output::ImmediateHigh(index) => METHOD::INCREMENT.get(immediate(index).into()),
            Output::Immediate32 => immediate32(group),
        }
    }
}
