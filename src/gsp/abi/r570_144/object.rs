//! What objects are allocated with, where other versions have it in another way.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::abi::common::object;
use crate::abi::common::objects::{channel, display_channel};
use crate::abi::table::{ClassParameters, Type, classes};
use gpuvmk_chip::layout;

/// Bytes of `NV0000_ALLOC_PARAMETERS`.
pub const NV0000_ALLOC_PARAMETERS_SIZE: usize = 0x78;

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV_CHANNEL_ALLOC_PARAMS {
    pub common: object::NV_CHANNEL_ALLOC_PARAMS,
    pub tpcConfigID: u32,
    pub pad: u32,
}
layout!(NV_CHANNEL_ALLOC_PARAMS, 0x170, tpcConfigID @ 0x168);

/// Bytes of `NV50VAIO_CHANNELDMA_ALLOCATION_PARAMETERS`.
pub const NV50VAIO_CHANNELDMA_ALLOCATION_PARAMETERS_SIZE: usize = 0x28;

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
