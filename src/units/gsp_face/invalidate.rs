//! The registers by which a driver drops translations. An invalidation is over when its write is.

use super::hal::{Invalidation, InvalidationRegister};
use gpuvmk_backend::FlushScope;
use gpuvmk_mmio_trap::access::Word;
use gpuvmk_saved_state::{Check, StateError};
use serde::{Deserialize, Serialize};

/// The registers' state.
#[derive(Clone, Debug)]
pub struct MmuInvalidate {
    layout: &'static Invalidation,
    pdb: u32,
    upper: u32,
    command: u32,
}

impl MmuInvalidate {
    /// Registers in their reset state.
    pub const fn new(layout: &'static Invalidation) -> Self {
        Self { layout, pdb: 0, upper: 0, command: 0 }
    }

    /// Reads a register.
    pub const fn read(&self, register: InvalidationRegister) -> u32 {
        match register {
            InvalidationRegister::Pdb => self.pdb,
            InvalidationRegister::UpperPdb => self.upper,
            InvalidationRegister::Command => self.command,
        }
    }

    /// Writes a register.
    pub fn write(&mut self, register: InvalidationRegister, word: Word) -> Option<FlushScope> {
        let layout = self.layout;
        match register {
            InvalidationRegister::Pdb => self.pdb = word.merge(self.pdb),
            InvalidationRegister::UpperPdb => {
                self.upper = word.merge(self.upper) & layout.upper_address.mask();
            }
            InvalidationRegister::Command => {
                let command = word.merge(self.command);
                self.command = command & !layout.trigger.mask();
                if layout.trigger.is_set(command) {
                    return Some(FlushScope {
                        page_directory: layout.page_directory(self.pdb, self.upper),
                        hub_only: layout.hub_only.is_set(command),
                    });
                }
            }
        }
        None
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
        let Self { layout: _, pdb, upper, command } = *self;
        MmuInvalidateState { pdb, upper_pdb: upper, invalidate: command }
    }

    /// The registers in a saved state.
    ///
    /// # Errors
    /// A register has bits that do not stick.
    pub fn from_state(state: &MmuInvalidateState, layout: &'static Invalidation) -> Result<Self, StateError> {
        let check = Check("MMU invalidation");
        let MmuInvalidateState { pdb, upper_pdb, invalidate } = *state;
        check.bits(
            "NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE_UPPER_PDB",
            upper_pdb,
            layout.upper_address.mask(),
        )?;
        check.bits("NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE", invalidate, !layout.trigger.mask())?;
        Ok(Self { layout, pdb, upper: upper_pdb, command: invalidate })
    }
}

#[cfg(test)]
mod tests {
    use super::super::hal::GH100;
    use super::*;
    use InvalidationRegister::*;
    use gpuvmk_chip::{Aperture, PhysicalAddress};

    #[test]
    fn trigger_names_the_directory_and_reads_back_as_done() {
        let mut mmu = MmuInvalidate::new(&GH100.invalidation);
        let address = 0x12_3456_7000u64;
        let low = u32::try_from(address >> 8).unwrap();
        assert_eq!(mmu.write(Pdb, Word::full(low)), None);
        assert_eq!(mmu.write(UpperPdb, Word::full(0)), None);
        let page_directory = PhysicalAddress { aperture: Aperture::Vram, address };
        assert_eq!(
            mmu.write(Command, Word::full(0x8000_0001)),
            Some(FlushScope { page_directory, hub_only: false })
        );
        assert_eq!(mmu.read(Command), 1);
        assert_eq!(mmu.write(Command, Word::full(1)), None);
    }

    #[test]
    fn upper_bits_and_aperture_count() {
        let mut mmu = MmuInvalidate::new(&GH100.invalidation);
        mmu.write(Pdb, Word::full(0x12 | 2));
        mmu.write(UpperPdb, Word::full(3));
        let asked = mmu.write(Command, Word::full(0x8000_0007)).unwrap();
        let page_directory =
            PhysicalAddress { aperture: Aperture::SystemCoherent, address: 3 << 40 | 1 << 12 };
        assert_eq!(asked, FlushScope { page_directory, hub_only: true });
    }
}
