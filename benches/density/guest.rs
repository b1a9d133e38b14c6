//! A guest that does nothing but copy inside its VRAM: the same few pages again and again, so that what all
//! do together does not depend on how much of it the host's caches hold.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gpuvmk::chip::Engine;

use crate::client::Client;
use crate::daemon::{Daemon, write_vm};
use crate::remote::Remote;
use crate::tiny_driver::{Channel, RING_LOG2, Space, SystemRam, TinyDriver, pattern, system, vram};

/// A copy, how many one slot of the ring asks for, and where the two places lie between which they go.
const COPY: u64 = 64 << 10;
const TIMES: usize = 100;
const DATA: u64 = 32 << 20;
const SLOTS: u32 = 1 << RING_LOG2;
/// Virtual addresses: the channel's own memory, the data, and system memory.
const CHANNEL_VA: u64 = 0x10_0000;
const DATA_VA: u64 = 0x1000_0000;
const RAM_VA: u64 = 0x4000_0000;
/// Pages of system memory: the mark that each copy leaves, what was copied first, and what came back last.
const PAGE: u64 = 0x1000;
const WRITTEN: u64 = PAGE;
const READ: u64 = 2 * PAGE;
const RAM: u64 = 3 * PAGE;
/// Submissions that are under way.
const DEPTH: u64 = 4;
const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes that a submission of so many slots copies.
pub fn bytes(slots: u32) -> f64 {
    f64::from(slots) * COPY as f64 * TIMES as f64
}

/// A VM: its device's process and its driver.
pub struct Guest {
    pub device: Daemon,
    remote: Arc<Remote>,
    driver: TinyDriver,
    channel: Channel,
    ram: SystemRam,
    submitted: u64,
    done: u64,
    /// What its data begin with.
    written: Vec<u8>,
}

impl Guest {
    /// Starts VM `number`: a guest that has copied something, and when its device served.
    pub fn start(folder: &Path, number: usize) -> (Self, Instant) {
        let name = format!("vm{number}");
        write_vm(folder, &name, "GF100", "channels = 1");
        let device = Daemon::start(folder, &name, &["device", &format!("{name}.toml")]);
        let socket = folder.join(format!("{name}.sock"));
        let begin = Instant::now();
        let stream = loop {
            match UnixStream::connect(&socket) {
                Ok(stream) => break stream,
                Err(_) => std::thread::sleep(Duration::from_micros(500)),
            }
            assert!(begin.elapsed() < PATIENCE, "it does not serve: {}", device.said());
        };
        let mut client = Client::on(stream);
        client.negotiate();
        let served = Instant::now();
        let remote = Arc::new(Remote::of(client));
        let mut driver = TinyDriver::bring_up(remote.clone());
        let ram = driver.system_ram(0, RAM);
        let mut space: Space = driver.new_space();
        driver.map(&mut space, DATA_VA, vram(DATA), 2 * COPY);
        driver.map(&mut space, RAM_VA, system(ram.iova), RAM);
        let mut channel = driver.new_channel(&mut space, 0, Engine::COPY0, CHANNEL_VA);
        driver.set_object(&mut channel);
        let written = pattern(u8::try_from(number).unwrap(), usize::try_from(PAGE).unwrap());
        ram.memory.write(WRITTEN, &written).unwrap();
        driver.copy(&mut channel, RAM_VA + WRITTEN, DATA_VA, PAGE);
        remote.flush();
        driver.finish(&channel);
        let guest = Self { device, remote, driver, channel, ram, submitted: 0, done: 0, written };
        (guest, served)
    }

    /// Makes the ring ready, so that a submission is a doorbell and nothing else.
    pub fn prepare(&mut self) {
        while TinyDriver::next_slot(&self.channel) != 0 {
            self.driver.fence(&mut self.channel);
        }
        self.driver.finish(&self.channel);
        self.driver.prepare_copies(&self.channel, [DATA_VA, DATA_VA + COPY, COPY], TIMES, RAM_VA);
        self.remote.flush();
    }

    /// Slots that are done: the mark tells of the last, and fewer than a ring are under way.
    fn done(&mut self) -> u64 {
        let slots = u64::from(SLOTS);
        let mark = u64::from(self.ram.memory.read_u32(0).unwrap());
        self.done += (mark + slots - self.done % slots) % slots;
        self.done
    }

    /// Bytes that it has copied.
    pub fn copied(&mut self) -> u64 {
        self.done() * COPY * TIMES as u64
    }

    /// Submits what there is room for, so many slots of the ring at a time; returns how many submissions that
    /// was.
    pub fn go_on(&mut self, slots: u32) -> u64 {
        let each = u64::from(slots);
        let room = (DEPTH * each - (self.submitted - self.done())) / each;
        (0..room).for_each(|_| self.driver.submit_prepared(&mut self.channel, slots));
        self.submitted += room * each;
        self.remote.flush();
        room
    }

    /// Looks at what was copied so many times, or once by those that had nothing to do.
    pub fn check(&mut self) {
        let last = if self.submitted > 0 { DATA_VA + COPY } else { DATA_VA };
        self.driver.copy(&mut self.channel, last, RAM_VA + READ, PAGE);
        self.remote.flush();
        self.driver.finish(&self.channel);
        let mut read = vec![0; self.written.len()];
        self.ram.memory.read(READ, &mut read).unwrap();
        assert!(read == self.written, "copies went wrong: {}", self.device.said());
    }

    /// Waits until all copies are done.
    pub fn finish(&mut self) {
        self.remote.flush();
        let begin = Instant::now();
        while self.done() != self.submitted {
            assert!(begin.elapsed() < PATIENCE, "copies do not end: {}", self.device.said());
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}
