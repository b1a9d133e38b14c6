//! Why a synchronisation ended early.

use super::budget::WalkRefusal;

/// Why a synchronisation ended early. The space is then out of step with its shadow and may only be dropped.
#[derive(Debug, thiserror::Error)]
pub enum SyncError<E> {
    /// The tables ask for more than a VM may have.
    #[error("The walk of the guest's GPU page tables was given up")]
    Walk(#[from] WalkRefusal),
    /// The receiver of the changes failed.
    #[error("The shadow could not be changed")]
    Sink(#[source] E),
}
