//! A program: a prologue that loads operands, instances, and what stores their results.

use gpuvmk_isa::{Arch, Control, Word};

use crate::instance::{Instance, READ, RESULT, RESULT_PREDICATE, UNIFORM, UNIFORM_RESULT, by_scoreboard};
use crate::random::Random;
use crate::task::{FILLED, Launched, Task};
use crate::template as t;
use crate::windows::{self, Places};

/// Words that each thread loads.
pub const IN_WORDS: usize = 16;

/// Registers of a thread, as a launch counts them.
pub const REGISTERS: u16 = 80;

/// Bytes of constant bank 0.
pub const CONSTANTS: usize = 0x400;

/// Threads of a block.
pub const BLOCK: u32 = 256;

/// Where constant bank 0 has the two addresses, and the first of the uniform registers' values.
pub const PARAMETERS: u16 = 0x210;
const UNIFORM_VALUES: u16 = 0x220;

/// The thread's number, a one, the address of what is stored next, and predicates that are stored.
const THREAD: u8 = 0;
const ONE: u8 = 1;
const TO: u8 = 4;
const PREDICATES: u8 = 36;

/// Uniform registers with uniform predicates that are stored.
const UNIFORM_BITS: u8 = 20;

/// A program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Of which version its code is.
    pub arch: Arch,
    /// Names its inputs.
    pub seed: u64,
    /// How many threads run it: a multiple of [`BLOCK`], or less than that.
    pub threads: u32,
    /// Its instructions.
    pub words: Vec<Word>,
    /// Its instances, and where they are.
    pub instances: Vec<(usize, Instance)>,
}

fn prologue() -> Vec<Word> {
    let mut words = vec![t::thread(THREAD), t::block(1), t::constant_pair(2, PARAMETERS), t::wait()];
    words.push(t::multiply_add(THREAD, 1, BLOCK, THREAD));
    words.push(t::uniform_constant(60, 0x208));
    words.push(t::uniform_constant(61, 0x208));
    words.push(t::wide_multiply_add(6, THREAD, 4 * 16, 2));
    for (register, offset) in (READ.0..READ.1).step_by(4).zip((0..).step_by(16)) {
        words.push(t::load(register, 6, offset));
    }
    words.extend([t::constant_pair(2, PARAMETERS + 8), t::wait()]);
    words.push(t::wide_multiply_add(TO, THREAD, 4, 2));
    words.push(t::move_immediate(ONE, 1));
    words.extend((0..3).map(|predicate| t::differ(predicate, 16 + predicate, 24 + predicate)));
    // The fourth is the same for a warp.
    words.push(t::has_bit(3, THREAD, 32));
    let uniform = UNIFORM.0..UNIFORM.1;
    words.extend(
        uniform.map(|register| t::uniform_constant(register, UNIFORM_VALUES + u16::from(register) * 4)),
    );
    words.push(t::wait());
    words.extend((0..4).map(|predicate| t::uniform_differ(predicate, 4 + predicate, 12)));
    words
}

/// What an instance finds in the registers that it writes: those of no other instance.
fn before(instance: &Instance) -> Vec<Word> {
    let mut words = Vec::new();
    let count = instance.words;
    if instance.uniform.0 {
        words.extend((0..2).map(|index| t::uniform_move(UNIFORM_RESULT + index, UNIFORM.0 + index)));
    } else if count > 0 {
        words.extend((0..count).map(|index| t::move_register(RESULT + index, READ.1 - 4 + index)));
    }
    if instance.predicates {
        words.extend((0..2).map(|index| t::differ(RESULT_PREDICATE + index, READ.0, READ.0 + 4 + index)));
    }
    if instance.uniform.1 {
        words.extend((0..2).map(|index| t::uniform_differ(RESULT_PREDICATE + index, 4 + index, 6)));
    }
    words.extend(windows::around(instance.opcode, instance.window).0);
    words
}

/// How an instance is scheduled.
fn control(instance: &Instance) -> u32 {
    if windows::accesses(instance.opcode) {
        let gives = instance.words > 0 || instance.predicates;
        match (gives, instance.uniform.0) {
            (_, true) => t::WAIT,
            (true, false) => t::sets(0),
            (false, false) => t::reads(t::WAIT),
        }
    } else if by_scoreboard(instance.opcode) {
        t::sets(0)
    } else {
        t::WAIT
    }
}

fn after(instance: &Instance, threads: u32) -> Vec<Word> {
    let mut words = Vec::new();
    if instance.predicates {
        words.push(t::predicates(PREDICATES));
    }
    if instance.uniform.0 {
        words.extend((0..2).map(|index| t::from_uniform(RESULT + index, UNIFORM_RESULT + index)));
    }
    if instance.uniform.1 {
        for index in 0..2 {
            words.push(t::uniform_predicate_bit(UNIFORM_BITS + index, RESULT_PREDICATE + index));
            words.push(t::wait());
            words.push(t::from_uniform(RESULT + 2 + index, UNIFORM_BITS + index));
        }
    }
    let registers = (0..instance.words).map(|index| RESULT + index);
    let registers = registers.chain(instance.predicates.then_some(PREDICATES));
    let mut held = 0..0;
    if let Some(window) = instance.window.filter(|_| instance.changes) {
        let (back, first) = windows::read_back(window);
        words.extend(back);
        held = first..first + windows::WORDS;
    }
    let registers = registers.chain(held);
    words.extend(registers.zip((0..).step_by(4)).map(|(from, word)| t::store(TO, word * threads, from)));
    // Registers that are stored are read before anything else is written.
    words.push(t::wait());
    let slots = u32::try_from(instance.slots()).unwrap_or(0);
    words.push(t::wide_multiply_add(TO, ONE, slots * 4 * threads, TO));
    words
}

impl Program {
    /// The program of these instances.
    #[must_use]
    pub fn of(arch: Arch, seed: u64, threads: u32, instances: &[Word]) -> Self {
        let mut program = Self { arch, seed, threads, words: prologue(), instances: Vec::new() };
        let accesses = |word: &Word| Instance::of(arch, *word).is_some_and(|it| windows::accesses(it.opcode));
        if instances.iter().any(accesses) {
            program.words.extend(windows::prologue(THREAD));
        }
        for word in instances {
            let Some(instance) = Instance::of(arch, *word) else { continue };
            program.words.extend(before(&instance));
            program.instances.push((program.words.len(), instance));
            program.words.push(word.with_control(Control(control(&instance))));
            // Results of a fixed time are there after 75 cycles, others when the scoreboard says so.
            program.words.extend(std::iter::repeat_n(t::wait(), 4));
            program.words.extend(windows::around(instance.opcode, instance.window).1);
            program.words.extend(after(&instance, threads));
        }
        program.words.extend([t::wait(), t::exit(), t::stay()]);
        program
    }

    /// Its machine code.
    #[must_use]
    pub fn code(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.0.to_le_bytes()).collect()
    }

    /// True if it has windows of memory.
    #[must_use]
    pub fn has_windows(&self) -> bool {
        self.instances.iter().any(|(_, instance)| instance.window.is_some())
    }

    /// Words that a thread stores.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.instances.iter().map(|(_, instance)| instance.slots()).sum()
    }

    /// Words that the threads store: each instance's first words of all threads, then its second ones.
    #[must_use]
    pub fn stored(&self) -> usize {
        self.slots() * usize::try_from(self.threads).unwrap_or(0)
    }

    /// What its threads load.
    #[must_use]
    pub fn inputs(&self) -> Vec<u32> {
        let mut random = Random::new(self.seed ^ 0x5eed);
        (0..self.threads).flat_map(|_| random.operands()).collect()
    }

    /// Constant bank 0: addresses of what is loaded and of what is stored, and random words.
    #[must_use]
    pub fn constants(&self, places: &Places) -> Vec<u8> {
        let mut random = Random::new(self.seed ^ 0xc057);
        let mut bytes = vec![0; usize::from(PARAMETERS)];
        windows::addresses(&mut bytes, places);
        for address in [places.inputs, places.outputs] {
            bytes.extend(address.to_le_bytes());
        }
        while bytes.len() < CONSTANTS {
            bytes.extend(random.operand().to_le_bytes());
        }
        bytes
    }
}

impl Launched for Program {
    fn task(&self, places: &Places) -> Task {
        let windows = self.has_windows();
        Task {
            arch: self.arch,
            code: self.code(),
            registers: REGISTERS,
            shared: if windows { windows::shared_size(BLOCK) } else { 0 },
            barriers: 0,
            local: if windows { windows::LOCAL_SIZE } else { 0 },
            local_high: 0,
            grid: self.threads.div_ceil(BLOCK),
            block: self.threads.min(BLOCK),
            banks: vec![(0, self.constants(places))],
            variables: Vec::new(),
            inputs: self.inputs(),
            stored: self.stored(),
            filled: FILLED,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuvmk_isa::decode;

    #[test]
    fn everything_around_the_instances_is_legal_and_is_what_it_says() {
        let uniform = Instance {
            word: Word::default(),
            opcode: gpuvmk_isa::Opcode::Umov,
            words: 4,
            predicates: true,
            uniform: (true, true),
            window: None,
            changes: false,
        };
        let lanes = Instance { uniform: (false, false), ..uniform };
        let around = [uniform, lanes].into_iter().flat_map(|it| [before(&it), after(&it, 256)].concat());
        let words: Vec<_> = prologue().into_iter().chain(around).chain([t::exit()]).collect();
        let text: Vec<String> = words
            .iter()
            .map(|word| {
                decode(Arch::Sm90, *word).unwrap_or_else(|error| panic!("{word:x?}: {error:?}")).to_string()
            })
            .collect();
        for line in [
            "S2R R0, SR_TID.X",
            "LDC.64 R2, c[0x0][0x210]",
            "IMAD.U32 R0, R1, 0x100, R0",
            "IMAD.WIDE.U32 R6, R0, 0x40, R2",
            "LDG.E.128 R20, desc[UR60][R6.64+0x10]",
            "STG.E desc[UR60][R4.64+0x400], R33",
            "ULDC UR60, c[0x0][0x208]",
            "ISETP.NE.U32.AND P2, PT, R18, R26, PT",
            "LOP3.LUT P3, RZ, R0, 0x20, RZ, 0xc0, !PT",
            "P2R R36, PR, RZ, 0x7f",
            "UISETP.NE.U32.AND UP4, UPT, UR4, UR6, UPT",
            "USEL UR20, URZ, 0x1, !UP4",
            "UMOV UR17, UR5",
            "MOV R35, R31",
            "MOV R33, UR17",
            "EXIT",
        ] {
            assert!(text.iter().any(|one| one == line), "{line} in {text:#?}");
        }
    }
}
