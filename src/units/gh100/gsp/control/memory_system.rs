//! Controls about the memory system, and about powering the GPU off while the machine runs.
//!
//! A virtual GPU compresses nothing: there are no tags for compressed pages, no store of their bits, and no
//! mode of the hardware's to choose. Caches and DRAM are the host's own affair, and told as absent.

use zerocopy::FromZeros;

use super::Target;
use crate::backend::GspBackend;
use crate::gh100::gsp::rm::Rm;
use gpuvmk_chip::gh100::gsp::r570_144::control::{
    NV0080_CTRL_FB_GET_COMPBIT_STORE_INFO_PARAMS, NV2080_CTRL_INTERNAL_GCX_ENTRY_PREREQUISITE_PARAMS,
    NV2080_CTRL_INTERNAL_MEMSYS_GET_STATIC_CONFIG_PARAMS, parameters, put,
};
use gpuvmk_chip::gh100::gsp::status::Status;

/// Compression has no backing store, so none is allocated, and no policy by which to allocate tags.
pub(super) fn static_config(_: &mut Rm, _: &dyn GspBackend, _: Target, raw: &mut [u8]) -> Result<(), Status> {
    let mut config = NV2080_CTRL_INTERNAL_MEMSYS_GET_STATIC_CONFIG_PARAMS::new_zeroed();
    config.bDisableCompbitBacking = 1;
    config.bDisablePostL2Compression = 1;
    put(raw, &config);
    Ok(())
}

/// A store of no bytes: a driver adds its size to what it saves in a suspension.
pub(super) fn compbit_store(_: &mut Rm, _: &dyn GspBackend, _: Target, raw: &mut [u8]) -> Result<(), Status> {
    put(raw, &NV0080_CTRL_FB_GET_COMPBIT_STORE_INFO_PARAMS::new_zeroed());
    Ok(())
}

/// Raw mode is what static data says there is not; to turn it off changes nothing.
pub(super) fn raw_compression(
    _: &mut Rm,
    _: &dyn GspBackend,
    _: Target,
    raw: &mut [u8],
) -> Result<(), Status> {
    let raw_mode: u8 = parameters(raw);
    if raw_mode == 0 { Ok(()) } else { Err(Status::NotSupported) }
}

/// Neither: there is no power to save. nouveau then leaves the GPU running and asks again later.
pub(super) fn power_off_prerequisite(
    _: &mut Rm,
    _: &dyn GspBackend,
    _: Target,
    raw: &mut [u8],
) -> Result<(), Status> {
    let not_ready: NV2080_CTRL_INTERNAL_GCX_ENTRY_PREREQUISITE_PARAMS = [0; 2];
    put(raw, &not_ready);
    Ok(())
}
