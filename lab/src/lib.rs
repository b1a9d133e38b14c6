//! The laboratory: fetches QEMU and stock guest kernels, builds the initramfs, runs guests and judges them.
//!
//! Nothing here knows how gpuvmk works inside: a guest is judged by what its kernel and its programs say, the
//! daemons by what they answer on their sockets (`gpuvmk-control-client`). `gpuvmk demo`, `cargo xtask test`
//! and `cargo xtask bench` all stand on this one library, so they cannot disagree about what a passing guest
//! is.
//!
//! From the ground up: [`cache`] (one folder, one lock) · [`sources`], [`apt`], [`qemu`], [`kernel`] (Debian
//! packages, without root) · [`chip`] (which kernel drives which) · [`modules`], [`firmware`], [`cpio`],
//! [`initramfs`], [`static_build`], [`guest_build`], [`nvk`], [`nvidia`] (what a guest boots) · [`archive`],
//! [`pack`] (all of it on a machine without network) · [`process`], [`machine`], [`report`], [`verdict`]
//! (one guest, run and judged) · [`daemons`], [`rig`] (whole set-ups) · [`screen`] (what monitors show) ·
//! [`crowd`] (many guests on one GPU) · [`demo`].

pub mod apt;
pub mod archive;
pub mod back_ends;
pub mod cache;
pub mod chip;
pub mod chromium;
pub mod cpio;
pub mod crowd;
pub mod daemons;
pub mod debian_disk;
mod debian_program;
pub mod demo;
mod dynamic_build;
pub mod firmware;
pub mod guest_build;
pub mod initramfs;
pub mod interrupt;
pub mod kernel;
pub mod machine;
pub mod modules;
pub mod nvidia;
pub mod nvk;
pub mod own_kernel;
pub mod pack;
pub mod process;
pub mod processors;
pub mod promtool;
pub mod qemu;
pub mod report;
pub mod rig;
pub mod screen;
pub mod sources;
pub mod static_build;
pub mod traffic;
pub mod verdict;
