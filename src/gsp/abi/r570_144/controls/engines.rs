//! Controls that ask what the GPU has, and that number engines, interrupt sources or contexts.

use crate::abi::common::control::{
    CONSTRUCTED_FALCON_INFO_PARAMS_SIZE, NV2080_CTRL_CMD_FIFO_GET_DEVICE_INFO_TABLE,
    NV2080_CTRL_CMD_INTERNAL_INTR_GET_KERNEL_TABLE,
    NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_CONTEXT_BUFFERS_INFO,
    NV2080_CTRL_FIFO_GET_DEVICE_INFO_TABLE_PARAMS, NV2080_CTRL_INTERNAL_INTR_GET_KERNEL_TABLE_PARAMS,
    NV2080_CTRL_INTERNAL_STATIC_GR_GET_CONTEXT_BUFFERS_INFO_PARAMS,
};
use crate::abi::common::controls::engines::{first_device, put_context_buffers};
use crate::abi::common::numbering::{Firsts, Numbering};
use crate::abi::r570_144::control::{
    CONTEXT_BUFFER_IDS, NV2080_CTRL_CMD_GPU_GET_CONSTRUCTED_FALCON_INFO, NV2080_CTRL_CMD_GR_GET_ZCULL_INFO,
    NV2080_CTRL_GR_GET_ZCULL_INFO_PARAMS,
};
use crate::abi::table::{Answer, ControlCall, controls};

/// `MC_ENGINE_IDX_*`, and the firmware's own `RM_ENGINE_TYPE_*`: those of clients (`NV2080_ENGINE_TYPE_*`) up
/// to COPY19.
static NUMBERING: Numbering = Numbering {
    copies: 20,
    gsp: 50,
    display: 2,
    display_low: Some(176),
    memory: None,
    sources: Firsts { graphics: 84, copy: 15, nvdec: 65, nvenc: 38, sec2: 47, nvjpg: 51, ofa: 81 },
    types: Firsts {
        graphics: 0x01,
        copy: 0x09,
        nvdec: 0x1d,
        nvenc: 0x25,
        sec2: 0x31,
        nvjpg: 0x36,
        ofa: 0x3e,
    },
};

/// `NV2080_CTRL_GR_GET_ZCULL_INFO_PARAMS`.
const ZCULL_INFO: [[u8; 4]; 10] = [1_u32.to_le_bytes(); 10];

controls! {
    source "open-gpu-kernel-modules ctrl2080gr.h, ctrl2080internal.h, ctrl2080fifo.h; nouveau gsp/rm/r570";
    /// Ten ones: there is no zcull memory to lay out, and a driver may divide by them.
    NV2080_CTRL_CMD_GR_GET_ZCULL_INFO on Subdevice, size_of::<NV2080_CTRL_GR_GET_ZCULL_INFO_PARAMS>()
        => Answer::Constant(ZCULL_INFO.as_flattened());
    /// How large the buffers of a graphics context are.
    NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_CONTEXT_BUFFERS_INFO on Subdevice,
        size_of::<NV2080_CTRL_INTERNAL_STATIC_GR_GET_CONTEXT_BUFFERS_INFO_PARAMS<CONTEXT_BUFFER_IDS>>()
        => Answer::Handler(ControlCall::ContextBuffers(put_context_buffers::<CONTEXT_BUFFER_IDS>));
    /// The engines, those of a runlist in a row: drivers name a runlist's channels after its first engine.
    NV2080_CTRL_CMD_FIFO_GET_DEVICE_INFO_TABLE on Subdevice,
        size_of::<NV2080_CTRL_FIFO_GET_DEVICE_INFO_TABLE_PARAMS>()
        => Answer::Handler(ControlCall::Devices {
            read: first_device,
            write: |devices, raw| NUMBERING.put_devices(devices, raw),
        });
    /// Falcons that need context buffers. There are none.
    NV2080_CTRL_CMD_GPU_GET_CONSTRUCTED_FALCON_INFO on Subdevice, CONSTRUCTED_FALCON_INFO_PARAMS_SIZE
        => Answer::Zeroes;
    /// The vectors of the interrupt tree, by engine.
    NV2080_CTRL_CMD_INTERNAL_INTR_GET_KERNEL_TABLE on Subdevice,
        size_of::<NV2080_CTRL_INTERNAL_INTR_GET_KERNEL_TABLE_PARAMS>()
        => Answer::Handler(ControlCall::Interrupts(|sources, raw| NUMBERING.put_interrupts(sources, raw)));
}
