//! Controls of the resource manager's objects: numbers and parameters that are the same in all versions.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use gpuvmk_chip::layout;

pub const NV0080_CTRL_CMD_DMA_SET_PAGE_DIRECTORY: u32 = 0x0080_1813;
pub const NV0080_CTRL_CMD_DMA_UNSET_PAGE_DIRECTORY: u32 = 0x0080_1814;
pub const NV2080_CTRL_CMD_GPU_PROMOTE_CTX: u32 = 0x2080_012b;
pub const NV2080_CTRL_CMD_GPU_GET_FERMI_GPC_INFO: u32 = 0x2080_0137;
pub const NV2080_CTRL_CMD_GPU_GET_FERMI_TPC_INFO: u32 = 0x2080_0138;
pub const NV2080_CTRL_CMD_EVENT_SET_NOTIFICATION: u32 = 0x2080_0301;
pub const NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_CONTEXT_BUFFERS_INFO: u32 = 0x2080_0a32;
pub const NV2080_CTRL_CMD_INTERNAL_INTR_GET_KERNEL_TABLE: u32 = 0x2080_0a5c;
pub const NV2080_CTRL_CMD_INTERNAL_FBSR_INIT: u32 = 0x2080_0ac2;
pub const NV2080_CTRL_CMD_FIFO_GET_DEVICE_INFO_TABLE: u32 = 0x2080_1112;
pub const NV2080_CTRL_CMD_CE_GET_FAULT_METHOD_BUFFER_SIZE: u32 = 0x2080_2a08;
pub const NV90F1_CTRL_CMD_VASPACE_COPY_SERVER_RESERVED_PDES: u32 = 0x90f1_0106;
pub const NVA06F_CTRL_CMD_GPFIFO_SCHEDULE: u32 = 0xa06f_0103;
pub const NVA06F_CTRL_CMD_BIND: u32 = 0xa06f_0104;
pub const NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN: u32 = 0xc36f_0108;

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV0080_CTRL_DMA_SET_PAGE_DIRECTORY_PARAMS {
    pub physAddress: u64,
    pub numEntries: u32,
    pub flags: u32,
    pub hVASpace: u32,
    pub chId: u32,
    pub subDeviceId: u32,
    pub pasid: u32,
}
layout!(NV0080_CTRL_DMA_SET_PAGE_DIRECTORY_PARAMS, 0x20, flags @ 0xc, hVASpace @ 0x10);

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV0080_CTRL_DMA_UNSET_PAGE_DIRECTORY_PARAMS {
    pub hVASpace: u32,
    pub subDeviceId: u32,
}
layout!(NV0080_CTRL_DMA_UNSET_PAGE_DIRECTORY_PARAMS, 8);

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV90F1_PDE_LEVEL {
    pub physAddress: u64,
    pub size: u64,
    pub aperture: u32,
    pub pageShift: u8,
    pub pad: [u8; 3],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV90F1_CTRL_VASPACE_COPY_SERVER_RESERVED_PDES_PARAMS {
    pub hSubDevice: u32,
    pub subDeviceId: u32,
    pub pageSize: u64,
    pub virtAddrLo: u64,
    pub virtAddrHi: u64,
    pub numLevelsToCopy: u32,
    pub pad: u32,
    pub levels: [NV90F1_PDE_LEVEL; 6],
}
layout!(NV90F1_CTRL_VASPACE_COPY_SERVER_RESERVED_PDES_PARAMS, 0xb8, numLevelsToCopy @ 0x20, levels @ 0x28);

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV2080_CTRL_GPU_PROMOTE_CTX_PARAMS {
    pub engineType: u32,
    pub hClient: u32,
    pub ChID: u32,
    pub hChanClient: u32,
    pub hObject: u32,
    pub hVirtMemory: u32,
    pub virtAddress: u64,
    pub size: u64,
    pub entryCount: u32,
    pub pad: u32,
    /// Address, virtual address, size, attributes and buffer id: the physical GPU has its own buffers.
    pub promoteEntry: [[u8; 0x20]; 16],
}
layout!(NV2080_CTRL_GPU_PROMOTE_CTX_PARAMS, 0x230, hChanClient @ 0xc, entryCount @ 0x28, promoteEntry @ 0x30);

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV2080_CTRL_GPU_GET_FERMI_TPC_INFO_PARAMS {
    pub gpcId: u32,
    pub tpcMask: u32,
}
layout!(NV2080_CTRL_GPU_GET_FERMI_TPC_INFO_PARAMS, 8);

/// Bytes of the answer to GET_CONSTRUCTED_FALCON_INFO, whose number differs: a count, and 64 entries.
pub const CONSTRUCTED_FALCON_INFO_PARAMS_SIZE: usize = 0x504;

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV2080_CTRL_EVENT_SET_NOTIFICATION_PARAMS {
    pub event: u32,
    pub action: u32,
    pub bNotifyState: u8,
    pub pad: [u8; 3],
    pub info32: u32,
    pub info16: u16,
    pub pad2: u16,
}
layout!(NV2080_CTRL_EVENT_SET_NOTIFICATION_PARAMS, 0x14);

/// `action`: the highest that exists (2 is REPEAT).
pub const NV2080_CTRL_EVENT_SET_NOTIFICATION_ACTION_REPEAT: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV2080_CTRL_INTERNAL_ENGINE_CONTEXT_BUFFER_INFO {
    pub size: u32,
    pub alignment: u32,
}

/// Context buffers by engine context, for each of eight graphics engines. Versions know more or fewer kinds
/// of contexts.
pub type NV2080_CTRL_INTERNAL_STATIC_GR_GET_CONTEXT_BUFFERS_INFO_PARAMS<const IDS: usize> =
    [[NV2080_CTRL_INTERNAL_ENGINE_CONTEXT_BUFFER_INFO; IDS]; 8];

/// `NV0080_CTRL_FIFO_GET_ENGINE_CONTEXT_PROPERTIES_ENGINE_ID_*` of the buffers that every graphics channel
/// has: GRAPHICS, PAGEPOOL, PATCH, BUNDLE_CB, ATTRIBUTE_CB, RTV_CB_GLOBAL, FECS_EVENT, PRIV_ACCESS_MAP.
pub const GRAPHICS_CONTEXT_BUFFERS: [usize; 8] = [0x00, 0x0d, 0x10, 0x11, 0x13, 0x14, 0x17, 0x18];

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV2080_CTRL_INTERNAL_INTR_GET_KERNEL_TABLE_ENTRY {
    pub engineIdx: u16,
    pub pad: u16,
    pub pmcIntrMask: u32,
    pub vectorStall: u32,
    pub vectorNonStall: u32,
}
layout!(NV2080_CTRL_INTERNAL_INTR_GET_KERNEL_TABLE_ENTRY, 0x10, vectorStall @ 8);

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV2080_CTRL_INTERNAL_INTR_GET_KERNEL_TABLE_PARAMS {
    pub tableLen: u32,
    pub table: [NV2080_CTRL_INTERNAL_INTR_GET_KERNEL_TABLE_ENTRY; 128],
    pub subtreeMap: [[u8; 2]; 7],
    pub pad: u16,
}
layout!(NV2080_CTRL_INTERNAL_INTR_GET_KERNEL_TABLE_PARAMS, 0x814, table @ 4, subtreeMap @ 0x804);

/// A vector that does not exist.
pub const NV_INTR_VECTOR_INVALID: u32 = 0xffff_ffff;
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV2080_CTRL_FIFO_DEVICE_ENTRY {
    pub engineData: [u32; 16],
    pub pbdmaIds: [u32; 2],
    pub pbdmaFaultIds: [u32; 2],
    pub numPbdmas: u32,
    pub engineName: [u8; 16],
}
layout!(NV2080_CTRL_FIFO_DEVICE_ENTRY, 0x64, engineName @ 0x54);

pub const ENGINE_INFO_TYPE_ENG_DESC: usize = 0;
pub const ENGINE_INFO_TYPE_FIFO_TAG: usize = 1;
pub const ENGINE_INFO_TYPE_RM_ENGINE_TYPE: usize = 2;
pub const ENGINE_INFO_TYPE_RUNLIST: usize = 3;
pub const ENGINE_INFO_TYPE_MC: usize = 8;
pub const ENGINE_INFO_TYPE_INSTANCE_ID: usize = 10;
pub const ENGINE_INFO_TYPE_RUNLIST_PRI_BASE: usize = 11;
pub const ENGINE_INFO_TYPE_IS_HOST_DRIVEN_ENGINE: usize = 12;
pub const ENGINE_INFO_TYPE_RUNLIST_ENGINE_ID: usize = 13;

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV2080_CTRL_FIFO_GET_DEVICE_INFO_TABLE_PARAMS {
    pub baseIndex: u32,
    pub numEntries: u32,
    pub bMore: u8,
    pub pad: [u8; 3],
    pub entries: [NV2080_CTRL_FIFO_DEVICE_ENTRY; 32],
}
layout!(NV2080_CTRL_FIFO_GET_DEVICE_INFO_TABLE_PARAMS, 0xc8c, bMore @ 8, entries @ 0xc);

/// Reads a control's parameters; the table of controls checked the size.
pub fn parameters<T: FromBytes + FromZeros>(raw: &[u8]) -> T {
    T::read_from_bytes(raw).unwrap_or_else(|_| T::new_zeroed())
}

/// Writes a control's parameters back, cut to the room that there is.
pub fn put<T: IntoBytes + Immutable>(raw: &mut [u8], value: &T) {
    raw.iter_mut().zip(value.as_bytes()).for_each(|(to, from)| *to = *from);
}
