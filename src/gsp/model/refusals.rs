//! Calls that were answered with an error, by reason: for operators, and no part of a saved state.

use crate::abi::status::Status;

/// Counts since the GSP was made. Each call is in one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// The call is not supported, for this object or at all.
    pub unsupported: u64,
    /// An object, a client or a channel is not there, or is there already.
    pub object: u64,
    /// The class is not offered.
    pub class: u64,
    /// The parameters are no good.
    pub parameters: u64,
    /// The requester may not do that.
    pub permission: u64,
    /// The state of things does not allow it.
    pub state: u64,
    /// Something has run out.
    pub resources: u64,
    /// The GPU is lost.
    pub lost: u64,
}

impl Refusals {
    /// Counts a call that was answered with `status`.
    pub(super) fn count(&mut self, status: Status) {
        let count = match status {
            Status::NotSupported => &mut self.unsupported,
            Status::InsertDuplicateName
            | Status::InvalidChannel
            | Status::InvalidClient
            | Status::InvalidObject
            | Status::InvalidObjectHandle
            | Status::InvalidObjectParent
            | Status::ObjectNotFound => &mut self.object,
            Status::InvalidClass => &mut self.class,
            Status::InvalidAddress
            | Status::InvalidArgument
            | Status::InvalidData
            | Status::InvalidLimit
            | Status::InvalidParamStruct => &mut self.parameters,
            Status::InsufficientPermissions => &mut self.permission,
            Status::InvalidState | Status::StateInUse => &mut self.state,
            Status::InsufficientResources | Status::NoFreeFifos => &mut self.resources,
            Status::GpuIsLost => &mut self.lost,
        };
        *count = count.saturating_add(1);
    }
}
