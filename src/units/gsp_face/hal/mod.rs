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

pub use doorbell::{Doorbell, Token};
pub use gh100::GH100;
pub use interrupts::{InterruptTree, MOST_LEAVES, TreeRegister};
pub use invalidation::{Invalidation, InvalidationRegister};
pub use memory::{Pramin, VramSize};
pub use processor::{GspProcessor, ProcessorRegister};
pub use row::{Boot, FspBoot, Hal, Pci, Role, TimeWord, Timer};

/// All rows, oldest first.
pub static ALL: [&Hal; 1] = [&GH100];
