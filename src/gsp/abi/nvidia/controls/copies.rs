//! Controls of copy engines.

use crate::abi::common::control::{parameters, put};
use crate::abi::nvidia::control::{
    NV2080_CTRL_CE_CAPS as Caps, NV2080_CTRL_CE_GET_CAPS_V2_PARAMS, NV2080_CTRL_CE_GET_CE_PCE_MASK_PARAMS,
};
use crate::abi::nvidia::numbers::numbers;
use crate::abi::status::Status;
use crate::abi::table::{Answer, ControlCall, controls};
use gpuvmk_chip::{Engine, EngineSet};

numbers! {
    NV2080_CTRL_CMD_CE_GET_CE_PCE_MASK = 0x2080_2a02, 8;
    NV2080_CTRL_CMD_CE_UPDATE_CLASS_DB = 0x2080_2a06, 4;
    NV2080_CTRL_CMD_CE_GET_PHYSICAL_CAPS = 0x2080_2a07, 8;
    NV2080_CTRL_CMD_CE_GET_HUB_PCE_MASK = 0x2080_2a09, 132;
}

/// The masks of physical engines at 32 hubs, and at that of memory: six at the first, two at memory's, as the
/// driver's mapping wants them.
static HUBS: [[u8; 4]; 33] = {
    let mut hubs = [[0; 4]; 33];
    hubs[0] = [0x3f, 0, 0, 0];
    hubs[32] = [0xc0, 0, 0, 0];
    hubs
};

controls! {
    source "open-gpu-kernel-modules ctrl2080ce.h";
    /// Which physical engines are behind a copy engine: one of its own.
    NV2080_CTRL_CMD_CE_GET_CE_PCE_MASK on Subdevice, size::NV2080_CTRL_CMD_CE_GET_CE_PCE_MASK
        => Answer::Handler(ControlCall::Engines(put_physical));
    /// Which copy engines are not to be used: none.
    NV2080_CTRL_CMD_CE_UPDATE_CLASS_DB on Subdevice, size::NV2080_CTRL_CMD_CE_UPDATE_CLASS_DB => Answer::Zeroes;
    /// What a copy engine can do.
    NV2080_CTRL_CMD_CE_GET_PHYSICAL_CAPS on Subdevice, size::NV2080_CTRL_CMD_CE_GET_PHYSICAL_CAPS
        => Answer::Handler(ControlCall::Engines(put_capabilities));
    /// Which physical engines there are, hub by hub.
    NV2080_CTRL_CMD_CE_GET_HUB_PCE_MASK on Subdevice, size::NV2080_CTRL_CMD_CE_GET_HUB_PCE_MASK
        => Answer::Constant(HUBS.as_flattened());
}

/// The copy engine of a client's number, if there is one.
fn copy(engines: EngineSet, number: u32) -> Result<u8, Status> {
    match Engine::of_nv2080_type(number) {
        Some(engine @ Engine::Copy(n)) if engines.contains(engine.into()) => Ok(n.get()),
        _ => Err(Status::InvalidArgument),
    }
}

/// Copies to and from system memory on every engine; the first is the graphics engine's.
fn capabilities(number: u8) -> [u8; 2] {
    let all = [
        Caps::CE_SYSMEM_READ,
        Caps::CE_SYSMEM_WRITE,
        Caps::CE_SYSMEM,
        Caps::CE_BL_SIZE_GT_64K_SUPPORTED,
        Caps::CE_SUPPORTS_NONPIPELINED_BL,
        Caps::CE_SUPPORTS_PIPELINED_BL,
    ];
    let own = if number == 0 { vec![Caps::CE_GRCE, Caps::CE_SHARED] } else { vec![Caps::CE_P2P] };
    let bits = all.into_iter().chain(own).fold(0, |bits, cap| bits | cap.of(1));
    let [low, high, _, _] = bits.to_le_bytes();
    [low, high]
}

fn put_physical(engines: &EngineSet, raw: &mut [u8]) -> Result<(), Status> {
    let asked: NV2080_CTRL_CE_GET_CE_PCE_MASK_PARAMS = parameters(raw);
    let pceMask = 1_u32.checked_shl(copy(*engines, asked.ceEngineType)?.into()).unwrap_or(0);
    put(raw, &NV2080_CTRL_CE_GET_CE_PCE_MASK_PARAMS { pceMask, ..asked });
    Ok(())
}

fn put_capabilities(engines: &EngineSet, raw: &mut [u8]) -> Result<(), Status> {
    let NV2080_CTRL_CE_GET_CAPS_V2_PARAMS { ceEngineType, .. } = parameters(raw);
    let capsTbl = capabilities(copy(*engines, ceEngineType)?);
    put(raw, &NV2080_CTRL_CE_GET_CAPS_V2_PARAMS { ceEngineType, capsTbl, pad: [0; 2] });
    Ok(())
}

/// What each copy engine can do, by its number.
pub fn all_capabilities(engines: EngineSet) -> impl Iterator<Item = (u8, [u8; 2])> {
    engines.engines().filter_map(|engine| match engine {
        Engine::Copy(n) => Some((n.get(), capabilities(n.get()))),
        _ => None,
    })
}
