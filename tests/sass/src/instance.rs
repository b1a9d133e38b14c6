//! Instances: instructions of compiled kernels with the registers, predicates and immediates of a program.
//!
//! Only words that a compiler made are used, since a GPU refuses combinations of fields that look legal. An
//! instance reads what no instance writes, and writes registers that are stored right after it: what one
//! gives does not depend on another.

use gpuvmk_isa::{Arch, Instruction, Opcode, Operand, Pred, Reg, Role, UPred, UReg, Word, decode};

use crate::random::Random;
use crate::template::GUARD;
use crate::windows::{self, Window};

/// Registers with operands.
pub(crate) const READ: (u8, u8) = (16, 32);

/// First of four registers that take results.
pub(crate) const RESULT: u8 = 32;

/// Uniform registers with operands.
pub(crate) const UNIFORM: (u8, u8) = (4, 16);

/// First of two uniform registers that take results.
pub(crate) const UNIFORM_RESULT: u8 = 16;

/// Predicates below are read, and there are as many uniform ones that are.
const CONDITIONS: u32 = 4;

/// Predicates from here on take results, and uniform ones.
pub(crate) const RESULT_PREDICATE: u8 = 4;

/// Bytes of constant bank 0 that hold random words.
const CONSTANTS: (u16, u16) = (0x220, 0x400);

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
    Opcode::Idp4a,
    Opcode::Idp2a,
    Opcode::Idp2aHi,
    Opcode::Vabsdiff4,
    Opcode::VimnmxU16x2,
    Opcode::VimnmxS16x2,
    Opcode::Hmma,
    Opcode::Imma,
    Opcode::Bmma,
    Opcode::Dmma,
    Opcode::Movm,
    Opcode::Elect,
    Opcode::Up2ur,
];

/// Operations whose result comes when it comes: a scoreboard tells, as it does in all that NVIDIA's compiler
/// makes for SM 9.0. The others take a fixed time, doubles among them.
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
    Opcode::Movm,
    Opcode::Dmma,
    Opcode::Match,
    Opcode::Redux,
    Opcode::Shfl,
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
        Opcode::Bmma,
        Opcode::Dmma,
        Opcode::Movm,
        Opcode::Match,
        Opcode::Shf,
        Opcode::Cs2r,
    ];
    wide.contains(&opcode)
}

/// An instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Its word.
    pub word: Word,
    /// What it does.
    pub opcode: Opcode,
    /// Words of results that are stored: two more than most operations write tell what they should not.
    pub words: u8,
    /// A lanes' predicate is among its results: all are stored.
    pub predicates: bool,
    /// A uniform register, or a uniform predicate, is.
    pub uniform: (bool, bool),
    /// Memory that it uses, if any.
    pub window: Option<Window>,
    /// What is in that memory afterwards is among its results.
    pub changes: bool,
}

impl Instance {
    /// What a word of [`confined`] stores.
    #[must_use]
    pub fn of(arch: Arch, word: Word) -> Option<Self> {
        let instruction = decode(arch, word).ok()?;
        let opcode = instruction.opcode();
        let mut it = Self {
            word,
            opcode,
            words: 0,
            predicates: opcode == Opcode::R2p,
            uniform: (false, false),
            window: if windows::accesses(opcode) { windows::of(&instruction) } else { None },
            changes: windows::changes(opcode),
        };
        let wide = is_wide(opcode) || windows::accesses(opcode);
        for (role, operand) in instruction.operands() {
            match (role, operand) {
                (Role::Dst, Operand::Reg(..)) => it.words = if wide { 4 } else { 2 },
                (Role::Dst, Operand::UReg(..)) => (it.words, it.uniform.0) = (it.words.max(2), true),
                (Role::PDst0 | Role::PDst1, Operand::Pred(..)) => it.predicates = true,
                (Role::PDst0 | Role::PDst1, Operand::UPred(UPred(0..=6), _)) => {
                    (it.words, it.uniform.1) = (4, true);
                }
                _ => {}
            }
        }
        (it.slots() != 0).then_some(it)
    }

    /// Words that each thread stores.
    #[must_use]
    pub fn slots(&self) -> usize {
        let held = if self.changes { windows::WORDS } else { 0 };
        usize::from(self.words) + usize::from(self.predicates) + usize::from(held)
    }
}

/// The mnemonic with its modifiers, and, of operations that lanes do together, whether all of them do.
#[must_use]
pub fn label(instruction: &Instruction) -> String {
    let text = instruction.to_string();
    let guarded = text.starts_with('@');
    let mnemonic = text.split(' ').nth(usize::from(guarded)).unwrap_or_default();
    let together = [Opcode::R2ur, Opcode::Vote, Opcode::Voteu, Opcode::Match, Opcode::Redux, Opcode::Shfl];
    let guard = if guarded && together.contains(&instruction.opcode()) { "@ " } else { "" };
    format!("{guard}{mnemonic}")
}

/// The word with registers that a program has. `None` where an operand cannot be had, or the operation is
/// no subject.
pub fn confined(arch: Arch, word: Word, random: &mut Random) -> Option<Word> {
    let mut instruction = decode(arch, word).ok()?;
    let opcode = instruction.opcode();
    if windows::accesses(opcode) {
        return guarded(arch, windows::confined(arch, word, random)?, random);
    }
    if !SUBJECTS.contains(&opcode) {
        return None;
    }
    let step = if is_wide(opcode) { 4 } else { 1 };
    let operands: Vec<(Role, Operand)> = instruction.operands().collect();
    for (role, operand) in operands {
        let to = role == Role::Dst;
        let confined = match operand {
            Operand::Reg(Reg(255), _) => continue,
            Operand::Reg(_, modifiers) if to => Operand::Reg(Reg(RESULT), modifiers),
            Operand::Reg(_, modifiers) => Operand::Reg(Reg(pick(random, READ, step)), modifiers),
            Operand::UReg(UReg(255), _) => continue,
            Operand::UReg(_, modifiers) if to => Operand::UReg(UReg(UNIFORM_RESULT), modifiers),
            Operand::UReg(_, modifiers) => Operand::UReg(UReg(pick(random, UNIFORM, 2)), modifiers),
            Operand::Pred(Pred(7), _) | Operand::UPred(UPred(7), _) => continue,
            Operand::Pred(_, negate) => Operand::Pred(Pred(predicate(role, random)), negate),
            Operand::UPred(_, negate) => Operand::UPred(UPred(predicate(role, random)), negate),
            Operand::Imm(_) => Operand::Imm(random.operand()),
            Operand::Const { modifiers, .. } => {
                let words = u32::from((CONSTANTS.1 - CONSTANTS.0) / 8);
                let offset = CONSTANTS.0 + u16::try_from(random.below(words)).ok()? * 8;
                Operand::Const { bank: 0, offset, modifiers }
            }
            Operand::Number(number) => Operand::Number(number_of(opcode, role, number, random)?),
            _ => return None,
        };
        instruction = instruction.with_operand(role, confined);
    }
    guarded(arch, instruction.encode()?, random)
}

/// Operations on matrices, of which each lane has a part.
const TOGETHER: &[Opcode] =
    &[Opcode::Hmma, Opcode::Imma, Opcode::Bmma, Opcode::Dmma, Opcode::Movm, Opcode::Ldsm, Opcode::Stsm];

/// The word with a guard that a program has: some that have none get one.
fn guarded(arch: Arch, word: Word, random: &mut Random) -> Option<Word> {
    let none = word.get(GUARD) == 7;
    let word = if TOGETHER.contains(&decode(arch, word).ok()?.opcode()) {
        // What a matrix is of which lanes have no part is not defined.
        word.with(GUARD, 7)
    } else if none && !random.once_in(4) {
        word
    } else {
        word.with(GUARD, (random.below(CONDITIONS) + 8 * random.below(2)).into())
    };
    decode(arch, word).ok().map(|_| word)
}

/// Tables, shifts and the like: those that are data are random.
fn number_of(opcode: Opcode, role: Role, number: i64, random: &mut Random) -> Option<i64> {
    let byte = |random: &mut Random| i64::from(random.below(256));
    Some(match (opcode, role) {
        (Opcode::Lop3 | Opcode::Ulop3 | Opcode::Plop3 | Opcode::Uplop3, Role::Table | Role::Table2) => {
            byte(random)
        }
        (Opcode::Lea | Opcode::Ulea, _) => i64::from(random.below(32)),
        (Opcode::Shfl, Role::B) => i64::from(random.below(32)),
        (Opcode::Shfl, Role::C) if random.once_in(2) => i64::from(random.below(0x2000) & 0x1f1f),
        // Predicates of results may not have been written: what a GPU has in them then is not defined.
        (Opcode::P2r, Role::Table) => i64::from(random.below(1 << CONDITIONS)),
        // Those that are read stay as they are.
        (Opcode::R2p, Role::Table) if (1..128).contains(&number) => i64::from(1 + random.below(3)) << 4,
        (Opcode::R2p, Role::Table) => return None,
        _ => number,
    })
}

fn predicate(role: Role, random: &mut Random) -> u8 {
    match role {
        Role::PDst0 => RESULT_PREDICATE,
        Role::PDst1 => RESULT_PREDICATE + 1,
        _ => u8::try_from(random.below(CONDITIONS)).unwrap_or(0),
    }
}

fn pick(random: &mut Random, (first, end): (u8, u8), step: u8) -> u8 {
    let steps = u32::from(end.saturating_sub(first) / step.max(1));
    let index = u8::try_from(random.below(steps)).unwrap_or(0);
    first.saturating_add(index.saturating_mul(step))
}

/// Words that differ in more than what [`confined`] chooses, in the order of `words`.
#[must_use]
pub fn templates(arch: Arch, words: impl Iterator<Item = Word>) -> Vec<Word> {
    let mut seen = std::collections::HashSet::new();
    let same = |word| {
        // The same choices for all.
        let mut random = Random::new(0x7e);
        confined(arch, word, &mut random).map(|word| word.with(GUARD, 7))
    };
    words.filter(|word| same(*word).is_some_and(|word| seen.insert(word))).collect()
}
