//! What `GspStaticConfigInfo` is filled with beside what nouveau reads of it. Versions have it at other
//! places.

use zerocopy::FromZeros;

use crate::abi::common::static_info::{
    GspSMInfo, NV2080_CTRL_CMD_FB_GET_FB_REGION_FB_REGION_INFO, NV2080_CTRL_GPU_GET_GID_INFO_PARAMS,
};
use crate::abi::values::StaticInfo;

/// Bytes of an identity (`NV2080_GPU_MAX_SHA1_BINARY_GID_LENGTH`).
const GID_LENGTH: u32 = 16;
/// `performance` of memory that is as fast as any.
const FASTEST: u32 = 100;

/// The GPU's identity.
pub fn identity(info: &StaticInfo<'_>) -> NV2080_CTRL_GPU_GET_GID_INFO_PARAMS {
    let mut gid = NV2080_CTRL_GPU_GET_GID_INFO_PARAMS::new_zeroed();
    gid.length = GID_LENGTH;
    gid.data.iter_mut().zip(info.identity).for_each(|(to, from)| *to = from);
    gid
}

/// The engines that there are, a bit each by a client's number.
pub fn engines(info: &StaticInfo<'_>) -> [u32; 2] {
    let mut words = [0; 2];
    for engine in info.engines.engines() {
        let number = engine.nv2080_type();
        let word = usize::try_from(number / 32).ok().and_then(|word| words.get_mut(word));
        word.into_iter().for_each(|word| *word |= 1 << (number % 32));
    }
    words
}

/// What a multiprocessor is.
pub fn multiprocessor(info: &StaticInfo<'_>) -> GspSMInfo {
    GspSMInfo {
        version: info.multiprocessor.version,
        regBankCount: info.multiprocessor.register_banks,
        regBankRegCount: info.multiprocessor.bank_registers,
        maxWarpsPerSM: info.multiprocessor.warps,
        maxThreadsPerWarp: info.multiprocessor.warp_threads,
        maxSPPerSM: info.multiprocessor.lanes,
        ..GspSMInfo::new_zeroed()
    }
}

/// The driver wants all of VRAM told, what is not its own as reserved: from 0 on, or it takes the ranges for
/// contradictory.
///
/// Returns how many there are.
pub fn put_regions(
    to: &mut [NV2080_CTRL_CMD_FB_GET_FB_REGION_FB_REGION_INFO; 16],
    info: &StaticInfo<'_>,
) -> u32 {
    let Some(usable) = info.regions.iter().find(|region| region.usable) else { return 0 };
    let [bottom, middle, top, ..] = to;
    bottom.limit = usable.base.saturating_sub(1);
    bottom.reserved = usable.base;
    middle.base = usable.base;
    middle.limit = usable.limit;
    middle.performance = FASTEST;
    middle.supportCompressed = 1;
    middle.supportISO = 1;
    top.base = usable.limit.saturating_add(1);
    top.limit = info.vram.saturating_sub(1);
    top.reserved = info.vram.saturating_sub(top.base);
    3
}
