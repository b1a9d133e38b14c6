//! Classes of objects, and the parameters that making one takes.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::Handle;
use gpuvmk_chip::layout;

pub use gpuvmk_chip::nv::classes::*;

/// `NV0000_ALLOC_PARAMETERS`: a client.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct RootParams {
    /// Handle, filled in.
    pub client: Handle,
    /// Process; 0 for the caller.
    pub process: u32,
    /// Name of the process.
    pub name: [u8; 100],
    /// Padding; 0.
    pub pad: u32,
    /// Kernel pointer; none.
    pub pid_info: u64,
}
layout!(RootParams, 120);

impl Default for RootParams {
    fn default() -> Self {
        Self { client: Handle::NONE, process: 0, name: [0; 100], pad: 0, pid_info: 0 }
    }
}

/// `NV0080_ALLOC_PARAMETERS`: a device.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct DeviceParams {
    /// The driver's number of the device.
    pub device: u32,
    /// Handle of the client.
    pub client_share: Handle,
    /// Not used; 0.
    pub target_client: Handle,
    /// Not used; 0.
    pub target_device: Handle,
    /// Flags; always 0.
    pub flags: u32,
    /// Padding; 0.
    pub pad0: u32,
    /// Size of the default address space; 0.
    pub va_size: u64,
    /// 0: the driver's default.
    pub va_start: u64,
    /// 0: the driver's default.
    pub va_limit: u64,
    /// 0: several address spaces.
    pub va_mode: u32,
    /// Padding; 0.
    pub pad1: u32,
}
layout!(DeviceParams, 56, va_size @ 24);

/// `NV2080_ALLOC_PARAMETERS`: a subdevice.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct SubdeviceParams {
    /// Number of the subdevice; 0.
    pub subdevice: u32,
}
layout!(SubdeviceParams, 4);

/// `NV_HOPPER_USERMODE_A_PARAMS`: the page with the doorbell. Zero: the register page, unprivileged.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct UsermodeParams {
    /// 1: mapped through BAR1.
    pub bar1: u8,
    /// The privileged page.
    pub privileged: u8,
}
layout!(UsermodeParams, 2);

/// `NV_MEMORY_ALLOCATION_PARAMS`: memory, and reservations of virtual addresses.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct MemoryParams {
    /// Owner tag, for the driver's own books.
    pub owner: u32,
    /// `NVOS32_TYPE`.
    pub kind: u32,
    /// See [`super::flags::alloc`].
    pub flags: u32,
    /// Surface geometry; none.
    pub width: u32,
    /// Not used; 0.
    pub height: u32,
    /// Not used; 0.
    pub pitch: i32,
    /// See [`super::flags::attr`].
    pub attr: u32,
    /// See [`super::flags::attr2`].
    pub attr2: u32,
    /// Not used; 0.
    pub format: u32,
    /// Not used; 0.
    pub compression: u32,
    /// Not used; 0.
    pub zcull: u32,
    /// Padding; 0.
    pub pad0: u32,
    /// Not used; 0.
    pub range_low: u64,
    /// Not used; 0.
    pub range_high: u64,
    /// Size in bytes.
    pub size: u64,
    /// Alignment, where the flags force one.
    pub alignment: u64,
    /// Address, where the flags fix one.
    pub offset: u64,
    /// The driver fills this in.
    pub limit: u64,
    /// The driver fills this in.
    pub address: u64,
    /// Not used; 0.
    pub tag_offset: u32,
    /// Address space, for reservations.
    pub space: Handle,
    /// Not used; 0.
    pub internal: u32,
    /// Not used; 0.
    pub tag: u32,
    /// Not used; 0.
    pub numa_node: i32,
    /// Padding; 0.
    pub pad1: u32,
}
layout!(MemoryParams, 128, attr @ 24, range_low @ 48, size @ 64, offset @ 80, address @ 96, space @ 108);

/// `NV_VASPACE_ALLOCATION_PARAMETERS`: a GPU address space.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct SpaceParams {
    /// 0: a new one.
    pub index: u32,
    /// Flags; none: the driver manages it.
    pub flags: u32,
    /// Size; 0: all.
    pub size: u64,
    /// 0: the driver's default.
    pub internal_start: u64,
    /// 0: the driver's default.
    pub internal_limit: u64,
    /// 0: the driver's default.
    pub big_page: u32,
    /// Padding; 0.
    pub pad0: u32,
    /// Its first address.
    pub base: u64,
    /// Not used; 0.
    pub pasid: u32,
    /// Padding; 0.
    pub pad1: u32,
}
layout!(SpaceParams, 56, base @ 40, pasid @ 48);

/// `NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS`: what is scheduled as one.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct GroupParams {
    /// Handle of the error notifier's memory.
    pub error: Handle,
    /// ECC error notifier.
    pub ecc_error: Handle,
    /// Address space of its channels.
    pub space: Handle,
    /// `NV2080_ENGINE_TYPE`.
    pub engine: u32,
    /// 0: no.
    pub vgpu_plugin: u8,
    /// Padding; 0.
    pub pad: [u8; 3],
}
layout!(GroupParams, 20);

/// `NV_CHANNEL_ALLOC_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct ChannelParams {
    /// Memory that errors are written to.
    pub error: Handle,
    /// Not used; 0.
    pub buffer: Handle,
    /// Virtual address of the ring.
    pub gpfifo: u64,
    /// Number of the ring's entries.
    pub entries: u32,
    /// Flags; always 0.
    pub flags: u32,
    /// Not used; 0.
    pub context_share: Handle,
    /// None: the group's.
    pub space: Handle,
    /// Memory with the USERD, by subdevice.
    pub userd: [Handle; 8],
    /// Its offset there.
    pub userd_offset: [u64; 8],
    /// `NV2080_ENGINE_TYPE`.
    pub engine: u32,
    /// Not used; 0.
    pub cid: u32,
    /// Not used; 0.
    pub subdevice: u32,
    /// Not used; 0.
    pub ecc_error: Handle,
    /// Reserved; used by clients in firmware.
    pub reserved: [u8; 224],
}
layout!(ChannelParams, 368, gpfifo @ 8, flags @ 20, space @ 28, userd @ 32, userd_offset @ 64, engine @ 128, reserved @ 144);

impl Default for ChannelParams {
    fn default() -> Self {
        Self {
            error: Handle::NONE,
            buffer: Handle::NONE,
            gpfifo: 0,
            entries: 0,
            flags: 0,
            context_share: Handle::NONE,
            space: Handle::NONE,
            userd: [Handle::NONE; 8],
            userd_offset: [0; 8],
            engine: 0,
            cid: 0,
            subdevice: 0,
            ecc_error: Handle::NONE,
            reserved: [0; 224],
        }
    }
}

/// `NVB0B5_ALLOCATION_PARAMETERS`: a copy object.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct CopyParams {
    /// 1: the engine is a `NV2080_ENGINE_TYPE`.
    pub version: u32,
    /// Engine number, as the driver numbers them.
    pub engine: u32,
}
layout!(CopyParams, 8);

/// `NV0005_ALLOC_PARAMETERS`: an event.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct EventParams {
    /// Client whose object is watched.
    pub client: Handle,
    /// Handle of the object.
    pub source: Handle,
    /// Class of the event.
    pub class: u32,
    /// Notification index and flags.
    pub index: u32,
    /// The file to wake.
    pub fd: u64,
}
layout!(EventParams, 24, fd @ 16);

/// For classes that take none.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct NoParams {}
