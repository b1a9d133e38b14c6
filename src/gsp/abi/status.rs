//! `NV_STATUS`: how the resource manager in GSP says why it refuses (`nvstatuscodes.h`).

use gpuvmk_chip::nv::status::RmStatus;

/// A status of the resource manager; 0 is success and never an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(u32)]
pub enum Status {
    /// NV_ERR_GPU_IS_LOST
    #[error("the GPU is lost")]
    GpuIsLost = RmStatus::ERR_GPU_IS_LOST.0,
    /// NV_ERR_INSERT_DUPLICATE_NAME
    #[error("the handle is in use")]
    InsertDuplicateName = RmStatus::ERR_INSERT_DUPLICATE_NAME.0,
    /// NV_ERR_INSUFFICIENT_RESOURCES
    #[error("out of a resource other than memory")]
    InsufficientResources = RmStatus::ERR_INSUFFICIENT_RESOURCES.0,
    /// NV_ERR_INSUFFICIENT_PERMISSIONS
    #[error("the requester has no permission")]
    InsufficientPermissions = RmStatus::ERR_INSUFFICIENT_PERMISSIONS.0,
    /// NV_ERR_INVALID_ADDRESS
    #[error("the address is not valid")]
    InvalidAddress = RmStatus::ERR_INVALID_ADDRESS.0,
    /// NV_ERR_INVALID_ARGUMENT
    #[error("an argument is not valid")]
    InvalidArgument = RmStatus::ERR_INVALID_ARGUMENT.0,
    /// NV_ERR_INVALID_CHANNEL
    #[error("the channel is not valid")]
    InvalidChannel = RmStatus::ERR_INVALID_CHANNEL.0,
    /// NV_ERR_INVALID_CLASS
    #[error("the class is not valid")]
    InvalidClass = RmStatus::ERR_INVALID_CLASS.0,
    /// NV_ERR_INVALID_CLIENT
    #[error("the client is not valid")]
    InvalidClient = RmStatus::ERR_INVALID_CLIENT.0,
    /// NV_ERR_INVALID_DATA
    #[error("the data is not valid")]
    InvalidData = RmStatus::ERR_INVALID_DATA.0,
    /// NV_ERR_INVALID_LIMIT
    #[error("a limit is not valid")]
    InvalidLimit = RmStatus::ERR_INVALID_LIMIT.0,
    /// NV_ERR_INVALID_OBJECT
    #[error("the object is not valid")]
    InvalidObject = RmStatus::ERR_INVALID_OBJECT.0,
    /// NV_ERR_INVALID_OBJECT_HANDLE
    #[error("the object handle is not valid")]
    InvalidObjectHandle = RmStatus::ERR_INVALID_OBJECT_HANDLE.0,
    /// NV_ERR_INVALID_OBJECT_PARENT
    #[error("the object's parent is not valid")]
    InvalidObjectParent = RmStatus::ERR_INVALID_OBJECT_PARENT.0,
    /// NV_ERR_INVALID_PARAM_STRUCT
    #[error("the parameter structure is not valid")]
    InvalidParamStruct = RmStatus::ERR_INVALID_PARAM_STRUCT.0,
    /// NV_ERR_INVALID_STATE
    #[error("the object's state does not allow it")]
    InvalidState = RmStatus::ERR_INVALID_STATE.0,
    /// NV_ERR_NO_FREE_FIFOS
    #[error("no channel is free")]
    NoFreeFifos = RmStatus::ERR_NO_FREE_FIFOS.0,
    /// NV_ERR_NOT_SUPPORTED
    #[error("the call is not supported")]
    NotSupported = RmStatus::ERR_NOT_SUPPORTED.0,
    /// NV_ERR_OBJECT_NOT_FOUND
    #[error("the object was not found")]
    ObjectNotFound = RmStatus::ERR_OBJECT_NOT_FOUND.0,
    /// NV_ERR_STATE_IN_USE
    #[error("the state is in use")]
    StateInUse = RmStatus::ERR_STATE_IN_USE.0,
}

/// NV_OK.
pub const NV_OK: u32 = RmStatus::OK.0;

impl Status {
    /// The number that goes over the wire.
    pub const fn code(self) -> u32 {
        // CAST: the enum is a u32.
        self as u32
    }
}

/// The number of an outcome.
pub fn code(outcome: Result<(), Status>) -> u32 {
    outcome.map_or_else(Status::code, |()| NV_OK)
}
