//! A falcon: its memories, by port and by DMA, and which core of its unit is selected. It runs no code.
//!
//! A transfer is copied once, when its command is written; then it is over.

use gpuvmk_chip::gsp::falcon::{DMA_LEAST, MEMORY_SIZE};
use gpuvmk_chip::gsp::regs::pfalcon::second::NV_PRISCV_RISCV_BCR_CTRL as BCR;
use gpuvmk_chip::gsp::regs::pfalcon::*;
use gpuvmk_chip::registers::Reg;
use gpuvmk_chip::{Aperture, PhysicalAddress};
use gpuvmk_mmio_trap::access::Word;
use gpuvmk_saved_state::{Check, StateError, Words};
use serde::{Deserialize, Serialize};

use super::error::{FalconError, Unit};
use super::memory::Memory;

/// Bytes of the largest transfer.
const DMA_MOST: usize = 256;
/// BCR_CTRL: bits that stick.
const BCR_STICKS: u32 = BCR::BRFETCH.mask() | BCR::CORE_SELECT.mask() | BCR::VALID.mask();

/// A transfer into a falcon's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Whose falcon.
    pub unit: Unit,
    /// To instruction memory, not to data.
    pub imem: bool,
    /// Offset in the falcon's memory, in bytes.
    pub at: usize,
    /// Where the bytes come from.
    pub source: PhysicalAddress,
    /// How many bytes.
    pub size: usize,
}

/// The falcon.
#[derive(Clone, Debug)]
pub struct Falcon {
    unit: Unit,
    pub imem: Memory,
    pub dmem: Memory,
    base: u32,
    base1: u32,
    memory_offset: u32,
    image_offset: u32,
    apertures: [u32; 8],
    bcr: u32,
}

impl Falcon {
    /// A falcon in its reset state.
    pub fn new(unit: Unit) -> Self {
        Self {
            unit,
            imem: Memory::default(),
            dmem: Memory::default(),
            base: 0,
            base1: 0,
            memory_offset: 0,
            image_offset: 0,
            apertures: [0; 8],
            bcr: 0,
        }
    }

    /// Reads a register, by its distance from the unit's base.
    pub fn read(&mut self, reg: Reg) -> u32 {
        if let Some(index) = NV_PFALCON_FBIF_TRANSCFG.index_of(reg) {
            return self.aperture_register(index).map_or(0, |place| *place);
        }
        match reg {
            NV_PFALCON_FALCON_IMEMC => self.imem.port(),
            NV_PFALCON_FALCON_IMEMD => self.imem.read(),
            NV_PFALCON_FALCON_DMEMC => self.dmem.port(),
            NV_PFALCON_FALCON_DMEMD => self.dmem.read(),
            NV_PFALCON_FALCON_DMATRFBASE => self.base,
            NV_PFALCON_FALCON_DMATRFBASE1 => self.base1,
            NV_PFALCON_FALCON_DMATRFMOFFS => self.memory_offset,
            NV_PFALCON_FALCON_DMATRFFBOFFS => self.image_offset,
            NV_PFALCON_FALCON_DMATRFCMD => NV_PFALCON_FALCON_DMATRFCMD::IDLE.mask(),
            second::NV_PRISCV_RISCV_BCR_CTRL => self.bcr,
            _ => 0,
        }
    }

    /// Writes a register. A command gives a transfer, or why there is none.
    pub fn write(&mut self, reg: Reg, word: Word) -> Option<Result<Transfer, FalconError>> {
        if let Some(index) = NV_PFALCON_FBIF_TRANSCFG.index_of(reg) {
            if let Some(place) = self.aperture_register(index) {
                *place = word.merge(*place);
            }
            return None;
        }
        match reg {
            NV_PFALCON_FALCON_IMEMC => self.imem.set_port(word),
            NV_PFALCON_FALCON_IMEMD => self.imem.write(word),
            NV_PFALCON_FALCON_DMEMC => self.dmem.set_port(word),
            NV_PFALCON_FALCON_DMEMD => self.dmem.write(word),
            NV_PFALCON_FALCON_DMATRFBASE => self.base = word.merge(self.base),
            NV_PFALCON_FALCON_DMATRFBASE1 => {
                self.base1 = word.merge(self.base1) & NV_PFALCON_FALCON_DMATRFBASE1::BASE.mask();
            }
            NV_PFALCON_FALCON_DMATRFMOFFS => {
                self.memory_offset =
                    word.merge(self.memory_offset) & NV_PFALCON_FALCON_DMATRFMOFFS::OFFS.mask();
            }
            NV_PFALCON_FALCON_DMATRFFBOFFS => self.image_offset = word.merge(self.image_offset),
            NV_PFALCON_FALCON_DMATRFCMD => return Some(self.transfer(word.bits())),
            // The choice is taken at once.
            second::NV_PRISCV_RISCV_BCR_CTRL => {
                self.bcr = word.merge(self.bcr) & BCR_STICKS | BCR::VALID.mask();
            }
            _ => {}
        }
        None
    }

    /// Whether the unit's RISC-V core was selected, so that the falcon cannot start.
    pub const fn is_riscv_selected(&self) -> bool {
        BCR::CORE_SELECT.is_set(self.bcr)
    }

    /// What an index of DMA addresses, with physical addresses.
    pub fn aperture(&self, index: u32) -> Option<Aperture> {
        use NV_PFALCON_FBIF_TRANSCFG::{MEM_TYPE, TARGET};
        let register = usize::try_from(index).ok().and_then(|index| self.apertures.get(index))?;
        match (MEM_TYPE.get(*register), TARGET.get(*register)) {
            (MEM_TYPE::PHYSICAL, TARGET::LOCAL_FB) => Some(Aperture::Vram),
            (MEM_TYPE::PHYSICAL, TARGET::COHERENT_SYSMEM) => Some(Aperture::SystemCoherent),
            (MEM_TYPE::PHYSICAL, TARGET::NONCOHERENT_SYSMEM) => Some(Aperture::SystemNonCoherent),
            _ => None,
        }
    }

    fn aperture_register(&mut self, index: u32) -> Option<&mut u32> {
        usize::try_from(index).ok().and_then(|index| self.apertures.get_mut(index))
    }

    /// The transfer that a command asks for.
    fn transfer(&self, command: u32) -> Result<Transfer, FalconError> {
        use NV_PFALCON_FALCON_DMATRFCMD::{CTXDMA, IMEM, SIZE, WRITE};
        let refused = |why| FalconError::Transfer { unit: self.unit, command, why };
        if WRITE.is_set(command) {
            return Err(refused("goes out of its memory, which no driver does"));
        }
        let size = DMA_LEAST << SIZE.get(command);
        if size > DMA_MOST {
            return Err(refused("is of more than 256 bytes"));
        }
        let aperture = self
            .aperture(CTXDMA.get(command))
            .ok_or_else(|| refused("is not by physical addresses of VRAM or of system memory"))?;
        let at = usize::try_from(self.memory_offset).unwrap_or(usize::MAX);
        if at % DMA_LEAST != 0 || at.saturating_add(size) > MEMORY_SIZE {
            return Err(refused("leaves its memory"));
        }
        // 49 bits and 32 bits: no overflow.
        let base = u64::from(self.base1) << 40 | u64::from(self.base) << 8;
        let source = PhysicalAddress { aperture, address: base + u64::from(self.image_offset) };
        Ok(Transfer { unit: self.unit, imem: IMEM.is_set(command), at, source, size })
    }
}

/// State of a [`Falcon`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FalconState {
    /// Instruction memory.
    pub imem: Words,
    /// Data memory.
    pub dmem: Words,
    /// NV_PFALCON_FALCON_IMEMC.
    pub imemc: u32,
    /// NV_PFALCON_FALCON_DMEMC.
    pub dmemc: u32,
    /// NV_PFALCON_FALCON_DMATRFBASE.
    pub dmatrfbase: u32,
    /// NV_PFALCON_FALCON_DMATRFBASE1.
    pub dmatrfbase1: u32,
    /// NV_PFALCON_FALCON_DMATRFMOFFS.
    pub dmatrfmoffs: u32,
    /// NV_PFALCON_FALCON_DMATRFFBOFFS.
    pub dmatrffboffs: u32,
    /// NV_PFALCON_FBIF_TRANSCFG.
    pub transcfg: [u32; 8],
    /// NV_PRISCV_RISCV_BCR_CTRL.
    pub bcr_ctrl: u32,
}

impl Falcon {
    /// The state to save.
    pub fn state(&self) -> FalconState {
        let Self { unit: _, imem, dmem, base, base1, memory_offset, image_offset, apertures, bcr } = self;
        let ((imem, imemc), (dmem, dmemc)) = (imem.state(), dmem.state());
        FalconState {
            imem,
            dmem,
            imemc,
            dmemc,
            dmatrfbase: *base,
            dmatrfbase1: *base1,
            dmatrfmoffs: *memory_offset,
            dmatrffboffs: *image_offset,
            transcfg: *apertures,
            bcr_ctrl: *bcr,
        }
    }

    /// The falcon in a saved state.
    ///
    /// # Errors
    /// A register has bits that do not stick, or a memory is too large.
    pub fn from_state(state: &FalconState, unit: Unit) -> Result<Self, StateError> {
        let check = Check(match unit {
            Unit::Gsp => "GSP's falcon",
            Unit::Sec2 => "SEC2's falcon",
        });
        let FalconState { imem, dmem, imemc, dmemc, .. } = state;
        check.bits(
            "NV_PFALCON_FALCON_DMATRFBASE1",
            state.dmatrfbase1,
            NV_PFALCON_FALCON_DMATRFBASE1::BASE.mask(),
        )?;
        check.bits(
            "NV_PFALCON_FALCON_DMATRFMOFFS",
            state.dmatrfmoffs,
            NV_PFALCON_FALCON_DMATRFMOFFS::OFFS.mask(),
        )?;
        check.bits("NV_PRISCV_RISCV_BCR_CTRL", state.bcr_ctrl, BCR_STICKS)?;
        check.that(state.bcr_ctrl == 0 || BCR::VALID.is_set(state.bcr_ctrl), || {
            "its core was selected, and that is not valid".to_owned()
        })?;
        Ok(Self {
            unit,
            imem: Memory::from_state(check, "IMEM", imem, *imemc)?,
            dmem: Memory::from_state(check, "DMEM", dmem, *dmemc)?,
            base: state.dmatrfbase,
            base1: state.dmatrfbase1,
            memory_offset: state.dmatrfmoffs,
            image_offset: state.dmatrffboffs,
            apertures: state.transcfg,
            bcr: state.bcr_ctrl,
        })
    }
}
