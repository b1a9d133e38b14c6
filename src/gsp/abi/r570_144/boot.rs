//! What GSP is booted with.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::abi::layout;

/// A region of memory that the operating system of GSP (libos) is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct LibosMemoryRegionInitArgument {
    pub id8: u64,
    pub pa: u64,
    pub size: u64,
    pub kind: u8,
    pub loc: u8,
    pub pad: [u8; 6],
}
layout!(LibosMemoryRegionInitArgument: 0x20, pa @ 8, size @ 0x10, kind @ 0x18, loc @ 0x19);

pub const LIBOS_MEMORY_REGION_CONTIGUOUS: u8 = 1;
pub const LIBOS_MEMORY_REGION_LOC_SYSMEM: u8 = 1;
/// Regions that libos takes at most: what a page holds.
pub const LIBOS_INIT_ARGUMENTS_MAX: usize = 128;

/// Name of a region: its ASCII letters, the first in the highest byte that is used.
pub const fn id8(name: &[u8]) -> u64 {
    let mut id = 0;
    let mut at = 0;
    while at < name.len() && at < 8 {
        id = (id << 8) | name[at] as u64;
        at += 1;
    }
    id
}

/// The region that holds [`GSP_ARGUMENTS_CACHED`].
pub const RMARGS: u64 = id8(b"RMARGS");

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct MESSAGE_QUEUE_INIT_ARGUMENTS {
    pub sharedMemPhysAddr: u64,
    pub pageTableEntryCount: u32,
    pub pad: u32,
    pub cmdQueueOffset: u64,
    pub statQueueOffset: u64,
}
layout!(MESSAGE_QUEUE_INIT_ARGUMENTS: 0x20, pageTableEntryCount @ 8, cmdQueueOffset @ 0x10, statQueueOffset @ 0x18);

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct GSP_SR_INIT_ARGUMENTS {
    pub oldLevel: u32,
    pub flags: u32,
    pub bInPMTransition: u8,
    pub pad: [u8; 3],
}
layout!(GSP_SR_INIT_ARGUMENTS: 0xc);

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
layout!(GSP_ARGUMENTS_CACHED: 0x48, srInitArguments @ 0x20, gpuInstance @ 0x2c, bDmemStack @ 0x30, profilerPa @ 0x38);
