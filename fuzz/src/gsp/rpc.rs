//! RPCs: those that a driver makes, with things wrong, and any.

mod driver;
mod handles;

use gpuvmk::gsp::abi;
use gpuvmk::gsp::abi::common::classes::{
    FERMI_VASPACE_A, NV01_DEVICE_0, NV01_MEMORY_LIST_FBMEM, NV01_MEMORY_LIST_SYSTEM, NV01_ROOT,
    NV20_SUBDEVICE_0,
};
use gpuvmk::gsp::abi::common::control::{
    NV0080_CTRL_CMD_DMA_SET_PAGE_DIRECTORY, NV0080_CTRL_DMA_SET_PAGE_DIRECTORY_PARAMS,
    NV2080_CTRL_CMD_INTERNAL_FBSR_INIT, NVA06F_CTRL_CMD_GPFIFO_SCHEDULE,
};
use gpuvmk::gsp::abi::common::object::{
    ADDR_FBMEM, NV_VASPACE_ALLOCATION_FLAGS, NV_VASPACE_ALLOCATION_PARAMETERS,
};
use gpuvmk::gsp::abi::common::rpc::{
    NV_VGPU_MSG_FUNCTION_ALLOC_MEMORY, NV_VGPU_MSG_FUNCTION_CONTINUATION_RECORD,
    NV_VGPU_MSG_FUNCTION_DUP_OBJECT, NV_VGPU_MSG_FUNCTION_FREE, NV_VGPU_MSG_FUNCTION_GET_GSP_STATIC_INFO,
    NV_VGPU_MSG_FUNCTION_GSP_RM_ALLOC, NV_VGPU_MSG_FUNCTION_GSP_RM_CONTROL,
    NV_VGPU_MSG_FUNCTION_GSP_SET_SYSTEM_INFO, NV_VGPU_MSG_FUNCTION_SET_PAGE_DIRECTORY,
    NV_VGPU_MSG_FUNCTION_SET_REGISTRY, NV_VGPU_MSG_FUNCTION_UNLOADING_GUEST_DRIVER,
    NV_VGPU_MSG_FUNCTION_UNSET_PAGE_DIRECTORY, NV_VGPU_MSG_FUNCTION_UPDATE_BAR_PDE, NVOS00_PARAMETERS_v03_00,
    rpc_alloc_memory_v13_01, rpc_gsp_rm_alloc_v03_00, rpc_gsp_rm_control_v03_00,
};
use gpuvmk::gsp::abi::nvidia::object::{
    FERMI_CONTEXT_SHARE_A, KEPLER_CHANNEL_GROUP_A, VOLTA_CHANNEL_GPFIFO_A,
};
use gpuvmk::gsp::abi::r535_113::control as r535;
use gpuvmk::gsp::abi::r570_144::control as r570;
use gpuvmk::gsp::abi::r570_144::object::NV_CHANNEL_ALLOC_PARAMS;
use gpuvmk::gsp::abi::table::{Control, Type};
use zerocopy::{FromZeros, IntoBytes};

use crate::gsp_queues::{Queues, sign};
use crate::input::Input;
use handles::{CHANNEL, CLIENTS, DEVICE, GROUP, SHARE, SPACE, SUBDEVICE, client, handle, words};

pub(crate) use driver::Driver;

pub(crate) const STATIC_INFO: u32 = NV_VGPU_MSG_FUNCTION_GET_GSP_STATIC_INFO;

pub(super) type MakeRecord = Box<dyn Fn(&Queues) -> Vec<u8>>;

/// Client, device and subdevice that the firmware has made for drivers that can be suspended.
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

/// The RPCs of a suspension into the memory that is named at a bus address, where the version says that in an
/// RPC.
pub(super) fn suspension(driver: Driver, meta: u64) -> Vec<MakeRecord> {
    let [client, device, _] = INTERNAL;
    let mut list = rpc_alloc_memory_v13_01::new_zeroed();
    list.hClient = client;
    list.hDevice = device;
    list.hMemory = MEMORY;
    list.hClass = NV01_MEMORY_LIST_SYSTEM;
    list.pageCount = 1;
    list.pteDesc = 1 << 16;
    let list = [list.as_bytes(), &[0; 8]].concat();
    let init = if driver.abi.resume_runs_channels {
        let mut parameters = r535::NV2080_CTRL_INTERNAL_FBSR_INIT_PARAMS::new_zeroed();
        (parameters.hClient, parameters.hSysMem) = (client, MEMORY);
        parameters.as_bytes().to_vec()
    } else {
        let mut parameters = r570::NV2080_CTRL_INTERNAL_FBSR_INIT_PARAMS::new_zeroed();
        (parameters.hClient, parameters.hSysMem) = (client, MEMORY);
        parameters.sysmemAddrOfSuspendResumeData = meta;
        parameters.as_bytes().to_vec()
    };
    let mut region = r535::NV2080_CTRL_INTERNAL_FBSR_SEND_REGION_INFO_PARAMS::new_zeroed();
    (region.hClient, region.hVidMem, region.size) = (client, MEMORY, 0x1000);
    // One number: a region to save, and channels to hold.
    let (number, held): (u32, &[u8]) = if driver.abi.resume_runs_channels {
        (r535::NV2080_CTRL_CMD_INTERNAL_FBSR_SEND_REGION_INFO, region.as_bytes())
    } else {
        (r570::NV2080_CTRL_CMD_INTERNAL_FIFO_TOGGLE_ACTIVE_CHANNEL_SCHEDULING, &[1])
    };
    let mut free = NVOS00_PARAMETERS_v03_00::new_zeroed();
    free.hRoot = client;
    free.hObjectOld = MEMORY;
    let free = free.as_bytes().to_vec();
    vec![
        internal_control(number, held),
        Box::new(move |queues| queues.record(NV_VGPU_MSG_FUNCTION_ALLOC_MEMORY, &list)),
        internal_control(NV2080_CTRL_CMD_INTERNAL_FBSR_INIT, &init),
        Box::new(move |queues| queues.record(NV_VGPU_MSG_FUNCTION_FREE, &free)),
        Box::new(|queues| {
            queues.record(NV_VGPU_MSG_FUNCTION_UNLOADING_GUEST_DRIVER, &[1, 0, 0, 0, 3, 0, 0, 0])
        }),
    ]
}

/// The RPC that lets channels run again, where GSP does not do so itself.
pub(super) fn toggles() -> Vec<MakeRecord> {
    vec![internal_control(r570::NV2080_CTRL_CMD_INTERNAL_FIFO_TOGGLE_ACTIVE_CHANNEL_SCHEDULING, &[0])]
}

/// The RPCs of a driver up to its first channels, in order: a client, a device, an address space with its
/// page directory, and three channels that are scheduled, with a copy object each.
pub(crate) fn channels(driver: Driver) -> Vec<MakeRecord> {
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
        alloc(client, client, NV01_ROOT, driver.root(client)),
        alloc(client, DEVICE, NV01_DEVICE_0, vec![0; 0x38]),
        alloc(DEVICE, SPACE, FERMI_VASPACE_A, space(&mut nothing())),
        control(DEVICE, NV0080_CTRL_CMD_DMA_SET_PAGE_DIRECTORY, directory(&mut nothing())),
    ];
    for (chid, engine) in (0u8..).zip([1, 10, 11]) {
        let handle = CHANNEL + u32::from(chid);
        records.push(alloc(DEVICE, handle, driver.channel_class(), channel_of(driver, chid, engine)));
        records.push(control(handle, NVA06F_CTRL_CMD_GPFIFO_SCHEDULE, vec![1, 0]));
        let mut object = vec![0; 0x10];
        object[0] = 1;
        object[4] = if engine == 1 { 9 } else { engine };
        records.push(alloc(handle, 0x1000 + u32::from(chid), driver.copy_class(), object));
    }
    records
}

/// A channel's parameters, all right.
fn channel_of(driver: Driver, chid: u8, engine: u8) -> Vec<u8> {
    let mut parameters = NV_CHANNEL_ALLOC_PARAMS::new_zeroed();
    parameters.common.gpFifoOffset = 0x1_1000;
    parameters.common.gpFifoEntries = 1024;
    parameters.common.flags = u32::from(chid % 8) << 8 | 1 << 21;
    parameters.common.hVASpace = SPACE;
    parameters.common.engineType = engine.into();
    parameters.common.userdMem.base = 0x10_0000 + 0x200 * u64::from(chid);
    parameters.common.userdMem.size = 0x200;
    parameters.common.userdMem.addressSpace = ADDR_FBMEM;
    driver.channel(&parameters)
}

/// A record with some RPC in it.
pub(crate) fn record(input: &mut Input<'_>, queues: &Queues, driver: Driver) -> Vec<u8> {
    let (function, mut body) = match input.below(16) {
        0 => (NV_VGPU_MSG_FUNCTION_FREE, free(input)),
        1 => (NV_VGPU_MSG_FUNCTION_UNLOADING_GUEST_DRIVER, vec![input.below(2), 0, 0, 0, 0, 0, 0, 0]),
        2 => (STATIC_INFO, vec![0; input.pick(&[0x678, 0x878, 0x888])]),
        3 => (NV_VGPU_MSG_FUNCTION_UPDATE_BAR_PDE, bar_entry(input, driver)),
        4 if input.flag() => (NV_VGPU_MSG_FUNCTION_DUP_OBJECT, duplicate(input)),
        4 if input.flag() => (NV_VGPU_MSG_FUNCTION_SET_PAGE_DIRECTORY, page_directory(input)),
        4 if input.flag() => {
            (NV_VGPU_MSG_FUNCTION_UNSET_PAGE_DIRECTORY, words([client(input), DEVICE, handle(input), 0]))
        }
        4 => (NV_VGPU_MSG_FUNCTION_ALLOC_MEMORY, memory(input)),
        5 => (
            input.pick(&[NV_VGPU_MSG_FUNCTION_GSP_SET_SYSTEM_INFO, NV_VGPU_MSG_FUNCTION_SET_REGISTRY]),
            vec![0; system_info(input)],
        ),
        6 => (NV_VGPU_MSG_FUNCTION_CONTINUATION_RECORD, large(input)),
        7 => (if input.flag() { input.u32() } else { input.u8().into() }, input.bytes(64).to_vec()),
        8..=11 => (NV_VGPU_MSG_FUNCTION_GSP_RM_CONTROL, control(input, driver)),
        _ => (NV_VGPU_MSG_FUNCTION_GSP_RM_ALLOC, alloc(input, driver)),
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
    if function == NV_VGPU_MSG_FUNCTION_GSP_RM_ALLOC && driver.abi.parameters_follow && input.below(8) != 7 {
        // The length that the record says ends before the parameters.
        record[HEADER_LENGTH..HEADER_LENGTH + 4].copy_from_slice(&0x40_u32.to_le_bytes());
        let end = (ELEMENT_HEADER + 0x40).min(record.len());
        sign(&mut record[..end]);
    }
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

/// Where a record says its length: behind the header of its element.
const ELEMENT_HEADER: usize = 0x30;
const HEADER_LENGTH: usize = ELEMENT_HEADER + 8;

/// One more name of an object.
fn duplicate(input: &mut Input<'_>) -> Vec<u8> {
    let source = input.pick(&[SPACE, GROUP, SHARE, CHANNEL]);
    let parent = if source == SHARE { GROUP } else { DEVICE };
    let usual = input.below(4) != 3;
    let (parent, source) = if usual { (parent, source) } else { (handle(input), handle(input)) };
    let name = if input.flag() { 0x2000 + u32::from(input.below(8)) } else { handle(input) };
    words([client(input), parent, name, client(input), source, 0, 0])
}

/// Where page tables are, in a message of its own.
fn page_directory(input: &mut Input<'_>) -> Vec<u8> {
    [words([client(input), DEVICE, 0, 0]), directory(input)].concat()
}

/// A body that needs more than one element, or more than one record.
fn large(input: &mut Input<'_>) -> Vec<u8> {
    vec![input.u8(); input.pick(&[0x10, 0x1000, 0x8000, 0xffb0])]
}

fn free(input: &mut Input<'_>) -> Vec<u8> {
    let mut parameters = NVOS00_PARAMETERS_v03_00::new_zeroed();
    parameters.hRoot = client(input);
    parameters.hObjectOld = handle(input);
    parameters.as_bytes().to_vec()
}

/// How much a driver tells of the host: as much as a version does, one byte less or more, or anything.
fn system_info(input: &mut Input<'_>) -> usize {
    let version = input.pick(abi::VERSIONS);
    match input.below(8) {
        5 => version.system_info - 1,
        6 => version.system_info + 1,
        7 => usize::from(input.u16() % 0x1000),
        _ => version.system_info,
    }
}

fn bar_entry(input: &mut Input<'_>, driver: Driver) -> Vec<u8> {
    let shift: u64 =
        if input.below(8) == 7 { input.u8().into() } else { driver.chip.mmu.root().shift().into() };
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

fn alloc(input: &mut Input<'_>, driver: Driver) -> Vec<u8> {
    let class = if input.below(16) == 15 { input.u32() } else { input.pick(&driver.classes()) };
    let client = client(input);
    // Mostly where it belongs.
    let usual = input.below(8) != 7;
    let (parent, object, parameters) = match class {
        NV01_ROOT => (if usual { client } else { 0 }, client, driver.root(client)),
        NV01_DEVICE_0 => (client, DEVICE, vec![0; 0x38]),
        NV20_SUBDEVICE_0 => (DEVICE, SUBDEVICE, vec![0; 4]),
        KEPLER_CHANNEL_GROUP_A => (DEVICE, GROUP, words([0, 0, input.pick(&[0, SPACE]), 1, 0])),
        FERMI_CONTEXT_SHARE_A => (GROUP, SHARE, words([input.pick(&[0, SPACE]), 0, 0])),
        VOLTA_CHANNEL_GPFIFO_A => {
            (input.pick(&[DEVICE, GROUP]), CHANNEL + u32::from(input.below(4)), channel(input, driver))
        }
        FERMI_VASPACE_A => (DEVICE, SPACE, space(input)),
        class if class == driver.channel_class() => {
            let parent = if driver.abi.parameters_follow && input.flag() { GROUP } else { DEVICE };
            (parent, CHANNEL + u32::from(input.below(4)), channel(input, driver))
        }
        _ => (CHANNEL + u32::from(input.below(4)), 0x1000 + u32::from(input.u8()), engine_object(input)),
    };
    let (parent, object) = if usual { (parent, object) } else { (handle(input), handle(input)) };
    let mut rpc = rpc_gsp_rm_alloc_v03_00::new_zeroed();
    rpc.hClient = client;
    rpc.hParent = parent;
    rpc.hObject = object;
    rpc.hClass = class;
    rpc.paramsSize = size_of_parameters(input, parameters.len());
    [rpc.as_bytes(), &parameters].concat()
}

fn size_of_parameters(input: &mut Input<'_>, right: usize) -> u32 {
    if input.below(16) == 15 { input.u32() } else { u32::try_from(right).unwrap_or(u32::MAX) }
}

fn space(input: &mut Input<'_>) -> Vec<u8> {
    let mut space = NV_VASPACE_ALLOCATION_PARAMETERS::new_zeroed();
    if input.below(4) != 3 {
        space.flags = NV_VASPACE_ALLOCATION_FLAGS::IS_EXTERNALLY_OWNED.mask();
    }
    space.as_bytes().to_vec()
}

fn engine_object(input: &mut Input<'_>) -> Vec<u8> {
    let mut parameters = vec![0; 0x10];
    parameters[0] = 1;
    parameters[4] = input.below(14);
    parameters
}

fn channel(input: &mut Input<'_>, driver: Driver) -> Vec<u8> {
    let mut parameters = NV_CHANNEL_ALLOC_PARAMS::new_zeroed();
    parameters.common.gpFifoOffset = input.near(&[0x1_1000, 1 << 39, 1 << 57]);
    parameters.common.gpFifoEntries = if input.below(8) == 7 { input.u32() } else { 1024 };
    let chid = u32::from(input.below(10));
    parameters.common.flags =
        if input.below(8) == 7 { input.u32() } else { ((chid % 8) << 8) | ((chid / 8) << 12) | (1 << 21) };
    parameters.common.hVASpace = if input.below(8) == 7 { handle(input) } else { SPACE };
    if driver.abi.parameters_follow {
        parameters.common.hContextShare = input.pick(&[0, SHARE]);
        parameters.common.hVASpace = input.pick(&[SPACE, 0]);
        parameters.common.internalFlags = input.below(4).into();
    }
    parameters.common.engineType =
        if input.below(8) == 7 { input.u32() } else { input.pick(&[1, 9, 10, 11]) };
    parameters.common.userdMem.base = input.near(&[0x10_0000, super::VRAM, 0]);
    parameters.common.userdMem.size = 0x200;
    parameters.common.userdMem.addressSpace =
        if input.below(8) == 7 { input.u8().into() } else { ADDR_FBMEM };
    driver.channel(&parameters)
}

/// A control of the version that the driver speaks, of another, or of none.
fn control(input: &mut Input<'_>, driver: Driver) -> Vec<u8> {
    let speaks = if input.below(8) == 7 { input.pick(abi::VERSIONS) } else { driver.abi };
    let known: Vec<&Control> = speaks.controls().collect();
    let (number, object, size) = match input.below(16) {
        0..=2 => (NVA06F_CTRL_CMD_GPFIFO_SCHEDULE, Type::Channel, 2),
        3 => (NV0080_CTRL_CMD_DMA_SET_PAGE_DIRECTORY, Type::Device, 0),
        15 => (input.u32(), Type::Subdevice, usize::from(input.u16() % 0x900)),
        _ => {
            let control = known[usize::from(input.u8()) % known.len()];
            (control.number, control.object, control.size)
        }
    };
    let client = client(input);
    let parameters = if number == NV0080_CTRL_CMD_DMA_SET_PAGE_DIRECTORY {
        directory(input)
    } else {
        let mut parameters = vec![0; size];
        parameters.iter_mut().take(24).for_each(|place| *place = input.u8());
        parameters
    };
    let usual = match object {
        Type::Device => DEVICE,
        Type::AddressSpace => SPACE,
        Type::Channel => CHANNEL + u32::from(input.below(4)),
        Type::ChannelGroup => GROUP,
        _ if driver.abi.internal_client != INTERNAL[0] && input.flag() => SUBDEVICE,
        _ => input.pick(&[SUBDEVICE, 0xabcd_2080]),
    };
    let object = if input.below(8) == 7 { handle(input) } else { usual };
    let mut rpc = rpc_gsp_rm_control_v03_00::new_zeroed();
    rpc.hClient = client;
    rpc.hObject = object;
    rpc.cmd = number;
    rpc.paramsSize = size_of_parameters(input, parameters.len());
    [rpc.as_bytes(), &parameters].concat()
}

fn directory(input: &mut Input<'_>) -> Vec<u8> {
    let mut parameters = NV0080_CTRL_DMA_SET_PAGE_DIRECTORY_PARAMS::new_zeroed();
    parameters.physAddress = input.near(&[0x20_0000, super::VRAM]);
    parameters.numEntries = if input.below(8) == 7 { input.u32() } else { 2 };
    parameters.hVASpace = if input.below(8) == 7 { handle(input) } else { SPACE };
    parameters.as_bytes().to_vec()
}
