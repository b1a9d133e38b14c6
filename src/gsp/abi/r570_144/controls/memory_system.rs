//! Controls about the memory system, and about powering the GPU off while the machine runs.
//!
//! A virtual GPU compresses nothing: there are no tags for compressed pages, no store of their bits, and no
//! mode of the hardware's to choose. Caches and DRAM are the host's own affair, and told as absent.

use zerocopy::FromZeros;

use crate::abi::common::control::{parameters, put};
use crate::abi::r570_144::control::{
    NV0080_CTRL_CMD_FB_GET_COMPBIT_STORE_INFO, NV0080_CTRL_FB_GET_COMPBIT_STORE_INFO_PARAMS,
    NV2080_CTRL_CMD_INTERNAL_GCX_ENTRY_PREREQUISITE, NV2080_CTRL_CMD_INTERNAL_MEMSYS_GET_STATIC_CONFIG,
    NV2080_CTRL_CMD_INTERNAL_MEMSYS_PROGRAM_RAW_COMPRESSION_MODE,
    NV2080_CTRL_INTERNAL_GCX_ENTRY_PREREQUISITE_PARAMS, NV2080_CTRL_INTERNAL_MEMSYS_GET_STATIC_CONFIG_PARAMS,
};
use crate::abi::table::{Answer, ControlCall, controls};
use crate::abi::values::MemorySystem;

controls! {
    source "open-gpu-kernel-modules ctrl2080internal.h, ctrl0080fb.h";
    /// What the memory system is like. There is no store for compression, and no policy by which to allot
    /// tags.
    NV2080_CTRL_CMD_INTERNAL_MEMSYS_GET_STATIC_CONFIG on Subdevice,
        size_of::<NV2080_CTRL_INTERNAL_MEMSYS_GET_STATIC_CONFIG_PARAMS>()
        => Answer::Handler(ControlCall::MemorySystem(put_static_config));
    /// Where compression keeps its bits. Of no bytes: a driver adds its size to what it saves in a
    /// suspension.
    NV0080_CTRL_CMD_FB_GET_COMPBIT_STORE_INFO on Device,
        size_of::<NV0080_CTRL_FB_GET_COMPBIT_STORE_INFO_PARAMS>() => Answer::Zeroes;
    /// Switches raw compression, which static data says there is not; to turn it off changes nothing.
    NV2080_CTRL_CMD_INTERNAL_MEMSYS_PROGRAM_RAW_COMPRESSION_MODE on Subdevice, 1
        => Answer::Handler(ControlCall::RawCompression(|raw| Ok(parameters::<u8>(raw) != 0)));
    /// Whether the GPU could be powered off. No: nouveau leaves it running then, and asks again later.
    NV2080_CTRL_CMD_INTERNAL_GCX_ENTRY_PREREQUISITE on Subdevice,
        size_of::<NV2080_CTRL_INTERNAL_GCX_ENTRY_PREREQUISITE_PARAMS>() => Answer::Zeroes;
}

fn put_static_config(system: &MemorySystem, raw: &mut [u8]) {
    let mut config = NV2080_CTRL_INTERNAL_MEMSYS_GET_STATIC_CONFIG_PARAMS::new_zeroed();
    config.bDisableCompbitBacking = (!system.stores_compression_bits).into();
    config.bDisablePostL2Compression = (!system.compresses_behind_l2).into();
    put(raw, &config);
}
