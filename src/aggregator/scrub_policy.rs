//! When partitions are zeroed.

/// When a partition is zeroed. In any case a tenant gets only one that is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScrubPolicy {
    /// When its VM leaves: the next one starts at once, and nothing lies around meanwhile.
    #[default]
    Release,
    /// When the next VM gets it: leaving is quick, and memory that is not needed is not zeroed.
    Attach,
    /// Both: whatever happened to it meanwhile.
    Both,
}

impl ScrubPolicy {
    /// True if a partition is zeroed when its VM leaves.
    pub const fn at_release(self) -> bool {
        matches!(self, Self::Release | Self::Both)
    }

    /// True if a partition is zeroed before a VM gets it.
    pub const fn at_attach(self) -> bool {
        matches!(self, Self::Attach | Self::Both)
    }
}
