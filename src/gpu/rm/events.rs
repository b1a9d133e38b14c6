//! What the GPU reports: one descriptor that becomes readable when an engine notified, or when it is time to
//! look for channels that were stopped.
//!
//! The driver queues a record for every notification of an engine (`NV01_EVENT_OS_EVENT` on the subdevice);
//! they are drained and reported once an engine. It sends no record when it stops a channel, only writes the
//! channel's error notifier. So the notifiers are checked whenever anything is reported, and every [`LOOK`]
//! while there are channels.
#![allow(unsafe_code, reason = "the epoll wrapper lends its descriptor by number only")]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::timerfd::TimerFd;

use super::abi::Handle;
use super::abi::classes::{EventParams, NV01_EVENT_OS_EVENT};
use super::abi::flags::{EVENT_NONSTALL, NOTIFIER_CE0, NOTIFIER_GRAPHICS};
use super::device::Device;
use super::engine_table::EngineTable;
use crate::GpuError;
use gpuvmk_chip::{Engine, EngineSet};
use gpuvmk_ordered::OrderedMap;

/// How often stopped channels are looked for.
const LOOK: Duration = Duration::from_millis(20);

/// Records fetched at once: an engine that notifies faster than this loop runs must not keep it.
const MAX_RECORDS: usize = 4096;

/// The events of one GPU.
pub struct Events {
    epoll: Epoll,
    file: OwnedFd,
    timer: TimerFd,
    armed: bool,
    engines: OrderedMap<Handle, Engine>,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").field("engines", &self.engines).finish_non_exhaustive()
    }
}

impl Events {
    /// Registers for the engines of the table. The descriptor becomes readable with `wake` as well.
    ///
    /// # Errors
    /// The driver or the kernel refuses.
    pub fn new(device: &mut Device, table: &EngineTable, wake: &OwnedFd) -> Result<Self, GpuError> {
        let file = device.client.event_file()?;
        let mut engines = OrderedMap::new();
        let copies = EngineSet::COPIES
            .engines()
            .zip(&table.copy)
            .map(|(engine, number)| (engine, NOTIFIER_CE0.saturating_add(*number)));
        for (engine, index) in std::iter::once((Engine::Graphics, NOTIFIER_GRAPHICS)).chain(copies) {
            engines.insert(register(device, &file, index)?, engine);
        }
        let epoll = Epoll::new()?;
        let timer = TimerFd::new().map_err(std::io::Error::from)?;
        for fd in [file.as_raw_fd(), timer.as_raw_fd(), wake.as_raw_fd()] {
            epoll.ctl(ControlOperation::Add, fd, EpollEvent::new(EventSet::IN, 0))?;
        }
        Ok(Self { epoll, file, timer, armed: false, engines })
    }

    /// Readable when [`Self::take`] has something.
    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is owned by `self.epoll` and stays open as long as `self` is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.epoll.as_raw_fd()) }
    }

    /// Looks for stopped channels regularly, or not.
    pub fn watch(&mut self, wanted: bool) {
        if wanted == self.armed {
            return;
        }
        let done = if wanted { self.timer.reset(LOOK, Some(LOOK)) } else { self.timer.clear() };
        match done {
            Ok(()) => self.armed = wanted,
            Err(error) => log::warn!("the timer for channel errors cannot be set: {error}"),
        }
    }

    /// Engines that notified since the last call, each once.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn take(&mut self, device: &Device) -> Result<Vec<Engine>, GpuError> {
        if self.armed && self.due() {
            // The count is of no interest; it was due, so this does not wait.
            self.timer.wait().map_err(std::io::Error::from)?;
        }
        let mut notified = Vec::new();
        for _ in 0..MAX_RECORDS {
            let Some((record, more)) = device.client.next_event(self.file.as_fd())? else { break };
            if let Some(engine) = self.engines.get(&record.object)
                && !notified.contains(engine)
            {
                notified.push(*engine);
            }
            if !more {
                break;
            }
        }
        Ok(notified)
    }

    fn due(&self) -> bool {
        let fd = rustix::event::PollFd::from_borrowed_fd(
            // SAFETY: the descriptor is owned by `self.timer` and stays open as long as `self` is borrowed.
            unsafe { BorrowedFd::borrow_raw(self.timer.as_raw_fd()) },
            rustix::event::PollFlags::IN,
        );
        let now = rustix::event::Timespec::default();
        matches!(rustix::event::poll(&mut [fd], Some(&now)), Ok(ready) if ready > 0)
    }
}

fn register(device: &mut Device, file: &OwnedFd, index: u32) -> Result<Handle, GpuError> {
    let fd = u64::try_from(file.as_raw_fd()).unwrap_or(0);
    let mut params = EventParams {
        client: device.client.root(),
        source: device.subdevice,
        class: NV01_EVENT_OS_EVENT.number,
        index: index | EVENT_NONSTALL,
        fd,
    };
    Ok(device.client.alloc(device.subdevice, NV01_EVENT_OS_EVENT, &mut params)?)
}
