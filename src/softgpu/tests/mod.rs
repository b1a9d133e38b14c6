//! The engine core as a whole, driven as a driver does it: page tables, instance blocks, rings and command
//! streams written into VRAM, doorbells rung, results and events looked at.

mod commands;
mod context;
mod copies;
mod errors;
mod isolation;
mod long_work;
mod near;
mod random;
mod recorder;
mod rig;
mod scheduling;
mod scrubbing;
mod semaphores;
mod translation;
mod wakeups;
