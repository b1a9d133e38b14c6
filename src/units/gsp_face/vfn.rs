//! VFN: the function's interrupt tree.
//!
//! A vector is a bit of a leaf. It stays pending until the driver writes a one to it. Two leaves make a bit
//! of the top word, which is set while one of their enabled vectors is pending; the output is high while an
//! enabled top bit is set. A message goes out when the output rises, and when the driver enables top bits
//! while it is high: a handler disables them, reads, clears, and enables them again.

use gpuvmk_chip::gh100::regs::vfn::*;
use gpuvmk_chip::registers::{Reg, RegArray};
use gpuvmk_mmio_trap::access::Word;
use serde::{Deserialize, Serialize};

/// Leaves of the tree.
const LEAVES: usize = 16;

/// The registers that enable and disable vectors of each leaf. Both read as the enabled vectors.
const ENABLES: [RegArray; 2] =
    [NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF_EN_SET, NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF_EN_CLEAR];

/// Effect of a register write on the interrupt output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rearm {
    /// The next message may go, also for what is pending already.
    Yes,
    /// Messages go as before.
    No,
}

/// The tree.
#[derive(Clone, Debug, Default)]
pub struct Vfn {
    pending: [u32; LEAVES],
    enabled: [u32; LEAVES],
    top_enabled: u32,
}

impl Vfn {
    /// Raises a vector. Vectors beyond the tree are ignored.
    pub fn raise(&mut self, vector: u32) {
        let (leaf, bit) = place(vector);
        if let Some(pending) = self.pending.get_mut(leaf) {
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

    /// Whether a vector is enabled in its leaf.
    pub fn is_enabled(&self, vector: u32) -> bool {
        let (leaf, bit) = place(vector);
        self.enabled.get(leaf).is_some_and(|enabled| enabled & bit != 0)
    }

    /// Whether a register shows what is pending, or takes it away.
    pub fn shows_pending(reg: Reg) -> bool {
        reg == NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_TOP
            || NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF.index_of(reg).is_some()
    }

    /// Whether writes to a register change what is pending, or what comes out of it.
    pub fn steers(reg: Reg) -> bool {
        Self::shows_pending(reg)
            || ENABLES.iter().any(|family| family.index_of(reg).is_some())
            || matches!(
                reg,
                NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_TOP_EN_SET | NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_TOP_EN_CLEAR
            )
    }

    /// Whether a vector that is enabled in its leaf comes through the top.
    pub fn comes_through(&self, vector: u32) -> bool {
        let (leaf, _) = place(vector);
        let pair = u32::try_from(leaf / 2).unwrap_or(u32::MAX);
        self.top_enabled.checked_shr(pair).is_some_and(|enabled| enabled & 1 != 0)
    }

    /// The output.
    pub fn level(&self) -> bool {
        self.top() & self.top_enabled != 0
    }

    /// Reads a register; `None` for those of others.
    pub fn read(&self, reg: Reg) -> Option<u32> {
        if let Some(leaf) = leaf(NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF.index_of(reg)) {
            return self.pending.get(leaf).copied();
        }
        for family in ENABLES {
            if let Some(leaf) = leaf(family.index_of(reg)) {
                return self.enabled.get(leaf).copied();
            }
        }
        match reg {
            NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_TOP => Some(self.top()),
            NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_TOP_EN_SET | NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_TOP_EN_CLEAR => {
                Some(self.top_enabled)
            }
            _ => None,
        }
    }

    /// Writes a register; `None` for those of others.
    pub fn write(&mut self, reg: Reg, word: Word) -> Option<Rearm> {
        let bits = word.bits();
        if let Some(leaf) = leaf(NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF.index_of(reg)) {
            *self.pending.get_mut(leaf)? &= !bits;
        } else if let Some(leaf) = leaf(NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF_EN_SET.index_of(reg)) {
            *self.enabled.get_mut(leaf)? |= bits;
        } else if let Some(leaf) = leaf(NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF_EN_CLEAR.index_of(reg)) {
            *self.enabled.get_mut(leaf)? &= !bits;
        } else {
            match reg {
                NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_TOP => {}
                NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_TOP_EN_SET => {
                    self.top_enabled |= bits;
                    return Some(Rearm::Yes);
                }
                NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_TOP_EN_CLEAR => self.top_enabled &= !bits,
                _ => return None,
            }
        }
        Some(Rearm::No)
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

fn leaf(index: Option<u32>) -> Option<usize> {
    index.and_then(|index| usize::try_from(index).ok())
}

/// State of [`Vfn`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VfnState {
    /// NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF.
    pub leaf: [u32; LEAVES],
    /// NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF_EN_SET.
    pub leaf_en: [u32; LEAVES],
    /// NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_TOP_EN_SET.
    pub top_en: u32,
}

impl Vfn {
    /// The state to save.
    pub const fn state(&self) -> VfnState {
        let Self { pending, enabled, top_enabled } = self;
        VfnState { leaf: *pending, leaf_en: *enabled, top_en: *top_enabled }
    }

    /// The tree in a saved state: every vector can be raised, and enabled.
    pub const fn from_state(state: &VfnState) -> Self {
        let VfnState { leaf, leaf_en, top_en } = state;
        Self { pending: *leaf, enabled: *leaf_en, top_enabled: *top_en }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuvmk_chip::Engine;
    use gpuvmk_gsp::vector;

    const fn at(family: RegArray, leaf: u32) -> Reg {
        family.at(leaf)
    }

    #[test]
    fn enabled_vector_shows_in_leaf_and_top_and_a_one_clears_it() {
        let mut vfn = Vfn::default();
        vfn.write(at(NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF_EN_SET, 3), Word::full(1));
        vfn.write(NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_TOP_EN_SET, Word::full(0xf));
        vfn.raise(vector::GSP_STALL);
        assert!(vfn.level());
        assert_eq!(vfn.read(NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_TOP), Some(2));
        assert_eq!(vfn.read(at(NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF, 3)), Some(1));
        vfn.write(at(NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF, 3), Word::full(1));
        assert!(!vfn.level());
        assert_eq!(vfn.read(NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_TOP), Some(0));
    }

    #[test]
    fn disabled_vector_is_pending_in_its_leaf_only() {
        let mut vfn = Vfn::default();
        vfn.write(NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_TOP_EN_SET, Word::full(0xf));
        vfn.raise(vector::non_stall(Engine::Copy(1)));
        assert_eq!(vfn.read(at(NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF, 1)), Some(1 << 2));
        assert!(!vfn.level());
        vfn.write(at(NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF_EN_SET, 1), Word::full(1 << 2));
        assert!(vfn.level());
        vfn.write(at(NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF_EN_CLEAR, 1), Word::full(u32::MAX));
        assert!(!vfn.level());
        assert_eq!(vfn.read(at(NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF_EN_SET, 1)), Some(0));
    }

    #[test]
    fn only_enabling_the_top_rearms() {
        let mut vfn = Vfn::default();
        assert_eq!(
            vfn.write(NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_TOP_EN_CLEAR, Word::full(0xf)),
            Some(Rearm::No)
        );
        assert_eq!(
            vfn.write(NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_TOP_EN_SET, Word::full(0xf)),
            Some(Rearm::Yes)
        );
        assert_eq!(vfn.write(NV_VIRTUAL_FUNCTION_DOORBELL, Word::full(0xf)), None);
    }

    #[test]
    fn vector_beyond_the_tree_is_ignored() {
        let mut vfn = Vfn::default();
        vfn.raise(16 * 32);
        vfn.raise(u32::MAX);
        assert_eq!(vfn.pending, [0; LEAVES]);
    }
}
