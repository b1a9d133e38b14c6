//! Address and id newtypes: one type for every address space, so that a guest value cannot be used where
//! hardware expects a host value. The only converters are the named translation functions of the rooms
//! that own the mapping (partition, DMA map, shadow tree).

use std::fmt;

macro_rules! address {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone,
            Copy,
            PartialEq,
            Eq,
            PartialOrd,
            Ord,
            Hash,
            Default,
            serde::Serialize,
            serde::Deserialize,
        )]
        pub struct $name(pub u64);

        impl $name {
            /// The address `bytes` further on, or `None` where the address space ends before it.
            pub const fn checked_add(self, bytes: u64) -> Option<Self> {
                match self.0.checked_add(bytes) {
                    Some(sum) => Some(Self(sum)),
                    None => None,
                }
            }

            /// True when the address is a multiple of `alignment`, a power of two.
            pub const fn is_aligned(self, alignment: u64) -> bool {
                self.0 & (alignment - 1) == 0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }
    };
}

address! {
    /// Guest-physical address: what a guest driver puts where the GPU expects a bus address.
    Gpa
}
address! {
    /// Bus address that the physical GPU uses for system memory (I/O virtual address of the host side).
    Iova
}
address! {
    /// Virtual address in a GPU address space. Guest and host channels share them: the shadow tree maps the
    /// guest's own addresses.
    GpuVa
}
address! {
    /// Offset in a vGPU's own VRAM, 0 being the first byte of its partition.
    GuestVram
}
address! {
    /// Offset in the physical GPU's VRAM.
    HostVram
}

/// Channel number of one GPU function: as its driver uses it, or, where a GSP numbers channels for each
/// runlist, the slot that the function has for it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize,
)]
pub struct GuestChannel(pub u16);

/// Channel number on the physical GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct HostChannel(pub u16);

/// Channel number on a runlist, as a driver of a chip with GSP and its doorbells have it. Each runlist's
/// begin at 0.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize,
)]
pub struct Chid(pub u16);

/// A vGPU, as the aggregator numbers its tenants. Never told to a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TenantId(pub u32);

/// Smallest page of every MMU involved (CPU, GPU, IOMMU).
pub const PAGE_SIZE: u64 = 1 << PAGE_SHIFT;

/// log2 of the bytes of such a page.
pub const PAGE_SHIFT: u32 = 12;
