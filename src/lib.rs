//! gpuvmk: one physical NVIDIA GPU for many KVM/QEMU guests, each with its stock driver.
//!
//! The rooms, from the ground up (a room imports only from rooms below it); docs/architecture.md has the whole
//! picture.

// They panic where the output takes no more: `cli::output` does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]
// What unit tests share with those of other crates calls this one by its name.
#[cfg(test)]
extern crate self as gpuvmk;

pub mod addr;
pub mod aggregator;
pub mod chip;
pub mod cli;
pub mod config;
pub mod fifo_virt;
pub mod frontend;
pub mod gpu;
pub mod guest_firmware;
pub mod host;
pub mod jail;
pub mod mmio_trap;
pub mod observe;
pub mod pci;
pub mod scheduler;
pub mod shadow_pagetable;
pub mod softgpu;
pub mod trace;
pub mod units;
pub mod vgpu;
pub mod vmm;
