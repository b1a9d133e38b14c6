//! VFN: the function's interrupt tree.
//!
//! A vector is a bit of a leaf. It stays pending until the driver writes a one to it. Two leaves make a bit
//! of the top word, which is set while one of their enabled vectors is pending; the output is high while an
//! enabled top bit is set. A message goes out when the output rises, and when the driver enables top bits
//! while it is high: a handler disables them, reads, clears, and enables them again. A driver can raise a
//! vector by itself, to see that its interrupt works.

use super::hal::{InterruptTree, MOST_LEAVES, TreeRegister};
use gpuvmk_chip::registers::Field;
use gpuvmk_mmio_trap::access::Word;
use gpuvmk_saved_state::{Check, StateError};
use serde::{Deserialize, Serialize};

/// Effect of a register write on the interrupt output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rearm {
    /// The next message may go, also for what is pending already.
    Yes,
    /// Messages go as before.
    No,
}

/// The tree.
#[derive(Clone, Debug)]
pub struct Vfn {
    /// Leaves that there are; what is behind them is 0.
    leaves: usize,
    /// Which vector a write to the trigger raises.
    trigger: Field,
    pending: [u32; MOST_LEAVES],
    enabled: [u32; MOST_LEAVES],
    top_enabled: u32,
}

impl Vfn {
    /// A tree in its reset state.
    pub fn new(tree: &InterruptTree) -> Self {
        let none = [0; MOST_LEAVES];
        let (_, trigger) = tree.trigger;
        Self { leaves: tree.leaves(), trigger, pending: none, enabled: none, top_enabled: 0 }
    }

    /// Raises a vector. Vectors beyond the tree are ignored.
    pub fn raise(&mut self, vector: u32) {
        let (leaf, bit) = place(vector);
        if let Some(pending) = self.pending.iter_mut().take(self.leaves).nth(leaf) {
            *pending |= bit;
        }
    }

    /// Takes a vector back: its cause is gone.
    pub fn lower(&mut self, vector: u32) {
        let (leaf, bit) = place(vector);
        if let Some(pending) = self.pending.get_mut(leaf) {
            *pending &= !bit;
        }
    }

    /// True if a vector is enabled in its leaf.
    pub fn is_enabled(&self, vector: u32) -> bool {
        let (leaf, bit) = place(vector);
        self.enabled.get(leaf).is_some_and(|enabled| enabled & bit != 0)
    }

    /// True if a vector that is enabled in its leaf comes through the top.
    pub fn comes_through(&self, vector: u32) -> bool {
        let (leaf, _) = place(vector);
        let pair = u32::try_from(leaf / 2).unwrap_or(u32::MAX);
        self.top_enabled.checked_shr(pair).is_some_and(|enabled| enabled & 1 != 0)
    }

    /// The output.
    pub fn level(&self) -> bool {
        self.top() & self.top_enabled != 0
    }

    /// Reads a register.
    pub fn read(&self, register: TreeRegister) -> u32 {
        match register {
            TreeRegister::Leaf(leaf) => self.pending.get(leaf).copied().unwrap_or(0),
            TreeRegister::LeafEnableSet(leaf) | TreeRegister::LeafEnableClear(leaf) => {
                self.enabled.get(leaf).copied().unwrap_or(0)
            }
            TreeRegister::Top => self.top(),
            TreeRegister::TopEnableSet | TreeRegister::TopEnableClear => self.top_enabled,
            TreeRegister::Trigger => 0,
        }
    }

    /// Writes a register.
    pub fn write(&mut self, register: TreeRegister, word: Word) -> Rearm {
        let bits = word.bits();
        let leaves = self.leaves;
        let leaf = |words: &mut [u32; MOST_LEAVES], leaf: usize, change: fn(u32, u32) -> u32| {
            if let Some(word) = words.iter_mut().take(leaves).nth(leaf) {
                *word = change(*word, bits);
            }
        };
        match register {
            TreeRegister::Leaf(number) => leaf(&mut self.pending, number, |word, bits| word & !bits),
            TreeRegister::LeafEnableSet(number) => leaf(&mut self.enabled, number, |word, bits| word | bits),
            TreeRegister::LeafEnableClear(number) => {
                leaf(&mut self.enabled, number, |word, bits| word & !bits);
            }
            TreeRegister::Top => {}
            TreeRegister::Trigger => self.raise(self.trigger.get(bits)),
            TreeRegister::TopEnableSet => {
                self.top_enabled |= bits;
                return Rearm::Yes;
            }
            TreeRegister::TopEnableClear => self.top_enabled &= !bits,
        }
        Rearm::No
    }

    fn top(&self) -> u32 {
        let pairs = self.pending.chunks(2).zip(self.enabled.chunks(2));
        pairs.zip(0u32..).fold(0, |top, ((pending, enabled), pair)| {
            let any = pending.iter().zip(enabled).any(|(pending, enabled)| pending & enabled != 0);
            top | u32::from(any) << pair
        })
    }
}

/// A vector's leaf, and its bit there.
fn place(vector: u32) -> (usize, u32) {
    (usize::try_from(vector / 32).unwrap_or(usize::MAX), 1 << (vector % 32))
}

/// State of [`Vfn`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VfnState {
    /// NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF.
    pub leaf: [u32; MOST_LEAVES],
    /// NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF_EN_SET.
    pub leaf_en: [u32; MOST_LEAVES],
    /// NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_TOP_EN_SET.
    pub top_en: u32,
}

impl Vfn {
    /// The state to save.
    pub const fn state(&self) -> VfnState {
        let Self { leaves: _, trigger: _, pending, enabled, top_enabled } = self;
        VfnState { leaf: *pending, leaf_en: *enabled, top_en: *top_enabled }
    }

    /// The tree in a saved state: every vector can be raised, and enabled.
    ///
    /// # Errors
    /// A leaf has vectors that is not there.
    pub fn from_state(state: &VfnState, tree: &InterruptTree) -> Result<Self, StateError> {
        let VfnState { leaf, leaf_en, top_en } = state;
        let leaves = tree.leaves();
        let is_there = |words: &[u32; MOST_LEAVES]| words.iter().skip(leaves).all(|word| *word == 0);
        Check("VFN").that(is_there(leaf) && is_there(leaf_en), || {
            format!("there are vectors behind the {leaves} leaves of the tree")
        })?;
        Ok(Self { pending: *leaf, enabled: *leaf_en, top_enabled: *top_en, ..Self::new(tree) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::hal::GH100;
    use super::*;
    use TreeRegister::*;
    use gpuvmk_chip::Engine;

    #[test]
    fn enabled_vector_shows_in_leaf_and_top_and_a_one_clears_it() {
        let mut vfn = Vfn::new(&GH100.interrupts);
        vfn.write(LeafEnableSet(3), Word::full(1));
        vfn.write(TopEnableSet, Word::full(0xf));
        vfn.raise(GH100.gsp.vectors.gsp_stall);
        assert!(vfn.level());
        assert_eq!(vfn.read(Top), 2);
        assert_eq!(vfn.read(Leaf(3)), 1);
        vfn.write(Leaf(3), Word::full(1));
        assert!(!vfn.level());
        assert_eq!(vfn.read(Top), 0);
    }

    #[test]
    fn disabled_vector_is_pending_in_its_leaf_only() {
        let mut vfn = Vfn::new(&GH100.interrupts);
        vfn.write(TopEnableSet, Word::full(0xf));
        vfn.raise((GH100.gsp.vectors.non_stall)(Engine::COPY1));
        assert_eq!(vfn.read(Leaf(1)), 1 << 2);
        assert!(!vfn.level());
        vfn.write(LeafEnableSet(1), Word::full(1 << 2));
        assert!(vfn.level());
        vfn.write(LeafEnableClear(1), Word::full(u32::MAX));
        assert!(!vfn.level());
        assert_eq!(vfn.read(LeafEnableSet(1)), 0);
    }

    #[test]
    fn trigger_raises_the_vector_that_is_written_and_those_beyond_the_tree_do_nothing() {
        let mut vfn = Vfn::new(&GH100.interrupts);
        vfn.write(LeafEnableSet(4), Word::full(2));
        vfn.write(TopEnableSet, Word::full(4));
        assert_eq!(vfn.write(Trigger, Word::full(129)), Rearm::No);
        assert!(vfn.level());
        assert_eq!((vfn.read(Leaf(4)), vfn.read(Top), vfn.read(Trigger)), (2, 4, 0));
        for beyond in [512, 0xfff, u32::MAX] {
            vfn.write(Trigger, Word::full(beyond));
        }
        assert_eq!(vfn.pending.iter().sum::<u32>(), 2);
    }

    #[test]
    fn only_enabling_the_top_rearms() {
        let mut vfn = Vfn::new(&GH100.interrupts);
        assert_eq!(vfn.write(TopEnableClear, Word::full(0xf)), Rearm::No);
        assert_eq!(vfn.write(TopEnableSet, Word::full(0xf)), Rearm::Yes);
    }

    #[test]
    fn vector_beyond_the_tree_is_ignored() {
        let mut vfn = Vfn::new(&GH100.interrupts);
        vfn.raise(16 * 32);
        vfn.raise(u32::MAX);
        assert_eq!(vfn.pending, [0; MOST_LEAVES]);
    }
}
