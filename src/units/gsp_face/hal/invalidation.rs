//! The registers by which a driver drops translations.

use gpuvmk_chip::registers::{Field, Reg};
use gpuvmk_chip::{Aperture, PhysicalAddress};

/// Where the page directory, the command and their parts are.
#[derive(Clone, Copy, Debug)]
pub struct Invalidation {
    /// Page directory: its aperture, and the lower bits of its address.
    pub pdb: Reg,
    /// Set in `pdb` when the directory is in system memory.
    pub pdb_system: Field,
    /// Address bits in `pdb`.
    pub pdb_address: Field,
    /// Which address bit the lowest of them is.
    pub pdb_shift: u32,
    /// Page directory: the upper bits of its address.
    pub upper_pdb: Reg,
    /// Address bits in `upper_pdb`. Others do not stick.
    pub upper_address: Field,
    /// Which address bit the lowest of them is.
    pub upper_shift: u32,
    /// What is to be dropped.
    pub command: Reg,
    /// Starts it.
    pub trigger: Field,
    /// The engines' translations may stay.
    pub hub_only: Field,
}

/// A register of the invalidation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidationRegister {
    /// Page directory, lower part.
    Pdb,
    /// Page directory, upper part.
    UpperPdb,
    /// The command.
    Command,
}

impl Invalidation {
    /// Which of its registers it is; none for those of others.
    pub fn register(&self, reg: Reg) -> Option<InvalidationRegister> {
        let all = [
            (self.pdb, InvalidationRegister::Pdb),
            (self.upper_pdb, InvalidationRegister::UpperPdb),
            (self.command, InvalidationRegister::Command),
        ];
        all.into_iter().find(|(other, _)| *other == reg).map(|(_, register)| register)
    }

    /// The page directory that two registers name.
    pub fn page_directory(&self, pdb: u32, upper_pdb: u32) -> PhysicalAddress {
        let aperture = if self.pdb_system.is_set(pdb) { Aperture::SystemCoherent } else { Aperture::Vram };
        let address = u64::from(self.upper_address.get(upper_pdb)) << self.upper_shift
            | u64::from(self.pdb_address.get(pdb)) << self.pdb_shift;
        PhysicalAddress { aperture, address }
    }
}
