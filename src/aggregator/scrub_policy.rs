//! When partitions are zeroed.

/// When a partition is zeroed. Nobody gets one that is not zero in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScrubPolicy {
    /// When its VM leaves: the next one starts at once, and nothing lies around meanwhile.
    #[default]
    Release,
    /// When the next VM gets it: leaving is quick, and memory that nobody wants is not zeroed.
    Attach,
    /// Both: whatever happened to it meanwhile.
    Both,
}

impl ScrubPolicy {
    /// Whether a partition is zeroed when its VM leaves.
    pub const fn at_release(self) -> bool {
        matches!(self, Self::Release | Self::Both)
    }

    /// Whether a partition is zeroed before a VM gets it.
    pub const fn at_attach(self) -> bool {
        matches!(self, Self::Attach | Self::Both)
    }
}
