//! A program: random instructions between a prologue that loads operands and an epilogue that stores them.

use gpuvmk_isa::{Arch, Opcode, Word, decode};

use crate::instance::{Source, by_scoreboard};
use crate::random::Random;
use crate::template as t;
use gpuvmk_isa::Control;

/// Words that each thread loads, and words that it stores.
pub const IN_WORDS: usize = 16;
/// 32 registers, 7 predicates and a word of nothing, 12 uniform registers.
pub const OUT_WORDS: usize = 32 + 8 + 12;

/// Registers of a thread, as a launch counts them.
pub const REGISTERS: u16 = 72;

/// Bytes of constant bank 0.
pub const CONSTANTS: usize = 0x400;

/// Threads of a block.
pub const BLOCK: u32 = 256;

/// Where constant bank 0 has the two addresses, and the first of the uniform registers' values.
const PARAMETERS: u16 = 0x210;
const UNIFORM: u16 = 0x220;

/// A program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Of which version its code is.
    pub arch: Arch,
    /// Names its code and its inputs.
    pub seed: u64,
    /// Its instructions.
    pub words: Vec<Word>,
    /// Where its random instructions are, and what they are.
    pub instances: Vec<(usize, Opcode)>,
}

fn prologue() -> Vec<Word> {
    let mut words = vec![t::thread(0), t::block(1), t::constant_pair(2, PARAMETERS), t::wait()];
    words.push(t::multiply_add(0, 1, BLOCK, 0));
    words.push(t::uniform_constant(60, 0x208));
    words.push(t::uniform_constant(61, 0x208));
    words.push(t::wide_multiply_add(4, 0, 4 * 16, 2));
    for (register, offset) in (16..64).step_by(4).zip([0, 16, 32, 48].into_iter().cycle()) {
        words.push(t::load(register, 4, offset));
    }
    words.push(t::wait());
    words.extend((0..7).map(|predicate| t::differ(predicate, 16 + predicate, 24 + predicate)));
    words.extend((4..16).map(|register| t::uniform_constant(register, UNIFORM + u16::from(register) * 4)));
    words.push(t::wait());
    words
}

fn epilogue() -> Vec<Word> {
    let mut words = vec![t::wait(), t::constant_pair(2, PARAMETERS + 8), t::wait()];
    words.push(t::wide_multiply_add(4, 0, 4 * 52, 2));
    words.extend((32..64).step_by(4).zip((0..).step_by(16)).map(|(register, at)| t::store(4, at, register)));
    words.extend((0..7).map(|predicate| t::predicate_bit(32 + predicate, predicate)));
    words.push(t::multiply_add(39, 255, 0, 255));
    words.extend((0..12).map(|index| t::from_uniform(40 + index, 4 + index)));
    words
        .extend((32..52).step_by(4).zip((128..).step_by(16)).map(|(register, at)| t::store(4, at, register)));
    words.extend([t::exit(), t::stay()]);
    words
}

impl Program {
    /// The program of a seed, with this many random instructions.
    #[must_use]
    pub fn new(source: &Source, arch: Arch, seed: u64, instances: usize) -> Self {
        let mut random = Random::new(seed);
        let mut words = Vec::new();
        while words.len() < instances {
            words.extend(source.instruction(&mut random));
        }
        Self::of(arch, seed, words)
    }

    /// The program of these instructions. The seed names its inputs.
    #[must_use]
    pub fn of(arch: Arch, seed: u64, instances: Vec<Word>) -> Self {
        let mut program = Self { arch, seed, words: prologue(), instances: Vec::new() };
        for word in instances {
            let Ok(instruction) = decode(arch, word) else { continue };
            let opcode = instruction.opcode();
            program.instances.push((program.words.len(), opcode));
            let control = if by_scoreboard(opcode) { t::sets(0) } else { t::WAIT };
            program.words.push(word.with_control(Control(control)));
            // Results of a fixed time are there after 45 cycles, others when the scoreboard says so.
            program.words.extend([t::wait(), t::wait()]);
        }
        program.words.extend(epilogue());
        program
    }

    /// Its machine code.
    #[must_use]
    pub fn code(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.0.to_le_bytes()).collect()
    }
}

/// What the threads load.
#[must_use]
pub fn inputs(seed: u64, threads: usize) -> Vec<u32> {
    let mut random = Random::new(seed ^ 0x5eed);
    (0..threads * IN_WORDS).map(|_| random.operand()).collect()
}

/// Constant bank 0: addresses of what is loaded and of what is stored, and random words.
#[must_use]
pub fn constants(seed: u64, from: u64, to: u64) -> Vec<u8> {
    let mut random = Random::new(seed ^ 0xc057);
    let mut bytes = vec![0; usize::from(PARAMETERS)];
    for address in [from, to] {
        bytes.extend(address.to_le_bytes());
    }
    while bytes.len() < CONSTANTS {
        bytes.extend(random.operand().to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_around_the_instances_is_legal_and_is_what_it_says() {
        let words: Vec<_> = prologue().into_iter().chain(epilogue()).collect();
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
            "IMAD.WIDE.U32 R4, R0, 0x40, R2",
            "LDG.E.128 R20, desc[UR60][R4.64+0x10]",
            "STG.E.128 desc[UR60][R4.64+0x70], R60",
            "ULDC UR60, c[0x0][0x208]",
            "ISETP.NE.U32.AND P3, PT, R19, R27, PT",
            "SEL R34, RZ, 0x1, !P2",
            "MOV R51, UR15",
            "EXIT",
        ] {
            assert!(text.iter().any(|one| one == line), "{line} in {text:#?}");
        }
    }

    #[test]
    fn random_programs_meet_every_code_and_are_the_same_each_time() {
        let source = Source::new(Arch::Sm90);
        let program = Program::new(&source, Arch::Sm90, 1, 300);
        assert_eq!(program, Program::new(&source, Arch::Sm90, 1, 300));
        let mut met = std::collections::HashSet::new();
        for seed in 0..20 {
            let program = Program::new(&source, Arch::Sm90, seed, 300);
            for (at, _) in &program.instances {
                met.insert(program.words[*at].code().0);
                assert!(decode(Arch::Sm90, program.words[*at]).is_ok());
            }
        }
        assert_eq!(met.len(), source.seeds().count(), "codes");
    }
}
