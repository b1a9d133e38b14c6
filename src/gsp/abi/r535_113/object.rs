//! What objects are allocated with, where other versions have it in another way.

use crate::abi::common::object::NV_CHANNEL_ALLOC_PARAMS;
use crate::abi::common::objects::{channel, display_channel};
use crate::abi::table::{ClassParameters, Type, classes};

/// Bytes of `NV0000_ALLOC_PARAMETERS`.
pub const NV0000_ALLOC_PARAMETERS_SIZE: usize = 0x6c;

/// Bytes of `NV50VAIO_CHANNELDMA_ALLOCATION_PARAMETERS`.
pub const NV50VAIO_CHANNELDMA_ALLOCATION_PARAMETERS_SIZE: usize = 0x20;

classes! {
    /// A channel.
    role Channel below &[Type::Device], size_of::<NV_CHANNEL_ALLOC_PARAMS>(), needed
        => ClassParameters::Channel(channel);
    /// The core channel of the display engine.
    channel Core below &[Type::Display], NV50VAIO_CHANNELDMA_ALLOCATION_PARAMETERS_SIZE, needed
        => ClassParameters::DisplayChannel(display_channel);
    /// The channel of a window of the display engine.
    channel Window below &[Type::Display], NV50VAIO_CHANNELDMA_ALLOCATION_PARAMETERS_SIZE, needed
        => ClassParameters::DisplayChannel(display_channel);
    /// The channel for where such a window is.
    channel Immediate below &[Type::Display], NV50VAIO_CHANNELDMA_ALLOCATION_PARAMETERS_SIZE, needed
        => ClassParameters::DisplayChannel(display_channel);
}
