//! What GSP answers: every control that has a name, on every kind of object, while the neighbour is idle and
//! while it works.

use std::collections::BTreeSet;

use gpuvmk::backend::{Backend, GspBackend};
use gpuvmk::chip::Chip;
use gpuvmk::chip::nv::classes::HOPPER_CHANNEL_GPFIFO_A;
use gpuvmk::gsp::abi::common::classes::{FERMI_VASPACE_A, NV01_DEVICE_0, NV01_ROOT, NV20_SUBDEVICE_0};
use gpuvmk::gsp::abi::common::control::*;
use gpuvmk::gsp::abi::common::object::{
    ADDR_FBMEM, NV_VASPACE_ALLOCATION_FLAGS, NV_VASPACE_ALLOCATION_PARAMETERS, NV0080_ALLOC_PARAMETERS_SIZE,
};
use gpuvmk::gsp::abi::common::rpc::{
    NV_VGPU_MSG_FUNCTION_GET_GSP_STATIC_INFO, NV_VGPU_MSG_FUNCTION_GSP_RM_ALLOC,
    NV_VGPU_MSG_FUNCTION_GSP_RM_CONTROL, rpc_gsp_rm_alloc_v03_00, rpc_gsp_rm_control_v03_00,
};
use gpuvmk::gsp::abi::r570_144::control::*;
use gpuvmk::gsp::abi::r570_144::object::NV_CHANNEL_ALLOC_PARAMS;
use gpuvmk::gsp::abi::status::Status;
use gpuvmk::gsp::abi::values::PciIdentity;
use gpuvmk::gsp::{Gsp, GspConfig, ObjectLimits};
use gpuvmk::pci::mapping::Mapping;
use gpuvmk::vgpu::{GspChannels, Mediator};
use zerocopy::{FromZeros, IntoBytes};

use super::{Host, POLICIES};
use crate::gsp_driver::{GspDriver, RAM, Tables, VRAM_VA};
use crate::gsp_queues::{LIBOS, Queues, Ram};

const CLIENT: u32 = 0xc1d0_0000;
const DEVICE: u32 = 1;
const SUBDEVICE: u32 = 2;
const SPACE: u32 = 3;
const CHANNEL: u32 = 4;
const OBJECTS: [u32; 5] = [CLIENT, DEVICE, SUBDEVICE, SPACE, CHANNEL];
/// Controls that GSP carries out.
const KNOWN: usize = 22;
/// Bytes of the parameters of all controls that GSP carries out.
const SIZES: [usize; 16] = [
    1,
    2,
    4,
    CONSTRUCTED_FALCON_INFO_PARAMS_SIZE,
    size_of::<NV2080_CTRL_GR_GET_ZCULL_INFO_PARAMS>(),
    size_of::<NV0080_CTRL_FB_GET_COMPBIT_STORE_INFO_PARAMS>(),
    size_of::<NV0080_CTRL_DMA_SET_PAGE_DIRECTORY_PARAMS>(),
    size_of::<NV0080_CTRL_DMA_UNSET_PAGE_DIRECTORY_PARAMS>(),
    size_of::<NV90F1_CTRL_VASPACE_COPY_SERVER_RESERVED_PDES_PARAMS>(),
    size_of::<NV2080_CTRL_GPU_PROMOTE_CTX_PARAMS>(),
    size_of::<NV2080_CTRL_GPU_GET_FERMI_TPC_INFO_PARAMS>(),
    size_of::<NV2080_CTRL_EVENT_SET_NOTIFICATION_PARAMS>(),
    size_of::<NV2080_CTRL_INTERNAL_STATIC_GR_GET_CONTEXT_BUFFERS_INFO_PARAMS<CONTEXT_BUFFER_IDS>>(),
    size_of::<NV2080_CTRL_INTERNAL_INTR_GET_KERNEL_TABLE_PARAMS>(),
    size_of::<NV2080_CTRL_INTERNAL_FBSR_INIT_PARAMS>(),
    size_of::<NV2080_CTRL_FIFO_GET_DEVICE_INFO_TABLE_PARAMS>(),
];

impl Ram for Mapping {
    fn put(&self, offset: u64, data: &[u8]) {
        self.write(offset, data).unwrap();
    }

    fn get(&self, offset: u64, data: &mut [u8]) {
        self.read(offset, data).unwrap();
    }
}

/// A control, what it was sent to, and what came back.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    control: u32,
    object: u32,
    status: u32,
    parameters: Vec<u8>,
}

/// A driver that talks to GSP.
struct Caller {
    gsp: Gsp,
    driver: GspDriver<Mediator<GspChannels>>,
    queues: Queues,
}

impl Caller {
    /// Boots GSP, and makes an object of each kind that controls are sent to.
    fn new(driver: GspDriver<Mediator<GspChannels>>) -> Self {
        let back = &*driver.back;
        let config = GspConfig {
            hal: &gpuvmk::gsp::hal::GH100,
            vram: back.vram_size(),
            engines: back.engines(),
            channels: back.channels(),
            graphics: None,
            objects: ObjectLimits::default(),
            pci: PciIdentity::default(),
            uuid: [7; 16],
            has_head: false,
        };
        let mut gsp = Gsp::new(config);
        let queues = Queues::prepare(&driver.ram, RAM);
        gsp.boot(back, RAM + LIBOS).unwrap();
        queues.read_all(&driver.ram);
        let mut caller = Self { gsp, driver, queues };
        caller.alloc(0, CLIENT, NV01_ROOT, &[]);
        caller.alloc(CLIENT, DEVICE, NV01_DEVICE_0, &[0; NV0080_ALLOC_PARAMETERS_SIZE]);
        caller.alloc(DEVICE, SUBDEVICE, NV20_SUBDEVICE_0, &[]);
        let mut space = NV_VASPACE_ALLOCATION_PARAMETERS::new_zeroed();
        space.flags = NV_VASPACE_ALLOCATION_FLAGS::IS_EXTERNALLY_OWNED.mask();
        caller.alloc(DEVICE, SPACE, FERMI_VASPACE_A, space.as_bytes());
        let mut directory = NV0080_CTRL_DMA_SET_PAGE_DIRECTORY_PARAMS::new_zeroed();
        directory.physAddress = Tables::ROOT;
        directory.numEntries = 2;
        directory.hVASpace = SPACE;
        let set = caller.control(DEVICE, NV0080_CTRL_CMD_DMA_SET_PAGE_DIRECTORY, directory.as_bytes());
        assert_eq!(set.status, 0);
        let mut channel = NV_CHANNEL_ALLOC_PARAMS::new_zeroed();
        channel.common.gpFifoOffset = VRAM_VA + (8 << 20);
        channel.common.gpFifoEntries = 64;
        // A number of the driver's own choice: 0.
        channel.common.flags = 1 << 21;
        channel.common.hVASpace = SPACE;
        // Copy engine 1.
        channel.common.engineType = 10;
        channel.common.userdMem.base = 9 << 20;
        channel.common.userdMem.size = 0x200;
        channel.common.userdMem.addressSpace = ADDR_FBMEM;
        caller.alloc(DEVICE, CHANNEL, HOPPER_CHANNEL_GPFIFO_A.number, channel.as_bytes());
        caller
    }

    /// The body of the answer to an RPC.
    fn rpc(&mut self, function: u32, body: &[u8]) -> Vec<u8> {
        let record = self.queues.record(function, body);
        self.queues.push(&self.driver.ram, &record);
        self.gsp.commands(&*self.driver.back, 0);
        let answer = self.queues.take(&self.driver.ram);
        let word = |at: usize| u32::from_le_bytes(answer[at..at + 4].try_into().unwrap());
        // The length counts from 0x30 on, the body begins at 0x50; the function and its result are in
        // between.
        assert_eq!((word(0x3c), word(0x40)), (function, 0));
        answer[0x50..0x30 + word(0x38) as usize].to_vec()
    }

    fn alloc(&mut self, parent: u32, object: u32, class: u32, parameters: &[u8]) {
        let mut header = rpc_gsp_rm_alloc_v03_00::new_zeroed();
        header.hClient = CLIENT;
        header.hParent = parent;
        header.hObject = object;
        header.hClass = class;
        header.paramsSize = parameters.len() as u32;
        let answer = self.rpc(NV_VGPU_MSG_FUNCTION_GSP_RM_ALLOC, &[header.as_bytes(), parameters].concat());
        assert_eq!(answer[0x10..0x14], [0; 4], "class {class:#x}");
    }

    fn control(&mut self, object: u32, control: u32, parameters: &[u8]) -> Answer {
        let mut header = rpc_gsp_rm_control_v03_00::new_zeroed();
        header.hClient = CLIENT;
        header.hObject = object;
        header.cmd = control;
        header.paramsSize = parameters.len() as u32;
        let raw = self.rpc(NV_VGPU_MSG_FUNCTION_GSP_RM_CONTROL, &[header.as_bytes(), parameters].concat());
        let status = u32::from_le_bytes(raw[0xc..0x10].try_into().unwrap());
        Answer { control, object, status, parameters: raw[size_of_val(&header)..].to_vec() }
    }

    /// Asks for everything that has a name.
    fn ask_all(&mut self) -> Vec<Answer> {
        let static_info = self.rpc(NV_VGPU_MSG_FUNCTION_GET_GSP_STATIC_INFO, &[0; 0x678]);
        let mut answers = vec![Answer { control: 0, object: 0, status: 0, parameters: static_info }];
        let named = include_str!("../../../src/gsp/abi/controls.txt").lines();
        for line in named {
            let control = u32::from_str_radix(line.split_once(' ').unwrap().0, 16).unwrap();
            for object in OBJECTS {
                let answer = self.control(object, control, &[]);
                let known = answer.status != Status::NotSupported.code();
                answers.push(answer);
                if known {
                    answers.extend(SIZES.map(|size| self.control(object, control, &vec![0; size])));
                }
            }
        }
        answers
    }
}

/// Controls for which something was done, or could not be done for what it asked.
fn carried_out(answers: &[Answer]) -> BTreeSet<u32> {
    let not = [Status::NotSupported.code(), Status::InvalidParamStruct.code()];
    let done = answers.iter().filter(|answer| answer.control != 0 && !not.contains(&answer.status));
    done.map(|answer| answer.control).collect()
}

#[test]
fn answers_of_gsp_do_not_show_a_busy_neighbour() {
    for policy in POLICIES {
        let host = Host::new(Chip::GH100, policy);
        let mut caller = Caller::new(host.gsp_driver("watcher"));
        let first = caller.ask_all();
        assert_eq!(carried_out(&first).len(), KNOWN, "{:x?}", carried_out(&first));
        // From the second time on, what the controls themselves change is as it stays.
        let idle = caller.ask_all();

        host.beside_a_busy_neighbour(|| {
            for _ in 0..2 {
                let busy = caller.ask_all();
                let differ = idle.iter().zip(&busy).find(|(idle, busy)| idle != busy);
                assert!(differ.is_none() && idle.len() == busy.len(), "the neighbour shows: {differ:x?}");
            }
        });
    }
}
