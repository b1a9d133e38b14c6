//! Attacks on the time of others at the aggregator: what the kernel does with a stranger's descriptor, valid
//! requests that cost much, memory that takes long to go, and more tenancies than one process should have.

mod descriptors;
mod fuse;
mod memory;
mod requests;
mod scarce;
mod tenancies;
mod waiters;
mod windows;

use anyhow::Result;
use gpuvmk_attacks::Outcome;

use crate::Scene;
use crate::findings::Findings;

/// An attack's function.
pub type Attack = fn(&mut Scene, &mut Findings) -> Result<Outcome>;

/// The attack of this name.
pub fn attack(name: &str) -> Option<Attack> {
    Some(match name {
        "stall-stranger-linger" => descriptors::of_a_stranger,
        "stall-tenant-linger" => descriptors::of_a_tenant,
        "stall-queued-linger" => descriptors::queued,
        "stall-kinds" => descriptors::of_every_kind,
        "stall-fuse" => fuse::files_that_nobody_serves,
        "stall-message-waiters" => waiters::of_messages,
        "stall-socket-waiters" => waiters::of_answers_and_events,
        "stall-large-file" => memory::large_file,
        "stall-scope" => memory::scope_killed,
        "stall-sparse" => memory::sparse,
        "stall-full" => scarce::full_file_system,
        "stall-limit" => scarce::at_the_limit,
        "stall-pieces" => requests::pieces,
        "stall-reset" => requests::resets,
        "stall-ranges" => requests::ranges,
        "stall-tenancies" => tenancies::of_one_process,
        "stall-strangers" => tenancies::strangers,
        "stall-windows" => windows::kept_by_others,
        _ => return None,
    })
}

/// A child of such an attack; true if there is one of this name.
pub fn child(name: &str, scene: &mut Scene) -> Option<Result<()>> {
    Some(match name {
        "child-waiter" => waiters::wait(),
        "child-with-memory" => memory::child(scene),
        "child-stranger" => tenancies::silent_child(scene),
        "child-window" => windows::child(scene),
        "child-at-limit" => scarce::child(scene),
        _ => return None,
    })
}
