//! RPC functions and events: numbers and bodies.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use gpuvmk_chip::layout;

pub const NV_VGPU_MSG_FUNCTION_SET_GUEST_SYSTEM_INFO: u32 = 1;
pub const NV_VGPU_MSG_FUNCTION_ALLOC_MEMORY: u32 = 4;
pub const NV_VGPU_MSG_FUNCTION_FREE: u32 = 10;
pub const NV_VGPU_MSG_FUNCTION_DUP_OBJECT: u32 = 21;
pub const NV_VGPU_MSG_FUNCTION_UNLOADING_GUEST_DRIVER: u32 = 47;
pub const NV_VGPU_MSG_FUNCTION_SET_PAGE_DIRECTORY: u32 = 54;
pub const NV_VGPU_MSG_FUNCTION_GET_GSP_STATIC_INFO: u32 = 65;
pub const NV_VGPU_MSG_FUNCTION_UPDATE_BAR_PDE: u32 = 70;
pub const NV_VGPU_MSG_FUNCTION_CONTINUATION_RECORD: u32 = 71;
pub const NV_VGPU_MSG_FUNCTION_GSP_SET_SYSTEM_INFO: u32 = 72;
pub const NV_VGPU_MSG_FUNCTION_SET_REGISTRY: u32 = 73;
pub const NV_VGPU_MSG_FUNCTION_GSP_RM_CONTROL: u32 = 76;
pub const NV_VGPU_MSG_FUNCTION_UNSET_PAGE_DIRECTORY: u32 = 79;
pub const NV_VGPU_MSG_FUNCTION_GSP_RM_ALLOC: u32 = 103;

pub const NV_VGPU_MSG_EVENT_GSP_INIT_DONE: u32 = 0x1001;
pub const NV_VGPU_MSG_EVENT_GSP_RUN_CPU_SEQUENCER: u32 = 0x1002;
pub const NV_VGPU_MSG_EVENT_POST_EVENT: u32 = 0x1003;
pub const NV_VGPU_MSG_EVENT_RC_TRIGGERED: u32 = 0x1004;
pub const NV_VGPU_MSG_EVENT_OS_ERROR_LOG: u32 = 0x1006;

/// Register accesses that firmware has the driver make. The commands follow.
///
/// Source: nouveau `rm/r535/nvrm/gsp.h`, nova-core `gsp/fw/r570_144/bindings.rs`; the same in both versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct rpc_run_cpu_sequencer_v17_00 {
    pub bufferSizeDWord: u32,
    /// Commands.
    pub cmdIndex: u32,
    pub regSaveArea: [u32; 8],
}
layout!(rpc_run_cpu_sequencer_v17_00, 0x28, cmdIndex @ 4, regSaveArea @ 8);

/// An event that a driver has an object for. Its data follow, from [`POST_EVENT_DATA`] on: before the end of
/// what C counts as the structure.
///
/// Source: nouveau `rm/r535/nvrm/event.h`; the same in both versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct rpc_post_event_v17_00 {
    pub hClient: u32,
    pub hEvent: u32,
    pub notifyIndex: u32,
    pub data: u32,
    pub info16: u16,
    pub pad: u16,
    pub status: u32,
    pub eventDataSize: u32,
    pub bNotifyList: u8,
    pub pad2: [u8; 3],
}
layout!(rpc_post_event_v17_00, 0x20, info16 @ 0x10, status @ 0x14, bNotifyList @ 0x1c);

/// Where an event's data begin in [`rpc_post_event_v17_00`].
pub const POST_EVENT_DATA: usize = 0x1d;

/// `notifyIndex` of a monitor that is plugged in or out.
pub const NV2080_NOTIFIERS_HOTPLUG: u32 = 1;

gpuvmk_chip::fields! {
    /// `notifyIndex` as events are made with it.
    NV01_EVENT_INDEX { 15:0 NOTIFIER }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Nv2080HotplugNotification {
    pub plugDisplayMask: u32,
    pub unplugDisplayMask: u32,
}
layout!(Nv2080HotplugNotification, 8);

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct PACKED_REGISTRY_TABLE {
    pub size: u32,
    pub numEntries: u32,
}
layout!(PACKED_REGISTRY_TABLE, 8);

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct rpc_update_bar_pde_v15_00 {
    pub barType: u32,
    pub pad: u32,
    pub entryValue: u64,
    pub entryLevelShift: u64,
}
layout!(rpc_update_bar_pde_v15_00, 0x18, entryValue @ 8, entryLevelShift @ 0x10);

pub const NV_RPC_UPDATE_PDE_BAR_1: u32 = 0;
pub const NV_RPC_UPDATE_PDE_BAR_2: u32 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct rpc_gsp_rm_alloc_v03_00 {
    pub hClient: u32,
    pub hParent: u32,
    pub hObject: u32,
    pub hClass: u32,
    pub status: u32,
    pub paramsSize: u32,
    pub flags: u32,
    pub reserved: u32,
}
layout!(rpc_gsp_rm_alloc_v03_00, 0x20, hClass @ 0xc, status @ 0x10, paramsSize @ 0x14);

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct rpc_gsp_rm_control_v03_00 {
    pub hClient: u32,
    pub hObject: u32,
    pub cmd: u32,
    pub status: u32,
    pub paramsSize: u32,
    pub flags: u32,
}
layout!(rpc_gsp_rm_control_v03_00, 0x18, cmd @ 8, status @ 0xc, paramsSize @ 0x10);

/// `rpc_free_v03_00`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NVOS00_PARAMETERS_v03_00 {
    pub hRoot: u32,
    pub hObjectParent: u32,
    pub hObjectOld: u32,
    pub status: u32,
}
layout!(NVOS00_PARAMETERS_v03_00, 0x10, hObjectOld @ 8, status @ 0xc);

/// `rpc_dup_object_v03_00`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NVOS55_PARAMETERS_v03_00 {
    pub hClient: u32,
    pub hParent: u32,
    pub hObject: u32,
    pub hClientSrc: u32,
    pub hObjectSrc: u32,
    pub flags: u32,
    pub status: u32,
}
layout!(NVOS55_PARAMETERS_v03_00, 0x1c, hClientSrc @ 0xc, status @ 0x18);

/// `NV0080_CTRL_DMA_SET_PAGE_DIRECTORY_PARAMS` follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct rpc_set_page_directory_v1E_05 {
    pub hClient: u32,
    pub hDevice: u32,
    pub pasid: u32,
    pub pad: u32,
}
layout!(rpc_set_page_directory_v1E_05, 0x10);

/// `NV0080_CTRL_DMA_UNSET_PAGE_DIRECTORY_PARAMS` follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct rpc_unset_page_directory_v1E_05 {
    pub hClient: u32,
    pub hDevice: u32,
}
layout!(rpc_unset_page_directory_v1E_05, 8);

/// A list of pages follows: 8 bytes each, page frame numbers where `idr` is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct rpc_alloc_memory_v13_01 {
    pub hClient: u32,
    pub hDevice: u32,
    pub hMemory: u32,
    pub hClass: u32,
    pub flags: u32,
    pub pteAdjust: u32,
    pub format: u32,
    pub pad: u32,
    pub length: u64,
    pub pageCount: u32,
    pub pad2: u32,
    /// `idr` in bits 1:0, `length` (entries) in bits 31:16.
    pub pteDesc: u32,
    pub pad3: u32,
}
layout!(rpc_alloc_memory_v13_01, 0x38, length @ 0x20, pageCount @ 0x28, pteDesc @ 0x30);

impl rpc_alloc_memory_v13_01 {
    /// Entries of the list that follows.
    pub const fn entries(&self) -> u32 {
        self.pteDesc >> 16
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct rpc_unloading_guest_driver_v1F_07 {
    pub bInPMTransition: u8,
    pub bGc6Entering: u8,
    pub pad: u16,
    pub newLevel: u32,
}
layout!(rpc_unloading_guest_driver_v1F_07, 8, newLevel @ 4);
