//! Controls that number engines, sources of interrupts and contexts, and those of engines that other versions
//! have in another way.

use zerocopy::FromZeros;

use crate::abi::common::control::{
    NV2080_CTRL_CMD_FIFO_GET_DEVICE_INFO_TABLE, NV2080_CTRL_CMD_INTERNAL_INTR_GET_KERNEL_TABLE,
    NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_CONTEXT_BUFFERS_INFO,
    NV2080_CTRL_FIFO_GET_DEVICE_INFO_TABLE_PARAMS, NV2080_CTRL_INTERNAL_INTR_GET_KERNEL_TABLE_PARAMS,
    NV2080_CTRL_INTERNAL_STATIC_GR_GET_CONTEXT_BUFFERS_INFO_PARAMS, put,
};
use crate::abi::common::controls::engines::first_device;
use crate::abi::common::numbering::{MemorySources, Numbering};
use crate::abi::nvidia::control::{GRAPHICS_ENGINES, NV2080_CTRL_INTERNAL_STATIC_GR_INFO};
use crate::abi::nvidia::controls::copies::all_capabilities;
use crate::abi::nvidia::controls::devices::put_devices;
use crate::abi::nvidia::controls::graphics::{put_context_buffers, put_info};
use crate::abi::nvidia::numbers::numbers;
use crate::abi::r535_113::control::CONTEXT_BUFFER_IDS;
use crate::abi::r535_113::controls::engines as r535_113;
use crate::abi::r535_261::control::{
    GR_INFO_MAX, NV2080_CTRL_CE_GET_ALL_CAPS_PARAMS, NV2080_CTRL_GPU_GET_ENGINES_V2_PARAMS,
};
use crate::abi::status::Status;
use crate::abi::table::{Answer, ControlCall, controls};
use gpuvmk_chip::EngineSet;

numbers! {
    NV2080_CTRL_CMD_GPU_GET_ENGINES_V2 = 0x2080_0170, 252;
    NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_INFO = 0x2080_0a2a, 3392;
    NV2080_CTRL_CMD_INTERNAL_FIFO_GET_NUM_SECURE_CHANNELS = 0x2080_0ad8, 8;
    NV2080_CTRL_CMD_CE_UPDATE_PCE_LCE_MAPPINGS = 0x2080_2a05, 144;
    NV2080_CTRL_CMD_CE_GET_ALL_PHYSICAL_CAPS = 0x2080_2a0b, 68;
}

/// Those of nouveau's version of the same branch, and of what that leaves out.
static NUMBERING: Numbering = Numbering {
    memory: Some(MemorySources {
        cpu_doorbell: 72,
        replayable_fault: 58,
        replayable_fault_error: 61,
        non_replayable_fault: 60,
        non_replayable_fault_error: 62,
        info_fault: 63,
        access_counter: 59,
    }),
    ..r535_113::NUMBERING
};
/// `RM_ENGINE_TYPE_SW`.
const RM_ENGINE_TYPE_SW: u32 = 0x2c;

controls! {
    source "open-gpu-kernel-modules ctrl2080internal.h, ctrl2080fifo.h, ctrl2080ce.h, ctrl0080gr.h, engine_idx.h, gpu_engine_type.h";
    /// Which engines there are. A driver that is told of none has no classes of theirs.
    NV2080_CTRL_CMD_GPU_GET_ENGINES_V2 on Subdevice, size_of::<NV2080_CTRL_GPU_GET_ENGINES_V2_PARAMS>()
        => Answer::Handler(ControlCall::Engines(put_engines));
    /// The engines, those of a runlist in a row, and that for methods of software last.
    NV2080_CTRL_CMD_FIFO_GET_DEVICE_INFO_TABLE on Subdevice,
        size_of::<NV2080_CTRL_FIFO_GET_DEVICE_INFO_TABLE_PARAMS>()
        => Answer::Handler(ControlCall::Devices {
            read: first_device,
            write: |devices, raw| put_devices(&NUMBERING, RM_ENGINE_TYPE_SW, devices, raw),
        });
    /// The vectors of the interrupt tree, by source, and which subtrees are whose.
    NV2080_CTRL_CMD_INTERNAL_INTR_GET_KERNEL_TABLE on Subdevice,
        size_of::<NV2080_CTRL_INTERNAL_INTR_GET_KERNEL_TABLE_PARAMS>()
        => Answer::Handler(ControlCall::Interrupts(|sources, raw| NUMBERING.put_interrupts(sources, raw)));
    /// Numbers about the graphics engine.
    NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_INFO on Subdevice,
        size_of::<[NV2080_CTRL_INTERNAL_STATIC_GR_INFO<GR_INFO_MAX>; GRAPHICS_ENGINES]>()
        => Answer::Handler(ControlCall::Graphics(put_info::<GR_INFO_MAX>));
    /// How large the buffers of a context are, of every kind.
    NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_CONTEXT_BUFFERS_INFO on Subdevice,
        size_of::<NV2080_CTRL_INTERNAL_STATIC_GR_GET_CONTEXT_BUFFERS_INFO_PARAMS<CONTEXT_BUFFER_IDS>>()
        => Answer::Handler(ControlCall::ContextBuffers(put_context_buffers::<CONTEXT_BUFFER_IDS>));
    /// How many channels confidential computing can have: none.
    NV2080_CTRL_CMD_INTERNAL_FIFO_GET_NUM_SECURE_CHANNELS on Subdevice,
        size::NV2080_CTRL_CMD_INTERNAL_FIFO_GET_NUM_SECURE_CHANNELS => Answer::Zeroes;
    /// Which physical engines are to be behind copy engines. The driver's choice changes nothing.
    NV2080_CTRL_CMD_CE_UPDATE_PCE_LCE_MAPPINGS on Subdevice, size::NV2080_CTRL_CMD_CE_UPDATE_PCE_LCE_MAPPINGS
        => Answer::Acknowledged;
    /// What each copy engine can do.
    NV2080_CTRL_CMD_CE_GET_ALL_PHYSICAL_CAPS on Subdevice, size_of::<NV2080_CTRL_CE_GET_ALL_CAPS_PARAMS>()
        => Answer::Handler(ControlCall::Engines(put_all_capabilities));
}

fn put_engines(engines: &EngineSet, raw: &mut [u8]) -> Result<(), Status> {
    let mut list = NV2080_CTRL_GPU_GET_ENGINES_V2_PARAMS::new_zeroed();
    for (to, engine) in list.engineList.iter_mut().zip(engines.engines()) {
        *to = engine.nv2080_type();
        list.engineCount = list.engineCount.saturating_add(1);
    }
    put(raw, &list);
    Ok(())
}

fn put_all_capabilities(engines: &EngineSet, raw: &mut [u8]) -> Result<(), Status> {
    let mut all = NV2080_CTRL_CE_GET_ALL_CAPS_PARAMS::new_zeroed();
    for (number, capabilities) in all_capabilities(*engines) {
        if let Some(to) = all.capsTbl.get_mut(usize::from(number)) {
            *to = capabilities;
            all.present |= 1_u32.checked_shl(number.into()).unwrap_or(0);
        }
    }
    put(raw, &all);
    Ok(())
}

const _: () = assert!(
    size_of::<[NV2080_CTRL_INTERNAL_STATIC_GR_INFO<GR_INFO_MAX>; GRAPHICS_ENGINES]>()
        == size::NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_INFO
);
