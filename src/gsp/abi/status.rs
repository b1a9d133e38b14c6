//! `NV_STATUS`: how the resource manager in GSP says why it refuses (`nvstatuscodes.h`).

/// A status of the resource manager; 0 is success and never an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(u32)]
pub enum Status {
    /// NV_ERR_GPU_IS_LOST
    #[error("the GPU is lost")]
    GpuIsLost = 0x0f,
    /// NV_ERR_INSERT_DUPLICATE_NAME
    #[error("the handle is in use")]
    InsertDuplicateName = 0x19,
    /// NV_ERR_INSUFFICIENT_RESOURCES
    #[error("out of a resource other than memory")]
    InsufficientResources = 0x1a,
    /// NV_ERR_INSUFFICIENT_PERMISSIONS
    #[error("the requester has no permission")]
    InsufficientPermissions = 0x1b,
    /// NV_ERR_INVALID_ADDRESS
    #[error("the address is not valid")]
    InvalidAddress = 0x1e,
    /// NV_ERR_INVALID_ARGUMENT
    #[error("an argument is not valid")]
    InvalidArgument = 0x1f,
    /// NV_ERR_INVALID_CHANNEL
    #[error("the channel is not valid")]
    InvalidChannel = 0x21,
    /// NV_ERR_INVALID_CLASS
    #[error("the class is not valid")]
    InvalidClass = 0x22,
    /// NV_ERR_INVALID_CLIENT
    #[error("the client is not valid")]
    InvalidClient = 0x23,
    /// NV_ERR_INVALID_DATA
    #[error("the data is not valid")]
    InvalidData = 0x25,
    /// NV_ERR_INVALID_LIMIT
    #[error("a limit is not valid")]
    InvalidLimit = 0x2e,
    /// NV_ERR_INVALID_OBJECT
    #[error("the object is not valid")]
    InvalidObject = 0x31,
    /// NV_ERR_INVALID_OBJECT_HANDLE
    #[error("the object handle is not valid")]
    InvalidObjectHandle = 0x33,
    /// NV_ERR_INVALID_OBJECT_PARENT
    #[error("the object's parent is not valid")]
    InvalidObjectParent = 0x36,
    /// NV_ERR_INVALID_PARAM_STRUCT
    #[error("the parameter structure is not valid")]
    InvalidParamStruct = 0x3a,
    /// NV_ERR_INVALID_STATE
    #[error("the object's state does not allow it")]
    InvalidState = 0x40,
    /// NV_ERR_NO_FREE_FIFOS
    #[error("no channel is free")]
    NoFreeFifos = 0x4f,
    /// NV_ERR_NOT_SUPPORTED
    #[error("the call is not supported")]
    NotSupported = 0x56,
    /// NV_ERR_OBJECT_NOT_FOUND
    #[error("the object was not found")]
    ObjectNotFound = 0x57,
    /// NV_ERR_STATE_IN_USE
    #[error("the state is in use")]
    StateInUse = 0x63,
}

/// NV_OK.
pub const NV_OK: u32 = 0;

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
