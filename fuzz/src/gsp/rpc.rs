//! RPCs: those that a driver makes, with things wrong, and any.

use gpuvmk::chip::nv::classes::{
    FERMI_TWOD_A, HOPPER_A, HOPPER_CHANNEL_GPFIFO_A, HOPPER_COMPUTE_A, HOPPER_DMA_COPY_A,
    KEPLER_INLINE_TO_MEMORY_B,
};
use gpuvmk::gsp::abi::common::classes::{
    FERMI_VASPACE_A, NV01_DEVICE_0, NV01_EVENT, NV01_EVENT_KERNEL_CALLBACK_EX, NV01_MEMORY_LIST_FBMEM,
    NV01_MEMORY_LIST_SYSTEM, NV01_ROOT, NV20_SUBDEVICE_0,
};
use gpuvmk::gsp::abi::common::control::{
    NV0080_CTRL_CMD_DMA_SET_PAGE_DIRECTORY, NV0080_CTRL_CMD_DMA_UNSET_PAGE_DIRECTORY,
    NV0080_CTRL_DMA_SET_PAGE_DIRECTORY_PARAMS, NV90F1_CTRL_CMD_VASPACE_COPY_SERVER_RESERVED_PDES,
    NV2080_CTRL_CMD_CE_GET_FAULT_METHOD_BUFFER_SIZE, NV2080_CTRL_CMD_EVENT_SET_NOTIFICATION,
    NV2080_CTRL_CMD_FIFO_GET_DEVICE_INFO_TABLE, NV2080_CTRL_CMD_GPU_GET_FERMI_GPC_INFO,
    NV2080_CTRL_CMD_GPU_GET_FERMI_TPC_INFO, NV2080_CTRL_CMD_GPU_PROMOTE_CTX,
    NV2080_CTRL_CMD_INTERNAL_FBSR_INIT, NV2080_CTRL_CMD_INTERNAL_INTR_GET_KERNEL_TABLE,
    NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_CONTEXT_BUFFERS_INFO, NVA06F_CTRL_CMD_BIND,
    NVA06F_CTRL_CMD_GPFIFO_SCHEDULE, NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN,
};
use gpuvmk::gsp::abi::common::object::{
    ADDR_FBMEM, NV_VASPACE_ALLOCATION_FLAGS_IS_EXTERNALLY_OWNED, NV_VASPACE_ALLOCATION_PARAMETERS,
};
use gpuvmk::gsp::abi::common::rpc::{
    NV_VGPU_MSG_FUNCTION_ALLOC_MEMORY, NV_VGPU_MSG_FUNCTION_CONTINUATION_RECORD, NV_VGPU_MSG_FUNCTION_FREE,
    NV_VGPU_MSG_FUNCTION_GET_GSP_STATIC_INFO, NV_VGPU_MSG_FUNCTION_GSP_RM_ALLOC,
    NV_VGPU_MSG_FUNCTION_GSP_RM_CONTROL, NV_VGPU_MSG_FUNCTION_GSP_SET_SYSTEM_INFO,
    NV_VGPU_MSG_FUNCTION_SET_REGISTRY, NV_VGPU_MSG_FUNCTION_UNLOADING_GUEST_DRIVER,
    NV_VGPU_MSG_FUNCTION_UPDATE_BAR_PDE, NVOS00_PARAMETERS_v03_00, rpc_alloc_memory_v13_01,
    rpc_gsp_rm_alloc_v03_00, rpc_gsp_rm_control_v03_00,
};
use gpuvmk::gsp::abi::r570_144::control::{
    NV2080_CTRL_CMD_GPU_GET_CONSTRUCTED_FALCON_INFO, NV2080_CTRL_CMD_GR_GET_ZCULL_INFO,
    NV2080_CTRL_CMD_INTERNAL_FIFO_TOGGLE_ACTIVE_CHANNEL_SCHEDULING, NV2080_CTRL_INTERNAL_FBSR_INIT_PARAMS,
};
use gpuvmk::gsp::abi::r570_144::object::NV_CHANNEL_ALLOC_PARAMS;
use zerocopy::{FromZeros, IntoBytes};

use crate::gsp_queues::{Queues, sign};
use crate::input::Input;

pub(crate) const STATIC_INFO: u32 = NV_VGPU_MSG_FUNCTION_GET_GSP_STATIC_INFO;

/// Handles: two clients, then what lies below them.
const CLIENTS: [u32; 3] = [0xc1d0_0000, 0xc1d0_0001, 0xc1e0_0004];
const DEVICE: u32 = 0xde1d_0000;
const SUBDEVICE: u32 = 0x5d1d_0000;
const SPACE: u32 = 0x90f1_0000;
const CHANNEL: u32 = 0xf1f0_0000;
const HANDLES: [u32; 9] =
    [CLIENTS[0], DEVICE, SUBDEVICE, SPACE, CHANNEL, CHANNEL + 1, CHANNEL + 2, 0xabcd_0080, 0xabcd_2080];

const CLASSES: [u32; 15] = [
    NV01_ROOT,
    NV01_DEVICE_0,
    NV20_SUBDEVICE_0,
    FERMI_VASPACE_A,
    HOPPER_CHANNEL_GPFIFO_A.number,
    HOPPER_CHANNEL_GPFIFO_A.number,
    HOPPER_DMA_COPY_A.number,
    HOPPER_A.number,
    HOPPER_COMPUTE_A.number,
    FERMI_TWOD_A.number,
    KEPLER_INLINE_TO_MEMORY_B.number,
    NV01_EVENT,
    NV01_EVENT_KERNEL_CALLBACK_EX,
    NV01_MEMORY_LIST_SYSTEM,
    NV01_MEMORY_LIST_FBMEM,
];

const CONTROLS: [u32; 19] = [
    NV0080_CTRL_CMD_DMA_SET_PAGE_DIRECTORY,
    NV0080_CTRL_CMD_DMA_UNSET_PAGE_DIRECTORY,
    NV2080_CTRL_CMD_GPU_PROMOTE_CTX,
    NV2080_CTRL_CMD_GPU_GET_FERMI_GPC_INFO,
    NV2080_CTRL_CMD_GPU_GET_FERMI_TPC_INFO,
    NV2080_CTRL_CMD_GPU_GET_CONSTRUCTED_FALCON_INFO,
    NV2080_CTRL_CMD_EVENT_SET_NOTIFICATION,
    NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_CONTEXT_BUFFERS_INFO,
    NV2080_CTRL_CMD_INTERNAL_INTR_GET_KERNEL_TABLE,
    NV2080_CTRL_CMD_INTERNAL_FBSR_INIT,
    NV2080_CTRL_CMD_INTERNAL_FIFO_TOGGLE_ACTIVE_CHANNEL_SCHEDULING,
    NV2080_CTRL_CMD_FIFO_GET_DEVICE_INFO_TABLE,
    NV2080_CTRL_CMD_GR_GET_ZCULL_INFO,
    NV2080_CTRL_CMD_CE_GET_FAULT_METHOD_BUFFER_SIZE,
    NV90F1_CTRL_CMD_VASPACE_COPY_SERVER_RESERVED_PDES,
    NVA06F_CTRL_CMD_GPFIFO_SCHEDULE,
    NVA06F_CTRL_CMD_GPFIFO_SCHEDULE,
    NVA06F_CTRL_CMD_BIND,
    NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN,
];

pub(super) type MakeRecord = Box<dyn Fn(&Queues) -> Vec<u8>>;

/// Client, device and subdevice that the firmware has made for the driver.
const INTERNAL: [u32; 3] = [0xc1e0_0004, 0xabcd_0080, 0xabcd_2080];
/// A list of pages.
const MEMORY: u32 = 0xcaf0_0003;

fn internal_control(command: u32, parameters: &[u8]) -> MakeRecord {
    let [client, _, subdevice] = INTERNAL;
    let mut rpc = rpc_gsp_rm_control_v03_00::new_zeroed();
    rpc.hClient = client;
    rpc.hObject = subdevice;
    rpc.cmd = command;
    rpc.paramsSize = u32::try_from(parameters.len()).unwrap_or(0);
    let body = [rpc.as_bytes(), parameters].concat();
    Box::new(move |queues| queues.record(NV_VGPU_MSG_FUNCTION_GSP_RM_CONTROL, &body))
}

/// The RPCs of a suspension into the memory that is named at a bus address.
pub(super) fn suspension(meta: u64) -> Vec<MakeRecord> {
    let [client, device, _] = INTERNAL;
    let mut list = rpc_alloc_memory_v13_01::new_zeroed();
    list.hClient = client;
    list.hDevice = device;
    list.hMemory = MEMORY;
    list.hClass = NV01_MEMORY_LIST_SYSTEM;
    list.pageCount = 1;
    list.pteDesc = 1 << 16;
    let list = [list.as_bytes(), &[0; 8]].concat();
    let mut parameters = NV2080_CTRL_INTERNAL_FBSR_INIT_PARAMS::new_zeroed();
    parameters.hClient = client;
    parameters.hSysMem = MEMORY;
    parameters.sysmemAddrOfSuspendResumeData = meta;
    let mut free = NVOS00_PARAMETERS_v03_00::new_zeroed();
    free.hRoot = client;
    free.hObjectOld = MEMORY;
    let free = free.as_bytes().to_vec();
    vec![
        internal_control(NV2080_CTRL_CMD_INTERNAL_FIFO_TOGGLE_ACTIVE_CHANNEL_SCHEDULING, &[1]),
        Box::new(move |queues| queues.record(NV_VGPU_MSG_FUNCTION_ALLOC_MEMORY, &list)),
        internal_control(NV2080_CTRL_CMD_INTERNAL_FBSR_INIT, parameters.as_bytes()),
        Box::new(move |queues| queues.record(NV_VGPU_MSG_FUNCTION_FREE, &free)),
        Box::new(|queues| {
            queues.record(NV_VGPU_MSG_FUNCTION_UNLOADING_GUEST_DRIVER, &[1, 0, 0, 0, 3, 0, 0, 0])
        }),
    ]
}

/// The RPC that lets channels run again.
pub(super) fn toggles() -> Vec<MakeRecord> {
    vec![internal_control(NV2080_CTRL_CMD_INTERNAL_FIFO_TOGGLE_ACTIVE_CHANNEL_SCHEDULING, &[0])]
}

/// The RPCs of a driver up to its first channels, in order: a client, a device, an address space with its
/// page directory, and three channels that are scheduled, with a copy object each.
pub(crate) fn channels() -> Vec<MakeRecord> {
    let nothing = || Input::new(&[]);
    let client = CLIENTS[0];
    let alloc = |parent, object, class, parameters: Vec<u8>| -> MakeRecord {
        let mut rpc = rpc_gsp_rm_alloc_v03_00::new_zeroed();
        rpc.hClient = client;
        rpc.hParent = parent;
        rpc.hObject = object;
        rpc.hClass = class;
        rpc.paramsSize = u32::try_from(parameters.len()).unwrap_or(0);
        let body = [rpc.as_bytes(), &parameters].concat();
        Box::new(move |queues| queues.record(NV_VGPU_MSG_FUNCTION_GSP_RM_ALLOC, &body))
    };
    let control = |object, command, parameters: Vec<u8>| -> MakeRecord {
        let mut rpc = rpc_gsp_rm_control_v03_00::new_zeroed();
        rpc.hClient = client;
        rpc.hObject = object;
        rpc.cmd = command;
        rpc.paramsSize = u32::try_from(parameters.len()).unwrap_or(0);
        let body = [rpc.as_bytes(), &parameters].concat();
        Box::new(move |queues| queues.record(NV_VGPU_MSG_FUNCTION_GSP_RM_CONTROL, &body))
    };
    let mut records = vec![
        alloc(client, client, NV01_ROOT, root(client)),
        alloc(client, DEVICE, NV01_DEVICE_0, vec![0; 0x38]),
        alloc(DEVICE, SPACE, FERMI_VASPACE_A, space(&mut nothing())),
        control(DEVICE, NV0080_CTRL_CMD_DMA_SET_PAGE_DIRECTORY, directory(&mut nothing())),
    ];
    for (chid, engine) in (0u8..).zip([1, 10, 11]) {
        let handle = CHANNEL + u32::from(chid);
        records.push(alloc(DEVICE, handle, HOPPER_CHANNEL_GPFIFO_A.number, channel_of(chid, engine)));
        records.push(control(handle, NVA06F_CTRL_CMD_GPFIFO_SCHEDULE, vec![1, 0]));
        let mut object = vec![0; 0x10];
        object[0] = 1;
        object[4] = if engine == 1 { 9 } else { engine };
        records.push(alloc(handle, 0x1000 + u32::from(chid), HOPPER_DMA_COPY_A.number, object));
    }
    records
}

/// A channel's parameters, all right.
fn channel_of(chid: u8, engine: u8) -> Vec<u8> {
    let mut parameters = NV_CHANNEL_ALLOC_PARAMS::new_zeroed();
    parameters.common.gpFifoOffset = 0x1_1000;
    parameters.common.gpFifoEntries = 1024;
    parameters.common.flags = u32::from(chid % 8) << 8 | 1 << 21;
    parameters.common.hVASpace = SPACE;
    parameters.common.engineType = engine.into();
    parameters.common.userdMem.base = 0x10_0000 + 0x200 * u64::from(chid);
    parameters.common.userdMem.size = 0x200;
    parameters.common.userdMem.addressSpace = ADDR_FBMEM;
    parameters.as_bytes().to_vec()
}

/// A record with some RPC in it.
pub(crate) fn record(input: &mut Input<'_>, queues: &Queues) -> Vec<u8> {
    let (function, mut body) = match input.below(16) {
        0 => (NV_VGPU_MSG_FUNCTION_FREE, free(input)),
        1 => (NV_VGPU_MSG_FUNCTION_UNLOADING_GUEST_DRIVER, vec![input.below(2), 0, 0, 0, 0, 0, 0, 0]),
        2 => (STATIC_INFO, vec![0; 0x678]),
        3 => (NV_VGPU_MSG_FUNCTION_UPDATE_BAR_PDE, bar_entry(input)),
        4 => (NV_VGPU_MSG_FUNCTION_ALLOC_MEMORY, memory(input)),
        5 => (
            input.pick(&[NV_VGPU_MSG_FUNCTION_GSP_SET_SYSTEM_INFO, NV_VGPU_MSG_FUNCTION_SET_REGISTRY]),
            vec![0; 928],
        ),
        6 => (NV_VGPU_MSG_FUNCTION_CONTINUATION_RECORD, large(input)),
        7 => (if input.flag() { input.u32() } else { input.u8().into() }, input.bytes(64).to_vec()),
        8..=11 => (NV_VGPU_MSG_FUNCTION_GSP_RM_CONTROL, control(input)),
        _ => (NV_VGPU_MSG_FUNCTION_GSP_RM_ALLOC, alloc(input)),
    };
    // A few bytes wrong, or missing.
    if input.below(4) == 0 && !body.is_empty() {
        let at = usize::from(input.u16()) % body.len();
        body[at] = input.u8();
    }
    if input.below(16) == 15 {
        body.truncate(usize::from(input.u8()));
    }
    let mut record = queues.record(function, &body);
    match input.below(24) {
        22 => {
            let at = usize::from(input.u8()) % 0x50;
            record[at] = input.u8();
            sign(&mut record);
        }
        23 => {
            let at = usize::from(input.u16()) % record.len();
            record[at] ^= 1;
        }
        _ => {}
    }
    record
}

/// A body that needs more than one element, or more than one record.
fn large(input: &mut Input<'_>) -> Vec<u8> {
    vec![input.u8(); input.pick(&[0x10, 0x1000, 0x8000, 0xffb0])]
}

fn handle(input: &mut Input<'_>) -> u32 {
    if input.below(16) == 15 { input.u32() } else { input.pick(&HANDLES) }
}

fn client(input: &mut Input<'_>) -> u32 {
    if input.below(8) == 7 {
        input.u32()
    } else {
        input.pick(&[CLIENTS[0], CLIENTS[0], CLIENTS[0], CLIENTS[1], CLIENTS[2]])
    }
}

fn free(input: &mut Input<'_>) -> Vec<u8> {
    let mut parameters = NVOS00_PARAMETERS_v03_00::new_zeroed();
    parameters.hRoot = client(input);
    parameters.hObjectOld = handle(input);
    parameters.as_bytes().to_vec()
}

fn bar_entry(input: &mut Input<'_>) -> Vec<u8> {
    let shift: u64 = if input.below(8) == 7 { input.u8().into() } else { 56 };
    [u64::from(input.below(3)).to_le_bytes(), input.u64().to_le_bytes(), shift.to_le_bytes()].concat()
}

fn memory(input: &mut Input<'_>) -> Vec<u8> {
    let mut rpc = rpc_alloc_memory_v13_01::new_zeroed();
    rpc.hClient = client(input);
    rpc.hDevice = DEVICE;
    rpc.hMemory = handle(input);
    rpc.hClass = input.pick(&[NV01_MEMORY_LIST_SYSTEM, NV01_MEMORY_LIST_FBMEM]);
    rpc.pageCount = input.u8().into();
    rpc.length = u64::from(rpc.pageCount) << 12;
    rpc.pteDesc = rpc.pageCount << 16 | u32::from(input.below(4));
    let entries = usize::from(input.u8()) * 8;
    [rpc.as_bytes(), &vec![0; entries]].concat()
}

fn alloc(input: &mut Input<'_>) -> Vec<u8> {
    let class = if input.below(16) == 15 { input.u32() } else { input.pick(&CLASSES) };
    let client = client(input);
    // Mostly where it belongs.
    let usual = input.below(8) != 7;
    let (parent, object, parameters) = match class {
        NV01_ROOT => (if usual { client } else { 0 }, client, root(client)),
        NV01_DEVICE_0 => (client, DEVICE, vec![0; 0x38]),
        NV20_SUBDEVICE_0 => (DEVICE, SUBDEVICE, vec![0; 4]),
        FERMI_VASPACE_A => (DEVICE, SPACE, space(input)),
        class if class == HOPPER_CHANNEL_GPFIFO_A.number => {
            (DEVICE, CHANNEL + u32::from(input.below(4)), channel(input))
        }
        _ => (CHANNEL + u32::from(input.below(4)), 0x1000 + u32::from(input.u8()), engine_object(input)),
    };
    let (parent, object) = if usual { (parent, object) } else { (handle(input), handle(input)) };
    let mut rpc = rpc_gsp_rm_alloc_v03_00::new_zeroed();
    rpc.hClient = client;
    rpc.hParent = parent;
    rpc.hObject = object;
    rpc.hClass = class;
    rpc.paramsSize = size(input, parameters.len());
    [rpc.as_bytes(), &parameters].concat()
}

fn size(input: &mut Input<'_>, right: usize) -> u32 {
    if input.below(16) == 15 { input.u32() } else { u32::try_from(right).unwrap_or(u32::MAX) }
}

fn root(client: u32) -> Vec<u8> {
    let mut parameters = vec![0; 0x78];
    parameters[..4].copy_from_slice(&client.to_le_bytes());
    parameters
}

fn space(input: &mut Input<'_>) -> Vec<u8> {
    let mut space = NV_VASPACE_ALLOCATION_PARAMETERS::new_zeroed();
    if input.below(4) != 3 {
        space.flags = NV_VASPACE_ALLOCATION_FLAGS_IS_EXTERNALLY_OWNED;
    }
    space.as_bytes().to_vec()
}

fn engine_object(input: &mut Input<'_>) -> Vec<u8> {
    let mut parameters = vec![0; 0x10];
    parameters[0] = 1;
    parameters[4] = input.below(14);
    parameters
}

fn channel(input: &mut Input<'_>) -> Vec<u8> {
    let mut parameters = NV_CHANNEL_ALLOC_PARAMS::new_zeroed();
    parameters.common.gpFifoOffset = input.near(&[0x1_1000, 1 << 39, 1 << 57]);
    parameters.common.gpFifoEntries = if input.below(8) == 7 { input.u32() } else { 1024 };
    let chid = u32::from(input.below(10));
    parameters.common.flags =
        if input.below(8) == 7 { input.u32() } else { ((chid % 8) << 8) | ((chid / 8) << 12) | (1 << 21) };
    parameters.common.hVASpace = if input.below(8) == 7 { handle(input) } else { SPACE };
    parameters.common.engineType =
        if input.below(8) == 7 { input.u32() } else { input.pick(&[1, 9, 10, 11]) };
    parameters.common.userdMem.base = input.near(&[0x10_0000, super::VRAM, 0]);
    parameters.common.userdMem.size = 0x200;
    parameters.common.userdMem.addressSpace =
        if input.below(8) == 7 { input.u8().into() } else { ADDR_FBMEM };
    parameters.as_bytes().to_vec()
}

fn control(input: &mut Input<'_>) -> Vec<u8> {
    let command = if input.below(16) == 15 { input.u32() } else { input.pick(&CONTROLS) };
    let client = client(input);
    let usual = input.below(8) != 7;
    let (object, parameters) = match command {
        NV0080_CTRL_CMD_DMA_SET_PAGE_DIRECTORY => (DEVICE, directory(input)),
        NVA06F_CTRL_CMD_GPFIFO_SCHEDULE => (CHANNEL + u32::from(input.below(4)), vec![input.below(2), 0]),
        NVA06F_CTRL_CMD_BIND => (CHANNEL + u32::from(input.below(4)), vec![input.below(14), 0, 0, 0]),
        NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN => (CHANNEL + u32::from(input.below(4)), vec![0; 4]),
        NV90F1_CTRL_CMD_VASPACE_COPY_SERVER_RESERVED_PDES => (SPACE, vec![input.u8(); 0xb8]),
        _ => {
            let size = usize::from(input.u16() % 0x900);
            let mut parameters = vec![0; size];
            for place in parameters.iter_mut().take(8) {
                *place = input.u8();
            }
            (input.pick(&[SUBDEVICE, 0xabcd_2080, DEVICE]), parameters)
        }
    };
    let object = if usual { object } else { handle(input) };
    let mut rpc = rpc_gsp_rm_control_v03_00::new_zeroed();
    rpc.hClient = client;
    rpc.hObject = object;
    rpc.cmd = command;
    rpc.paramsSize = size(input, parameters.len());
    [rpc.as_bytes(), &parameters].concat()
}

fn directory(input: &mut Input<'_>) -> Vec<u8> {
    let mut parameters = NV0080_CTRL_DMA_SET_PAGE_DIRECTORY_PARAMS::new_zeroed();
    parameters.physAddress = input.near(&[0x20_0000, super::VRAM]);
    parameters.numEntries = if input.below(8) == 7 { input.u32() } else { 2 };
    parameters.hVASpace = if input.below(8) == 7 { handle(input) } else { SPACE };
    parameters.as_bytes().to_vec()
}
