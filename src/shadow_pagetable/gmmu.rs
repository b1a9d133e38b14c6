//! The format of a GPU with GSP, chosen when a function is made.

use super::budget::Limits;
use super::format::{Emptiness, Entry, MmuFormat, Shape, TableKind, WindowFormat};
use super::hopper::Hopper;

/// A format by NVIDIA's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gmmu {
    /// Hopper and later.
    V3,
}

impl MmuFormat for Gmmu {
    fn root(&self) -> TableKind {
        match self {
            Self::V3 => Hopper.root(),
        }
    }

    fn below_root(&self) -> TableKind {
        match self {
            Self::V3 => Hopper.below_root(),
        }
    }

    fn shape(&self, kind: TableKind) -> Shape {
        match self {
            Self::V3 => Hopper.shape(kind),
        }
    }

    fn limits(&self) -> Limits {
        match self {
            Self::V3 => Hopper.limits(),
        }
    }

    fn step(&self, kind: TableKind) -> Option<u64> {
        match self {
            Self::V3 => Hopper.step(kind),
        }
    }

    fn decode(&self, kind: TableKind, raw: u128) -> Entry {
        match self {
            Self::V3 => Hopper.decode(kind, raw),
        }
    }
}

impl WindowFormat for Gmmu {
    fn emptiness(&self, kind: TableKind, raw: u128) -> Emptiness {
        match self {
            Self::V3 => Hopper.emptiness(kind, raw),
        }
    }
}
