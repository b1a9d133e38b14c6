//! A disk behind its function: a thread for each queue.
//!
//! A thread holds its queue's `work` while it carries a request out, so only what starts and stops the device
//! waits for a request; reads of registers do not.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use vm_memory::GuestMemoryMmap;
use zerocopy::IntoBytes;

use super::block::{self, Config, EVENT_IDX, FLUSH, QUEUE_SIZE, Server};
use super::disk::Disk;
use super::function::{Description, FunctionError, VirtioFunction};
use super::pci::Kind;
use super::transport::{Device, Setup, Transport};
use super::worker::{Bell, Step, Work};
use gpuvmk_jail::{self as jail, Role};

/// Most queues of a disk: each has a thread.
pub const MOST_DISK_QUEUES: u16 = 4;

/// A block device, mass storage of no certain kind.
const KIND: Kind = Kind { device: 2, class: 0x01_80_00 };

/// A queue and its thread's data.
struct Served {
    number: usize,
    transport: Arc<Transport>,
    work: Mutex<Work>,
    bell: Bell,
}

/// A disk.
struct DiskDevice {
    config: Config,
    queues: Vec<Arc<Served>>,
    threads: Vec<JoinHandle<()>>,
}

/// A function that shows `disk`, with that many queues, 1 to [`MOST_DISK_QUEUES`].
///
/// # Errors
/// The host has no threads or descriptors for it.
pub fn disk_function(disk: Disk, queues: u16) -> Result<VirtioFunction, FunctionError> {
    let queues = queues.clamp(1, MOST_DISK_QUEUES);
    let features = block::features(&disk);
    let description = Description { kind: KIND, features, queues, queue_size: QUEUE_SIZE };
    VirtioFunction::new(description, |transport| DiskDevice::new(disk, queues, transport))
}

impl DiskDevice {
    fn new(disk: Disk, queues: u16, transport: &Arc<Transport>) -> Result<Self, FunctionError> {
        let config = Config::of(&disk, queues);
        let disk = Arc::new(disk);
        let mut device = Self { config, queues: Vec::new(), threads: Vec::new() };
        for (number, kick) in transport.kicks().iter().enumerate() {
            let (work, bell) = (Work::new(Server::new(Arc::clone(&disk))), Bell::new(kick)?);
            let transport = Arc::clone(transport);
            let served = Arc::new(Served { number, transport, work: Mutex::new(work), bell });
            device.queues.push(Arc::clone(&served));
            let thread = std::thread::Builder::new().name("disk".to_owned()).spawn(move || {
                jail::enter(Role::Disk);
                served.serve();
            });
            device.threads.push(thread.map_err(FunctionError::Thread)?);
        }
        Ok(device)
    }

    fn each(&self, act: impl Fn(&mut Work)) {
        self.queues.iter().for_each(|queue| act(&mut queue.work()));
    }
}

impl Drop for DiskDevice {
    fn drop(&mut self) {
        self.queues.iter().for_each(|queue| queue.bell.end());
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                log::error!("A disk's thread ended by a panic");
            }
        }
    }
}

impl Served {
    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A kind of the thread's work.
    fn serve(&self) {
        while self.bell.wait() {
            loop {
                // Unlocked after each request: stopping the device waits for one at most.
                let step = self.work().step();
                match step {
                    Ok(Step::Idle) => break,
                    Ok(Step::Served { tell: true }) => self.transport.raise_queue(self.number),
                    Ok(Step::Served { tell: false }) => {}
                    Err(broken) => {
                        // The driver has broken the rules.
                        let broken = anyhow::format_err!("{broken}");
                        log::warn!("A disk stops until its driver resets it: {broken:#}");
                        self.transport.needs_reset();
                        break;
                    }
                }
            }
        }
    }
}

impl Device for DiskDevice {
    fn read_config(&self, offset: u64, data: &mut [u8]) {
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        let bytes = self.config.as_bytes().get(at..).unwrap_or_default();
        data.iter_mut().zip(bytes).for_each(|(place, byte)| *place = *byte);
    }

    fn write_config(&self, _offset: u64, _data: &[u8]) {}

    fn start(&self, setup: &Setup) -> Result<(), String> {
        let has = |feature: u32| setup.features >> feature & 1 != 0;
        for (queue, place) in self.queues.iter().zip(&setup.queues) {
            let started = queue.work().start(*place, has(EVENT_IDX), !has(FLUSH));
            if let Err(broken) = started {
                self.each(Work::stop);
                return Err(broken.to_string());
            }
            // Requests that were made available before get no notification.
            queue.bell.ring();
        }
        Ok(())
    }

    fn notify(&self, queue: usize) {
        if let Some(queue) = self.queues.get(queue) {
            queue.bell.ring();
        }
    }

    fn pause(&self, paused: bool) {
        self.each(|work| work.pause(paused));
        self.queues.iter().for_each(|queue| queue.bell.ring());
    }

    fn messages_changed(&self) {}

    fn stop(&self) -> bool {
        self.each(Work::stop);
        true
    }

    fn set_memory(&self, memory: GuestMemoryMmap) {
        self.each(|work| work.set_memory(memory.clone()));
    }
}
