//! Numbers of classes. They are the same in all versions.

macro_rules! numbers {
    ($($name:ident)+) => {
        $( pub const $name: u32 = gpuvmk_chip::nv::classes::$name.number; )+
    };
}

numbers! {
    NV01_ROOT
    NV01_EVENT
    NV01_EVENT_KERNEL_CALLBACK
    NV01_EVENT_OS_EVENT
    NV01_EVENT_KERNEL_CALLBACK_EX
    NV01_DEVICE_0
    NV01_MEMORY_LIST_SYSTEM
    NV01_MEMORY_LIST_FBMEM
    NV20_SUBDEVICE_0
    FERMI_TWOD_A
    FERMI_VASPACE_A
    KEPLER_INLINE_TO_MEMORY_B
    HOPPER_CHANNEL_GPFIFO_A
    HOPPER_DMA_COPY_A
    HOPPER_A
    HOPPER_COMPUTE_A
}

/// Lists of pages. They are not made by GSP_RM_ALLOC, but by ALLOC_MEMORY.
pub const MEMORY_LISTS: [u32; 2] = [NV01_MEMORY_LIST_SYSTEM, NV01_MEMORY_LIST_FBMEM];
