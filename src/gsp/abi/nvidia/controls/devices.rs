//! The table of engines, with what NVIDIA's own modules want to know of them beside what nouveau does.

use zerocopy::FromZeros;

use crate::abi::common::control::{
    ENGINE_INFO_TYPE_ENG_DESC, ENGINE_INFO_TYPE_MC, ENGINE_INFO_TYPE_RM_ENGINE_TYPE,
    NV2080_CTRL_FIFO_DEVICE_ENTRY, NV2080_CTRL_FIFO_GET_DEVICE_INFO_TABLE_PARAMS, put,
};
use crate::abi::common::numbering::{Firsts, Numbering};
use crate::abi::values::{Device, Devices};
use gpuvmk_chip::Engine;

/// `ENG_DESC` of an engine: the number of its class among the driver's own objects, and its place.
const CLASSES: Firsts<u32> = Firsts {
    graphics: 0xd3_34df,
    copy: 0x79_3ceb,
    nvdec: 0x8f_99e1,
    nvenc: 0xe9_7b6c,
    sec2: 0x28_c408,
    nvjpg: 0x2b_3a54,
    ofa: 0xdd_7bab,
};
/// `ENG_DESC` of the engine that methods of software are for.
const SOFTWARE: u32 = 0x95_a6f5;

const ENGINE_INFO_TYPE_MMU_FAULT_ID: usize = 4;
const ENGINE_INFO_TYPE_RC_MASK: usize = 5;
const ENGINE_INFO_TYPE_RESET: usize = 6;
const ENGINE_INFO_TYPE_INTR: usize = 7;
const ENGINE_INFO_TYPE_DEV_TYPE_ENUM: usize = 9;
const ENGINE_INFO_TYPE_CHRAM_PRI_BASE: usize = 14;

/// `DEV_TYPE_ENUM` of the engines' kinds (`NV_PTOP_DEVICE_INFO2_DEV_TYPE_ENUM`).
const DEVICE_TYPES: Firsts<u32> =
    Firsts { graphics: 0, copy: 19, nvdec: 16, nvenc: 14, sec2: 13, nvjpg: 21, ofa: 22 };

/// The MMU's names of engines that fault: of graphics, and of the first copy engine.
const MMU_FAULT_GRAPHICS: u32 = 384;
const MMU_FAULT_COPY0: u32 = 43;
/// The first name of a host unit.
const MMU_FAULT_HOST0: u32 = 85;
/// No such name.
const NONE: u32 = u32::MAX;
/// Distance of the runlists' blocks of channel registers.
const CHANNEL_RAM_STRIDE: u32 = 0x2_0000;

/// Writes a page of the table of engines, in a version's numbers: those of a runlist in a row, and that for
/// methods of software last, whose number (`RM_ENGINE_TYPE_SW`) is `software`.
pub fn put_devices(numbering: &Numbering, software: u32, devices: &Devices, raw: &mut [u8]) {
    let mut table = NV2080_CTRL_FIFO_GET_DEVICE_INFO_TABLE_PARAMS::new_zeroed();
    table.baseIndex = devices.base;
    let known = devices.devices.iter().filter(|device| numbering.has(device.engine));
    let known = known.map(|device| describe(numbering, device));
    let last = (devices.base == 0).then(|| for_software(software));
    for (to, from) in table.entries.iter_mut().zip(known.chain(last)) {
        *to = from;
        table.numEntries = table.numEntries.saturating_add(1);
    }
    put(raw, &table);
}

/// An engine, with what nouveau does not ask for.
fn describe(numbering: &Numbering, device: &Device) -> NV2080_CTRL_FIFO_DEVICE_ENTRY {
    let mut entry = numbering.device(device);
    let (class, instance) = CLASSES.of(device.engine);
    let runlist = u32::from(device.runlist);
    let fault = match device.engine {
        Engine::Graphics => MMU_FAULT_GRAPHICS,
        Engine::Copy(n) => MMU_FAULT_COPY0.saturating_add(n.get().into()),
        _ => NONE,
    };
    let (kind, _) = DEVICE_TYPES.of(device.engine);
    let set = &mut entry.engineData;
    set[ENGINE_INFO_TYPE_ENG_DESC] = class << 8 | instance;
    set[ENGINE_INFO_TYPE_MMU_FAULT_ID] = fault;
    set[ENGINE_INFO_TYPE_RC_MASK] = 1_u32.checked_shl(device.index).unwrap_or(0);
    set[ENGINE_INFO_TYPE_RESET] = device.index;
    set[ENGINE_INFO_TYPE_INTR] = device.index;
    set[ENGINE_INFO_TYPE_DEV_TYPE_ENUM] = kind;
    set[ENGINE_INFO_TYPE_CHRAM_PRI_BASE] = runlist.saturating_add(1).saturating_mul(CHANNEL_RAM_STRIDE);
    entry.pbdmaFaultIds = [MMU_FAULT_HOST0.saturating_add(runlist), 0];
    entry
}

/// The engine for methods of software: the driver looks for it, and nothing runs on it.
fn for_software(engine_type: u32) -> NV2080_CTRL_FIFO_DEVICE_ENTRY {
    let mut entry = NV2080_CTRL_FIFO_DEVICE_ENTRY::new_zeroed();
    let set = &mut entry.engineData;
    set[ENGINE_INFO_TYPE_ENG_DESC] = SOFTWARE << 8;
    set[ENGINE_INFO_TYPE_RM_ENGINE_TYPE] = engine_type;
    set[ENGINE_INFO_TYPE_MMU_FAULT_ID] = NONE;
    set[ENGINE_INFO_TYPE_MC] = 0;
    set[ENGINE_INFO_TYPE_DEV_TYPE_ENUM] = NONE;
    entry.engineName.iter_mut().zip(*b"SW").for_each(|(to, from)| *to = from);
    entry
}
