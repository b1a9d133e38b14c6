//! The arguments of a driver when GSP is suspended, and again when it is resumed.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use gpuvmk_chip::layout;

/// Names the guest's memory that GSP's state is kept in while it has no power. The driver fills it in;
/// `internal` is the firmware's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct GspFwSRMeta {
    pub magic: u64,
    pub revision: u64,
    /// Bus address of the first of three levels of page tables ("radix 3").
    pub sysmemAddrOfSuspendResumeData: u64,
    pub sizeOfSuspendResumeData: u64,
    pub internal: [u32; 32],
    pub flags: u32,
    pub subrevision: u32,
    pub padding: [u32; 22],
}
layout!(GspFwSRMeta, 0x100, sizeOfSuspendResumeData @ 0x18, internal @ 0x20, flags @ 0xa0);

pub const GSP_FW_SR_META_MAGIC: u64 = 0x8a3b_b9e6_c6c3_9d93;
pub const GSP_FW_SR_META_REVISION: u64 = 2;

/// Entries of a page of such a table: bus addresses of pages. Of the first level only the first entry is
/// used.
pub const RADIX3_ENTRIES: usize = 512;
