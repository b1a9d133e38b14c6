//! Random instructions that are legal, that work on registers alone, and that give the same each time.
//!
//! A word is made by turning bits of a legal one over, as long as the decoder takes it. So every field and
//! value that the decoder's table has is met, and none that it has not.

use gpuvmk_isa::{Arch, Bits, Code, Opcode, Operand, Reg, Role, UPred, UReg, Word, codes, decode};

use crate::random::Random;
use crate::template::GUARD;

/// Registers that are only read, and those that are read and written.
const READ: (u8, u8) = (16, 32);
const WRITTEN: (u8, u8) = (32, 64);

/// Uniform registers that are read and written.
const UNIFORM: (u8, u8) = (4, 16);

/// Bytes of constant bank 0 that hold random words.
const CONSTANTS: (u16, u16) = (0x220, 0x400);

/// Turns of a bit that are tried for one instruction.
const TURNS: usize = 160;

/// Operations that work on registers alone, and on nothing that differs from run to run.
const SUBJECTS: &[Opcode] = &[
    Opcode::Mov,
    Opcode::Umov,
    Opcode::Sel,
    Opcode::Usel,
    Opcode::Prmt,
    Opcode::Uprmt,
    Opcode::Iadd3,
    Opcode::Uiadd3,
    Opcode::Iadd,
    Opcode::Viadd,
    Opcode::Viaddmnmx,
    Opcode::Imad,
    Opcode::ImadWide,
    Opcode::ImadHi,
    Opcode::Uimad,
    Opcode::UimadWide,
    Opcode::UimadHi,
    Opcode::Isetp,
    Opcode::Uisetp,
    Opcode::Lea,
    Opcode::Ulea,
    Opcode::Lop3,
    Opcode::Ulop3,
    Opcode::Plop3,
    Opcode::Uplop3,
    Opcode::Shf,
    Opcode::Ushf,
    Opcode::Imnmx,
    Opcode::Vimnmx,
    Opcode::Iabs,
    Opcode::Popc,
    Opcode::Upopc,
    Opcode::Flo,
    Opcode::Uflo,
    Opcode::Brev,
    Opcode::Ubrev,
    Opcode::Bmsk,
    Opcode::Ubmsk,
    Opcode::Sgxt,
    Opcode::Usgxt,
    Opcode::Vabsdiff,
    Opcode::P2r,
    Opcode::R2p,
    Opcode::Fadd,
    Opcode::Fmul,
    Opcode::Ffma,
    Opcode::Fmnmx,
    Opcode::Fsel,
    Opcode::Fset,
    Opcode::Fsetp,
    Opcode::Fswzadd,
    Opcode::Fchk,
    Opcode::Mufu,
    Opcode::Frnd,
    Opcode::F2f,
    Opcode::F2i,
    Opcode::I2f,
    Opcode::I2fp,
    Opcode::F2fp,
    Opcode::I2i,
    Opcode::I2ip,
    Opcode::Dadd,
    Opcode::Dmul,
    Opcode::Dfma,
    Opcode::Dsetp,
    Opcode::Hadd2,
    Opcode::Hfma2,
    Opcode::Hfma2Mma,
    Opcode::Hmul2,
    Opcode::Hset2,
    Opcode::Hsetp2,
    Opcode::Hmnmx2,
    Opcode::Vote,
    Opcode::Voteu,
    Opcode::Match,
    Opcode::Redux,
    Opcode::Shfl,
    Opcode::R2ur,
];

/// Operations whose result comes when it comes: a scoreboard tells. The others take a fixed time.
const BY_SCOREBOARD: &[Opcode] = &[
    Opcode::Popc,
    Opcode::Flo,
    Opcode::Brev,
    Opcode::Fchk,
    Opcode::Mufu,
    Opcode::Frnd,
    Opcode::F2f,
    Opcode::F2i,
    Opcode::I2f,
    Opcode::I2i,
    Opcode::I2ip,
    Opcode::Dadd,
    Opcode::Dmul,
    Opcode::Dfma,
    Opcode::Dsetp,
    Opcode::Movm,
    Opcode::Match,
    Opcode::Redux,
    Opcode::Shfl,
    Opcode::R2ur,
    Opcode::Imma,
];

/// True for an operation whose result a scoreboard tells.
#[must_use]
pub fn by_scoreboard(opcode: Opcode) -> bool {
    BY_SCOREBOARD.contains(&opcode)
}

/// True for an operation whose registers come in twos or fours.
fn is_wide(opcode: Opcode) -> bool {
    let wide = [
        Opcode::ImadWide,
        Opcode::ImadHi,
        Opcode::UimadWide,
        Opcode::UimadHi,
        Opcode::Dadd,
        Opcode::Dmul,
        Opcode::Dfma,
        Opcode::Dsetp,
        Opcode::F2f,
        Opcode::F2i,
        Opcode::I2f,
        Opcode::Frnd,
        Opcode::Mufu,
        Opcode::Hmma,
        Opcode::Imma,
        Opcode::Movm,
        Opcode::Match,
        Opcode::Shf,
    ];
    wide.contains(&opcode)
}

/// True for an operation that the warp does once, or whose lanes look at each other: under a predicate it
/// depends on uniform ones, which are not stored, or on lanes that do not take part.
fn is_of_the_warp(opcode: Opcode) -> bool {
    let others = [Opcode::R2ur, Opcode::Vote, Opcode::Voteu, Opcode::Match, Opcode::Redux, Opcode::Shfl];
    opcode.name().starts_with('U') || others.contains(&opcode)
}

/// What random instructions of a version are made from: a legal word of each code.
#[derive(Debug)]
pub struct Source {
    arch: Arch,
    seeds: Vec<Word>,
}

/// A word of a code that the decoder takes, if one of the usual settings of unused fields makes one.
fn seed(arch: Arch, code: Code) -> Option<Word> {
    const TRUE: [u8; 6] = [81, 84, 87, 77, 68, 24];
    let bare = Word::default().with_code(code).with(GUARD, 7);
    (0..1_u32 << TRUE.len()).find_map(|settings| {
        let set = TRUE.iter().enumerate().filter(|(index, _)| settings >> index & 1 != 0);
        let word = set.fold(bare, |word, (_, low)| word.with(Bits { lo: *low, len: 3 }, 7));
        decode(arch, word).ok().map(|_| word)
    })
}

impl Source {
    /// All codes of a version whose operation is a subject.
    #[must_use]
    pub fn new(arch: Arch) -> Self {
        let legal = codes(arch).into_iter().filter_map(|code| seed(arch, code));
        // Buffers that a register names are memory.
        let in_memory = |(_, operand): (Role, Operand)| matches!(operand, Operand::Bindless { .. });
        let subject = |word: &Word| {
            decode(arch, *word)
                .is_ok_and(|it| SUBJECTS.contains(&it.opcode()) && !it.operands().any(in_memory))
        };
        Self { arch, seeds: legal.filter(subject).collect() }
    }

    /// A legal word of each code that instructions are made of.
    pub fn seeds(&self) -> impl Iterator<Item = Word> + '_ {
        self.seeds.iter().copied()
    }

    /// A random instruction.
    pub fn instruction(&self, random: &mut Random) -> Option<Word> {
        let mut word =
            *self.seeds.get(usize::try_from(random.below(self.seeds.len().try_into().ok()?)).ok()?)?;
        let code = word.code();
        for _ in 0..TURNS {
            // The scheduler's bits and the operation stay.
            let bit = 16 + random.below(105 - 16);
            let turned = Word(word.0 ^ 1 << bit);
            if turned.code() == code && decode(self.arch, turned).is_ok() {
                word = turned;
            }
        }
        let opcode = decode(self.arch, word).ok()?.opcode();
        if !is_of_the_warp(opcode) && random.once_in(4) {
            word = word.with(GUARD, random.below(16).into());
        }
        self.confined(word, random)
    }

    /// The word with registers that the program has. `None` where an operand cannot be had, or the operation
    /// is no subject.
    pub fn confined(&self, word: Word, random: &mut Random) -> Option<Word> {
        let mut instruction = decode(self.arch, word).ok()?;
        if !SUBJECTS.contains(&instruction.opcode()) {
            return None;
        }
        let step = if is_wide(instruction.opcode()) { 4 } else { 1 };
        let operands: Vec<(Role, Operand)> = instruction.operands().collect();
        for (role, operand) in operands {
            let to = role == Role::Dst;
            let confined = match operand {
                Operand::Reg(Reg(255), _) if !to => continue,
                Operand::Reg(_, modifiers) => {
                    let fresh = !to && !random.once_in(3);
                    let (first, end) = if fresh { READ } else { WRITTEN };
                    Operand::Reg(Reg(pick(random, first, end, step)), modifiers)
                }
                Operand::UReg(UReg(255), _) => continue,
                Operand::UReg(_, modifiers) => {
                    Operand::UReg(UReg(pick(random, UNIFORM.0, UNIFORM.1, 2)), modifiers)
                }
                // Uniform predicates are not stored; none is set.
                Operand::UPred(_, negate) => Operand::UPred(UPred(7), negate && !to),
                Operand::Imm(_) => Operand::Imm(random.operand()),
                Operand::Const { modifiers, .. } => {
                    let words = u32::from((CONSTANTS.1 - CONSTANTS.0) / 8);
                    let offset = CONSTANTS.0 + u16::try_from(random.below(words)).ok()? * 8;
                    Operand::Const { bank: 0, offset, modifiers }
                }
                Operand::Pred(..) | Operand::Number(_) => continue,
                _ => return None,
            };
            instruction = instruction.with_operand(role, confined);
        }
        let word = instruction.encode()?;
        decode(self.arch, word).ok().map(|_| word)
    }
}

fn pick(random: &mut Random, first: u8, end: u8, step: u8) -> u8 {
    let steps = u32::from(end.saturating_sub(first) / step.max(1));
    let index = u8::try_from(random.below(steps)).unwrap_or(0);
    first.saturating_add(index.saturating_mul(step))
}
