//! nouveau's ioctl arguments (`nouveau_drm.h` of the kernel's user-space interface), with the C layout
//! asserted.

use crate::sys::IoctlArgument;

/// Where a driver's own ioctl numbers start (`DRM_COMMAND_BASE`).
const DRIVER: u64 = 0x40;

pub const GEM_CLOSE: u64 = 0x09;
pub const GETPARAM: u64 = DRIVER;
pub const CHANNEL_ALLOC: u64 = DRIVER + 0x02;
pub const CHANNEL_FREE: u64 = DRIVER + 0x03;
pub const GROBJ_ALLOC: u64 = DRIVER + 0x04;
pub const VM_INIT: u64 = DRIVER + 0x10;
pub const VM_BIND: u64 = DRIVER + 0x11;
pub const EXEC: u64 = DRIVER + 0x12;
pub const GEM_NEW: u64 = DRIVER + 0x40;
pub const GEM_PUSHBUF: u64 = DRIVER + 0x41;
pub const GEM_CPU_PREP: u64 = DRIVER + 0x42;

pub const SYNCOBJ_CREATE: u64 = 0xbf;
pub const SYNCOBJ_DESTROY: u64 = 0xc0;
pub const SYNCOBJ_WAIT: u64 = 0xc3;

pub const DOMAIN_VRAM: u32 = 1 << 1;
pub const DOMAIN_GART: u32 = 1 << 2;
pub const DOMAIN_MAPPABLE: u32 = 1 << 3;
/// The buffer's VRAM pages need not lie side by side.
pub const TILE_NONCONTIG: u32 = 1 << 3;
/// `CHANNEL_ALLOC`: `fb_ctxdma_handle` that makes `tt_ctxdma_handle` name the engine, and the copy engines'
/// name.
pub const ENGINE_IS_NAMED: u32 = !0;
pub const ENGINE_COPY: u32 = 0x30;
pub const BIND_MAP: u32 = 0;
pub const BIND_UNMAP: u32 = 1;
/// `VM_BIND` is done when its syncobjs say so, not when it returns.
pub const BIND_ASYNC: u32 = 1;
/// Wait until all of the syncobjs are signalled.
pub const WAIT_ALL: u32 = 1;
pub const PREP_NOWAIT: u32 = 1;
pub const PREP_WRITE: u32 = 4;

/// Parameters of `GETPARAM`.
#[derive(Debug, Clone, Copy)]
pub enum Parameter {
    PciVendor = 3,
    PciDevice = 4,
    VramSize = 8,
    Chipset = 11,
    PtimerTime = 14,
}

/// One argument struct: C layout, zeroed default, its size checked against the header's.
macro_rules! arguments {
    ($($(#[$doc:meta])* $name:ident = $size:literal { $($field:ident: $kind:ty),* $(,)? })*) => {$(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Debug, Clone, Copy, Default)]
        pub struct $name { $(pub $field: $kind),* }
        const _: () = assert!(size_of::<$name>() == $size);
        #[allow(unsafe_code, reason = "states that the struct has the kernel's layout")]
        // SAFETY: C layout of integers and arrays of integers only, of the header's size.
        unsafe impl IoctlArgument for $name {}
    )*};
}

pub(super) use arguments;

arguments! {
    /// `drm_nouveau_getparam`.
    GetParam = 16 { param: u64, value: u64 }

    /// `drm_nouveau_channel_alloc`.
    ChannelAlloc = 88 {
        fb_ctxdma_handle: u32,
        tt_ctxdma_handle: u32,
        channel: i32,
        pushbuf_domains: u32,
        notifier_handle: u32,
        subchan: [[u32; 2]; 8],
        nr_subchan: u32,
    }

    /// `drm_nouveau_channel_free`.
    ChannelFree = 4 { channel: i32 }

    /// `drm_nouveau_grobj_alloc`.
    GrobjAlloc = 12 { channel: i32, handle: u32, class: i32 }

    /// `drm_nouveau_gem_info` and the two words that make it `drm_nouveau_gem_new`.
    GemNew = 48 {
        handle: u32,
        domain: u32,
        size: u64,
        offset: u64,
        map_handle: u64,
        tile_mode: u32,
        tile_flags: u32,
        channel_hint: u32,
        align: u32,
    }

    /// `drm_nouveau_gem_pushbuf_bo` with its `presumed` part.
    PushbufBo = 40 {
        user_priv: u64,
        handle: u32,
        read_domains: u32,
        write_domains: u32,
        valid_domains: u32,
        presumed_valid: u32,
        presumed_domain: u32,
        presumed_offset: u64,
    }

    /// `drm_nouveau_gem_pushbuf_push`.
    PushbufPush = 24 { bo_index: u32, pad: u32, offset: u64, length: u64 }

    /// `drm_nouveau_gem_pushbuf`.
    Pushbuf = 64 {
        channel: u32,
        nr_buffers: u32,
        buffers: u64,
        nr_relocs: u32,
        nr_push: u32,
        relocs: u64,
        push: u64,
        suffix0: u32,
        suffix1: u32,
        vram_available: u64,
        gart_available: u64,
    }

    /// `drm_nouveau_gem_cpu_prep`.
    CpuPrep = 8 { handle: u32, flags: u32 }

    /// `drm_nouveau_vm_init`.
    VmInit = 16 { kernel_managed_addr: u64, kernel_managed_size: u64 }

    /// `drm_nouveau_vm_bind_op`.
    VmBindOp = 40 { op: u32, flags: u32, handle: u32, pad: u32, addr: u64, bo_offset: u64, range: u64 }

    /// `drm_nouveau_vm_bind`.
    VmBind = 40 {
        op_count: u32,
        flags: u32,
        wait_count: u32,
        sig_count: u32,
        wait_ptr: u64,
        sig_ptr: u64,
        op_ptr: u64,
    }

    /// `drm_nouveau_sync`.
    Sync = 16 { flags: u32, handle: u32, timeline_value: u64 }

    /// `drm_nouveau_exec_push`.
    ExecPush = 16 { va: u64, va_len: u32, flags: u32 }

    /// `drm_nouveau_exec`.
    Exec = 40 {
        channel: u32,
        push_count: u32,
        wait_count: u32,
        sig_count: u32,
        wait_ptr: u64,
        sig_ptr: u64,
        push_ptr: u64,
    }

    /// `drm_syncobj_create`.
    SyncobjCreate = 8 { handle: u32, flags: u32 }

    /// `drm_syncobj_destroy`.
    SyncobjDestroy = 8 { handle: u32, pad: u32 }

    /// `drm_syncobj_wait`.
    SyncobjWait = 40 {
        handles: u64,
        timeout_nsec: i64,
        count_handles: u32,
        flags: u32,
        first_signaled: u32,
        pad: u32,
        deadline_nsec: u64,
    }

    /// `drm_gem_close`.
    GemClose = 8 { handle: u32, pad: u32 }
}
