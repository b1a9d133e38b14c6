//! The instance block (RAMIN) of a channel, with the FIFO context (RAMFC) at its start, and the user-visible
//! channel page (USERD).
//!
//! Source: open-gpu-doc `manuals/fermi` dev_ram, nouveau `nvkm/engine/fifo/gf100.c`, checked on running
//! guests.

use crate::Aperture;

/// Bytes of an instance block.
pub const INSTANCE_SIZE: u64 = 0x1000;

/// RAMFC: USERD address, low word (bits 31:12 of it) with the target in bits 1:0.
pub const RAMFC_USERD_LO: u64 = 0x08;
/// RAMFC: USERD address, bits 39:32.
pub const RAMFC_USERD_HI: u64 = 0x0c;
/// RAMFC: signature word that the PBDMA expects (0xface in the low half).
pub const RAMFC_SIGNATURE: u64 = 0x10;
/// Value of [`RAMFC_SIGNATURE`].
pub const SIGNATURE: u32 = 0xface;
/// RAMFC: acquire time-out setting.
pub const RAMFC_ACQUIRE: u64 = 0x30;
/// RAMFC: GPFIFO ring's virtual address, low word.
pub const RAMFC_GP_BASE_LO: u64 = 0x48;
/// RAMFC: GPFIFO ring's virtual address bits 39:32 in bits 7:0, log2 of its entries in bits 20:16.
pub const RAMFC_GP_BASE_HI: u64 = 0x4c;

/// Page-directory base, low word: address bits 31:12, target in bits 1:0 (0 VRAM, 2 system coherent, 3 not).
pub const PAGE_DIRECTORY_LO: u64 = 0x200;
/// Page-directory base, bits 39:32.
pub const PAGE_DIRECTORY_HI: u64 = 0x204;
/// Last valid byte of the address space, low word.
pub const VA_LIMIT_LO: u64 = 0x208;
/// Last valid byte of the address space, high word.
pub const VA_LIMIT_HI: u64 = 0x20c;

/// Pointer to the graphics context image: address bits 31:12, mode in bit 2, target in bits 1:0.
pub const GRAPHICS_CONTEXT_LO: u64 = 0x210;
/// Graphics context image, address bits 39:32.
pub const GRAPHICS_CONTEXT_HI: u64 = 0x214;
/// Pointer to the context of copy engine 0, in the same form.
pub const COPY0_CONTEXT_LO: u64 = 0x230;
/// From the pointer of a copy engine to that of the next.
pub const COPY_CONTEXT_STRIDE: u64 = COPY1_CONTEXT_LO - COPY0_CONTEXT_LO;
/// Pointer to the context of copy engine 1, in the same form.
pub const COPY1_CONTEXT_LO: u64 = 0x240;

/// Bits 1:0 of an address's low word: which memory it is in (0 VRAM, 2 system memory, coherent, 3 not).
pub const fn target(aperture: Aperture) -> u32 {
    match aperture {
        Aperture::Vram => 0,
        Aperture::SystemCoherent => 2,
        Aperture::SystemNonCoherent => 3,
    }
}

/// Bit of a context pointer's low word: the address is virtual, through the channel's own page tables; clear:
/// physical, in the memory that bits 1:0 name.
pub const CONTEXT_VIRTUAL: u32 = 1 << 2;

/// Bytes of a channel's USERD page in the poll area of BAR1.
pub const USERD_SIZE: u64 = 0x1000;
/// USERD: address after the last word of a segment that was executed, bits 31:0, written by hardware. A
/// driver that writes its segments into a ring of its own learns here how far they are free again.
pub const USERD_GET: u64 = 0x44;
/// USERD: bits 39:32 of the same.
pub const USERD_GET_HI: u64 = 0x60;
/// USERD: index of the next ring entry that the host unit fetches, written by hardware.
pub const USERD_GP_GET: u64 = 0x88;
/// USERD: index after the last valid ring entry, written by the driver. The store through the poll area is
/// the doorbell.
pub const USERD_GP_PUT: u64 = 0x8c;

/// Bytes of a runlist entry: channel number in bits 6:0 of the first word, type in the second.
pub const RUNLIST_ENTRY_SIZE: u64 = 8;
/// Second word of a runlist entry that names a channel.
pub const RUNLIST_ENTRY_CHANNEL: u32 = 4;

/// Bytes of a GPFIFO entry.
pub const GPFIFO_ENTRY_SIZE: u64 = 8;
