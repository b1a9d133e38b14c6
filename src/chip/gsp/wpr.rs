//! The description of GSP's image and of the protected region that it lives in (`GspFwWprMeta`), in system
//! memory. A driver fills it in, and the booter completes it.
//!
//! Source: nouveau `nvkm/subdev/gsp/rm/r535/nvrm/gsp.h` and r570's; offsets were computed from these headers.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// How it begins.
pub const WPR_META_MAGIC: u64 = 0xdc3a_ae21_371a_60b3;
/// Its revision.
pub const WPR_META_REVISION: u64 = 1;

/// The description. Addresses are VRAM's, but for those of the image.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct WprMeta {
    /// [`WPR_META_MAGIC`].
    pub magic: U64,
    /// [`WPR_META_REVISION`].
    pub revision: U64,
    /// Where image, bootloader and signature are, with sizes.
    pub image: [U64; 9],
    /// First byte that is reserved for firmware.
    pub rsvd_start: U64,
    /// The heap outside of the protected region.
    pub non_wpr_heap_offset: U64,
    /// Bytes of it.
    pub non_wpr_heap_size: U64,
    /// First byte of the protected region.
    pub wpr_start: U64,
    /// Its heap: place and bytes.
    pub heap: [U64; 2],
    /// Its image.
    pub elf_offset: U64,
    /// Its bootloader.
    pub boot_offset: U64,
    /// The region of firmware runtime services.
    pub frts_offset: U64,
    /// Bytes of it.
    pub frts_size: U64,
    /// End of the protected region.
    pub wpr_end: U64,
    /// Bytes of VRAM.
    pub fb_size: U64,
    /// VGA's workspace: place and bytes.
    pub vga: [U64; 2],
    /// What firmware keeps there, and flags.
    pub rest: [U64; 7],
}

crate::layout!(WprMeta, 0x100, non_wpr_heap_offset @ 0x60, non_wpr_heap_size @ 0x68, wpr_start @ 0x70,
    frts_offset @ 0x98, frts_size @ 0xa0, wpr_end @ 0xa8, fb_size @ 0xb0);
