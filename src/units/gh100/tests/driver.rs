//! A driver in a few lines: boots GSP through FSP, and sends RPCs through the queues, as nouveau does.

use std::collections::VecDeque;

use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::Gpu;
use super::fake::RAM;
use crate::chip::gh100::fsp::{
    COT_VERSION, CotMessage, FmcBootParams, MCTP_SINGLE_PACKET, NVDM_COT, TARGET_COHERENT_SYSTEM,
    TARGET_NONCOHERENT_SYSTEM, nvdm_header,
};
use crate::chip::gh100::gsp::r570_144::boot::{
    GSP_ARGUMENTS_CACHED, LIBOS_MEMORY_REGION_CONTIGUOUS, LIBOS_MEMORY_REGION_LOC_SYSMEM,
    LibosMemoryRegionInitArgument, RMARGS,
};
use crate::chip::gh100::gsp::r570_144::control::{
    NV0080_CTRL_CMD_DMA_SET_PAGE_DIRECTORY, NV0080_CTRL_DMA_SET_PAGE_DIRECTORY_PARAMS,
    NVA06F_CTRL_CMD_GPFIFO_SCHEDULE,
};
use crate::chip::gh100::gsp::r570_144::object::{
    ADDR_FBMEM, FERMI_VASPACE_A, HOPPER_CHANNEL_GPFIFO_A, NV_CHANNEL_ALLOC_PARAMS,
    NV_VASPACE_ALLOCATION_FLAGS_IS_EXTERNALLY_OWNED, NV_VASPACE_ALLOCATION_PARAMETERS, NV01_DEVICE_0,
    NV01_ROOT, NV0080_ALLOC_PARAMETERS_SIZE,
};
use crate::chip::gh100::gsp::r570_144::queue::{
    GSP_MSG_QUEUE_ELEMENT, MSGQ_FLAGS_SWAP_RX, NV_VGPU_MSG_SIGNATURE_VALID, RPC_HEADER_VERSION, checksum,
    msgqTxHeader, rpc_message_header_v03_00,
};
use crate::chip::gh100::gsp::r570_144::rpc::{
    NV_RPC_UPDATE_PDE_BAR_2, NV_VGPU_MSG_FUNCTION_FREE, NV_VGPU_MSG_FUNCTION_GSP_RM_ALLOC,
    NV_VGPU_MSG_FUNCTION_GSP_RM_CONTROL, NV_VGPU_MSG_FUNCTION_UNLOADING_GUEST_DRIVER,
    NV_VGPU_MSG_FUNCTION_UPDATE_BAR_PDE, NVOS00_PARAMETERS_v03_00, rpc_gsp_rm_alloc_v03_00,
    rpc_gsp_rm_control_v03_00, rpc_unloading_guest_driver_v1F_07, rpc_update_bar_pde_v15_00,
};

/// Where things lie in the guest's memory.
const PARAMETERS: u64 = 0x1000;
const LIBOS: u64 = 0x2000;
const RM_ARGUMENTS: u64 = 0x3000;
const SHARED: u64 = 0x1_0000;
/// Offsets in shared memory, behind its page table.
const COMMANDS: u64 = 0x1000;
const MESSAGES: u64 = 0x4_1000;
const QUEUE_SIZE: u32 = 0x4_0000;
const ELEMENTS: u32 = 63;

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

pub struct Driver<'a> {
    pub gpu: &'a Gpu,
    write: u32,
    read: u32,
    sequence: u32,
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

    /// Writes all that GSP is booted with.
    pub fn prepared(gpu: &'a Gpu) -> Self {
        let back = &gpu.back;
        let mut region = LibosMemoryRegionInitArgument::new_zeroed();
        region.id8 = RMARGS;
        region.pa = RAM + RM_ARGUMENTS;
        region.size = 0x1000;
        region.kind = LIBOS_MEMORY_REGION_CONTIGUOUS;
        region.loc = LIBOS_MEMORY_REGION_LOC_SYSMEM;
        back.put_ram(LIBOS, region.as_bytes());
        let mut arguments = GSP_ARGUMENTS_CACHED::new_zeroed();
        let queues = &mut arguments.messageQueueInitArguments;
        queues.sharedMemPhysAddr = RAM + SHARED;
        queues.pageTableEntryCount = 129;
        queues.cmdQueueOffset = COMMANDS;
        queues.statQueueOffset = MESSAGES;
        back.put_ram(RM_ARGUMENTS, arguments.as_bytes());
        for page in 0..129 {
            back.put_ram(SHARED + 8 * page, &(RAM + SHARED + 0x1000 * page).to_le_bytes());
        }
        let header = msgqTxHeader {
            version: 0,
            size: QUEUE_SIZE,
            msgSize: 0x1000,
            msgCount: ELEMENTS,
            writePtr: 0,
            flags: MSGQ_FLAGS_SWAP_RX,
            rxHdrOff: 32,
            entryOff: 0x1000,
        };
        back.put_ram(SHARED + COMMANDS, header.as_bytes());
        Self { gpu, write: 0, read: 0, sequence: 0, events: VecDeque::new() }
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
        let mut message = CotMessage::new_zeroed();
        message.headers.mctp = MCTP_SINGLE_PACKET.into();
        message.headers.nvdm = nvdm_header(NVDM_COT).into();
        message.version = COT_VERSION.into();
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
        let length = size_of::<rpc_message_header_v03_00>() + body.len();
        let mut element = GSP_MSG_QUEUE_ELEMENT::new_zeroed();
        element.seqNum = self.sequence;
        element.elemCount = 1;
        let mut header = rpc_message_header_v03_00::new_zeroed();
        header.header_version = RPC_HEADER_VERSION;
        header.signature = NV_VGPU_MSG_SIGNATURE_VALID;
        header.length = length as u32;
        header.function = function;
        header.rpc_result = u32::MAX;
        header.sequence = self.sequence;
        let mut raw = [element.as_bytes(), header.as_bytes(), body].concat();
        assert!(raw.len() <= 0x1000);
        let sum = checksum(&raw);
        raw[0x20..0x24].copy_from_slice(&sum.to_le_bytes());
        let at = SHARED + COMMANDS + 0x1000 + 0x1000 * u64::from(self.write);
        self.gpu.back.put_ram(at, &raw);
        self.write = (self.write + 1) % ELEMENTS;
        self.sequence += 1;
        self.gpu.back.put_ram(SHARED + COMMANDS + 0x10, &self.write.to_le_bytes());
    }

    pub fn ring(&self) {
        self.gpu.wr(0x11_0c00, 0);
    }

    /// The next message of GSP.
    pub fn receive(&mut self) -> Option<Message> {
        self.events.pop_front().or_else(|| self.read_queue())
    }

    fn read_queue(&mut self) -> Option<Message> {
        let mut raw = [0; 4];
        self.gpu.back.get_ram(SHARED + MESSAGES + 0x10, &mut raw);
        if u32::from_le_bytes(raw) == self.read {
            return None;
        }
        let mut element = [0; 0x1000];
        let at = SHARED + MESSAGES + 0x1000 + 0x1000 * u64::from(self.read);
        self.gpu.back.get_ram(at, &mut element);
        let (_, rest) = GSP_MSG_QUEUE_ELEMENT::read_from_prefix(&element[..]).unwrap();
        let (header, body) = rpc_message_header_v03_00::read_from_prefix(rest).unwrap();
        let size = header.length as usize - size_of::<rpc_message_header_v03_00>();
        self.read = (self.read + 1) % ELEMENTS;
        self.gpu.back.put_ram(SHARED + COMMANDS + 0x20, &self.read.to_le_bytes());
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
        space.flags = NV_VASPACE_ALLOCATION_FLAGS_IS_EXTERNALLY_OWNED;
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
        parameters.gpFifoOffset = 0x1_1000;
        parameters.gpFifoEntries = 1024;
        parameters.flags = chid_flags(chid);
        parameters.hVASpace = SPACE;
        parameters.engineType = 10;
        parameters.userdMem.base = userd;
        parameters.userdMem.size = 0x200;
        parameters.userdMem.addressSpace = ADDR_FBMEM;
        let handle = CHANNEL + u32::from(chid);
        self.alloc(DEVICE, handle, HOPPER_CHANNEL_GPFIFO_A, parameters.as_bytes());
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
