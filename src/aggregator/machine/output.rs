//! What leaves the machine.

use crate::protocol::{Event, Reply};
use gpuvmk_chip::addr::TenantId;

/// Something that leaves the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Tell a tenant.
    Event(TenantId, Event),
    /// The answer to a request that was not answered at once.
    Reply(TenantId, Reply),
    /// The partition of a tenant that was admitted is zero now: it may have it.
    Ready(TenantId),
    /// A tenant that left is gone altogether; its resources are free again.
    Gone(TenantId),
}

/// How a request was taken.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The answer, now.
    Now(Reply),
    /// [`Output::Reply`] follows.
    Later,
}

/// Outputs in the order in which they came up, until the caller takes them.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    outputs: Vec<Output>,
}

impl Outbox {
    pub fn push(&mut self, output: Output) {
        self.outputs.push(output);
    }

    pub fn event(&mut self, tenant: TenantId, event: Event) {
        self.push(Output::Event(tenant, event));
    }

    pub fn reply(&mut self, tenant: TenantId, reply: Reply) {
        self.push(Output::Reply(tenant, reply));
    }

    /// Moves all into `to`.
    pub fn take(&mut self, to: &mut Vec<Output>) {
        to.append(&mut self.outputs);
    }
}
