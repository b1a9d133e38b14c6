//! What objects are allocated with, where other versions have it in another way.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::abi::common::object;
use crate::abi::common::objects::channel;
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

classes! {
    /// A channel.
    role Channel below &[Type::Device], size_of::<NV_CHANNEL_ALLOC_PARAMS>(), needed
        => ClassParameters::Channel(channel);
}
