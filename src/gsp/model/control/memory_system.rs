//! Controls about the memory system, and about powering the GPU off while the machine runs.
//!
//! A virtual GPU compresses nothing: there are no tags for compressed pages, no store of their bits, and no
//! mode of the hardware's to choose. Caches and DRAM are the host's own affair, and told as absent.

use zerocopy::FromZeros;

use super::Target;
use crate::abi::control::{
    NV0080_CTRL_CMD_FB_GET_COMPBIT_STORE_INFO, NV0080_CTRL_FB_GET_COMPBIT_STORE_INFO_PARAMS,
    NV2080_CTRL_CMD_INTERNAL_GCX_ENTRY_PREREQUISITE, NV2080_CTRL_CMD_INTERNAL_MEMSYS_GET_STATIC_CONFIG,
    NV2080_CTRL_CMD_INTERNAL_MEMSYS_PROGRAM_RAW_COMPRESSION_MODE,
    NV2080_CTRL_INTERNAL_GCX_ENTRY_PREREQUISITE_PARAMS, NV2080_CTRL_INTERNAL_MEMSYS_GET_STATIC_CONFIG_PARAMS,
    parameters, put,
};
use crate::abi::status::Status;
use crate::model::answers::{Answer, controls};
use crate::model::rm::Rm;
use gpuvmk_backend::GspBackend;

controls! {
    source "open-gpu-kernel-modules ctrl2080internal.h, ctrl0080fb.h";
    /// What the memory system is like. There is no store for compression, and no policy by which to allot
    /// tags.
    NV2080_CTRL_CMD_INTERNAL_MEMSYS_GET_STATIC_CONFIG on Subdevice,
        size_of::<NV2080_CTRL_INTERNAL_MEMSYS_GET_STATIC_CONFIG_PARAMS>() => Answer::Handler(static_config);
    /// Where compression keeps its bits. Of no bytes: a driver adds its size to what it saves in a
    /// suspension.
    NV0080_CTRL_CMD_FB_GET_COMPBIT_STORE_INFO on Device,
        size_of::<NV0080_CTRL_FB_GET_COMPBIT_STORE_INFO_PARAMS>() => Answer::Zeroes;
    /// Switches raw compression, which static data says there is not; to turn it off changes nothing.
    NV2080_CTRL_CMD_INTERNAL_MEMSYS_PROGRAM_RAW_COMPRESSION_MODE on Subdevice, 1
        => Answer::Handler(raw_compression);
    /// Whether the GPU could be powered off. No: nouveau leaves it running then, and asks again later.
    NV2080_CTRL_CMD_INTERNAL_GCX_ENTRY_PREREQUISITE on Subdevice,
        size_of::<NV2080_CTRL_INTERNAL_GCX_ENTRY_PREREQUISITE_PARAMS>() => Answer::Zeroes;
}

fn static_config(_: &mut Rm, _: &dyn GspBackend, _: Target, raw: &mut [u8]) -> Result<(), Status> {
    let mut config = NV2080_CTRL_INTERNAL_MEMSYS_GET_STATIC_CONFIG_PARAMS::new_zeroed();
    config.bDisableCompbitBacking = 1;
    config.bDisablePostL2Compression = 1;
    put(raw, &config);
    Ok(())
}

fn raw_compression(_: &mut Rm, _: &dyn GspBackend, _: Target, raw: &mut [u8]) -> Result<(), Status> {
    let raw_mode: u8 = parameters(raw);
    if raw_mode == 0 { Ok(()) } else { Err(Status::NotSupported) }
}
