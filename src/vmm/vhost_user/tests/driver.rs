//! A small driver of a back end's device.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use super::super::{BackEnd, Deadlines, back_end_function};
use crate::virtio::VirtioFunction;
use gpuvmk_pci::mapping::create_memory_file;
use gpuvmk_pci::{DmaBacking, DmaMapping, PciFunction, QueueEvents, Region, header};

const MEMORY: u64 = 1 << 20;
const BAR: Region = Region::Bar(0);
const STATUS: u64 = 20;
const REASONS: u64 = 0x1000;
const DEVICE: u64 = 0x2000;
const NOTIFY: u64 = 0x3000;
/// Entries of a ring, and where each queue's begins.
pub const ENTRIES: u16 = 16;
const RING: u64 = 0x1_0000;
/// How long a step of a back end may take in tests.
pub const LIMIT: Duration = Duration::from_millis(300);

pub struct Driver {
    pub function: VirtioFunction,
    pub memory: GuestMemoryMmap,
    pub messages: Vec<EventFd>,
    file: OwnedFd,
    asked: Vec<u16>,
}

pub fn wait(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "it does not come: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl Driver {
    /// Of a machine whose back end is there.
    pub fn new(back_end: BackEnd, messages: bool) -> Self {
        let deadlines = Deadlines::start(LIMIT).unwrap();
        let function = back_end_function(back_end, &deadlines, Duration::from_secs(5)).unwrap();
        let file = create_memory_file(c"vhost-user-test", MEMORY).unwrap();
        let seen = FileOffset::new(file.try_clone().unwrap().into(), 0);
        let size = usize::try_from(MEMORY).unwrap();
        let memory = GuestMemoryMmap::from_ranges_with_files([(GuestAddress(0), size, Some(seen))]).unwrap();
        let driver = Self { function, memory, messages: Vec::new(), file, asked: Vec::new() };
        driver.plug().with_messages(messages)
    }

    fn plug(self) -> Self {
        let backing = Some(DmaBacking { fd: self.file.try_clone().unwrap(), offset: 0 });
        let mapping = DmaMapping { iova: 0, size: MEMORY, writable: true, backing, owner: None };
        self.function.dma_map(mapping).unwrap();
        self.function.write(Region::Config, header::COMMAND, &6u16.to_le_bytes()).unwrap();
        self
    }

    fn with_messages(mut self, messages: bool) -> Self {
        if messages {
            let table = header::msix(&self.function).unwrap();
            self.messages = (0..table.vectors).map(|_| EventFd::new(EFD_NONBLOCK).unwrap()).collect();
            let events = self.messages.iter().map(|event| event.try_clone().unwrap());
            self.function.connect_messages(events.collect());
            let at = header::capability(&self.function, header::MSIX).unwrap();
            self.function.write(Region::Config, at + 2, &0x8000u16.to_le_bytes()).unwrap();
        }
        self
    }

    pub fn write(&self, offset: u64, data: &[u8]) {
        self.function.write(BAR, offset, data).unwrap();
    }

    pub fn read<const N: usize>(&self, offset: u64) -> [u8; N] {
        let mut data = [0; N];
        self.function.read(BAR, offset, &mut data).unwrap();
        data
    }

    pub fn status(&self) -> u8 {
        let [status] = self.read(STATUS);
        status
    }

    /// Why the line is asserted, which it is not any more then.
    pub fn reasons(&self) -> u8 {
        let [reasons] = self.read(REASONS);
        reasons
    }

    pub fn config<const N: usize>(&self, offset: u64) -> [u8; N] {
        self.read(DEVICE + offset)
    }

    pub fn set_config(&self, offset: u64, data: &[u8]) {
        self.write(DEVICE + offset, data);
    }

    /// Resets the device and waits until it is.
    pub fn reset(&self) {
        self.write(STATUS, &[0]);
        wait("the end of a reset", || self.status() == 0);
    }

    pub fn offered(&self) -> u64 {
        let half = |select: u32| {
            self.write(0, &select.to_le_bytes());
            u64::from(u32::from_le_bytes(self.read(4)))
        };
        half(1) << 32 | half(0)
    }

    /// What every driver does first, with that many queues; queue n has message n + 1.
    pub fn start(&mut self, features: u64, queues: u16) {
        self.set_up(features, queues, &[]);
    }

    /// The same with one queue, one register of which has another address.
    pub fn start_with(&mut self, features: u64, register: u64, address: u64) {
        self.set_up(features, 1, &[(register, address)]);
    }

    fn set_up(&mut self, features: u64, queues: u16, others: &[(u64, u64)]) {
        self.reset();
        self.asked = vec![0; queues.into()];
        for status in [1u8, 3] {
            self.write(STATUS, &[status]);
        }
        for (select, half) in (0u32..).zip(features.to_le_bytes().chunks(4)) {
            self.write(8, &select.to_le_bytes());
            self.write(12, half);
        }
        self.write(STATUS, &[0b1011]);
        assert_eq!(self.status(), 0b1011, "features are agreed");
        self.write(16, &0u16.to_le_bytes());
        for queue in 0..queues {
            let ring = RING * (u64::from(queue) + 1);
            self.memory.write_slice(&[0; 0x3000], GuestAddress(ring)).unwrap();
            self.write(22, &queue.to_le_bytes());
            self.write(24, &ENTRIES.to_le_bytes());
            self.write(26, &(queue + 1).to_le_bytes());
            for (register, part) in [(32, 0), (40, 0x1000), (48, 0x2000)] {
                self.write(register, &(ring + part).to_le_bytes());
            }
            for (register, address) in others {
                self.write(*register, &address.to_le_bytes());
            }
            self.write(28, &1u16.to_le_bytes());
        }
        self.write(STATUS, &[0b1111]);
    }

    /// Makes a request of one descriptor available, and notifies.
    pub fn ask(&mut self, queue: u16) {
        let ring = RING * (u64::from(queue) + 1);
        let asked = &mut self.asked[usize::from(queue)];
        let head = *asked % ENTRIES;
        let entry = ring + 16 * u64::from(head);
        self.memory.write_obj(0x8000u64, GuestAddress(entry)).unwrap();
        self.memory.write_obj(64u64, GuestAddress(entry + 8)).unwrap();
        self.memory.write_obj(head, GuestAddress(ring + 0x1004 + 2 * u64::from(head))).unwrap();
        *asked += 1;
        self.memory.write_obj(*asked, GuestAddress(ring + 0x1002)).unwrap();
        self.write(NOTIFY + 4 * u64::from(queue), &queue.to_le_bytes());
    }

    pub fn answered(&self, queue: u16) -> u16 {
        self.memory.read_obj(GuestAddress(RING * (u64::from(queue) + 1) + 0x2002)).unwrap()
    }
}
