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
use crate::abi::r535_113::control::{
    CONTEXT_BUFFER_IDS, NV2080_CTRL_CMD_INTERNAL_GET_CONSTRUCTED_FALCON_INFO,
};
use crate::abi::table::{Answer, ControlCall, controls};

/// `MC_ENGINE_IDX_*`, and the firmware's own `RM_ENGINE_TYPE_*`: those of clients (`NV2080_ENGINE_TYPE_*`) up
/// to COPY9. Later copy engines have none.
pub const NUMBERING: Numbering = Numbering {
    copies: 10,
    gsp: 49,
    display: 2,
    display_low: None,
    memory: None,
    sources: Firsts { graphics: 82, copy: 15, nvdec: 64, nvenc: 38, sec2: 46, nvjpg: 50, ofa: 80 },
    types: Firsts {
        graphics: 0x01,
        copy: 0x09,
        nvdec: 0x1d,
        nvenc: 0x25,
        sec2: 0x30,
        nvjpg: 0x35,
        ofa: 0x3d,
    },
};

controls! {
    source "open-gpu-kernel-modules ctrl2080internal.h, ctrl2080fifo.h; nouveau gsp/rm/r535";
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
    NV2080_CTRL_CMD_INTERNAL_GET_CONSTRUCTED_FALCON_INFO on Subdevice, CONSTRUCTED_FALCON_INFO_PARAMS_SIZE
        => Answer::Zeroes;
    /// The vectors of the interrupt tree, by engine.
    NV2080_CTRL_CMD_INTERNAL_INTR_GET_KERNEL_TABLE on Subdevice,
        size_of::<NV2080_CTRL_INTERNAL_INTR_GET_KERNEL_TABLE_PARAMS>()
        => Answer::Handler(ControlCall::Interrupts(|sources, raw| NUMBERING.put_interrupts(sources, raw)));
}
