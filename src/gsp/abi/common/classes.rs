//! Numbers of classes and of engines. They are the same in all versions.

pub const NV01_ROOT: u32 = 0x0000;
pub const NV01_EVENT: u32 = 0x0005;
pub const NV01_EVENT_KERNEL_CALLBACK: u32 = 0x0078;
pub const NV01_EVENT_OS_EVENT: u32 = 0x0079;
pub const NV01_EVENT_KERNEL_CALLBACK_EX: u32 = 0x007e;
pub const NV01_DEVICE_0: u32 = 0x0080;
pub const NV01_MEMORY_LIST_SYSTEM: u32 = 0x0081;
pub const NV01_MEMORY_LIST_FBMEM: u32 = 0x0082;
pub const NV20_SUBDEVICE_0: u32 = 0x2080;
pub const FERMI_TWOD_A: u32 = 0x902d;
pub const FERMI_VASPACE_A: u32 = 0x90f1;
pub const KEPLER_INLINE_TO_MEMORY_B: u32 = 0xa140;
pub const HOPPER_CHANNEL_GPFIFO_A: u32 = 0xc86f;
pub const HOPPER_DMA_COPY_A: u32 = 0xc8b5;
pub const HOPPER_A: u32 = 0xcb97;
pub const HOPPER_COMPUTE_A: u32 = 0xcbc0;

pub const NV2080_ENGINE_TYPE_GR0: u32 = 1;
pub const NV2080_ENGINE_TYPE_COPY0: u32 = 9;

/// Lists of pages. They are not made by GSP_RM_ALLOC, but by ALLOC_MEMORY.
pub const MEMORY_LISTS: [u32; 2] = [NV01_MEMORY_LIST_SYSTEM, NV01_MEMORY_LIST_FBMEM];
