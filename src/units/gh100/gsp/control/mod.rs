//! Controls of objects (GSP_RM_CONTROL), by table: what nouveau of Linux 7.2 and 7.3 sends to a GPU without
//! display.
//!
//! A control that is not in the table is answered NV_ERR_NOT_SUPPORTED, as real firmware answers one that its
//! GPU does not have.

mod channels;
mod engines;
mod memory;
mod memory_system;

use zerocopy::{FromBytes, IntoBytes};

use crate::backend::GspBackend;
use crate::gh100::gsp::counters::{Call, Note};
use crate::gh100::gsp::objects::{Id, Type};
use crate::gh100::gsp::rm::Rm;
use gpuvmk_chip::gh100::gsp::r570_144::control::*;
use gpuvmk_chip::gh100::gsp::r570_144::rpc::rpc_gsp_rm_control_v03_00;
use gpuvmk_chip::gh100::gsp::status::{Status, code};

pub(super) use memory::keep_directory;

/// What a control is sent to.
#[derive(Clone, Copy, Debug)]
struct Target {
    id: Id,
}

type Handler = fn(&mut Rm, &dyn GspBackend, Target, &mut [u8]) -> Result<(), Status>;

struct Control {
    number: u32,
    /// What it is sent to.
    object: Type,
    /// Bytes of its parameters.
    size: usize,
    handler: Handler,
}

const fn control(number: u32, object: Type, size: usize, handler: Handler) -> Control {
    Control { number, object, size, handler }
}

/// Every control that is known, with its parameters.
static CONTROLS: [Control; 22] = [
    control(
        NV0080_CTRL_CMD_FB_GET_COMPBIT_STORE_INFO,
        Type::Device,
        size_of::<NV0080_CTRL_FB_GET_COMPBIT_STORE_INFO_PARAMS>(),
        memory_system::compbit_store,
    ),
    control(
        NV0080_CTRL_CMD_DMA_SET_PAGE_DIRECTORY,
        Type::Device,
        size_of::<NV0080_CTRL_DMA_SET_PAGE_DIRECTORY_PARAMS>(),
        memory::set_page_directory,
    ),
    control(
        NV0080_CTRL_CMD_DMA_UNSET_PAGE_DIRECTORY,
        Type::Device,
        size_of::<NV0080_CTRL_DMA_UNSET_PAGE_DIRECTORY_PARAMS>(),
        memory::unset_page_directory,
    ),
    control(
        NV2080_CTRL_CMD_GPU_PROMOTE_CTX,
        Type::Subdevice,
        size_of::<NV2080_CTRL_GPU_PROMOTE_CTX_PARAMS>(),
        channels::promote_context,
    ),
    control(NV2080_CTRL_CMD_GPU_GET_FERMI_GPC_INFO, Type::Subdevice, 4, engines::gpc_info),
    control(
        NV2080_CTRL_CMD_GPU_GET_FERMI_TPC_INFO,
        Type::Subdevice,
        size_of::<NV2080_CTRL_GPU_GET_FERMI_TPC_INFO_PARAMS>(),
        engines::tpc_info,
    ),
    control(
        NV2080_CTRL_CMD_GPU_GET_CONSTRUCTED_FALCON_INFO,
        Type::Subdevice,
        NV2080_CTRL_GPU_GET_CONSTRUCTED_FALCON_INFO_PARAMS_SIZE,
        engines::falcon_info,
    ),
    control(
        NV2080_CTRL_CMD_EVENT_SET_NOTIFICATION,
        Type::Subdevice,
        size_of::<NV2080_CTRL_EVENT_SET_NOTIFICATION_PARAMS>(),
        engines::set_notification,
    ),
    control(
        NV2080_CTRL_CMD_INTERNAL_MEMSYS_GET_STATIC_CONFIG,
        Type::Subdevice,
        size_of::<NV2080_CTRL_INTERNAL_MEMSYS_GET_STATIC_CONFIG_PARAMS>(),
        memory_system::static_config,
    ),
    control(
        NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_CONTEXT_BUFFERS_INFO,
        Type::Subdevice,
        size_of::<NV2080_CTRL_INTERNAL_STATIC_GR_GET_CONTEXT_BUFFERS_INFO_PARAMS>(),
        engines::context_buffers,
    ),
    control(
        NV2080_CTRL_CMD_INTERNAL_INTR_GET_KERNEL_TABLE,
        Type::Subdevice,
        size_of::<NV2080_CTRL_INTERNAL_INTR_GET_KERNEL_TABLE_PARAMS>(),
        engines::interrupt_table,
    ),
    control(
        NV2080_CTRL_CMD_INTERNAL_MEMSYS_PROGRAM_RAW_COMPRESSION_MODE,
        Type::Subdevice,
        1,
        memory_system::raw_compression,
    ),
    control(
        NV2080_CTRL_CMD_INTERNAL_GCX_ENTRY_PREREQUISITE,
        Type::Subdevice,
        size_of::<NV2080_CTRL_INTERNAL_GCX_ENTRY_PREREQUISITE_PARAMS>(),
        memory_system::power_off_prerequisite,
    ),
    control(
        NV2080_CTRL_CMD_INTERNAL_FBSR_INIT,
        Type::Subdevice,
        size_of::<NV2080_CTRL_INTERNAL_FBSR_INIT_PARAMS>(),
        memory::fbsr_init,
    ),
    control(
        NV2080_CTRL_CMD_INTERNAL_FIFO_TOGGLE_ACTIVE_CHANNEL_SCHEDULING,
        Type::Subdevice,
        1,
        channels::toggle_scheduling,
    ),
    control(
        NV2080_CTRL_CMD_FIFO_GET_DEVICE_INFO_TABLE,
        Type::Subdevice,
        size_of::<NV2080_CTRL_FIFO_GET_DEVICE_INFO_TABLE_PARAMS>(),
        engines::device_table,
    ),
    control(
        NV2080_CTRL_CMD_GR_GET_ZCULL_INFO,
        Type::Subdevice,
        size_of::<NV2080_CTRL_GR_GET_ZCULL_INFO_PARAMS>(),
        engines::zcull_info,
    ),
    control(
        NV2080_CTRL_CMD_CE_GET_FAULT_METHOD_BUFFER_SIZE,
        Type::Subdevice,
        4,
        engines::fault_method_buffer,
    ),
    control(
        NV90F1_CTRL_CMD_VASPACE_COPY_SERVER_RESERVED_PDES,
        Type::AddressSpace,
        size_of::<NV90F1_CTRL_VASPACE_COPY_SERVER_RESERVED_PDES_PARAMS>(),
        memory::copy_server_reserved_pdes,
    ),
    control(NVA06F_CTRL_CMD_GPFIFO_SCHEDULE, Type::Channel, 2, channels::schedule),
    control(NVA06F_CTRL_CMD_BIND, Type::Channel, 4, channels::bind),
    control(NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN, Type::Channel, 4, channels::token),
];

/// GSP_RM_CONTROL: the status of the control goes into the body.
pub(super) fn rm_control(rm: &mut Rm, back: &dyn GspBackend, body: &mut [u8]) -> Result<(), Status> {
    let header = rpc_gsp_rm_control_v03_00::read_from_prefix(body)
        .map(|(header, _)| header)
        .map_err(|_| Status::InvalidParamStruct)?;
    rm.counters.controls = rm.counters.controls.saturating_add(1);
    let outcome = usize::try_from(header.paramsSize)
        .ok()
        .and_then(|size| body.get_mut(size_of_val(&header)..)?.get_mut(..size))
        .ok_or(Status::InvalidParamStruct)
        .and_then(|parameters| carry_out(rm, back, &header, parameters));
    rm.ended(Call::Control(header.cmd), outcome);
    let answer = rpc_gsp_rm_control_v03_00 { status: code(outcome), ..header };
    answer.write_to_prefix(body).map_err(|_| Status::InvalidParamStruct)
}

fn carry_out(
    rm: &mut Rm,
    back: &dyn GspBackend,
    header: &rpc_gsp_rm_control_v03_00,
    parameters: &mut [u8],
) -> Result<(), Status> {
    let id = Id { client: header.hClient, handle: header.hObject };
    let kind = rm.objects.get(id)?.kind.of();
    let Some(known) = CONTROLS.iter().find(|known| known.number == header.cmd) else {
        rm.counters.controls_unknown = rm.counters.controls_unknown.saturating_add(1);
        rm.note(Note::UnknownControl(header.cmd));
        return Err(Status::NotSupported);
    };
    if known.object != kind {
        return Err(Status::NotSupported);
    }
    if known.size != parameters.len() {
        return Err(Status::InvalidParamStruct);
    }
    (known.handler)(rm, back, Target { id }, parameters)
}
