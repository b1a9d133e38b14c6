//! The registers by which a driver drops translations. An invalidation is over when its write is.

use gpuvmk_backend::FlushScope;
use gpuvmk_chip::addr::PAGE_SHIFT;
use gpuvmk_chip::gh100::regs::vfn::*;
use gpuvmk_chip::registers::Reg;
use gpuvmk_chip::{Aperture, PhysicalAddress};
use gpuvmk_mmio_trap::access::Word;
use gpuvmk_saved_state::{Check, StateError};
use serde::{Deserialize, Serialize};

/// Starts the invalidation.
const TRIGGER: u32 = NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE::TRIGGER.mask();
/// The engines' translations may stay.
const HUBTLB_ONLY: u32 = NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE::HUBTLB_ONLY.mask();
/// PDB: the directory lies in system memory.
const SYSTEM: u32 = NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE_PDB::APERTURE.mask();

/// The registers' state.
#[derive(Clone, Debug, Default)]
pub struct MmuInvalidate {
    pdb: u32,
    upper: u32,
    command: u32,
}

impl MmuInvalidate {
    /// Reads a register.
    pub const fn read(&self, reg: Reg) -> u32 {
        match reg {
            NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE_PDB => self.pdb,
            NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE_UPPER_PDB => self.upper,
            NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE => self.command,
            _ => 0,
        }
    }

    /// Writes a register.
    pub fn write(&mut self, reg: Reg, word: Word) -> Option<FlushScope> {
        match reg {
            NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE_PDB => self.pdb = word.merge(self.pdb),
            NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE_UPPER_PDB => {
                self.upper =
                    word.merge(self.upper) & NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE_UPPER_PDB::ADDR.mask();
            }
            NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE => {
                let command = word.merge(self.command);
                self.command = command & !TRIGGER;
                if command & TRIGGER != 0 {
                    return Some(FlushScope {
                        page_directory: self.page_directory(),
                        hub_only: command & HUBTLB_ONLY != 0,
                    });
                }
            }
            _ => {}
        }
        None
    }

    fn page_directory(&self) -> PhysicalAddress {
        let aperture = if self.pdb & SYSTEM == 0 { Aperture::Vram } else { Aperture::SystemCoherent };
        let address = u64::from(self.upper) << 40
            | u64::from(NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE_PDB::ADDR.get(self.pdb)) << PAGE_SHIFT;
        PhysicalAddress { aperture, address }
    }
}

/// State of [`MmuInvalidate`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MmuInvalidateState {
    /// NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE_PDB.
    pub pdb: u32,
    /// NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE_UPPER_PDB.
    pub upper_pdb: u32,
    /// NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE.
    pub invalidate: u32,
}

impl MmuInvalidate {
    /// The state to save.
    pub const fn state(&self) -> MmuInvalidateState {
        let Self { pdb, upper, command } = *self;
        MmuInvalidateState { pdb, upper_pdb: upper, invalidate: command }
    }

    /// The registers in a saved state.
    ///
    /// # Errors
    /// A register has bits that do not stick.
    pub fn from_state(state: &MmuInvalidateState) -> Result<Self, StateError> {
        let check = Check("MMU invalidation");
        let MmuInvalidateState { pdb, upper_pdb, invalidate } = *state;
        check.bits(
            "NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE_UPPER_PDB",
            upper_pdb,
            NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE_UPPER_PDB::ADDR.mask(),
        )?;
        check.bits("NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE", invalidate, !TRIGGER)?;
        Ok(Self { pdb, upper: upper_pdb, command: invalidate })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trigger_names_the_directory_and_reads_back_as_done() {
        let mut mmu = MmuInvalidate::default();
        let address = 0x12_3456_7000u64;
        let low = u32::try_from(address >> 8).unwrap();
        assert_eq!(mmu.write(NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE_PDB, Word::full(low)), None);
        assert_eq!(mmu.write(NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE_UPPER_PDB, Word::full(0)), None);
        let page_directory = PhysicalAddress { aperture: Aperture::Vram, address };
        assert_eq!(
            mmu.write(NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE, Word::full(0x8000_0001)),
            Some(FlushScope { page_directory, hub_only: false })
        );
        assert_eq!(mmu.read(NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE), 1);
        assert_eq!(mmu.write(NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE, Word::full(1)), None);
    }

    #[test]
    fn upper_bits_and_aperture_count() {
        let mut mmu = MmuInvalidate::default();
        mmu.write(NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE_PDB, Word::full(0x12 | SYSTEM));
        mmu.write(NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE_UPPER_PDB, Word::full(3));
        let asked = mmu.write(NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE, Word::full(0x8000_0007)).unwrap();
        let page_directory =
            PhysicalAddress { aperture: Aperture::SystemCoherent, address: 3 << 40 | 1 << 12 };
        assert_eq!(asked, FlushScope { page_directory, hub_only: true });
    }
}
