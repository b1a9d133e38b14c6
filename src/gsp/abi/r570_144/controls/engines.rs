//! Controls that ask what the GPU has: engines, interrupts, graphics units and buffers.

use zerocopy::FromZeros;

use crate::abi::r570_144::control::*;
use crate::abi::status::Status;
use crate::abi::table::{Answer, ControlCall, controls};
use crate::abi::values::{Device, Devices, InterruptSource, InterruptVectors};
use gpuvmk_chip::Engine;

/// `NV2080_CTRL_GR_GET_ZCULL_INFO_PARAMS`.
const ZCULL_INFO: [[u8; 4]; 10] = [1_u32.to_le_bytes(); 10];

/// Distance of the runlists' register blocks. Drivers that leave runlists to firmware only tell them apart by
/// it.
const RUNLIST_STRIDE: u32 = 0x1_0000;

controls! {
    source "open-gpu-kernel-modules ctrl2080gpu.h, ctrl2080gr.h, ctrl2080internal.h; nouveau gsp/rm/r535/gr.c";
    /// Which graphics processing clusters there are, a bit each.
    NV2080_CTRL_CMD_GPU_GET_FERMI_GPC_INFO on Subdevice, 4
        => Answer::Handler(ControlCall::GpcMask(|mask, raw| put(raw, mask)));
    /// Which texture clusters one of them has.
    NV2080_CTRL_CMD_GPU_GET_FERMI_TPC_INFO on Subdevice, size_of::<NV2080_CTRL_GPU_GET_FERMI_TPC_INFO_PARAMS>()
        => Answer::Handler(ControlCall::TpcMask { read: gpc, write: put_tpc_mask });
    /// Ten ones: there is no zcull memory to lay out, and a driver may divide by them.
    NV2080_CTRL_CMD_GR_GET_ZCULL_INFO on Subdevice, size_of::<NV2080_CTRL_GR_GET_ZCULL_INFO_PARAMS>()
        => Answer::Constant(ZCULL_INFO.as_flattened());
    /// How large the buffers of a graphics context are.
    NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_CONTEXT_BUFFERS_INFO on Subdevice,
        size_of::<NV2080_CTRL_INTERNAL_STATIC_GR_GET_CONTEXT_BUFFERS_INFO_PARAMS>()
        => Answer::Handler(ControlCall::ContextBuffers(put_context_buffers));
    source "open-gpu-kernel-modules ctrl2080fifo.h, ctrl2080ce.h, ctrl2080gpu.h; nouveau gsp/rm/r535/fifo.c";
    /// The engines, those of a runlist in a row: drivers name a runlist's channels after its first engine.
    NV2080_CTRL_CMD_FIFO_GET_DEVICE_INFO_TABLE on Subdevice,
        size_of::<NV2080_CTRL_FIFO_GET_DEVICE_INFO_TABLE_PARAMS>()
        => Answer::Handler(ControlCall::Devices { read: base, write: put_devices });
    /// Size of a copy engine's buffer for methods that faulted, one for each channel.
    NV2080_CTRL_CMD_CE_GET_FAULT_METHOD_BUFFER_SIZE on Subdevice, 4
        => Answer::Handler(ControlCall::FaultMethodBuffer(|size, raw| put(raw, size)));
    /// Falcons that need context buffers. There are none.
    NV2080_CTRL_CMD_GPU_GET_CONSTRUCTED_FALCON_INFO on Subdevice,
        NV2080_CTRL_GPU_GET_CONSTRUCTED_FALCON_INFO_PARAMS_SIZE => Answer::Zeroes;
    source "open-gpu-kernel-modules ctrl2080internal.h, ctrl2080event.h; nouveau gsp/rm/r535/gsp.c";
    /// The vectors of the interrupt tree, by engine.
    NV2080_CTRL_CMD_INTERNAL_INTR_GET_KERNEL_TABLE on Subdevice,
        size_of::<NV2080_CTRL_INTERNAL_INTR_GET_KERNEL_TABLE_PARAMS>()
        => Answer::Handler(ControlCall::Interrupts(put_interrupts));
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

fn put_context_buffers(size: &u32, raw: &mut [u8]) {
    let mut info = NV2080_CTRL_INTERNAL_STATIC_GR_GET_CONTEXT_BUFFERS_INFO_PARAMS::new_zeroed();
    let [graphics, ..] = &mut info.engineContextBuffersInfo;
    for (id, buffer) in graphics.iter_mut().enumerate() {
        if GRAPHICS_CONTEXT_BUFFERS.contains(&id) {
            buffer.size = *size;
            buffer.alignment = *size;
        }
    }
    put(raw, &info);
}

/// Index of an engine among the interrupt sources.
fn source(engine: Engine) -> u16 {
    match engine {
        Engine::Graphics => MC_ENGINE_IDX_GR0,
        Engine::Copy(n) => MC_ENGINE_IDX_CE0.saturating_add(n.get().into()),
        Engine::Nvdec(n) => MC_ENGINE_IDX_NVDEC0.saturating_add(n.get().into()),
        Engine::Nvenc(n) => MC_ENGINE_IDX_NVENC.saturating_add(n.get().into()),
        Engine::Nvjpg(n) => MC_ENGINE_IDX_NVJPEG0.saturating_add(n.get().into()),
        Engine::Ofa(n) => MC_ENGINE_IDX_OFA0.saturating_add(n.get().into()),
        Engine::Sec2 => MC_ENGINE_IDX_SEC2,
    }
}

/// The firmware's own number of an engine.
fn rm_engine_type(engine: Engine) -> u32 {
    match engine {
        Engine::Graphics => RM_ENGINE_TYPE_GR0,
        Engine::Copy(n) => RM_ENGINE_TYPE_COPY0.saturating_add(n.get().into()),
        Engine::Nvdec(n) => RM_ENGINE_TYPE_NVDEC0.saturating_add(n.get().into()),
        Engine::Nvenc(n) => RM_ENGINE_TYPE_NVENC0.saturating_add(n.get().into()),
        Engine::Sec2 => RM_ENGINE_TYPE_SEC2,
        Engine::Nvjpg(n) => RM_ENGINE_TYPE_NVJPEG0.saturating_add(n.get().into()),
        Engine::Ofa(n) => RM_ENGINE_TYPE_OFA0.saturating_add(n.get().into()),
    }
}

fn put_interrupts(sources: &Vec<InterruptVectors>, raw: &mut [u8]) {
    let mut table = NV2080_CTRL_INTERNAL_INTR_GET_KERNEL_TABLE_PARAMS::new_zeroed();
    for (to, from) in table.table.iter_mut().zip(sources) {
        *to = NV2080_CTRL_INTERNAL_INTR_GET_KERNEL_TABLE_ENTRY {
            engineIdx: match from.source {
                InterruptSource::Gsp => MC_ENGINE_IDX_GSP,
                InterruptSource::Engine(engine) => source(engine),
            },
            pad: 0,
            pmcIntrMask: 0,
            vectorStall: from.stall.unwrap_or(NV_INTR_VECTOR_INVALID),
            vectorNonStall: from.non_stall.unwrap_or(NV_INTR_VECTOR_INVALID),
        };
        table.tableLen = table.tableLen.saturating_add(1);
    }
    put(raw, &table);
}

fn base(raw: &[u8]) -> Result<u32, Status> {
    Ok(parameters::<NV2080_CTRL_FIFO_GET_DEVICE_INFO_TABLE_PARAMS>(raw).baseIndex)
}

fn put_devices(devices: &Devices, raw: &mut [u8]) {
    let mut table = NV2080_CTRL_FIFO_GET_DEVICE_INFO_TABLE_PARAMS::new_zeroed();
    table.baseIndex = devices.base;
    for (to, from) in table.entries.iter_mut().zip(&devices.devices) {
        *to = device(from);
        table.numEntries = table.numEntries.saturating_add(1);
    }
    put(raw, &table);
}

/// A driver's description of one engine.
fn device(device: &Device) -> NV2080_CTRL_FIFO_DEVICE_ENTRY {
    let mut entry = NV2080_CTRL_FIFO_DEVICE_ENTRY::new_zeroed();
    let runlist = u32::from(device.runlist);
    let (instance, name) = match device.engine {
        Engine::Graphics => (0, "GRAPHICS".to_string()),
        Engine::Copy(n) => (n.get(), format!("CE{n}")),
        Engine::Nvdec(n) => (n.get(), format!("NVDEC{n}")),
        Engine::Nvenc(n) => (n.get(), format!("NVENC{n}")),
        Engine::Nvjpg(n) => (n.get(), format!("NVJPEG{n}")),
        Engine::Ofa(n) => (n.get(), format!("OFA{n}")),
        Engine::Sec2 => (0, "SEC2".to_string()),
    };
    let engine_type = rm_engine_type(device.engine);
    let data = &mut entry.engineData;
    // A number that is not another's: drivers compare it with falcons', of which there are none.
    data[ENGINE_INFO_TYPE_ENG_DESC] = engine_type.saturating_mul(0x100);
    data[ENGINE_INFO_TYPE_FIFO_TAG] = device.index;
    data[ENGINE_INFO_TYPE_RM_ENGINE_TYPE] = engine_type;
    data[ENGINE_INFO_TYPE_RUNLIST] = runlist;
    data[ENGINE_INFO_TYPE_MC] = source(device.engine).into();
    data[ENGINE_INFO_TYPE_INSTANCE_ID] = instance.into();
    data[ENGINE_INFO_TYPE_RUNLIST_PRI_BASE] = runlist.saturating_add(1).saturating_mul(RUNLIST_STRIDE);
    data[ENGINE_INFO_TYPE_IS_HOST_DRIVEN_ENGINE] = 1;
    data[ENGINE_INFO_TYPE_RUNLIST_ENGINE_ID] = device.on_runlist;
    entry.pbdmaIds = [runlist, 0];
    entry.numPbdmas = 1;
    entry.engineName.iter_mut().take(15).zip(name.bytes()).for_each(|(to, from)| *to = from);
    entry
}
