//! Classes are what engines execute. Each class has its methods and its saved state. It sees its channel's
//! memory, the clock and whether it has to pause, and nothing else of the GPU.
//!
//! Fermi's graphics engine is [`graphics`] with [`m2mf`], its copy engines are [`copy`]. Those from
//! Turing on are [`turing_graphics`] with [`inline`] and [`report`], and [`turing_copy`] with [`remap`]. What
//! they share: [`layout`] (where a surface's bytes lie), [`transfer`] and [`clear`] (long work, which can
//! pause).

mod clear;
mod compute;
pub(crate) mod copy;
pub(crate) mod graphics;
mod inline;
mod layout;
mod m2mf;
mod remap;
mod report;
mod transfer;
pub(crate) mod turing_copy;
pub(crate) mod turing_graphics;

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "addresses are indices")]
mod tests;
