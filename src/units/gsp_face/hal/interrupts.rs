//! The registers of the function's interrupt tree, and who raises what there.

use gpuvmk_chip::registers::{Field, Reg, RegArray};

/// Leaves of the largest tree.
pub const MOST_LEAVES: usize = 16;

/// The tree's registers. The three families have a register for each leaf, at most [`MOST_LEAVES`].
#[derive(Clone, Copy, Debug)]
pub struct InterruptTree {
    /// Vectors pending, by leaf; a written one clears.
    pub leaf: RegArray,
    /// Enables vectors of a leaf, and shows which are.
    pub leaf_enable_set: RegArray,
    /// Disables vectors of a leaf, and shows which are enabled.
    pub leaf_enable_clear: RegArray,
    /// Pairs of leaves with an enabled vector pending.
    pub top: Reg,
    /// Enables pairs of leaves, and arms the next message.
    pub top_enable_set: Reg,
    /// Disables pairs of leaves.
    pub top_enable_clear: Reg,
    /// Raises the vector in a field of it.
    pub trigger: (Reg, Field),
}

/// A register of the tree. Leaves are below [`InterruptTree::leaves`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeRegister {
    /// Vectors pending in a leaf.
    Leaf(usize),
    /// Enables vectors of a leaf.
    LeafEnableSet(usize),
    /// Disables vectors of a leaf.
    LeafEnableClear(usize),
    /// Pairs of leaves with an enabled vector pending.
    Top,
    /// Enables pairs of leaves.
    TopEnableSet,
    /// Disables pairs of leaves.
    TopEnableClear,
    /// Raises a vector.
    Trigger,
}

impl TreeRegister {
    /// Whether it shows what is pending, or takes it away.
    pub const fn shows_pending(self) -> bool {
        matches!(self, Self::Top | Self::Leaf(_))
    }
}

impl InterruptTree {
    /// Leaves of the tree.
    pub fn leaves(&self) -> usize {
        usize::try_from(self.leaf.count).map_or(MOST_LEAVES, |count| count.min(MOST_LEAVES))
    }

    /// Which of the tree's registers it is; none for those of others.
    pub fn register(&self, reg: Reg) -> Option<TreeRegister> {
        let leaf = |family: RegArray| family.index_of(reg).and_then(|leaf| usize::try_from(leaf).ok());
        if let Some(leaf) = leaf(self.leaf) {
            return Some(TreeRegister::Leaf(leaf));
        }
        if let Some(leaf) = leaf(self.leaf_enable_set) {
            return Some(TreeRegister::LeafEnableSet(leaf));
        }
        if let Some(leaf) = leaf(self.leaf_enable_clear) {
            return Some(TreeRegister::LeafEnableClear(leaf));
        }
        let single = [
            (self.top, TreeRegister::Top),
            (self.top_enable_set, TreeRegister::TopEnableSet),
            (self.top_enable_clear, TreeRegister::TopEnableClear),
            (self.trigger.0, TreeRegister::Trigger),
        ];
        single.into_iter().find(|(other, _)| *other == reg).map(|(_, register)| register)
    }
}
