//! The arguments that GSP is booted with.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::abi::values::QueueArguments;
use gpuvmk_chip::layout;

/// A region of memory that is passed to the operating system of GSP (libos).
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
layout!(LibosMemoryRegionInitArgument, 0x20, pa @ 8, size @ 0x10, kind @ 0x18, loc @ 0x19);

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

/// The region that holds `GSP_ARGUMENTS_CACHED`. It begins with [`MESSAGE_QUEUE_INIT_ARGUMENTS`]; what
/// follows differs, and a virtual GSP needs nothing of it.
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
layout!(MESSAGE_QUEUE_INIT_ARGUMENTS, 0x20, pageTableEntryCount @ 8, cmdQueueOffset @ 0x10, statQueueOffset @ 0x18);

/// Where the queues are: the beginning of RMARGS. `None`: `raw` is too short.
pub fn queue_arguments(raw: &[u8]) -> Option<QueueArguments> {
    let (queues, _) = MESSAGE_QUEUE_INIT_ARGUMENTS::read_from_prefix(raw).ok()?;
    Some(QueueArguments {
        shared_memory: queues.sharedMemPhysAddr,
        pages: queues.pageTableEntryCount,
        command_queue: queues.cmdQueueOffset,
        message_queue: queues.statQueueOffset,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_arguments_of_a_short_block_are_refused() {
        assert_eq!(queue_arguments(&[0; 0x1f]), None);
    }

    #[test]
    fn queue_arguments_are_read_at_their_offsets() {
        let mut raw = [0; 0x48];
        raw[..8].copy_from_slice(&0x1234_5000u64.to_le_bytes());
        raw[8..12].copy_from_slice(&129u32.to_le_bytes());
        raw[16..24].copy_from_slice(&0x1000u64.to_le_bytes());
        raw[24..32].copy_from_slice(&0x4_1000u64.to_le_bytes());

        let arguments = queue_arguments(&raw).unwrap();

        assert_eq!(
            arguments,
            QueueArguments {
                shared_memory: 0x1234_5000,
                pages: 129,
                command_queue: 0x1000,
                message_queue: 0x4_1000
            }
        );
    }
}
