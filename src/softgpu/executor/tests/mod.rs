//! The executor as the aggregator uses it: through the driver's trait alone, with rings and command streams written
//! into tenants' memory.

mod copies;
mod rig;
mod semaphores;
