//! A driver's half of GSP's queues: what it leaves in its memory for GSP, right by default. Unit tests and
//! fuzzers use it too.

#![allow(dead_code, reason = "each user needs a part of it")]

use gpuvmk_gsp::abi::common::boot::{
    LIBOS_MEMORY_REGION_CONTIGUOUS, LIBOS_MEMORY_REGION_LOC_SYSMEM, LibosMemoryRegionInitArgument,
    MESSAGE_QUEUE_INIT_ARGUMENTS, RMARGS,
};
use gpuvmk_gsp::abi::common::queue::{
    GSP_MSG_QUEUE_ELEMENT, MSGQ_FLAGS_SWAP_RX, NV_VGPU_MSG_SIGNATURE_VALID, RPC_HEADER_VERSION, checksum,
    msgqTxHeader, rpc_message_header_v03_00,
};
use zerocopy::{FromZeros, IntoBytes};

/// Bytes of system memory that everything lies in.
pub const RAM_BYTES: u64 = 0xa_0000;
/// Where the boot arguments are in it.
pub const LIBOS: u64 = 0x2000;
/// Places that are worth writing nonsense to.
pub const PLACES: [u64; 8] =
    [LIBOS, RM_ARGUMENTS, SHARED, COMMANDS, COMMANDS + 0x10, COMMANDS + 0x20, COMMANDS + 0x1000, MESSAGES];

const RM_ARGUMENTS: u64 = 0x3000;
const SHARED: u64 = 0x1_0000;
const PAGES: u64 = 129;
/// Both queues, in memory, behind their page table.
const COMMANDS: u64 = SHARED + 0x1000;
const MESSAGES: u64 = SHARED + 0x4_1000;
const QUEUE_SIZE: u32 = 0x4_0000;
const ELEMENTS: u32 = 63;
/// Where a queue has its writer's position, and the position of the reader of the other one.
const WRITE_POINTER: u64 = 0x10;
const READ_POINTER: u64 = 0x20;

/// System memory: by offset from its beginning.
pub trait Ram {
    fn put(&self, offset: u64, data: &[u8]);
    fn get(&self, offset: u64, data: &mut [u8]);
}

/// The queues as the driver sees them.
#[derive(Debug, Default)]
pub struct Queues {
    write: u32,
    sequence: u32,
}

impl Queues {
    /// Writes all that GSP is booted with. `base` is the memory's bus address.
    pub fn prepare(ram: &impl Ram, base: u64) -> Self {
        let mut region = LibosMemoryRegionInitArgument::new_zeroed();
        region.id8 = RMARGS;
        region.pa = base + RM_ARGUMENTS;
        region.size = 0x1000;
        region.kind = LIBOS_MEMORY_REGION_CONTIGUOUS;
        region.loc = LIBOS_MEMORY_REGION_LOC_SYSMEM;
        ram.put(LIBOS, region.as_bytes());
        let queues = MESSAGE_QUEUE_INIT_ARGUMENTS {
            sharedMemPhysAddr: base + SHARED,
            pageTableEntryCount: 129,
            pad: 0,
            cmdQueueOffset: COMMANDS - SHARED,
            statQueueOffset: MESSAGES - SHARED,
        };
        ram.put(RM_ARGUMENTS, queues.as_bytes());
        for page in 0..PAGES {
            ram.put(SHARED + 8 * page, &(base + SHARED + 0x1000 * page).to_le_bytes());
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
        ram.put(COMMANDS, header.as_bytes());
        ram.put(COMMANDS + READ_POINTER, &[0; 4]);
        Self::default()
    }

    /// An RPC as it lies in the queue, with a right checksum.
    pub fn record(&self, function: u32, body: &[u8]) -> Vec<u8> {
        let length = size_of::<rpc_message_header_v03_00>() + body.len();
        let total = size_of::<GSP_MSG_QUEUE_ELEMENT>() + length;
        let mut element = GSP_MSG_QUEUE_ELEMENT::new_zeroed();
        element.seqNum = self.sequence;
        element.elemCount = u32::try_from(total.div_ceil(0x1000)).unwrap_or(u32::MAX);
        let mut header = rpc_message_header_v03_00::new_zeroed();
        header.header_version = RPC_HEADER_VERSION;
        header.signature = NV_VGPU_MSG_SIGNATURE_VALID;
        header.length = u32::try_from(length).unwrap_or(u32::MAX);
        header.function = function;
        header.rpc_result = u32::MAX;
        header.sequence = self.sequence;
        let mut raw = [element.as_bytes(), header.as_bytes(), body].concat();
        sign(&mut raw);
        raw
    }

    /// Puts a record into the command queue.
    pub fn push(&mut self, ram: &impl Ram, record: &[u8]) {
        let mut elements = 0;
        for page in record.chunks(0x1000) {
            let at = (self.write + elements) % ELEMENTS;
            ram.put(COMMANDS + 0x1000 + 0x1000 * u64::from(at), page);
            elements += 1;
        }
        self.write = (self.write + elements) % ELEMENTS;
        self.sequence = self.sequence.wrapping_add(1);
        ram.put(COMMANDS + WRITE_POINTER, &self.write.to_le_bytes());
    }

    /// Reads all messages of GSP, so that there is room for more.
    pub fn read_all(&self, ram: &impl Ram) {
        ram.put(COMMANDS + READ_POINTER, &self.messages(ram).to_le_bytes());
    }

    /// The next page of GSP's queue, if it wrote one that was not read yet.
    pub fn take_page(&self, ram: &impl Ram) -> Option<[u8; 0x1000]> {
        let mut read = [0; 4];
        ram.get(COMMANDS + READ_POINTER, &mut read);
        let at = u32::from_le_bytes(read) % ELEMENTS;
        if at == self.messages(ram) % ELEMENTS {
            return None;
        }
        let mut page = [0; 0x1000];
        ram.get(MESSAGES + 0x1000 + 0x1000 * u64::from(at), &mut page);
        ram.put(COMMANDS + READ_POINTER, &((at + 1) % ELEMENTS).to_le_bytes());
        Some(page)
    }

    /// The messages of GSP since the last call, as they lie in its queue, pages one after another.
    pub fn take(&self, ram: &impl Ram) -> Vec<u8> {
        std::iter::from_fn(|| self.take_page(ram)).flatten().collect()
    }

    /// Where GSP writes next in its queue.
    pub fn messages(&self, ram: &impl Ram) -> u32 {
        let mut pointer = [0; 4];
        ram.get(MESSAGES + WRITE_POINTER, &mut pointer);
        u32::from_le_bytes(pointer)
    }

    /// Begins anew, as after a boot.
    pub fn restart(&mut self) {
        *self = Self::default();
    }
}

/// Makes the checksum of a record right.
pub fn sign(record: &mut [u8]) {
    if let Some(place) = record.get_mut(0x20..0x24) {
        place.fill(0);
    }
    let sum = checksum(record);
    if let Some(place) = record.get_mut(0x20..0x24) {
        place.copy_from_slice(&sum.to_le_bytes());
    }
}
