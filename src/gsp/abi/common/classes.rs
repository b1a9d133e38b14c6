//! Numbers of classes that are the same in all versions, and on all chips.

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
    NV04_DISPLAY_COMMON
    NV01_DEVICE_0
    NV01_MEMORY_LIST_SYSTEM
    NV01_MEMORY_LIST_FBMEM
    NV20_SUBDEVICE_0
    FERMI_VASPACE_A
}

/// Lists of pages. They are not made by GSP_RM_ALLOC, but by ALLOC_MEMORY.
pub const MEMORY_LISTS: [u32; 2] = [NV01_MEMORY_LIST_SYSTEM, NV01_MEMORY_LIST_FBMEM];
