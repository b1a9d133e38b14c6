//! Bits and fields of the calls, with NVIDIA's names in the documentation of each.

/// `NVOS02_FLAGS`: physicality non-contiguous (bit 4), location system memory (0), coherency write-back (5 <<
/// 12), no CPU mapping wanted (1 << 30). For memory of a process that the GPU is to reach.
pub const REGISTER_PAGES: u32 = 1 << 4 | 5 << 12 | 1 << 30;

/// Owner tag of memory, for the driver's own books; must not be 0. `gpvk` in ASCII.
pub const OWNER: u32 = 0x6770_766b;

/// Fields of `NVOS32_ATTR`.
pub mod attr {
    /// `PAGE_SIZE`: 4 KiB.
    pub const PAGE_4K: u32 = 1 << 23;
    /// `PAGE_SIZE`: huge, 2 MiB by [`super::attr2::HUGE_2M`].
    pub const PAGE_HUGE: u32 = 3 << 23;
    /// `LOCATION`: system memory.
    pub const SYSTEM: u32 = 1 << 25;
    /// `PHYSICALITY`: contiguous.
    pub const CONTIGUOUS: u32 = 2 << 27;
    /// `PHYSICALITY`: may be non-contiguous.
    pub const MAY_SCATTER: u32 = 3 << 27;
    /// `COHERENCY`: cached (CPU mappings of system memory).
    pub const CACHED: u32 = 1 << 29;
    /// `COHERENCY`: uncached, also for CPU mappings. Stores are posted one by one, in order.
    pub const UNCACHED: u32 = 0;
}

/// Fields of `NVOS32_ATTR2`.
pub mod attr2 {
    /// `ZBC`: prefer none.
    pub const NO_ZBC: u32 = 1;
    /// `GPU_CACHEABLE`: yes.
    pub const GPU_CACHED: u32 = 1 << 2;
    /// `PAGE_SIZE_HUGE`: 2 MiB.
    pub const HUGE_2M: u32 = 1 << 20;
}

/// `NVOS32_ALLOC_FLAGS`.
pub mod alloc {
    /// `IGNORE_BANK_PLACEMENT`.
    pub const ANY_BANK: u32 = 0x1;
    /// `FIXED_ADDRESS_ALLOCATE`.
    pub const FIXED: u32 = 0x10;
    /// `ALIGNMENT_FORCE`.
    pub const ALIGN: u32 = 0x100;
    /// `LAZY`: no page tables until something is mapped.
    pub const LAZY: u32 = 0x400;
    /// `MAP_NOT_REQUIRED`.
    pub const NO_MAP: u32 = 0x8000;
    /// `VIRTUAL`.
    pub const VIRTUAL: u32 = 0x8_0000;
}

/// `NVOS46_FLAGS`, of a mapping into a GPU address space.
pub mod map {
    /// `ACCESS`: read only.
    pub const READ_ONLY: u32 = 1;
    /// `CACHE_SNOOP`.
    pub const SNOOP: u32 = 1 << 4;
    /// `PAGE_SIZE`: 4 KiB.
    pub const PAGE_4K: u32 = 1 << 8;
    /// `PAGE_SIZE`: big, 64 KiB.
    pub const PAGE_64K: u32 = 2 << 8;
    /// `PAGE_SIZE`: huge, 2 MiB.
    pub const PAGE_2M: u32 = 4 << 8;
    /// `DMA_OFFSET_FIXED`: the offset is an absolute virtual address.
    pub const FIXED: u32 = 1 << 15;
    /// `DEFER_TLB_INVALIDATION`.
    pub const DEFER_FLUSH: u32 = 1 << 31;
}

/// `NV01_EVENT_NONSTALL_INTR`, a bit of an event's notification index.
pub const EVENT_NONSTALL: u32 = 0x0800_0000;

/// `NV2080_CTRL_EVENT_SET_NOTIFICATION_ACTION_REPEAT`.
pub const NOTIFY_REPEAT: u32 = 2;

/// `NV2080_NOTIFIERS_GRAPHICS`.
pub const NOTIFIER_GRAPHICS: u32 = 12;

/// `NV2080_NOTIFIERS_CE0`; those of the other [`NOTIFIERS_CE`] copy engines follow.
pub const NOTIFIER_CE0: u32 = 23;

/// Copy engines that have notifiers in a row: 0 to 9.
pub const NOTIFIERS_CE: u8 = 10;

/// `NV2080_CTRL_CE_CAPS_CE_GRCE`: bit of the first byte of a copy engine's capabilities.
pub const CE_IS_GRCE: u8 = 0x01;
