//! The structures of the ioctls themselves (magic `F`).
//!
//! The kernel's ioctl number has the structure's size in it, so a wrong size is refused by number already.

use gpuvmk_chip::layout;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::Handle;

/// Ioctl numbers: `NV_ESC_*`.
pub mod escape {
    /// `NV_ESC_RM_ALLOC_MEMORY`.
    pub const ALLOC_MEMORY: u8 = 0x27;
    /// `NV_ESC_RM_FREE`.
    pub const FREE: u8 = 0x29;
    /// `NV_ESC_RM_CONTROL`.
    pub const CONTROL: u8 = 0x2a;
    /// `NV_ESC_RM_ALLOC`.
    pub const ALLOC: u8 = 0x2b;
    /// `NV_ESC_RM_MAP_MEMORY`.
    pub const MAP_MEMORY: u8 = 0x4e;
    /// `NV_ESC_RM_UNMAP_MEMORY`.
    pub const UNMAP_MEMORY: u8 = 0x4f;
    /// `NV_ESC_RM_GET_EVENT_DATA`.
    pub const GET_EVENT_DATA: u8 = 0x52;
    /// `NV_ESC_RM_MAP_MEMORY_DMA`.
    pub const MAP_MEMORY_DMA: u8 = 0x57;
    /// `NV_ESC_RM_UNMAP_MEMORY_DMA`.
    pub const UNMAP_MEMORY_DMA: u8 = 0x58;
    /// `NV_ESC_CARD_INFO`.
    pub const CARD_INFO: u8 = 200;
    /// `NV_ESC_REGISTER_FD`.
    pub const REGISTER_FD: u8 = 201;
    /// `NV_ESC_ALLOC_OS_EVENT`.
    pub const ALLOC_OS_EVENT: u8 = 206;
    /// `NV_ESC_CHECK_VERSION_STR`.
    pub const CHECK_VERSION: u8 = 210;
}

/// `NVOS64_PARAMETERS`: makes an object.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct Alloc {
    /// Handle of the client.
    pub root: Handle,
    /// Handle of the parent object.
    pub parent: Handle,
    /// The new object's handle; 0 lets the driver choose (clients).
    pub object: Handle,
    /// Class number of the object.
    pub class: u32,
    /// Pointer to the class's parameters.
    pub params: u64,
    /// Pointer to wanted rights; none.
    pub rights: u64,
    /// Size of the parameters.
    pub params_size: u32,
    /// Flags of serialisation; 0.
    pub flags: u32,
    /// Status that the driver returns; see [`RmStatus`](super::RmStatus).
    pub status: u32,
    /// Padding; 0.
    pub pad: u32,
}
layout!(Alloc, 48, params @ 16, params_size @ 32, status @ 40);

/// `NVOS00_PARAMETERS`: frees an object and all below it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct Free {
    /// Handle of the client.
    pub root: Handle,
    /// Handle of the parent object.
    pub parent: Handle,
    /// Handle of the object.
    pub object: Handle,
    /// Status that the driver returns; see [`RmStatus`](super::RmStatus).
    pub status: u32,
}
layout!(Free, 16, status @ 12);

/// `NVOS54_PARAMETERS`: a control call.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct Control {
    /// Handle of the client.
    pub client: Handle,
    /// Handle of the object.
    pub object: Handle,
    /// Number of the control command.
    pub command: u32,
    /// Flags; always 0.
    pub flags: u32,
    /// Pointer to the parameters.
    pub params: u64,
    /// Size of the parameters in bytes.
    pub params_size: u32,
    /// Status that the driver returns; see [`RmStatus`](super::RmStatus).
    pub status: u32,
}
layout!(Control, 32, params @ 16, status @ 28);

/// `nv_ioctl_nvos02_parameters_with_fd`: registers memory of this process (class
/// `NV01_MEMORY_SYSTEM_OS_DESCRIPTOR`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct AllocMemory {
    /// Handle of the client.
    pub root: Handle,
    /// Handle of the parent object.
    pub parent: Handle,
    /// The new object's handle.
    pub object: Handle,
    /// Class number of the object.
    pub class: u32,
    /// Flags, see [`super::flags::REGISTER_PAGES`].
    pub flags: u32,
    /// Padding; 0.
    pub pad0: u32,
    /// Address of the memory.
    pub memory: u64,
    /// Bytes less one.
    pub limit: u64,
    /// Status that the driver returns; see [`RmStatus`](super::RmStatus).
    pub status: u32,
    /// Padding; 0.
    pub pad1: u32,
    /// File of a CPU mapping; none.
    pub fd: i32,
    /// Padding; 0.
    pub pad2: u32,
}
layout!(AllocMemory, 56, memory @ 24, limit @ 32, status @ 40, fd @ 48);

/// `nv_ioctl_nvos33_parameters_with_fd`: prepares a CPU mapping on a file, which `mmap` then makes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct MapMemory {
    /// Handle of the client.
    pub client: Handle,
    /// Device or subdevice.
    pub device: Handle,
    /// Handle of the memory object.
    pub memory: Handle,
    /// Padding; 0.
    pub pad0: u32,
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// The address that identifies the mapping when it is removed.
    pub address: u64,
    /// Status that the driver returns; see [`RmStatus`](super::RmStatus).
    pub status: u32,
    /// Flags; see [`super::flags`].
    pub flags: u32,
    /// The file that becomes the mapping's.
    pub fd: i32,
    /// Padding; 0.
    pub pad1: u32,
}
layout!(MapMemory, 56, offset @ 16, address @ 32, status @ 40, flags @ 44, fd @ 48);

/// `NVOS34_PARAMETERS`: takes a CPU mapping back.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct UnmapMemory {
    /// Handle of the client.
    pub client: Handle,
    /// Device or subdevice.
    pub device: Handle,
    /// Handle of the memory object.
    pub memory: Handle,
    /// Padding; 0.
    pub pad: u32,
    /// Address of the mapping in this process.
    pub address: u64,
    /// Status that the driver returns; see [`RmStatus`](super::RmStatus).
    pub status: u32,
    /// Flags; see [`super::flags`].
    pub flags: u32,
}
layout!(UnmapMemory, 32, address @ 16, status @ 24);

/// `NVOS46_PARAMETERS`: maps memory into a GPU address space.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct MapDma {
    /// Handle of the client.
    pub client: Handle,
    /// Handle of the device.
    pub device: Handle,
    /// Virtual memory object.
    pub dma: Handle,
    /// Handle of the memory object.
    pub memory: Handle,
    /// First byte of the memory.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// See [`super::flags::map`].
    pub flags: u32,
    /// More flags; none.
    pub flags2: u32,
    /// Storage kind, where flags say so.
    pub kind: u32,
    /// Padding; 0.
    pub pad0: u32,
    /// GPU virtual address.
    pub va: u64,
    /// Status that the driver returns; see [`RmStatus`](super::RmStatus).
    pub status: u32,
    /// Padding; 0.
    pub pad1: u32,
}
layout!(MapDma, 64, flags @ 32, flags2 @ 36, kind @ 40, va @ 48, status @ 56);

/// `NVOS47_PARAMETERS`: unmaps (a part of) a mapping.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct UnmapDma {
    /// Handle of the client.
    pub client: Handle,
    /// Handle of the device.
    pub device: Handle,
    /// Virtual memory object.
    pub dma: Handle,
    /// Handle of the memory object.
    pub memory: Handle,
    /// Flags; always 0.
    pub flags: u32,
    /// Padding; 0.
    pub pad0: u32,
    /// GPU virtual address.
    pub va: u64,
    /// Size in bytes.
    pub size: u64,
    /// Status that the driver returns; see [`RmStatus`](super::RmStatus).
    pub status: u32,
    /// Padding; 0.
    pub pad1: u32,
}
layout!(UnmapDma, 48, flags @ 16, va @ 24, size @ 32, status @ 40);

/// `nv_ioctl_register_fd_t`: ties a device file to the control file that has the client.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct RegisterFd {
    /// Descriptor of the control node.
    pub control: i32,
}
layout!(RegisterFd, 4);

/// `nv_ioctl_alloc_os_event_t`: makes a file one that events can wake.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct AllocOsEvent {
    /// Handle of the client.
    pub client: Handle,
    /// Handle of the device.
    pub device: Handle,
    /// The file itself.
    pub fd: i32,
    /// Status that the driver returns; see [`RmStatus`](super::RmStatus).
    pub status: u32,
}
layout!(AllocOsEvent, 16, status @ 12);

/// `NVOS41_PARAMETERS`: fetches the next event of a file.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct GetEventData {
    /// Pointer to an [`EventData`].
    pub event: u64,
    /// Nonzero when more wait.
    pub more: u32,
    /// Status that the driver returns; see [`RmStatus`](super::RmStatus).
    pub status: u32,
}
layout!(GetEventData, 16, more @ 8, status @ 12);

/// `NvUnixEvent`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct EventData {
    /// The event object.
    pub object: Handle,
    /// Index of the notification.
    pub index: u32,
    /// Depends on the notification.
    pub info32: u32,
    /// Depends on the notification.
    pub info16: u16,
    /// Padding; 0.
    pub pad: u16,
}
layout!(EventData, 16);

/// `nv_ioctl_rm_api_version_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct CheckVersion {
    /// `'2'`: report the version.
    pub command: u32,
    /// 1 when recognised.
    pub reply: u32,
    /// Version string, padded with zeros.
    pub version: [u8; 64],
}
layout!(CheckVersion, 72, version @ 8);

/// `nv_ioctl_card_info_t`: one entry of 32.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct CardInfo {
    /// Nonzero when there is one.
    pub valid: u8,
    /// Padding; 0.
    pub pad0: [u8; 3],
    /// PCI domain number.
    pub domain: u32,
    /// PCI bus number.
    pub bus: u8,
    /// PCI device number, 0 to 31.
    pub slot: u8,
    /// PCI function number, 0 to 7.
    pub function: u8,
    /// Padding; 0.
    pub pad1: u8,
    /// PCI vendor id.
    pub vendor: u16,
    /// PCI device id.
    pub device: u16,
    /// The driver's number for the GPU.
    pub gpu_id: u32,
    /// Number of the interrupt line.
    pub interrupt: u16,
    /// Padding; 0.
    pub pad2: u16,
    /// Physical address of BAR0.
    pub registers: u64,
    /// Size of BAR0 in bytes.
    pub registers_size: u64,
    /// Physical address of BAR1.
    pub framebuffer: u64,
    /// Size of BAR1 in bytes.
    pub framebuffer_size: u64,
    /// N of `/dev/nvidiaN`.
    pub minor: u32,
    /// Name of the device, where it has one.
    pub name: [u8; 10],
    /// Padding; 0.
    pub pad3: [u8; 2],
}
layout!(CardInfo, 72, domain @ 4, vendor @ 12, gpu_id @ 16, registers @ 24, framebuffer_size @ 48, minor @ 56);

/// Entries of [`escape::CARD_INFO`].
pub const CARDS: usize = 32;
