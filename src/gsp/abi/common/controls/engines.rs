//! Controls that ask what the GPU has: graphics units, buffers, and events. Those that number engines are in
//! the versions' own tables.

use zerocopy::FromZeros;

use crate::abi::common::control::{
    GRAPHICS_CONTEXT_BUFFERS, NV2080_CTRL_CMD_CE_GET_FAULT_METHOD_BUFFER_SIZE,
    NV2080_CTRL_CMD_EVENT_SET_NOTIFICATION, NV2080_CTRL_CMD_GPU_GET_FERMI_GPC_INFO,
    NV2080_CTRL_CMD_GPU_GET_FERMI_TPC_INFO, NV2080_CTRL_EVENT_SET_NOTIFICATION_ACTION_REPEAT,
    NV2080_CTRL_EVENT_SET_NOTIFICATION_PARAMS, NV2080_CTRL_FIFO_GET_DEVICE_INFO_TABLE_PARAMS,
    NV2080_CTRL_GPU_GET_FERMI_TPC_INFO_PARAMS,
    NV2080_CTRL_INTERNAL_STATIC_GR_GET_CONTEXT_BUFFERS_INFO_PARAMS, parameters, put,
};
use crate::abi::status::Status;
use crate::abi::table::{Answer, ControlCall, controls};

controls! {
    source "open-gpu-kernel-modules ctrl2080gpu.h, ctrl2080ce.h, ctrl2080event.h; nouveau gsp/rm/r535, gsp/rm/r570";
    /// Which graphics processing clusters there are, a bit each.
    NV2080_CTRL_CMD_GPU_GET_FERMI_GPC_INFO on Subdevice, 4
        => Answer::Handler(ControlCall::GpcMask(|mask, raw| put(raw, mask)));
    /// Which texture clusters one of them has.
    NV2080_CTRL_CMD_GPU_GET_FERMI_TPC_INFO on Subdevice, size_of::<NV2080_CTRL_GPU_GET_FERMI_TPC_INFO_PARAMS>()
        => Answer::Handler(ControlCall::TpcMask { read: gpc, write: put_tpc_mask });
    /// Size of a copy engine's buffer for methods that faulted, one for each channel.
    NV2080_CTRL_CMD_CE_GET_FAULT_METHOD_BUFFER_SIZE on Subdevice, 4
        => Answer::Handler(ControlCall::FaultMethodBuffer(|size, raw| put(raw, size)));
    /// Asks for events of a subdevice. Nothing that it could tell of ever happens.
    NV2080_CTRL_CMD_EVENT_SET_NOTIFICATION on Subdevice, size_of::<NV2080_CTRL_EVENT_SET_NOTIFICATION_PARAMS>()
        => Answer::Handler(ControlCall::SetNotification(is_action));
}

fn gpc(raw: &[u8]) -> Result<u32, Status> {
    Ok(parameters::<NV2080_CTRL_GPU_GET_FERMI_TPC_INFO_PARAMS>(raw).gpcId)
}

fn put_tpc_mask(mask: &u32, raw: &mut [u8]) {
    let asked: NV2080_CTRL_GPU_GET_FERMI_TPC_INFO_PARAMS = parameters(raw);
    put(raw, &NV2080_CTRL_GPU_GET_FERMI_TPC_INFO_PARAMS { tpcMask: *mask, ..asked });
}

fn is_action(raw: &[u8]) -> Result<bool, Status> {
    let wanted: NV2080_CTRL_EVENT_SET_NOTIFICATION_PARAMS = parameters(raw);
    Ok(wanted.action <= NV2080_CTRL_EVENT_SET_NOTIFICATION_ACTION_REPEAT)
}

/// Writes the buffers that a graphics context has, of that many kinds of contexts.
pub fn put_context_buffers<const IDS: usize>(size: &u32, raw: &mut [u8]) {
    let mut info = NV2080_CTRL_INTERNAL_STATIC_GR_GET_CONTEXT_BUFFERS_INFO_PARAMS::<IDS>::new_zeroed();
    let [graphics, ..] = &mut info;
    for (id, buffer) in graphics.iter_mut().enumerate() {
        if GRAPHICS_CONTEXT_BUFFERS.contains(&id) {
            buffer.size = *size;
            buffer.alignment = *size;
        }
    }
    put(raw, &info);
}

/// The first entry of the table of devices that is asked for.
pub fn first_device(raw: &[u8]) -> Result<u32, Status> {
    Ok(parameters::<NV2080_CTRL_FIFO_GET_DEVICE_INFO_TABLE_PARAMS>(raw).baseIndex)
}
