//! Why a configuration space cannot be built.

use crate::RegionKind;

/// Why a configuration space cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// A BAR's size is not one that a BAR can express.
    #[error("BAR {bar} cannot have {size:#x} bytes: {why}")]
    BarSize {
        /// Which (6 for the ROM BAR).
        bar: usize,
        /// Its size.
        size: u64,
        /// The allowed values.
        why: &'static str,
    },
    /// The kind of region does not fit at that index.
    #[error("Region {bar} cannot be of kind {kind:?}")]
    BarKind {
        /// Number of the BAR, 0 to 5.
        bar: usize,
        /// The region's kind.
        kind: RegionKind,
    },
    /// A capability leaves the space behind the header, is unaligned, or overlaps another one.
    #[error("Capability {id:#04x} does not fit at {at:#04x}: {why}")]
    CapabilityPlace {
        /// Capability id.
        id: u8,
        /// Offset asked for.
        at: u8,
        /// The allowed values.
        why: &'static str,
    },
    /// An extended capability lies elsewhere than behind the first 256 bytes, is unaligned, overlaps another
    /// one or does not come behind it, or is about a BAR that is not there.
    #[error("Extended capability {id:#06x} does not fit at {at:#05x}: {why}")]
    ExtendedPlace {
        /// Capability id.
        id: u16,
        /// Offset asked for.
        at: u16,
        /// The allowed values.
        why: &'static str,
    },
}
