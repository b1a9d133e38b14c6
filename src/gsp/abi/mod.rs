//! What a driver and GSP firmware say to each other, as data: layouts by firmware version, status codes,
//! names.
//!
//! GSP's message ABI has no compatibility promise: a driver is built for one firmware version. What is the
//! same in every version known (element and RPC headers, most structs) and what differs (boot arguments,
//! static info, events) live side by side in one module a version; [`Firmware`] is how the rest picks among
//! those that differ. Sources: headers of open-gpu-kernel-modules 570.144, and `nvkm/subdev/gsp/rm` of Linux
//! 7.2.

pub mod names;
pub mod r570_144;
pub mod status;

pub(crate) use r570_144::{boot, control, object, queue, rpc, suspend};

use zerocopy::{FromBytes, IntoBytes};

/// Asserts at build time that a struct has the size and the offsets that firmware expects.
macro_rules! layout {
    ($name:ident: $size:expr $(, $field:ident @ $offset:expr)* $(,)?) => {
        const _: () = {
            assert!(size_of::<$name>() == $size);
            $(assert!(core::mem::offset_of!($name, $field) == $offset);)*
        };
    };
}
pub(crate) use layout;

// The layouts hold native integers.
const _: () = assert!(cfg!(target_endian = "little"));

/// A version of the firmware ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Firmware {
    /// 570.144: what nouveau asks for on GH100 since Linux 6.16.
    #[default]
    R570_144,
}

/// Where the queues lie, from the boot arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueArguments {
    /// Bus address of the shared memory's page table.
    pub shared_memory: u64,
    /// Entries of that table.
    pub pages: u32,
    /// Offset of the command queue in shared memory.
    pub command_queue: u64,
    /// Offset of the message queue in shared memory.
    pub message_queue: u64,
}

/// A range of VRAM as drivers are told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRegion {
    /// First byte.
    pub base: u64,
    /// Last byte.
    pub limit: u64,
    /// Drivers may allocate from it.
    pub usable: bool,
}

/// What [`r570_144::rpc::NV_VGPU_MSG_FUNCTION_GET_GSP_STATIC_INFO`] tells, version apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticInfo<'a> {
    /// Marketing name, ASCII.
    pub name: &'a str,
    /// Chip name, ASCII.
    pub short_name: &'a str,
    /// Bytes of VRAM.
    pub vram: u64,
    /// Ranges of VRAM.
    pub regions: &'a [MemoryRegion],
    /// VRAM address of BAR1's top page table.
    pub bar1_root: u64,
    /// VRAM address of BAR2's top page table.
    pub bar2_root: u64,
    /// Handles of the client, device and subdevice that firmware made for the driver.
    pub internal: [u32; 3],
    /// Offset of the heap outside the protected region.
    pub non_wpr_heap: u64,
    /// Offset of the firmware runtime services region.
    pub frts: u64,
}

/// A channel that was stopped, as [`r570_144::rpc::NV_VGPU_MSG_EVENT_RC_TRIGGERED`] tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RcTriggered {
    /// `NV2080_ENGINE_TYPE_*`.
    pub engine_type: u32,
    /// Channel number.
    pub chid: u32,
    /// `ROBUST_CHANNEL_*`.
    pub except_type: u32,
    /// Faulting address, for MMU faults.
    pub address: u64,
    /// Fault type, for MMU faults.
    pub fault_type: u32,
}

impl Firmware {
    /// The version as file names have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::R570_144 => "570.144",
        }
    }

    /// Bytes of the RMARGS structure.
    pub const fn rm_arguments_size(self) -> usize {
        match self {
            Self::R570_144 => size_of::<boot::GSP_ARGUMENTS_CACHED>(),
        }
    }

    /// The queue arguments in RMARGS, or `None` where `raw` is too short.
    pub fn queue_arguments(self, raw: &[u8]) -> Option<QueueArguments> {
        match self {
            Self::R570_144 => {
                let (arguments, _) = boot::GSP_ARGUMENTS_CACHED::read_from_prefix(raw).ok()?;
                let queues = arguments.messageQueueInitArguments;
                Some(QueueArguments {
                    shared_memory: queues.sharedMemPhysAddr,
                    pages: queues.pageTableEntryCount,
                    command_queue: queues.cmdQueueOffset,
                    message_queue: queues.statQueueOffset,
                })
            }
        }
    }

    /// Static info as a driver of this version reads it.
    pub fn static_info(self, info: &StaticInfo<'_>) -> Vec<u8> {
        match self {
            Self::R570_144 => r570_144::static_info::encode(info).as_bytes().to_vec(),
        }
    }

    /// The event that tells of a stopped channel.
    pub fn rc_triggered(self, event: RcTriggered) -> Vec<u8> {
        match self {
            Self::R570_144 => rpc::rpc_rc_triggered_v17_02::from(event).as_bytes().to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_arguments_of_a_short_block_are_refused() {
        assert_eq!(Firmware::R570_144.queue_arguments(&[0; 0x47]), None);
    }

    #[test]
    fn queue_arguments_are_read_at_their_offsets() {
        let mut raw = [0; 0x48];
        raw[..8].copy_from_slice(&0x1234_5000u64.to_le_bytes());
        raw[8..12].copy_from_slice(&129u32.to_le_bytes());
        raw[16..24].copy_from_slice(&0x1000u64.to_le_bytes());
        raw[24..32].copy_from_slice(&0x4_1000u64.to_le_bytes());

        let arguments = Firmware::R570_144.queue_arguments(&raw).unwrap();

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

    #[test]
    fn rc_event_has_the_layout_that_nouveau_reads() {
        let raw = Firmware::R570_144.rc_triggered(RcTriggered {
            engine_type: 9,
            chid: 3,
            except_type: 31,
            address: 0x12_3456_7000,
            fault_type: 2,
        });

        let word = |at: usize| u32::from_le_bytes(raw[at..at + 4].try_into().unwrap());
        assert_eq!(raw.len(), 0x30);
        assert_eq!([word(0), word(4), word(0x10)], [9, 3, 31]);
        assert_eq!([word(0x1c), word(0x20), word(0x24)], [0x3456_7000, 0x12, 2]);
    }
}
