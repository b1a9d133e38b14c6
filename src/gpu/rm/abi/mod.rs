//! The NVIDIA driver's interface as data: ioctl numbers, call structures, classes and controls, by driver
//! branch.
//!
//! The interface is not stable: structures change between driver branches, and the driver checks their sizes.
//! So every structure has its size and offsets asserted, and [`Branch`] says which branches they are known
//! for. Pointers inside structures are plain numbers here; only `sys` puts one in.

pub mod branch;
pub mod calls;
pub mod classes;
pub mod controls;
pub mod flags;

pub use branch::Branch;
pub use gpuvmk_chip::nv::status::RmStatus;

/// A handle: the number of an object of one client.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    zerocopy::FromBytes,
    zerocopy::IntoBytes,
    zerocopy::KnownLayout,
    zerocopy::Immutable,
)]
#[repr(transparent)]
pub struct Handle(pub u32);

impl Handle {
    /// The handle that means no object.
    pub const NONE: Self = Self(0);
}

impl std::fmt::Display for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

#[cfg(test)]
mod tests;
