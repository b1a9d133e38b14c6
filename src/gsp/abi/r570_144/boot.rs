//! The arguments that GSP is booted with.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::abi::common::boot::MESSAGE_QUEUE_INIT_ARGUMENTS;
use gpuvmk_chip::layout;

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct GSP_SR_INIT_ARGUMENTS {
    pub oldLevel: u32,
    pub flags: u32,
    pub bInPMTransition: u8,
    pub pad: [u8; 3],
}
layout!(GSP_SR_INIT_ARGUMENTS, 0xc);

/// RMARGS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct GSP_ARGUMENTS_CACHED {
    pub messageQueueInitArguments: MESSAGE_QUEUE_INIT_ARGUMENTS,
    pub srInitArguments: GSP_SR_INIT_ARGUMENTS,
    pub gpuInstance: u32,
    pub bDmemStack: u8,
    pub pad: [u8; 7],
    pub profilerPa: u64,
    pub profilerSize: u64,
}
layout!(GSP_ARGUMENTS_CACHED, 0x48, srInitArguments @ 0x20, gpuInstance @ 0x2c, bDmemStack @ 0x30, profilerPa @ 0x38);
