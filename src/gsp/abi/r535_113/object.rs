//! What objects are allocated with, where other versions have it in another way.

use crate::abi::common::object::NV_CHANNEL_ALLOC_PARAMS;
use crate::abi::common::objects::channel;
use crate::abi::table::{ClassParameters, Type, classes};

/// Bytes of `NV0000_ALLOC_PARAMETERS`.
pub const NV0000_ALLOC_PARAMETERS_SIZE: usize = 0x6c;

classes! {
    /// A channel.
    role Channel below &[Type::Device], size_of::<NV_CHANNEL_ALLOC_PARAMS>(), needed
        => ClassParameters::Channel(channel);
}
