//! What generations of GSP chips do differently, as a driver's register accesses see it: one [`Hal`] a
//! generation.
//!
//! All files beside this folder serve every generation. What they do not know by themselves they read here: a
//! table of registers, places of fields, sizes, small enumerations. A register that only some generations
//! have is named in their row alone. docs/adr/0016-hal.md says what other generations need.

mod ada;
mod ampere;
mod blackwell;
mod common;
mod doorbell;
mod falcon_chips;
mod fsp_chips;
mod gh100;
mod interrupts;
mod invalidation;
mod memory;
mod processor;
mod roles;
mod row;
mod turing;

use gpuvmk_chip::Chip;

pub use ada::*;
pub use ampere::*;
pub use blackwell::*;
pub use common::EARLIER_CAPABILITIES;
pub use doorbell::{Doorbell, Token};
pub use gh100::GH100;
pub use interrupts::{InterruptTree, MOST_LEAVES, TreeRegister};
pub use invalidation::{Invalidation, InvalidationRegister};
pub use memory::{Pramin, VramSize};
pub use processor::{GspProcessor, Lockdown, ProcessorRegister};
pub use roles::{Role, Roles, TimeWord};
pub use row::{Boot, Descriptor, FalconBoot, FspBoot, Hal, Pci, PciCapabilities, Timer};
pub use turing::*;

/// All rows, oldest first.
pub static ALL: [&Hal; 21] = [
    &TU102, &TU104, &TU106, &TU117, &TU116, &GA102, &GA103, &GA104, &GA106, &GA107, &GH100, &AD102, &AD103,
    &AD104, &AD106, &AD107, &GB202, &GB203, &GB205, &GB206, &GB207,
];

/// The row of a chip; none where a driver programs registers of all units.
pub fn of(chip: Chip) -> Option<&'static Hal> {
    ALL.into_iter().find(|hal| hal.gsp.chip == chip)
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
        assert!(of(Chip::GF100).is_none());
    }
}
