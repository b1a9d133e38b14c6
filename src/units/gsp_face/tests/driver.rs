//! A driver in a few lines: boots GSP through FSP, and sends RPCs through the queues, as nouveau does.

use super::RAM;
use std::collections::VecDeque;

use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::Gpu;
use super::gsp_queues::{LIBOS, Queues, Ram};
use crate::gsp_face::hal::Boot;
use gpuvmk_backend::testing::FakeGspBack;
use gpuvmk_chip::gsp::fsp::{
    CotMessage, FmcBootParams, MCTP_SINGLE_PACKET, NVDM_COT, TARGET_COHERENT_SYSTEM,
    TARGET_NONCOHERENT_SYSTEM, nvdm_header,
};
use gpuvmk_gsp::abi::common::classes::{FERMI_VASPACE_A, NV01_DEVICE_0, NV01_ROOT};
use gpuvmk_gsp::abi::common::control::{
    NV0080_CTRL_CMD_DMA_SET_PAGE_DIRECTORY, NV0080_CTRL_DMA_SET_PAGE_DIRECTORY_PARAMS,
    NVA06F_CTRL_CMD_GPFIFO_SCHEDULE,
};
use gpuvmk_gsp::abi::common::object::{
    ADDR_FBMEM, NV_VASPACE_ALLOCATION_FLAGS, NV_VASPACE_ALLOCATION_PARAMETERS, NV0080_ALLOC_PARAMETERS_SIZE,
};
use gpuvmk_gsp::abi::common::queue::{GSP_MSG_QUEUE_ELEMENT, rpc_message_header_v03_00};
use gpuvmk_gsp::abi::common::rpc::{
    NV_RPC_UPDATE_PDE_BAR_2, NV_VGPU_MSG_FUNCTION_FREE, NV_VGPU_MSG_FUNCTION_GSP_RM_ALLOC,
    NV_VGPU_MSG_FUNCTION_GSP_RM_CONTROL, NV_VGPU_MSG_FUNCTION_GSP_SET_SYSTEM_INFO,
    NV_VGPU_MSG_FUNCTION_UNLOADING_GUEST_DRIVER, NV_VGPU_MSG_FUNCTION_UPDATE_BAR_PDE,
    NVOS00_PARAMETERS_v03_00, rpc_gsp_rm_alloc_v03_00, rpc_gsp_rm_control_v03_00,
    rpc_unloading_guest_driver_v1F_07, rpc_update_bar_pde_v15_00,
};
use gpuvmk_gsp::abi::r550_163::SYSTEM_INFO;
use gpuvmk_gsp::abi::r570_144::object::NV_CHANNEL_ALLOC_PARAMS;

/// Where FSP's parameters lie in the guest's memory, beside what GSP is booted with.
const PARAMETERS: u64 = 0x1000;

/// Handles.
pub const CLIENT: u32 = 0xc1d0_0000;
const DEVICE: u32 = 0xde1d_0000;
const SPACE: u32 = 0x90f1_0000;
pub const CHANNEL: u32 = 0xf1f0_0000;
/// Where the channels' page directory is said to be.
pub const DIRECTORY: u64 = 0x20_0000;

/// A message of GSP.
#[derive(Debug, PartialEq, Eq)]
pub struct Message {
    pub function: u32,
    pub result: u32,
    pub body: Vec<u8>,
}

impl Ram for FakeGspBack {
    fn put(&self, offset: u64, data: &[u8]) {
        self.put_ram(offset, data);
    }

    fn get(&self, offset: u64, data: &mut [u8]) {
        data.copy_from_slice(&self.ram(offset, data.len()));
    }
}

pub struct Driver<'a> {
    pub gpu: &'a Gpu,
    queues: Queues,
    /// Events that came before an answer.
    events: VecDeque<Message>,
}

impl<'a> Driver<'a> {
    /// Writes all that GSP is booted with, and boots it.
    pub fn booted(gpu: &'a Gpu) -> Self {
        let mut driver = Self::prepared(gpu);
        assert_eq!(driver.boot(RAM + LIBOS), 0);
        assert_eq!(driver.receive().map(|message| message.function), Some(0x1001));
        driver
    }

    /// The same driver of another function.
    pub fn moved(self, gpu: &Gpu) -> Driver<'_> {
        let Self { queues, events, .. } = self;
        Driver { gpu, queues, events }
    }

    /// Writes all that GSP is booted with.
    pub fn prepared(gpu: &'a Gpu) -> Self {
        let queues = Queues::prepare(gpu.back.as_ref(), RAM);
        Self { gpu, queues, events: VecDeque::new() }
    }

    /// Asks FSP to boot GSP with arguments at a bus address (0 to resume): FSP's error code.
    pub fn boot(&self, libos: u64) -> u32 {
        let mut parameters = FmcBootParams::new_zeroed();
        parameters.rm_boot_target = TARGET_COHERENT_SYSTEM.into();
        parameters.is_rm_boot = 1.into();
        parameters.rm_target = TARGET_NONCOHERENT_SYSTEM.into();
        parameters.rm_arguments = libos.into();
        self.gpu.back.put_ram(PARAMETERS, parameters.as_bytes());
        self.send_fsp(RAM + PARAMETERS);
        let answer = self.fsp_answer();
        assert_eq!(answer[..4], [0xc000_0000, 0x1510_de7e, 0, 0x14]);
        answer[4]
    }

    /// Sends FSP the boot message.
    pub fn send_fsp(&self, parameters: u64) {
        let Boot::Fsp(boot) = self.gpu.function.hal().boot else { panic!("this chip has no FSP") };
        self.send_fsp_version(parameters, boot.message_version);
    }

    /// Sends FSP a boot message of some version.
    pub fn send_fsp_version(&self, parameters: u64, version: u16) {
        let mut message = CotMessage::new_zeroed();
        message.headers.mctp = MCTP_SINGLE_PACKET.into();
        message.headers.nvdm = nvdm_header(NVDM_COT).into();
        message.version = version.into();
        message.size = 860.into();
        message.boot_params = parameters.into();
        assert_eq!(self.gpu.rd(0x8f_2c00), self.gpu.rd(0x8f_2c04));
        for (at, chunk) in (0u32..).step_by(256).zip(message.as_bytes().chunks(256)) {
            self.gpu.wr(0x8f_2ac0, 1 << 24 | at);
            for word in chunk.chunks_exact(4) {
                self.gpu.wr(0x8f_2ac4, u32::from_le_bytes(word.try_into().unwrap()));
            }
        }
        self.gpu.wr(0x8f_2c04, 864);
        self.gpu.wr(0x8f_2c00, 0);
    }

    /// FSP's answer, acknowledged.
    pub fn fsp_answer(&self) -> Vec<u32> {
        let (head, tail) = (self.gpu.rd(0x8f_2c80), self.gpu.rd(0x8f_2c84));
        assert_eq!(tail - head + 4, 20);
        self.gpu.wr(0x8f_2ac0, 1 << 25);
        let answer = (0..5).map(|_| self.gpu.rd(0x8f_2ac4)).collect();
        self.gpu.wr(0x8f_2c84, 0);
        self.gpu.wr(0x8f_2c80, 0);
        answer
    }

    /// Puts an RPC into the command queue without ringing.
    pub fn push(&mut self, function: u32, body: &[u8]) {
        let record = self.queues.record(function, body);
        self.queues.push(self.gpu.back.as_ref(), &record);
    }

    pub fn ring(&self) {
        self.gpu.wr(self.gpu.function.hal().processor.commands.0, 0);
    }

    /// The next message of GSP.
    pub fn receive(&mut self) -> Option<Message> {
        self.events.pop_front().or_else(|| self.read_queue())
    }

    fn read_queue(&mut self) -> Option<Message> {
        let element = self.queues.take_page(self.gpu.back.as_ref())?;
        let (_, rest) = GSP_MSG_QUEUE_ELEMENT::read_from_prefix(&element[..]).unwrap();
        let (header, body) = rpc_message_header_v03_00::read_from_prefix(rest).unwrap();
        let size = header.length as usize - size_of::<rpc_message_header_v03_00>();
        Some(Message { function: header.function, result: header.rpc_result, body: body[..size].to_vec() })
    }

    /// An RPC and its answer, which must be a good one.
    pub fn rpc(&mut self, function: u32, body: &[u8]) -> Vec<u8> {
        self.push(function, body);
        self.ring();
        loop {
            let message = self.read_queue().unwrap();
            if message.function == function {
                assert_eq!(message.result, 0);
                return message.body;
            }
            self.events.push_back(message);
        }
    }

    fn alloc(&mut self, parent: u32, object: u32, class: u32, parameters: &[u8]) {
        let mut header = rpc_gsp_rm_alloc_v03_00::new_zeroed();
        header.hClient = CLIENT;
        header.hParent = parent;
        header.hObject = object;
        header.hClass = class;
        header.paramsSize = parameters.len() as u32;
        let answer = self.rpc(NV_VGPU_MSG_FUNCTION_GSP_RM_ALLOC, &[header.as_bytes(), parameters].concat());
        let (header, _) = rpc_gsp_rm_alloc_v03_00::read_from_prefix(&answer).unwrap();
        assert_eq!(header.status, 0, "class {class:#x}");
    }

    fn control(&mut self, object: u32, command: u32, parameters: &[u8]) {
        let mut header = rpc_gsp_rm_control_v03_00::new_zeroed();
        header.hClient = CLIENT;
        header.hObject = object;
        header.cmd = command;
        header.paramsSize = parameters.len() as u32;
        let answer = self.rpc(NV_VGPU_MSG_FUNCTION_GSP_RM_CONTROL, &[header.as_bytes(), parameters].concat());
        let (header, _) = rpc_gsp_rm_control_v03_00::read_from_prefix(&answer).unwrap();
        assert_eq!(header.status, 0, "control {command:#x}");
    }

    /// A client with a device and an address space.
    pub fn open(&mut self) {
        self.alloc(0, CLIENT, NV01_ROOT, &[]);
        self.alloc(CLIENT, DEVICE, NV01_DEVICE_0, &[0; NV0080_ALLOC_PARAMETERS_SIZE]);
        let mut space = NV_VASPACE_ALLOCATION_PARAMETERS::new_zeroed();
        space.flags = NV_VASPACE_ALLOCATION_FLAGS::IS_EXTERNALLY_OWNED.mask();
        self.alloc(DEVICE, SPACE, FERMI_VASPACE_A, space.as_bytes());
        let mut directory = NV0080_CTRL_DMA_SET_PAGE_DIRECTORY_PARAMS::new_zeroed();
        directory.physAddress = DIRECTORY;
        directory.numEntries = 2;
        directory.hVASpace = SPACE;
        self.control(DEVICE, NV0080_CTRL_CMD_DMA_SET_PAGE_DIRECTORY, directory.as_bytes());
    }

    /// A scheduled copy channel on runlist 1.
    pub fn channel(&mut self, chid: u16, userd: u64) {
        let mut parameters = NV_CHANNEL_ALLOC_PARAMS::new_zeroed();
        parameters.common.gpFifoOffset = 0x1_1000;
        parameters.common.gpFifoEntries = 1024;
        parameters.common.flags = chid_flags(chid);
        parameters.common.hVASpace = SPACE;
        parameters.common.engineType = 10;
        parameters.common.userdMem.base = userd;
        parameters.common.userdMem.size = 0x200;
        parameters.common.userdMem.addressSpace = ADDR_FBMEM;
        let handle = CHANNEL + u32::from(chid);
        // A chip that there is not has Hopper's classes.
        let chip = self.gpu.function.hal().gsp.chip;
        self.alloc(DEVICE, handle, chip.classes.channel.number, parameters.as_bytes());
        self.control(handle, NVA06F_CTRL_CMD_GPFIFO_SCHEDULE, &[1, 0]);
    }

    /// From now on, speaks as NVIDIA's own driver does.
    pub fn speak_nvidia(&mut self) {
        self.push(NV_VGPU_MSG_FUNCTION_GSP_SET_SYSTEM_INFO, &[0; SYSTEM_INFO]);
        self.ring();
    }

    /// The same as [`Self::channel`], marked as the driver's kernel's.
    pub fn kernel_channel(&mut self, chid: u16, userd: u64, ring: u64) {
        let mut parameters = gpuvmk_gsp::abi::common::object::NV_CHANNEL_ALLOC_PARAMS::new_zeroed();
        parameters.gpFifoOffset = ring;
        parameters.gpFifoEntries = 16;
        parameters.flags = chid_flags(chid);
        parameters.hVASpace = SPACE;
        parameters.engineType = 10;
        parameters.userdMem.base = userd;
        parameters.userdMem.size = 0x200;
        parameters.userdMem.addressSpace = ADDR_FBMEM;
        parameters.internalFlags = 2;
        let handle = CHANNEL + u32::from(chid);
        let class = self.gpu.function.hal().gsp.chip.classes.channel.number;
        self.alloc(DEVICE, handle, class, parameters.as_bytes());
        self.control(handle, NVA06F_CTRL_CMD_GPFIFO_SCHEDULE, &[1, 0]);
    }

    pub fn free(&mut self, handle: u32) {
        let mut parameters = NVOS00_PARAMETERS_v03_00::new_zeroed();
        parameters.hRoot = CLIENT;
        parameters.hObjectOld = handle;
        self.rpc(NV_VGPU_MSG_FUNCTION_FREE, parameters.as_bytes());
    }

    /// Tells GSP the entry of BAR2's root.
    pub fn set_bar2(&mut self, entry: u64) {
        let mut update = rpc_update_bar_pde_v15_00::new_zeroed();
        update.barType = NV_RPC_UPDATE_PDE_BAR_2;
        update.entryValue = entry;
        update.entryLevelShift = 56;
        self.rpc(NV_VGPU_MSG_FUNCTION_UPDATE_BAR_PDE, update.as_bytes());
    }

    pub fn unload(&mut self, suspend: bool) {
        let mut parameters = rpc_unloading_guest_driver_v1F_07::new_zeroed();
        parameters.bInPMTransition = u8::from(suspend);
        self.rpc(NV_VGPU_MSG_FUNCTION_UNLOADING_GUEST_DRIVER, parameters.as_bytes());
    }
}

/// The flags that fix a channel number: eight channels to a USERD page.
fn chid_flags(chid: u16) -> u32 {
    let chid = u32::from(chid);
    (chid % 8) << 8 | (chid / 8) << 12 | 1 << 21
}
