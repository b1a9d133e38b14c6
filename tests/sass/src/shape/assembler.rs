//! Puts a hand-made program together: labels, slots for what is stored, and what comes before its first
//! instruction.

use gpuvmk_isa::{Arch, Control, Operand, Role, Word, decode};

use super::{AT_LABELS, Shape, THREADS};
use crate::program::PARAMETERS;
use crate::template as t;

/// The thread's number in the grid, its lane, and where it stores.
pub(super) const THREAD: u8 = 0;
pub(super) const LANE: u8 = 2;
const TO: u8 = 4;
/// A register of the prologue.
const SCRATCH: u8 = 1;
/// The first register that programs have for themselves.
pub(super) const FREE: u8 = 8;

/// A place in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label(usize);

/// What of an instruction depends on a label.
#[derive(Clone, Copy, Debug)]
enum Use {
    /// A distance.
    Near(usize, Label),
    /// The address.
    Far(usize, Label),
    /// The distance of two, as an immediate.
    Between(usize, Label, Label),
}

/// A program that is not complete yet.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    words: Vec<Word>,
    labels: Vec<Option<usize>>,
    uses: Vec<Use>,
    constants: Vec<Label>,
    slots: Vec<String>,
    local: (u32, u32),
    shared: u32,
}

impl Assembler {
    /// Adds a word. All scoreboards are waited for before it.
    pub(super) fn put(&mut self, word: Word) {
        self.words.push(word);
    }

    /// Adds a word under a predicate, 0 to 6, or 8 more for its negation.
    pub(super) fn put_if(&mut self, predicate: u8, word: Word) {
        self.put(word.with(t::GUARD, predicate.into()));
    }

    /// Adds a word whose result a scoreboard tells, and a wait for it.
    pub(super) fn get(&mut self, word: Word) {
        self.words.extend([word.with_control(Control(t::sets(0))), t::wait()]);
    }

    /// A label that is nowhere yet.
    pub(super) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Puts it here.
    pub(super) fn place(&mut self, label: Label) {
        self.labels[label.0] = Some(self.words.len());
    }

    /// Adds a word that names a label by its distance.
    pub(super) fn near(&mut self, word: Word, label: Label) {
        self.uses.push(Use::Near(self.words.len(), label));
        self.put(word);
    }

    /// The same under a predicate.
    pub(super) fn near_if(&mut self, predicate: u8, word: Word, label: Label) {
        self.near(word.with(t::GUARD, predicate.into()), label);
    }

    /// Adds a word that names a label by its address.
    pub(super) fn far(&mut self, word: Word, label: Label) {
        self.uses.push(Use::Far(self.words.len(), label));
        self.put(word);
    }

    /// Moves the distance from one label to another one behind it into a pair of registers.
    pub(super) fn distance(&mut self, pair: u8, from: Label, to: Label) {
        self.uses.push(Use::Between(self.words.len(), from, to));
        self.put(t::move_immediate(pair, 0));
        self.put(t::move_immediate(pair + 1, 0));
    }

    /// Where constant bank 0 has a label's address.
    pub(super) fn address(&mut self, label: Label) -> u16 {
        self.constants.push(label);
        AT_LABELS + 8 * u16::try_from(self.constants.len() - 1).unwrap_or(0)
    }

    /// Stores a register. `what` names it where it differs.
    pub(super) fn store(&mut self, what: &str, register: u8) {
        let word = store(self.slots.len(), register);
        self.slots.push(what.to_owned());
        self.words.extend([word, t::wait()]);
    }

    /// Bytes of local memory of a thread, from address 0 on and up to the last address.
    pub(super) fn local(&mut self, low: u32, high: u32) {
        self.local = (low, high);
    }

    /// Bytes of shared memory of a block.
    pub(super) fn shared(&mut self, size: u32) {
        self.shared = size;
    }

    /// The program, which ends here.
    pub(super) fn end(mut self, name: &'static str) -> Shape {
        self.words.extend([t::wait(), t::exit(), t::stay()]);
        let mut words = prologue(self.slots.len());
        let first = words.len();
        words.append(&mut self.words);
        let at = |label: Label| first + self.labels[label.0].unwrap_or(0);
        let mut absolute = Vec::new();
        for one in &self.uses {
            match *one {
                Use::Near(index, label) => {
                    let index = first + index;
                    let distance =
                        (i64::try_from(at(label)).unwrap_or(0) - i64::try_from(index + 1).unwrap_or(0)) * 16;
                    words[index] = with_target(words[index], Operand::Target(distance));
                }
                Use::Between(index, from, to) => {
                    let distance = u32::try_from((at(to) - at(from)) * 16).unwrap_or(0);
                    words[first + index].0 |= t::immediate(distance);
                }
                Use::Far(index, label) => absolute.push((first + index, at(label))),
            }
        }
        let addresses = self.constants.iter().map(|label| at(*label)).collect();
        Shape { name, words, absolute, addresses, slots: self.slots, local: self.local, shared: self.shared }
    }
}

/// The word with a target.
pub(super) fn with_target(word: Word, target: Operand) -> Word {
    let instruction = decode(Arch::Sm90, word).ok();
    let encoded = instruction.and_then(|it| it.with_operand(Role::Target, target).encode());
    encoded.map_or(word, |encoded| encoded.with_control(word.control()))
}

fn store(slot: usize, register: u8) -> Word {
    t::store(TO, u32::try_from(slot).unwrap_or(0) * 4 * THREADS, register)
}

/// Loads what programs find in registers, and stores zeroes: lanes that end early store nothing more.
fn prologue(slots: usize) -> Vec<Word> {
    let mut words = vec![
        t::thread(THREAD),
        t::block(SCRATCH),
        t::constant_pair(TO, PARAMETERS + 8),
        t::special(LANE, 0),
        t::wait(),
        t::uniform_constant(60, 0x208),
        t::uniform_constant(61, 0x208),
        t::wait(),
        t::multiply_add(THREAD, SCRATCH, super::BLOCK, THREAD),
        t::wide_multiply_add(TO, THREAD, 4, TO),
    ];
    words.extend((0..3).map(|bit| t::has_bit(bit, LANE, 1 << bit)));
    words.push(t::move_immediate(SCRATCH, 0));
    words.extend((0..slots).map(|slot| store(slot, SCRATCH)));
    words.push(t::wait());
    words
}
