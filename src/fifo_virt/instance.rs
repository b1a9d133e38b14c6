//! The instance block (RAMIN) of a guest channel, read once into a checked copy.
//!
//! It holds the FIFO context (RAMFC: where the command ring and the USERD page are), the page directory, and
//! a pointer to a context image for each engine that the channel uses. A context pointer only says *that* the
//! channel uses the engine: images of guests are never given to hardware.
//!
//! Not handled: contexts of the video engines, and the limit of the address space (page tables decide what is
//! mapped).

use gpuvmk_chip::addr::{GpuVa, GuestVram};
use gpuvmk_chip::gf100::engines::{ENGINES, EngineIds};
use gpuvmk_chip::gf100::mmu::{VA_BITS, VA_MAX};
use gpuvmk_chip::gf100::ramin::{
    PAGE_DIRECTORY_HI, PAGE_DIRECTORY_LO, RAMFC_GP_BASE_HI, RAMFC_GP_BASE_LO, RAMFC_SIGNATURE,
    RAMFC_USERD_HI, RAMFC_USERD_LO, SIGNATURE, USERD_SIZE, page_directory as directory_of,
};
use gpuvmk_chip::stream::{GPFIFO_ENTRY_SIZE, MAX_GPFIFO_ENTRIES_LOG2};
use gpuvmk_chip::{EngineSet, PhysicalAddress};

/// Bytes of an instance block that mean something to us.
pub const INSTANCE_BYTES: usize = 0x250;

/// Where the context pointers begin in it; the last of them ends it.
pub const CONTEXTS_START: usize = 0x210;

/// Content of a guest's instance block, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstanceBlock {
    /// Page directory of the channel's address space, a multiple of 4 KiB.
    pub page_directory: PhysicalAddress,
    /// USERD page, in the guest's VRAM.
    pub userd: GuestVram,
    /// Virtual address of the command ring.
    pub gpfifo: GpuVa,
    /// log2 of its entries.
    pub gpfifo_entries_log2: u8,
    /// Engines that the guest gave contexts for.
    pub engines: EngineSet,
}

/// Why an instance block is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InstanceError {
    /// It is not all in the guest's memory.
    #[error("The instance block at {0:?} is not in the guest's memory")]
    Unreadable(PhysicalAddress),
    /// The FIFO context was never written.
    #[error("The FIFO context has signature {0:#x} instead of 0xface")]
    Signature(u32),
    /// The page directory is in memory that does not exist.
    #[error("Page directory {0:#x} names no memory (targets 0, 2 and 3 do)")]
    PageDirectory(u64),
    /// USERD is not a page of the guest's VRAM.
    #[error("USERD {userd:#x} is not a whole page below {vram:#x} in VRAM")]
    Userd {
        /// The field.
        userd: u64,
        /// VRAM of the guest in bytes.
        vram: u64,
    },
    /// The ring does not fit the virtual address space.
    #[error(
        "A command ring of 2^{entries_log2} entries at {gpfifo} is larger than 2^{MAX_GPFIFO_ENTRIES_LOG2} \
         entries or ends above 2^{VA_BITS}"
    )]
    Gpfifo {
        /// Its virtual address.
        gpfifo: GpuVa,
        /// log2 of its entries.
        entries_log2: u8,
    },
}

impl InstanceBlock {
    /// Checks a copy of an instance block of a guest with `vram` bytes of VRAM.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn parse(raw: &[u8; INSTANCE_BYTES], vram: u64) -> Result<Self, InstanceError> {
        let signature = word(raw, RAMFC_SIGNATURE);
        if RAMFC_SIGNATURE::VALUE.get(signature) != SIGNATURE {
            return Err(InstanceError::Signature(signature));
        }
        Ok(Self {
            page_directory: page_directory(raw)?,
            userd: userd(raw, vram)?,
            gpfifo: gpfifo(raw)?,
            gpfifo_entries_log2: entries_log2(raw),
            engines: raw.last_chunk().map_or_else(EngineSet::empty, engines_of),
        })
    }

    /// True when the two differ in nothing but the engines.
    pub fn same_but_engines(&self, other: &Self) -> bool {
        Self { engines: other.engines, ..*self } == *other
    }
}

fn page_directory(raw: &[u8; INSTANCE_BYTES]) -> Result<PhysicalAddress, InstanceError> {
    let field = pair(raw, PAGE_DIRECTORY_LO, PAGE_DIRECTORY_HI);
    directory_of(field).ok_or(InstanceError::PageDirectory(field))
}

fn userd(raw: &[u8; INSTANCE_BYTES], vram: u64) -> Result<GuestVram, InstanceError> {
    let field = pair(raw, RAMFC_USERD_LO, RAMFC_USERD_HI) & VA_MAX;
    let inside = field.checked_add(USERD_SIZE).is_some_and(|end| end <= vram);
    // The target lies below the address; only VRAM (0) is possible, so one test covers it and the alignment.
    if !inside || !field.is_multiple_of(USERD_SIZE) {
        return Err(InstanceError::Userd { userd: field, vram });
    }
    Ok(GuestVram(field))
}

fn gpfifo(raw: &[u8; INSTANCE_BYTES]) -> Result<GpuVa, InstanceError> {
    let base = pair(raw, RAMFC_GP_BASE_LO, RAMFC_GP_BASE_HI) & VA_MAX & !(GPFIFO_ENTRY_SIZE - 1);
    let entries_log2 = entries_log2(raw);
    let refused = InstanceError::Gpfifo { gpfifo: GpuVa(base), entries_log2 };
    if entries_log2 > MAX_GPFIFO_ENTRIES_LOG2 {
        return Err(refused);
    }
    let end = base.saturating_add(GPFIFO_ENTRY_SIZE << entries_log2);
    if end > VA_MAX + 1 { Err(refused) } else { Ok(GpuVa(base)) }
}

fn entries_log2(raw: &[u8; INSTANCE_BYTES]) -> u8 {
    RAMFC_GP_BASE_HI::LIMIT2.get_u8(word(raw, RAMFC_GP_BASE_HI))
}

/// The engines that context pointers name, from a copy of the instance block that begins at
/// [`CONTEXTS_START`].
pub fn engines_of(raw: &[u8; INSTANCE_BYTES - CONTEXTS_START]) -> EngineSet {
    let start = CONTEXTS_START as u64;
    let has_context = |ids: &EngineIds| {
        let offset = ids.context.saturating_sub(start);
        pair(raw, offset, offset.saturating_add(4)) != 0
    };
    ENGINES.iter().filter(|ids| has_context(ids)).map(|ids| EngineSet::of(ids.engine)).collect()
}

fn pair(raw: &[u8], lo: u64, hi: u64) -> u64 {
    u64::from(word(raw, lo)) | u64::from(word(raw, hi)) << 32
}

/// A little-endian word; 0 beyond the copy.
fn word(raw: &[u8], offset: u64) -> u32 {
    let start = usize::try_from(offset).unwrap_or(usize::MAX);
    let bytes = raw.get(start..start.saturating_add(4)).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u32::from_le_bytes)
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "numbers of a test are small")]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use gpuvmk_chip::Aperture;
    use gpuvmk_chip::gf100::ramin::{COPY0_CONTEXT_LO, COPY1_CONTEXT_LO, GRAPHICS_CONTEXT_LO};

    const VRAM: u64 = 64 << 20;

    fn block(words: &[(u64, u32)]) -> [u8; INSTANCE_BYTES] {
        let mut raw = [0; INSTANCE_BYTES];
        let nouveau = [
            (RAMFC_USERD_LO, 0x12_3000),
            (RAMFC_SIGNATURE, 0xface),
            (RAMFC_GP_BASE_LO, 0x4_0000),
            (RAMFC_GP_BASE_HI, 0x01 | 10 << 16),
            (PAGE_DIRECTORY_LO, 0x45_6000),
            (GRAPHICS_CONTEXT_LO, 0x78_9004),
        ];
        for (offset, value) in nouveau.iter().chain(words) {
            let at = *offset as usize;
            raw[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        raw
    }

    #[test]
    fn block_as_nouveau_writes_it_is_accepted() {
        let parsed = InstanceBlock::parse(&block(&[]), VRAM);

        let expected = InstanceBlock {
            page_directory: PhysicalAddress { aperture: Aperture::Vram, address: 0x45_6000 },
            userd: GuestVram(0x12_3000),
            gpfifo: GpuVa(0x1_0004_0000),
            gpfifo_entries_log2: 10,
            engines: EngineSet::GRAPHICS,
        };
        assert_eq!(parsed, Ok(expected));
    }

    #[test]
    fn context_pointers_say_which_engines_are_used() {
        let raw = block(&[(GRAPHICS_CONTEXT_LO, 0), (COPY0_CONTEXT_LO, 4), (COPY1_CONTEXT_LO + 4, 1)]);
        let parsed = InstanceBlock::parse(&raw, VRAM).unwrap();
        assert_eq!(parsed.engines, EngineSet::COPY0 | EngineSet::COPY1);
    }

    #[test]
    fn wrong_fields_are_refused_with_their_values() {
        let cases = [
            (block(&[(RAMFC_SIGNATURE, 0xbeef)]), InstanceError::Signature(0xbeef)),
            (block(&[(PAGE_DIRECTORY_LO, 0x1001)]), InstanceError::PageDirectory(0x1001)),
            // Not aligned; in system memory; the first page after VRAM; far outside.
            (block(&[(RAMFC_USERD_LO, 0x1200)]), InstanceError::Userd { userd: 0x1200, vram: VRAM }),
            (block(&[(RAMFC_USERD_LO, 0x1002)]), InstanceError::Userd { userd: 0x1002, vram: VRAM }),
            (block(&[(RAMFC_USERD_LO, 64 << 20)]), InstanceError::Userd { userd: VRAM, vram: VRAM }),
            (block(&[(RAMFC_USERD_HI, 0xff)]), InstanceError::Userd { userd: 0xff_0012_3000, vram: VRAM }),
            (
                block(&[(RAMFC_GP_BASE_HI, 31 << 16)]),
                InstanceError::Gpfifo { gpfifo: GpuVa(0x4_0000), entries_log2: 31 },
            ),
            (
                block(&[(RAMFC_GP_BASE_LO, 0xffff_fff8), (RAMFC_GP_BASE_HI, 0xff | 1 << 16)]),
                InstanceError::Gpfifo { gpfifo: GpuVa(0xff_ffff_fff8), entries_log2: 1 },
            ),
        ];
        for (raw, error) in cases {
            assert_eq!(InstanceBlock::parse(&raw, VRAM), Err(error));
        }
    }

    #[test]
    fn ring_and_userd_may_end_exactly_at_the_limits() {
        let raw = block(&[
            (RAMFC_USERD_LO, (64 << 20) - 0x1000),
            (RAMFC_GP_BASE_LO, 0xffff_fff8),
            (RAMFC_GP_BASE_HI, 0xff),
        ]);
        assert!(InstanceBlock::parse(&raw, VRAM).is_ok());
    }

    proptest! {
        #[test]
        fn whatever_is_accepted_is_within_bounds(
            random in proptest::collection::vec(any::<u32>(), INSTANCE_BYTES / 4),
            vram in 0u64..1 << 41,
        ) {
            let mut raw = [0; INSTANCE_BYTES];
            for (bytes, word) in raw.chunks_exact_mut(4).zip(&random) {
                bytes.copy_from_slice(&word.to_le_bytes());
            }
            raw[RAMFC_SIGNATURE as usize..][..4].copy_from_slice(&SIGNATURE.to_le_bytes());
            // Clear the bits that random words nearly always get wrong.
            raw[RAMFC_USERD_LO as usize] = 0;
            raw[RAMFC_USERD_LO as usize + 1] &= 0xf0;
            if let Ok(block) = InstanceBlock::parse(&raw, vram) {
                prop_assert!(block.userd.0 + USERD_SIZE <= vram);
                prop_assert!(block.userd.is_aligned(USERD_SIZE));
                prop_assert!(block.gpfifo.0 + (8 << block.gpfifo_entries_log2) <= 1 << 40);
                prop_assert!(block.page_directory.address < 1 << 40);
            }
        }
    }
}
