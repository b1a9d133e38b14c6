//! The instance block (RAMIN) of a channel, with the FIFO context (RAMFC) at its start, and the user-visible
//! channel page (USERD).
//!
//! Source: open-gpu-doc `manuals/fermi` dev_ram, nouveau `nvkm/engine/fifo/gf100.c`, checked on running
//! guests.

use super::mmu::VA_MAX;
use crate::{Aperture, PhysicalAddress};

/// Bytes of an instance block.
pub const INSTANCE_SIZE: u64 = 0x1000;

/// RAMFC: index after the last valid ring entry.
pub const RAMFC_GP_PUT: u64 = 0x00;
/// RAMFC: USERD address, low word.
pub const RAMFC_USERD_LO: u64 = 0x08;
/// RAMFC: USERD address, bits 39:32.
pub const RAMFC_USERD_HI: u64 = 0x0c;
/// RAMFC: signature word that the PBDMA expects.
pub const RAMFC_SIGNATURE: u64 = 0x10;
/// Value of [`RAMFC_SIGNATURE`](const@RAMFC_SIGNATURE).
pub const SIGNATURE: u32 = 0xface;
/// RAMFC: index of the next ring entry that is fetched.
pub const RAMFC_GP_GET: u64 = 0x14;
/// RAMFC: virtual address of the next word of the segment, two words.
pub const RAMFC_PB_GET: u64 = 0x18;
/// RAMFC: reference count.
pub const RAMFC_REFERENCE: u64 = 0x28;
/// RAMFC: acquire time-out setting.
pub const RAMFC_ACQUIRE: u64 = 0x30;
/// RAMFC: semaphore address, bits 39:32.
pub const RAMFC_SEMAPHORE_A: u64 = 0x38;
/// RAMFC: semaphore address, low word.
pub const RAMFC_SEMAPHORE_B: u64 = 0x3c;
/// RAMFC: semaphore value.
pub const RAMFC_SEMAPHORE_C: u64 = 0x40;
/// RAMFC: the semaphore's operation, and whether it is complete.
pub const RAMFC_SEMAPHORE_D: u64 = 0x44;
/// RAMFC: GPFIFO ring's virtual address, low word.
pub const RAMFC_GP_BASE_LO: u64 = 0x48;
/// RAMFC: GPFIFO ring's virtual address bits 39:32, and log2 of its entries.
pub const RAMFC_GP_BASE_HI: u64 = 0x4c;
/// RAMFC: virtual address after the segment, two words.
pub const RAMFC_PB_PUT: u64 = 0x5c;
/// RAMFC: the header that still has words to come.
pub const RAMFC_PB_HEADER: u64 = 0x84;
/// RAMFC: number of words that the header still has to come.
pub const RAMFC_PB_COUNT: u64 = 0x88;
/// RAMFC: engine numbers by subchannel, a byte each, two words.
pub const RAMFC_ENGINES: u64 = 0xa4;
/// RAMFC: the engine that the last method went to.
pub const RAMFC_CURRENT_ENGINE: u64 = 0xac;
/// RAMFC: a method that waits for its engine.
pub const RAMFC_METHOD0: u64 = 0xc0;
/// RAMFC: data of the method that waits.
pub const RAMFC_DATA0: u64 = 0xc4;

crate::fields! {
    /// Fields of [`RAMFC_USERD_LO`](const@RAMFC_USERD_LO).
    RAMFC_USERD_LO { 31:12 ADDR, 1:0 TARGET }
    /// Fields of [`RAMFC_SIGNATURE`](const@RAMFC_SIGNATURE).
    RAMFC_SIGNATURE { 15:0 VALUE }
    /// Fields of [`RAMFC_ACQUIRE`](const@RAMFC_ACQUIRE): the limit is TIMEOUT shifted, in microseconds.
    RAMFC_ACQUIRE { 31:31 TIMEOUT_ENABLE, 30:15 TIMEOUT, 14:11 TIMEOUT_SHIFT }
    /// Fields of [`RAMFC_SEMAPHORE_D`](const@RAMFC_SEMAPHORE_D); the others are those of the method.
    RAMFC_SEMAPHORE_D { 19:19 ACQUIRE_PENDING }
    /// Fields of [`RAMFC_GP_BASE_HI`](const@RAMFC_GP_BASE_HI).
    RAMFC_GP_BASE_HI { 20:16 LIMIT2, 7:0 ADDR }
    /// Fields of [`RAMFC_PB_HEADER`](const@RAMFC_PB_HEADER), which are those of a header but for the count.
    RAMFC_PB_HEADER { 31:29 SEC_OP, 18:16 SUBCH, 13:2 ADDR }
    /// Fields of [`RAMFC_PB_COUNT`](const@RAMFC_PB_COUNT).
    RAMFC_PB_COUNT { 12:0 COUNT }
    /// Fields of [`RAMFC_ENGINES`](const@RAMFC_ENGINES), a byte.
    RAMFC_ENGINES { 4:0 NUMBER }
    /// Fields of [`RAMFC_CURRENT_ENGINE`](const@RAMFC_CURRENT_ENGINE). PENDING is in a bit that hardware
    /// leaves 0: the engine has not finished its method.
    RAMFC_CURRENT_ENGINE { 8:8 PENDING, 4:0 NUMBER }
    /// Fields of [`RAMFC_SEMAPHORE_B`](const@RAMFC_SEMAPHORE_B).
    RAMFC_SEMAPHORE_B { 31:2 OFFSET_LOWER }
    /// Fields of [`RAMFC_METHOD0`](const@RAMFC_METHOD0).
    RAMFC_METHOD0 { 31:31 VALID, 18:16 SUBCH, 13:2 ADDR }
}

/// Page-directory base, low word.
pub const PAGE_DIRECTORY_LO: u64 = 0x200;
/// Page-directory base, bits 39:32.
pub const PAGE_DIRECTORY_HI: u64 = 0x204;
/// Last valid byte of the address space, low word.
pub const VA_LIMIT_LO: u64 = 0x208;
/// Last valid byte of the address space, high word.
pub const VA_LIMIT_HI: u64 = 0x20c;

/// Pointer to the graphics context image.
pub const GRAPHICS_CONTEXT_LO: u64 = 0x210;
/// Graphics context image, address bits 39:32.
pub const GRAPHICS_CONTEXT_HI: u64 = 0x214;
/// Pointer to the context of copy engine 0, in the same form.
pub const COPY0_CONTEXT_LO: u64 = 0x230;
/// Bytes from the pointer of a copy engine to that of the next.
pub const COPY_CONTEXT_STRIDE: u64 = COPY1_CONTEXT_LO - COPY0_CONTEXT_LO;
/// Pointer to the context of copy engine 1, in the same form.
pub const COPY1_CONTEXT_LO: u64 = 0x240;

crate::fields! {
    /// Fields of [`PAGE_DIRECTORY_LO`](const@PAGE_DIRECTORY_LO).
    PAGE_DIRECTORY_LO { 31:12 ADDR, 1:0 TARGET }
    /// Fields of [`GRAPHICS_CONTEXT_LO`](const@GRAPHICS_CONTEXT_LO) and of the copy engines' pointers.
    /// VIRTUAL: the address is one of the channel's own page tables; clear: a physical one, of the memory
    /// that TARGET names.
    GRAPHICS_CONTEXT_LO { 31:12 ADDR, 2:2 VIRTUAL, 1:0 TARGET }
    /// What registers that name an instance block or a runlist have in common: the memory, and the number of
    /// the 4 KiB page.
    BLOCK { 29:28 TARGET, 27:0 PTR }
}

/// The page directory that the two words of [`PAGE_DIRECTORY_LO`](const@PAGE_DIRECTORY_LO) name.
#[expect(clippy::cast_possible_truncation, reason = "the low word is meant")]
pub const fn page_directory(words: u64) -> Option<PhysicalAddress> {
    match aperture(PAGE_DIRECTORY_LO::TARGET.get(words as u32)) {
        Some(aperture) => Some(PhysicalAddress { aperture, address: words & VA_MAX & !0xfff }),
        None => None,
    }
}

/// The memory that a target field names; `None`: a peer's, which nobody has.
pub const fn aperture(target: u32) -> Option<Aperture> {
    match target {
        0 => Some(Aperture::Vram),
        2 => Some(Aperture::SystemCoherent),
        3 => Some(Aperture::SystemNonCoherent),
        _ => None,
    }
}

/// The target field of an address: which memory it is in (0 VRAM, 2 system memory, coherent, 3 not).
pub const fn target(aperture: Aperture) -> u32 {
    match aperture {
        Aperture::Vram => 0,
        Aperture::SystemCoherent => 2,
        Aperture::SystemNonCoherent => 3,
    }
}

/// Bytes of a channel's USERD page in the poll area of BAR1.
pub const USERD_SIZE: u64 = 0x1000;
/// USERD: address after the last word of a segment that was executed, bits 31:0, written by hardware. A
/// driver that writes its segments into a ring of its own learns here how far they are free again.
pub const USERD_GET: u64 = 0x44;
/// USERD: reference count, written by hardware.
pub const USERD_REFERENCE: u64 = 0x48;
/// USERD: bits 39:32 of [`USERD_GET`].
pub const USERD_GET_HI: u64 = 0x60;
/// USERD: index of the next ring entry that the host unit fetches, written by hardware.
pub const USERD_GP_GET: u64 = 0x88;
/// USERD: index after the last valid ring entry, written by the driver. The store through the poll area is
/// the doorbell.
pub const USERD_GP_PUT: u64 = 0x8c;

/// Bytes of a runlist entry: channel number in the first word, type in the second.
pub const RUNLIST_ENTRY_SIZE: u64 = 8;
/// Second word of a runlist entry that names a channel.
pub const RUNLIST_ENTRY_CHANNEL: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gf100::regs::definitions_with;

    #[test]
    fn registers_that_name_blocks_have_the_common_fields() {
        let pointers: Vec<_> = definitions_with(&["TARGET", "PTR"]).collect();
        assert_eq!(pointers.len(), 7);
        for register in pointers {
            for (name, field) in [("TARGET", BLOCK::TARGET), ("PTR", BLOCK::PTR)] {
                let declared = register.fields.iter().find(|field| field.name == name).unwrap();
                assert_eq!(declared.get(field.of(u32::MAX)), field.get(u32::MAX), "{}", register.name);
                assert_eq!(u32::from(declared.low), field.low(), "{}", register.name);
            }
        }
    }

    #[test]
    fn targets_name_apertures_and_back() {
        for target in 0..4 {
            assert_eq!(aperture(target).map(super::target), (target != 1).then_some(target));
        }
        let directory = page_directory(0xffff_ff12_3456_7ffe);
        let address = 0x12_3456_7000;
        assert_eq!(directory, Some(PhysicalAddress { aperture: Aperture::SystemCoherent, address }));
        assert_eq!(page_directory(0x1001), None);
    }
}
