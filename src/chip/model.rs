//! The chips that guests can be shown.

use std::fmt;

use super::{gf100, gh100};

/// A chip that a vGPU presents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Chip {
    /// Fermi: its driver programs the GPU by registers.
    Gf100,
    /// Hopper: its driver asks firmware (GSP).
    Gh100,
}

impl Chip {
    /// All, oldest first.
    pub const ALL: [Self; 2] = [Self::Gf100, Self::Gh100];

    /// Name as users write it in configuration files, and as both ends of a link tell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gf100 => gf100::NAME,
            Self::Gh100 => gh100::NAME,
        }
    }

    /// The chip of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|chip| chip.name() == name)
    }
}

impl fmt::Display for Chip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
