//! Control calls: commands on an object, with a parameter structure each.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::Handle;
use gpuvmk_chip::layout;

/// A control's parameters, which know their command.
pub trait ControlParams: FromBytes + IntoBytes + KnownLayout + Immutable {
    /// Number of the control command.
    const COMMAND: u32;
    /// NVIDIA's name, for messages.
    const NAME: &'static str;
}

macro_rules! control {
    ($name:ident = $command:literal, $vendor:literal, $size:literal $(, $field:ident @ $offset:literal)*) => {
        impl ControlParams for $name {
            const COMMAND: u32 = $command;
            const NAME: &'static str = $vendor;
        }
        layout!($name, $size $(, $field @ $offset)*);
    };
}

/// Instances of a GPU (on the client).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct IdInfo {
    /// The driver's number for the GPU.
    pub gpu_id: u32,
    /// Flags; see [`super::flags`].
    pub flags: u32,
    /// The driver's number of the device.
    pub device: u32,
    /// Number of the subdevice; 0.
    pub subdevice: u32,
    /// Not used here.
    pub sli: u32,
    /// Board id.
    pub board: u32,
    /// The driver's number of the GPU.
    pub instance: u32,
    /// NUMA node, or -1.
    pub numa: i32,
}
control!(IdInfo = 0x205, "NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2", 32);

/// The driver's own record of an object (on the client).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct HandleInfo {
    /// Handle of the object.
    pub object: Handle,
    /// 2: its class.
    pub index: u32,
    /// The driver fills this in.
    pub data: u64,
}
control!(HandleInfo = 0xd02, "NV0000_CTRL_CMD_CLIENT_GET_HANDLE_INFO", 16, data @ 8);

/// A page-table entry in [`PteInfo`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct PteBlock {
    /// Bytes of a page; 0: there is no such table.
    pub page_size: u64,
    /// Bytes of an entry.
    pub entry_size: u64,
    /// Compression tag of the page.
    pub tag: u32,
    /// Storage kind, as in a page-table entry.
    pub kind: u32,
    /// See [`PteBlock::is_plain`].
    pub flags: u32,
    /// Padding; 0.
    pub unused: u32,
}

impl PteBlock {
    /// That the page is there.
    pub const fn is_valid(&self) -> bool {
        self.page_size != 0 && self.flags & 1 != 0
    }

    /// True when unprivileged clients may read it.
    pub const fn is_plain(&self) -> bool {
        let shaders_write_only = self.flags >> 13 & 3 == 2;
        self.is_valid() && self.flags & 1 << 18 == 0 && !shaders_write_only
    }

    /// That it is video memory.
    pub const fn is_video(&self) -> bool {
        self.flags >> 3 & 0xf == 0
    }
}

/// Page-table entries of an address, one for each page size that has a table there (on the device).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct PteInfo {
    /// The physical address.
    pub address: u64,
    /// Number of the subdevice; 0: any.
    pub subdevice: u32,
    /// Not 0: no tables are made for it.
    pub as_it_is: u32,
    /// One block for each page size.
    pub blocks: [PteBlock; 5],
    /// The address space.
    pub space: Handle,
    /// Padding; 0.
    pub unused: u32,
}
control!(PteInfo = 0x0080_1801, "NV0080_CTRL_CMD_DMA_GET_PTE_INFO", 184, blocks @ 16, space @ 176);

/// Marketing name (on the subdevice).
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct NameString {
    /// Character set; 0: ASCII.
    pub flags: u32,
    /// Name, padded with zeros.
    pub name: [u8; 128],
}
control!(NameString = 0x2080_0110, "NV2080_CTRL_CMD_GPU_GET_NAME_STRING", 132);

impl Default for NameString {
    fn default() -> Self {
        Self { flags: 0, name: [0; 128] }
    }
}

/// Architecture (on the subdevice).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct ArchInfo {
    /// Such as 0x180 for GH100.
    pub architecture: u32,
    /// Implementation number within the architecture.
    pub implementation: u32,
    /// Revision number of the chip.
    pub revision: u32,
    /// Sub-revision number of the chip.
    pub subrevision: u8,
    /// Padding; 0.
    pub pad: [u8; 3],
}
control!(ArchInfo = 0x2080_1701, "NV2080_CTRL_CMD_MC_GET_ARCH_INFO", 16);

/// Classes (on the device): what can be made on it.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct ClassList {
    /// Number of entries.
    pub count: u32,
    /// A class number each.
    pub list: [u32; 200],
}
control!(ClassList = 0x80_0292, "NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2", 804);

impl Default for ClassList {
    fn default() -> Self {
        Self { count: 0, list: [0; 200] }
    }
}

/// Graphics processing clusters (on the subdevice).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct GpcMask {
    /// `NV2080_CTRL_GR_ROUTE_INFO`: 0, the only graphics engine.
    pub route: [u64; 2],
    /// A bit for each that is not switched off.
    pub gpcs: u32,
    /// Padding; 0.
    pub pad: u32,
}
control!(GpcMask = 0x2080_122a, "NV2080_CTRL_CMD_GR_GET_GPC_MASK", 24);

/// Texture processing clusters of a graphics processing cluster (on the subdevice).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct TpcMask {
    /// `NV2080_CTRL_GR_ROUTE_INFO`: 0, the only graphics engine.
    pub route: [u64; 2],
    /// Number of the graphics processing cluster.
    pub gpc: u32,
    /// A bit for each that is not switched off.
    pub tpcs: u32,
}
control!(TpcMask = 0x2080_122b, "NV2080_CTRL_CMD_GR_GET_TPC_MASK", 24);

/// Engines (on the subdevice).
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct Engines {
    /// Number of entries.
    pub count: u32,
    /// `NV2080_ENGINE_TYPE` each.
    pub list: [u32; 84],
}
control!(Engines = 0x2080_0170, "NV2080_CTRL_CMD_GPU_GET_ENGINES_V2", 340);

impl Default for Engines {
    fn default() -> Self {
        Self { count: 0, list: [0; 84] }
    }
}

/// Capabilities of a copy engine (on the subdevice).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct CopyCaps {
    /// `NV2080_ENGINE_TYPE`.
    pub engine: u32,
    /// Capability bits.
    pub caps: [u8; 2],
    /// Padding; 0.
    pub pad: [u8; 2],
}
control!(CopyCaps = 0x2080_2a03, "NV2080_CTRL_CMD_CE_GET_CAPS_V2", 8);

/// Physical copy engines behind a copy engine (on the subdevice).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct CopyUnits {
    /// `NV2080_ENGINE_TYPE`.
    pub engine: u32,
    /// A bit for each.
    pub mask: u32,
}
control!(CopyUnits = 0x2080_2a02, "NV2080_CTRL_CMD_CE_GET_CE_PCE_MASK", 8);

/// One question about video memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct FbQuestion {
    /// `NV2080_CTRL_FB_INFO_INDEX`.
    pub index: u32,
    /// Answer; sizes in KiB.
    pub data: u32,
}

/// Video memory (on the subdevice).
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct FbInfo {
    /// Number of questions.
    pub count: u32,
    /// The questions, with their answers.
    pub list: [FbQuestion; 128],
}
control!(FbInfo = 0x2080_1303, "NV2080_CTRL_CMD_FB_GET_INFO_V2", 1028);

impl Default for FbInfo {
    fn default() -> Self {
        Self { count: 0, list: [FbQuestion::default(); 128] }
    }
}

/// `NV2080_CTRL_FB_INFO_INDEX_TOTAL_RAM_SIZE`.
pub const FB_TOTAL_RAM: u32 = 0x08;
/// `NV2080_CTRL_FB_INFO_INDEX_HEAP_FREE`.
pub const FB_HEAP_FREE: u32 = 0x16;
/// `NV2080_CTRL_FB_INFO_INDEX_BAR1_AVAIL_SIZE`.
pub const FB_BAR1_FREE: u32 = 0x1d;

/// Switches a notification on (on the subdevice).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct SetNotification {
    /// Index of the notification.
    pub event: u32,
    /// See [`super::flags::NOTIFY_REPEAT`].
    pub action: u32,
    /// 0: no.
    pub notify_state: u8,
    /// Padding; 0.
    pub pad0: [u8; 3],
    /// Not used; 0.
    pub info32: u32,
    /// Not used; 0.
    pub info16: u16,
    /// Padding; 0.
    pub pad1: [u8; 2],
}
control!(SetNotification = 0x2080_0301, "NV2080_CTRL_CMD_EVENT_SET_NOTIFICATION", 20, info32 @ 12);

/// Channels that [`DisableChannels`] takes at once.
pub const DISABLE_MAX: usize = 64;

/// Takes channels off the hardware, or lets them run again (on the subdevice).
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct DisableChannels {
    /// 1 to disable.
    pub disable: u8,
    /// Padding; 0.
    pub pad0: [u8; 3],
    /// Number of channels.
    pub count: u32,
    /// 1: without preempting.
    pub only_scheduling: u8,
    /// 0: no.
    pub rewind: u8,
    /// Padding; 0.
    pub pad1: [u8; 6],
    /// Not used; 0.
    pub preempt_event: u64,
    /// Client of each.
    pub clients: [Handle; DISABLE_MAX],
    /// Handles of the channels.
    pub channels: [Handle; DISABLE_MAX],
}
control!(DisableChannels = 0x2080_110b, "NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS", 536, only_scheduling @ 8, preempt_event @ 16);

impl Default for DisableChannels {
    fn default() -> Self {
        Self {
            disable: 0,
            pad0: [0; 3],
            count: 0,
            only_scheduling: 0,
            rewind: 0,
            pad1: [0; 6],
            preempt_event: 0,
            clients: [Handle::NONE; DISABLE_MAX],
            channels: [Handle::NONE; DISABLE_MAX],
        }
    }
}

/// Puts a group's channels on the runlist (on the group).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct GroupSchedule {
    /// 1 to enable.
    pub enable: u8,
    /// 0: no.
    pub skip_submit: u8,
    /// 0: no.
    pub skip_enable: u8,
}
control!(GroupSchedule = 0xa06c_0101, "NVA06C_CTRL_CMD_GPFIFO_SCHEDULE", 3);

/// Time slice of a group (on the group).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct GroupTimeslice {
    /// Time in microseconds.
    pub micros: u64,
}
control!(GroupTimeslice = 0xa06c_0103, "NVA06C_CTRL_CMD_SET_TIMESLICE", 8);

/// Takes a group off its engine (on the group).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct GroupPreempt {
    /// 1 to wait.
    pub wait: u8,
    /// 1: the time below counts.
    pub manual_timeout: u8,
    /// Padding; 0.
    pub pad: [u8; 2],
    /// Time in microseconds.
    pub timeout_micros: u32,
}
control!(GroupPreempt = 0xa06c_0105, "NVA06C_CTRL_CMD_PREEMPT", 8, timeout_micros @ 4);

/// The token to write to the doorbell for a channel (on the channel).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct WorkSubmitToken {
    /// The driver fills this in.
    pub token: u32,
}
control!(WorkSubmitToken = 0xc36f_0108, "NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN", 4);

/// Drops translations of an address space (on the device).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct InvalidateTlb {
    /// Handle of the address space.
    pub space: Handle,
    /// 1: all levels.
    pub flags: u32,
}
control!(InvalidateTlb = 0x0080_180c, "NV0080_CTRL_CMD_DMA_INVALIDATE_TLB", 8);
