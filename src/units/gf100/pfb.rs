//! PFB: how much VRAM there is, and MMU invalidations.
//!
//! An invalidation is complete before the register write that starts it returns, so that the queue always
//! shows free slots and emptiness. Compression tags and clear values of L2 are stored and mean nothing:
//! nothing is compressed.

use super::effect::{Effect, FlushTarget};
use super::pbus::aperture;
use gpuvmk_chip::PhysicalAddress;
use gpuvmk_chip::addr::PAGE_SHIFT;
use gpuvmk_chip::gf100::regs::pfb::*;
use gpuvmk_chip::registers::Reg;
use gpuvmk_mmio_trap::access::Word;
use gpuvmk_saved_state::{Check, StateError};
use serde::{Deserialize, Serialize};

/// Bits of the MMU control register that drivers set.
const MMU_SETTINGS: u32 =
    NV_PFB_PRI_MMU_CTRL::COMPTAG_WIDTH.mask() | NV_PFB_PRI_MMU_CTRL::VM_PG_SIZE_64KB.mask();
/// Large pages are 64 KiB.
const PAGE_64K: u32 = NV_PFB_PRI_MMU_CTRL::VM_PG_SIZE_64KB.mask();
/// Free slots of the invalidation queue, and its being empty.
const QUEUE_IDLE: u32 =
    NV_PFB_PRI_MMU_CTRL::INVALIDATE_FREE.mask() | NV_PFB_PRI_MMU_CTRL::INVALIDATE_EMPTY.mask();
/// Starts the invalidation.
const TRIGGER: u32 = NV_PFB_PRI_MMU_INVALIDATE::TRIGGER.mask();
/// Invalidation: every page directory.
const ALL_DIRECTORIES: u32 = NV_PFB_PRI_MMU_INVALIDATE::ALL_PDB.mask();
/// Invalidation: the hub's translations only.
const HUB_ONLY: u32 = NV_PFB_PRI_MMU_INVALIDATE::HUBTLB_ONLY.mask();

/// PFB's state.
#[derive(Clone, Debug, Default)]
pub struct Pfb {
    settings: u32,
    directory: u32,
    command: u32,
}

impl Pfb {
    /// Reads a register; `vram` is the size of VRAM in bytes.
    pub fn read(&self, reg: Reg, vram: u64) -> u32 {
        if let Some(partition) = NV_PFBP_FBPA_CSTATUS.index_of(reg) {
            return partition_mebibytes(vram, partition);
        }
        match reg {
            NV_PFB_PRI_MMU_CTRL => self.settings | QUEUE_IDLE,
            NV_PFB_PRI_MMU_INVALIDATE_PDB => self.directory,
            NV_PFB_PRI_MMU_INVALIDATE => self.command & !TRIGGER,
            _ => 0,
        }
    }

    /// Writes a register.
    pub fn write(&mut self, reg: Reg, word: Word, effects: &mut Vec<Effect>) {
        match reg {
            NV_PFB_PRI_MMU_CTRL => {
                let before = self.settings;
                self.settings = word.merge(before) & MMU_SETTINGS;
                if (before ^ self.settings) & PAGE_64K != 0 {
                    effects.push(Effect::LargePages { is_64k: self.large_pages_64k() });
                }
            }
            NV_PFB_PRI_MMU_INVALIDATE_PDB => self.directory = word.merge(self.directory),
            NV_PFB_PRI_MMU_INVALIDATE => {
                self.command = word.merge(self.command);
                if word.bits() & TRIGGER != 0 {
                    effects.push(self.flush());
                }
            }
            _ => {}
        }
    }

    /// True when large pages are 64 KiB.
    pub const fn large_pages_64k(&self) -> bool {
        self.settings & PAGE_64K != 0
    }

    const fn flush(&self) -> Effect {
        let target = if self.command & ALL_DIRECTORIES == 0 {
            FlushTarget::Directory(PhysicalAddress {
                aperture: aperture(NV_PFB_PRI_MMU_INVALIDATE_PDB::APERTURE.get(self.directory)),
                address: (NV_PFB_PRI_MMU_INVALIDATE_PDB::ADDR.get(self.directory) as u64) << PAGE_SHIFT,
            })
        } else {
            FlushTarget::All
        };
        Effect::Flush { target, hub_only: self.command & HUB_ONLY != 0 }
    }
}

/// MiB behind a memory partition: VRAM is dealt out evenly, the first one takes what is left over.
fn partition_mebibytes(vram: u64, partition: u32) -> u32 {
    let partitions = u64::from(NV_PFBP_FBPA_CSTATUS.count);
    let mebibytes = vram >> 20;
    let share = mebibytes / partitions;
    let extra = if partition == 0 { mebibytes % partitions } else { 0 };
    u32::try_from(share.saturating_add(extra)).unwrap_or(u32::MAX)
}

/// State of [`Pfb`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PfbState {
    /// NV_PFB_PRI_MMU_CTRL, what drivers set of it.
    pub mmu_ctrl: u32,
    /// NV_PFB_PRI_MMU_INVALIDATE_PDB.
    pub mmu_invalidate_pdb: u32,
    /// NV_PFB_PRI_MMU_INVALIDATE, as it was written.
    pub mmu_invalidate: u32,
}

impl Pfb {
    /// The state to save.
    pub const fn state(&self) -> PfbState {
        let Self { settings, directory, command } = *self;
        PfbState { mmu_ctrl: settings, mmu_invalidate_pdb: directory, mmu_invalidate: command }
    }

    /// PFB in a saved state.
    ///
    /// # Errors
    /// A register has bits that do not stick.
    pub fn from_state(state: &PfbState) -> Result<Self, StateError> {
        let PfbState { mmu_ctrl, mmu_invalidate_pdb, mmu_invalidate } = *state;
        Check("PFB").bits("NV_PFB_PRI_MMU_CTRL", mmu_ctrl, MMU_SETTINGS)?;
        Ok(Self { settings: mmu_ctrl, directory: mmu_invalidate_pdb, command: mmu_invalidate })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuvmk_chip::Aperture;

    #[test]
    fn partitions_add_up_to_vram() {
        let pfb = Pfb::default();
        for mebibytes in [16u64, 17, 256, 4096] {
            let sum: u32 = (0..2).map(|i| pfb.read(NV_PFBP_FBPA_CSTATUS.at(i), mebibytes << 20)).sum();
            assert_eq!(u64::from(sum), mebibytes);
        }
    }

    #[test]
    fn invalidation_names_directory_and_scope_and_leaves_the_queue_idle() {
        let mut pfb = Pfb::default();
        let mut effects = Vec::new();
        pfb.write(NV_PFB_PRI_MMU_INVALIDATE_PDB, Word::full(0x001f_e480), &mut effects);
        pfb.write(NV_PFB_PRI_MMU_INVALIDATE, Word::full(0x8000_0005), &mut effects);
        let directory = PhysicalAddress { aperture: Aperture::Vram, address: 0x1fe4_8000 };
        let target = FlushTarget::Directory(directory);
        assert_eq!(effects, [Effect::Flush { target, hub_only: true }]);
        let state = pfb.read(NV_PFB_PRI_MMU_CTRL, 0);
        assert!(state & 0x00ff_0000 != 0 && state & 0x8000 != 0);
    }

    #[test]
    fn command_without_trigger_does_nothing_and_all_directories_is_told() {
        let mut pfb = Pfb::default();
        let mut effects = Vec::new();
        pfb.write(NV_PFB_PRI_MMU_INVALIDATE, Word::full(1), &mut effects);
        assert_eq!(effects, []);
        pfb.write(NV_PFB_PRI_MMU_INVALIDATE, Word::full(0x8000_0003), &mut effects);
        assert_eq!(effects, [Effect::Flush { target: FlushTarget::All, hub_only: false }]);
    }

    #[test]
    fn page_size_bit_sticks_and_is_told_once() {
        let mut pfb = Pfb::default();
        let mut effects = Vec::new();
        pfb.write(NV_PFB_PRI_MMU_CTRL, Word::full(1), &mut effects);
        pfb.write(NV_PFB_PRI_MMU_CTRL, Word::full(1), &mut effects);
        assert_eq!(effects, [Effect::LargePages { is_64k: true }]);
        assert!(pfb.large_pages_64k() && pfb.read(NV_PFB_PRI_MMU_CTRL, 0) & 1 == 1);
    }
}
