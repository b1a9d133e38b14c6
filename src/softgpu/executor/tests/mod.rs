//! The executor as the aggregator uses it: through the driver's trait alone, with rings and command streams
//! written into tenants' memory.

mod compute;
mod copies;
mod driver;
mod errors;
mod graphics;
mod macros;
mod random;
mod rig;
mod scheduling;
mod semaphores;
mod translation;
mod workers;
