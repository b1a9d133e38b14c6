//! Kinds of tables.

/// A kind of table. The names count directories from the page tables up, as NVIDIA's do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Pages of 4 KiB.
    Small,
    /// Pages of 64 KiB.
    Big,
    /// Dual entries: pages of 2 MiB, or a big and a small table.
    Pd0,
    /// Names [`Level::Pd0`], or, where the format has them, pages of 512 MiB.
    Pd1,
    /// Names [`Level::Pd1`].
    Pd2,
    /// Names [`Level::Pd2`]. The root of version 2.
    Pd3,
    /// The root of version 3: names [`Level::Pd3`].
    Pd4,
}

impl Level {
    /// All, from the pages up.
    pub const ALL: [Self; 7] =
        [Self::Small, Self::Big, Self::Pd0, Self::Pd1, Self::Pd2, Self::Pd3, Self::Pd4];

    /// log2 of the bytes of virtual range that an entry covers.
    pub const fn shift(self) -> u8 {
        match self {
            Self::Small => 12,
            Self::Big => 16,
            Self::Pd0 => 21,
            Self::Pd1 => 29,
            Self::Pd2 => 38,
            Self::Pd3 => 47,
            Self::Pd4 => 56,
        }
    }

    /// log2 of the bytes of virtual range that a whole table covers, unless it is a root: what an entry of
    /// the directory above covers.
    pub(super) const fn table_shift(self) -> u8 {
        match self {
            Self::Small | Self::Big => Self::Pd0.shift(),
            Self::Pd0 => Self::Pd1.shift(),
            Self::Pd1 => Self::Pd2.shift(),
            Self::Pd2 => Self::Pd3.shift(),
            Self::Pd3 => Self::Pd4.shift(),
            // There is none above it: all that 64 bits can address.
            Self::Pd4 => 63,
        }
    }

    /// Bytes of an entry.
    pub const fn entry_size(self) -> u64 {
        match self {
            Self::Pd0 => 16,
            _ => 8,
        }
    }

    /// The kind of table that an entry of [`Level::Pd1`] and above names.
    pub const fn below(self) -> Option<Self> {
        match self {
            Self::Pd4 => Some(Self::Pd3),
            Self::Pd3 => Some(Self::Pd2),
            Self::Pd2 => Some(Self::Pd1),
            Self::Pd1 => Some(Self::Pd0),
            Self::Pd0 | Self::Big | Self::Small => None,
        }
    }
}
