//! What generations of GSP chips do differently, as a driver's register accesses see it: one [`Hal`] a
//! generation.
//!
//! All files beside this folder serve every generation. What they do not know by themselves they read here: a
//! table of registers, places of fields, sizes, small enumerations. A register that only some generations
//! have is named in their row alone. docs/adr/0016-hal.md says what other generations need.

mod doorbell;
mod gh100;
mod interrupts;
mod invalidation;
mod memory;
mod processor;
mod row;

use gpuvmk_chip::Chip;

pub use doorbell::{Doorbell, Token};
pub use gh100::GH100;
pub use interrupts::{InterruptTree, MOST_LEAVES, TreeRegister};
pub use invalidation::{Invalidation, InvalidationRegister};
pub use memory::{Pramin, VramSize};
pub use processor::{GspProcessor, ProcessorRegister};
pub use row::{Boot, FspBoot, Hal, Pci, Role, TimeWord, Timer};

/// All rows, oldest first.
pub static ALL: [&Hal; 1] = [&GH100];

/// The row of a chip; none where a driver programs registers of all units.
pub fn of(chip: Chip) -> Option<&'static Hal> {
    ALL.into_iter().find(|hal| hal.name == chip.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuvmk_chip::Face;

    #[test]
    fn each_chip_whose_driver_asks_gsp_has_a_row() {
        for chip in Chip::with_face(Face::Gsp) {
            assert!(of(chip).is_some_and(|hal| hal.pci.device_id == chip.device_id), "{chip}");
        }
        assert_eq!(ALL.len(), Chip::with_face(Face::Gsp).count());
        assert!(of(Chip::GF100).is_none());
    }
}
