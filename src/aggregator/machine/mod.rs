//! The aggregator without its sockets: tenants, their requests, doorbells and events, and the one physical
//! GPU.
//!
//! Everything that crosses VMs happens here, on the one thread that owns it. Requests, doorbells and time
//! come in; replies and events leave as [`Output`] values. So the same machine runs under the service and
//! under tests with a fake GPU.
//!
//! Every request names things by the sender's own numbers, looked up in the sender's own tables: there is no
//! number that could name another tenant's.

// Owners of a part of the state each, and the machine, which has them.
mod cleanup;
mod cleanup_rates;
mod clocks;
pub mod guests;
mod hangs;
mod hardware;
mod holder_records;
mod host_channels;
mod output;
mod resources;
mod retired_spaces;
mod schedule_recorder;
mod state;
mod tenants;

// The machine's work that concerns several of its parts.
mod admission;
mod channels;
mod completions;
mod events;
mod fail_safe;
mod guest_list;
pub mod hang;
mod jobs;
mod memory;
mod recovery;
mod requests;
mod retirement;
mod schedule;
mod scrub;
pub mod settings;
mod spaces;
pub mod status;

pub use self::admission::{Admitted, Wait};
pub use self::output::{Outcome, Output};
pub use self::state::{Machine, SLICE, SLICE_BESIDE_OTHERS};

#[cfg(test)]
mod tests;
