//! Storage kinds (NV_MMU_PTE_KIND): one list from Turing on. Entries of version 2 have 8 bits for a kind,
//! those of version 3 have 4; there are 16 numbers either way.
//!
//! Source: open-gpu-kernel-modules `dev_mmu.h` of tu102, ga100, gh100 and gb202, which agree.

use crate::StorageKinds;

/// SMSKED_MESSAGE: the page is no memory, but registers of the function. From Hopper on a driver has
/// doorbells in BAR1 by it.
pub const SMSKED_MESSAGE: u8 = 0x0f;

/// The kinds of memory. INVALID is none, nor is SMSKED_MESSAGE.
pub static KINDS: StorageKinds = StorageKinds::new(
    0x07,
    &[
        // PITCH, Z16, S8, S8Z24, ZF32_X24S8, Z24S8, GENERIC_MEMORY.
        (0x00, 0x06, 0x00, true),
        // GENERIC_MEMORY_COMPRESSIBLE, and with DISABLE_PLC, as all that follow.
        (0x08, 0x09, 0x06, false),
        // S8.
        (0x0a, 0x0a, 0x02, true),
        // Z16.
        (0x0b, 0x0b, 0x01, true),
        // S8Z24, ZF32_X24S8, Z24S8.
        (0x0c, 0x0e, 0x03, true),
    ],
)
.with_registers(SMSKED_MESSAGE);
