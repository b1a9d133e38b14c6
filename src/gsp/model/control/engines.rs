//! Controls that ask what the GPU has: engines, interrupts, graphics units and buffers.

use zerocopy::FromZeros;

use super::Target;
use crate::abi::control::*;
use crate::abi::status::Status;
use crate::model::answers::{Answer, controls};
use crate::model::rm::Rm;
use crate::model::{engines, vector};
use gpuvmk_backend::GspBackend;
use gpuvmk_chip::Engine;

/// Graphics processing clusters: eight, of nine texture clusters each. At least as many as any Hopper has (66
/// texture clusters), so that drivers make their scratch memory large enough.
const GPC_MASK: u32 = 0xff;
const TPC_MASK: u32 = 0x1ff;

/// Size and alignment of a context buffer: one page, since none is used.
const CONTEXT_BUFFER: u32 = 0x1000;

/// Size of a copy engine's buffer for methods that faulted, one for each channel.
const FAULT_METHOD_BUFFER: u32 = 0x1000;

/// `NV2080_CTRL_GR_GET_ZCULL_INFO_PARAMS`.
const ZCULL_INFO: [[u8; 4]; 10] = [1_u32.to_le_bytes(); 10];

/// Distance of the runlists' register blocks. Drivers that leave runlists to firmware only tell them apart by
/// it.
const RUNLIST_STRIDE: u32 = 0x1_0000;

controls! {
    source "open-gpu-kernel-modules ctrl2080gpu.h, ctrl2080gr.h, ctrl2080internal.h; nouveau gsp/rm/r535/gr.c";
    /// Which graphics processing clusters there are, a bit each.
    NV2080_CTRL_CMD_GPU_GET_FERMI_GPC_INFO on Subdevice, 4 => Answer::Constant(&GPC_MASK.to_le_bytes());
    /// Which texture clusters one of them has.
    NV2080_CTRL_CMD_GPU_GET_FERMI_TPC_INFO on Subdevice, size_of::<NV2080_CTRL_GPU_GET_FERMI_TPC_INFO_PARAMS>()
        => Answer::Handler(tpc_info);
    /// Ten ones: there is no zcull memory to lay out, and a driver may divide by them.
    NV2080_CTRL_CMD_GR_GET_ZCULL_INFO on Subdevice, size_of::<NV2080_CTRL_GR_GET_ZCULL_INFO_PARAMS>()
        => Answer::Constant(ZCULL_INFO.as_flattened());
    /// How large the buffers of a graphics context are.
    NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_CONTEXT_BUFFERS_INFO on Subdevice,
        size_of::<NV2080_CTRL_INTERNAL_STATIC_GR_GET_CONTEXT_BUFFERS_INFO_PARAMS>()
        => Answer::Handler(context_buffers);
    source "open-gpu-kernel-modules ctrl2080fifo.h, ctrl2080ce.h, ctrl2080gpu.h; nouveau gsp/rm/r535/fifo.c";
    /// The engines, those of a runlist in a row: drivers name a runlist's channels after its first engine.
    NV2080_CTRL_CMD_FIFO_GET_DEVICE_INFO_TABLE on Subdevice,
        size_of::<NV2080_CTRL_FIFO_GET_DEVICE_INFO_TABLE_PARAMS>() => Answer::Handler(device_table);
    /// Size of a copy engine's buffer for methods that faulted, one for each channel.
    NV2080_CTRL_CMD_CE_GET_FAULT_METHOD_BUFFER_SIZE on Subdevice, 4
        => Answer::Constant(&FAULT_METHOD_BUFFER.to_le_bytes());
    /// Falcons that need context buffers. There are none.
    NV2080_CTRL_CMD_GPU_GET_CONSTRUCTED_FALCON_INFO on Subdevice,
        NV2080_CTRL_GPU_GET_CONSTRUCTED_FALCON_INFO_PARAMS_SIZE => Answer::Zeroes;
    source "open-gpu-kernel-modules ctrl2080internal.h, ctrl2080event.h; nouveau gsp/rm/r535/gsp.c";
    /// The vectors of the interrupt tree, by engine.
    NV2080_CTRL_CMD_INTERNAL_INTR_GET_KERNEL_TABLE on Subdevice,
        size_of::<NV2080_CTRL_INTERNAL_INTR_GET_KERNEL_TABLE_PARAMS>() => Answer::Handler(interrupt_table);
    /// Asks for events of a subdevice. Nothing that it could tell of ever happens.
    NV2080_CTRL_CMD_EVENT_SET_NOTIFICATION on Subdevice, size_of::<NV2080_CTRL_EVENT_SET_NOTIFICATION_PARAMS>()
        => Answer::Handler(set_notification);
}

fn tpc_info(_: &mut Rm, _: &dyn GspBackend, _: Target, raw: &mut [u8]) -> Result<(), Status> {
    let asked: NV2080_CTRL_GPU_GET_FERMI_TPC_INFO_PARAMS = parameters(raw);
    if asked.gpcId >= GPC_MASK.count_ones() {
        return Err(Status::InvalidArgument);
    }
    put(raw, &NV2080_CTRL_GPU_GET_FERMI_TPC_INFO_PARAMS { tpcMask: TPC_MASK, ..asked });
    Ok(())
}

fn set_notification(_: &mut Rm, _: &dyn GspBackend, _: Target, raw: &mut [u8]) -> Result<(), Status> {
    let wanted: NV2080_CTRL_EVENT_SET_NOTIFICATION_PARAMS = parameters(raw);
    if wanted.action > NV2080_CTRL_EVENT_SET_NOTIFICATION_ACTION_REPEAT {
        Err(Status::InvalidArgument)
    } else {
        Ok(())
    }
}

fn context_buffers(_: &mut Rm, _: &dyn GspBackend, _: Target, raw: &mut [u8]) -> Result<(), Status> {
    let mut info = NV2080_CTRL_INTERNAL_STATIC_GR_GET_CONTEXT_BUFFERS_INFO_PARAMS::new_zeroed();
    let [graphics, ..] = &mut info.engineContextBuffersInfo;
    for (id, buffer) in graphics.iter_mut().enumerate() {
        if GRAPHICS_CONTEXT_BUFFERS.contains(&id) {
            buffer.size = CONTEXT_BUFFER;
            buffer.alignment = CONTEXT_BUFFER;
        }
    }
    put(raw, &info);
    Ok(())
}

/// Index of an engine among the interrupt sources.
fn source(engine: Engine) -> u16 {
    match engine {
        Engine::Graphics => MC_ENGINE_IDX_GR0,
        Engine::Copy(n) => MC_ENGINE_IDX_CE0.saturating_add(n.into()),
    }
}

fn interrupt_table(rm: &mut Rm, _: &dyn GspBackend, _: Target, raw: &mut [u8]) -> Result<(), Status> {
    let entry = |index, stall, non_stall| NV2080_CTRL_INTERNAL_INTR_GET_KERNEL_TABLE_ENTRY {
        engineIdx: index,
        pad: 0,
        pmcIntrMask: 0,
        vectorStall: stall,
        vectorNonStall: non_stall,
    };
    let gsp = entry(MC_ENGINE_IDX_GSP, vector::GSP_STALL, NV_INTR_VECTOR_INVALID);
    let engines = rm
        .config
        .engines
        .engines()
        .map(|engine| entry(source(engine), NV_INTR_VECTOR_INVALID, vector::non_stall(engine)));
    let mut table = NV2080_CTRL_INTERNAL_INTR_GET_KERNEL_TABLE_PARAMS::new_zeroed();
    for (to, from) in table.table.iter_mut().zip(std::iter::once(gsp).chain(engines)) {
        *to = from;
        table.tableLen = table.tableLen.saturating_add(1);
    }
    put(raw, &table);
    Ok(())
}

fn device_table(rm: &mut Rm, _: &dyn GspBackend, _: Target, raw: &mut [u8]) -> Result<(), Status> {
    let asked: NV2080_CTRL_FIFO_GET_DEVICE_INFO_TABLE_PARAMS = parameters(raw);
    let skip = usize::try_from(asked.baseIndex).unwrap_or(usize::MAX);
    let mut table = NV2080_CTRL_FIFO_GET_DEVICE_INFO_TABLE_PARAMS::new_zeroed();
    table.baseIndex = asked.baseIndex;
    let known = (0u32..).zip(rm.config.engines.engines()).skip(skip);
    for (to, (index, engine)) in table.entries.iter_mut().zip(known) {
        *to = device(index, engine);
        table.numEntries = table.numEntries.saturating_add(1);
    }
    put(raw, &table);
    Ok(())
}

/// What a driver is told of one engine.
fn device(index: u32, engine: Engine) -> NV2080_CTRL_FIFO_DEVICE_ENTRY {
    let mut entry = NV2080_CTRL_FIFO_DEVICE_ENTRY::new_zeroed();
    let runlist = u32::from(engines::runlist(engine));
    let (instance, on_runlist, name) = match engine {
        Engine::Graphics => (0, 0, "GRAPHICS".to_string()),
        // The GRCE comes second on the graphics runlist.
        Engine::Copy(n) => (u32::from(n), u32::from(n == 0), format!("CE{n}")),
    };
    let data = &mut entry.engineData;
    data[ENGINE_INFO_TYPE_ENG_DESC] = engine_descriptor(engine);
    data[ENGINE_INFO_TYPE_FIFO_TAG] = index;
    data[ENGINE_INFO_TYPE_RM_ENGINE_TYPE] = engines::engine_type(engine);
    data[ENGINE_INFO_TYPE_RUNLIST] = runlist;
    data[ENGINE_INFO_TYPE_MC] = source(engine).into();
    data[ENGINE_INFO_TYPE_INSTANCE_ID] = instance;
    data[ENGINE_INFO_TYPE_RUNLIST_PRI_BASE] = runlist.saturating_add(1).saturating_mul(RUNLIST_STRIDE);
    data[ENGINE_INFO_TYPE_IS_HOST_DRIVEN_ENGINE] = 1;
    data[ENGINE_INFO_TYPE_RUNLIST_ENGINE_ID] = on_runlist;
    entry.pbdmaIds = [runlist, 0];
    entry.numPbdmas = 1;
    entry.engineName.iter_mut().take(15).zip(name.bytes()).for_each(|(to, from)| *to = from);
    entry
}

/// A number for the engine that is not another's: drivers compare it with falcons', of which there are none.
fn engine_descriptor(engine: Engine) -> u32 {
    engines::engine_type(engine).saturating_mul(0x100)
}
