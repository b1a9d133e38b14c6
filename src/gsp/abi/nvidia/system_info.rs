//! The beginning of `GspSystemInfo`: what a driver knows of the host. Versions have more or less behind it.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::abi::values::Host;
use gpuvmk_chip::layout;

/// Where the GPU's BARs are. A virtual GPU needs nothing of the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct GspSystemInfo {
    pub gpuPhysAddr: u64,
    pub gpuPhysFbAddr: u64,
    pub gpuPhysInstAddr: u64,
}
layout!(GspSystemInfo, 0x18, gpuPhysInstAddr @ 0x10);

/// Where the GPU is; nothing where `raw` is too short.
pub fn decode(raw: &[u8]) -> Host {
    GspSystemInfo::read_from_prefix(raw).map_or_else(
        |_| Host::default(),
        |(info, _)| Host { bars: [info.gpuPhysAddr, info.gpuPhysFbAddr, info.gpuPhysInstAddr] },
    )
}
