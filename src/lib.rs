//! gpuvmk: one physical NVIDIA GPU for many KVM/QEMU guests, each with its stock driver.
//!
//! The rooms, from the ground up (a room imports only from rooms below it); docs/architecture.md has the
//! whole picture.

// They panic where the output takes no more: `gpuvmk_output` does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]
// `say!`, in every command.
#[macro_use]
extern crate gpuvmk_output;
// What unit tests share with those of other crates calls this one by its name.
#[cfg(test)]
extern crate self as gpuvmk;

pub mod cli;
pub mod config;
pub use gpuvmk_aggregator as aggregator;
pub use gpuvmk_backend as backend;
pub use gpuvmk_chip as chip;
pub use gpuvmk_chip::addr;
pub use gpuvmk_display as display;
pub use gpuvmk_fifo_virt as fifo_virt;
pub use gpuvmk_frontend as frontend;
pub use gpuvmk_gpu as gpu;
pub use gpuvmk_gsp as gsp;
pub use gpuvmk_guest_firmware as guest_firmware;
pub use gpuvmk_host as host;
pub use gpuvmk_jail as jail;
pub use gpuvmk_mmio_trap as mmio_trap;
pub use gpuvmk_observe as observe;
pub use gpuvmk_pci as pci;
pub use gpuvmk_scheduler as scheduler;
pub use gpuvmk_shadow_pagetable as shadow_pagetable;
pub use gpuvmk_softgpu as softgpu;
pub use gpuvmk_trace as trace;
pub use gpuvmk_units as units;
pub use gpuvmk_vgpu as vgpu;
pub use gpuvmk_vmm as vmm;
