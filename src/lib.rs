//! gpuvmk: one physical NVIDIA GPU for many KVM/QEMU guests, each with its stock driver.
//!
//! The rooms, from the ground up (a room imports only from rooms below it): [`addr`] and [`config`], [`chip`],
//! ...; docs/architecture.md has the whole picture.

pub mod addr;
pub mod chip;
pub mod pci;
