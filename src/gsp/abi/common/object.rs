//! What objects of the resource manager are allocated with. Versions have more at the end of some.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use gpuvmk_chip::addr::Chid;
use gpuvmk_chip::layout;

/// Bytes of `NV0080_ALLOC_PARAMETERS`.
pub const NV0080_ALLOC_PARAMETERS_SIZE: usize = 0x38;
/// Bytes of `NV2080_ALLOC_PARAMETERS`.
pub const NV2080_ALLOC_PARAMETERS_SIZE: usize = 4;
/// Bytes of `NV_GR_ALLOCATION_PARAMETERS`.
pub const NV_GR_ALLOCATION_PARAMETERS_SIZE: usize = 0x10;

/// Bytes of `NV50VAIO_CHANNELPIO_ALLOCATION_PARAMETERS`.
pub const NV50VAIO_CHANNELPIO_ALLOCATION_PARAMETERS_SIZE: usize = 0x10;

/// Versions have more at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV50VAIO_CHANNELDMA_ALLOCATION_PARAMETERS {
    pub channelInstance: u32,
    pub hObjectBuffer: u32,
    pub hObjectNotify: u32,
    pub offset: u32,
    pub pControl: u64,
}
layout!(NV50VAIO_CHANNELDMA_ALLOCATION_PARAMETERS, 0x18, offset @ 0xc);

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV0005_ALLOC_PARAMETERS {
    pub hParentClient: u32,
    pub hSrcResource: u32,
    pub hClass: u32,
    pub notifyIndex: u32,
    pub data: u64,
}
layout!(NV0005_ALLOC_PARAMETERS, 0x18, notifyIndex @ 0xc);

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV_VASPACE_ALLOCATION_PARAMETERS {
    pub index: u32,
    pub flags: u32,
    pub vaSize: u64,
    pub vaStartInternal: u64,
    pub vaLimitInternal: u64,
    pub bigPageSize: u32,
    pub pad: u32,
    pub vaBase: u64,
}
layout!(NV_VASPACE_ALLOCATION_PARAMETERS, 0x30, vaSize @ 8, vaBase @ 0x28);

/// `index`: the address space that the device has of itself.
pub const NV_VASPACE_ALLOCATION_INDEX_GPU_DEVICE: u32 = 3;

gpuvmk_chip::fields! {
    /// Flags of an address space.
    NV_VASPACE_ALLOCATION_FLAGS {
        /// Another driver, UVM, keeps the page tables, and firmware a part of them.
        2:2 SHARED_MANAGEMENT,
        /// The driver keeps the page tables.
        3:3 IS_EXTERNALLY_OWNED,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV_MEMORY_DESC_PARAMS {
    pub base: u64,
    pub size: u64,
    pub addressSpace: u32,
    pub cacheAttrib: u32,
}
layout!(NV_MEMORY_DESC_PARAMS, 0x18, addressSpace @ 0x10);

/// `addressSpace`: VRAM.
pub const ADDR_FBMEM: u32 = 2;
/// `addressSpace` of memory of the machine.
pub const ADDR_SYSMEM: u32 = 1;

/// `NV_CHANNELGPFIFO_ALLOCATION_PARAMETERS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV_CHANNEL_ALLOC_PARAMS {
    pub hObjectError: u32,
    pub hObjectBuffer: u32,
    pub gpFifoOffset: u64,
    pub gpFifoEntries: u32,
    pub flags: u32,
    pub hContextShare: u32,
    pub hVASpace: u32,
    pub hUserdMemory: [u32; 8],
    pub userdOffset: [u64; 8],
    pub engineType: u32,
    pub cid: u32,
    pub subDeviceId: u32,
    pub hObjectEccError: u32,
    pub instanceMem: NV_MEMORY_DESC_PARAMS,
    pub userdMem: NV_MEMORY_DESC_PARAMS,
    pub ramfcMem: NV_MEMORY_DESC_PARAMS,
    pub mthdbufMem: NV_MEMORY_DESC_PARAMS,
    pub hPhysChannelGroup: u32,
    pub internalFlags: u32,
    pub errorNotifierMem: NV_MEMORY_DESC_PARAMS,
    pub eccErrorNotifierMem: NV_MEMORY_DESC_PARAMS,
    pub ProcessID: u32,
    pub SubProcessID: u32,
    pub encryptIv: [u32; 3],
    pub decryptIv: [u32; 3],
    pub hmacNonce: [u32; 8],
}
layout!(NV_CHANNEL_ALLOC_PARAMS, 0x168, gpFifoOffset @ 8, flags @ 0x14, hVASpace @ 0x1c, hUserdMemory @ 0x20,
    userdOffset @ 0x40, engineType @ 0x80, instanceMem @ 0x90, userdMem @ 0xa8, ramfcMem @ 0xc0, mthdbufMem @ 0xd8,
    internalFlags @ 0xf4, errorNotifierMem @ 0xf8, ProcessID @ 0x128, encryptIv @ 0x130);

gpuvmk_chip::fields! {
    /// Flags of a channel (`NVOS04_FLAGS_CHANNEL_USERD_*`): which USERD it is to have. Eight channels share a
    /// page.
    NVOS04_FLAGS {
        21:21 USERD_INDEX_PAGE_FIXED,
        20:12 USERD_INDEX_PAGE_VALUE,
        10:8 USERD_INDEX_VALUE,
    }
}

/// Channels whose USERD is on one page.
const CHANNELS_PER_PAGE: u16 = 8;

/// The channel number that the flags of a channel ask for, where they fix the USERD page.
pub fn fixed_chid(flags: u32) -> Option<Chid> {
    if !NVOS04_FLAGS::USERD_INDEX_PAGE_FIXED.is_set(flags) {
        return None;
    }
    let page = NVOS04_FLAGS::USERD_INDEX_PAGE_VALUE.get_u16(flags);
    // 12 bits.
    Some(Chid(page.wrapping_mul(CHANNELS_PER_PAGE) | NVOS04_FLAGS::USERD_INDEX_VALUE.get_u16(flags)))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NVC0B5_ALLOCATION_PARAMETERS {
    pub version: u32,
    pub engineType: u32,
}
layout!(NVC0B5_ALLOCATION_PARAMETERS, 8);
