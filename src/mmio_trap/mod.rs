//! The layer between a trapped access to a BAR and the unit models. Accesses become whole registers
//! ([`access`]), registers without behaviour are served by their table ([`register_file`]), and memory
//! apertures are translated through the guest's own page tables ([`aperture`]).
//!
//! All of it is pure: memory is reached through [`PhysicalMemory`], nothing here locks, logs or blocks.

// They panic where the output takes no more.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod access;
pub mod aperture;
pub mod register_file;

use gpuvmk_chip::PhysicalAddress;

/// Memory by physical address, as page walks and apertures need it. Accesses without memory are refused,
/// never guessed.
pub trait PhysicalMemory {
    /// Fills `data`; false when the range has no target (its content is then unspecified).
    fn read(&self, address: PhysicalAddress, data: &mut [u8]) -> bool;

    /// Reads page tables and other memory that only CPUs write; possibly from a copy.
    fn read_tables(&self, address: PhysicalAddress, data: &mut [u8]) -> bool {
        self.read(address, data)
    }

    /// Stores `data`; false when the range has no target.
    fn write(&self, address: PhysicalAddress, data: &[u8]) -> bool;
}
