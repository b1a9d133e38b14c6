//! The function's head: the display engine behind its lock, and what goes with it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use super::super::config::HeadConfig;
use super::super::frames::Frames;
use super::super::locked;
use crate::display::{Display, DisplayCounters, DisplayState};
use gpuvmk_chip::display::ChannelName;
use gpuvmk_display::{Mode, ModeError, Size};
use gpuvmk_gsp::DisplayEngine;
use gpuvmk_gsp::abi::values::{DisplayChannel, InstanceMemory};

/// The display engine behind its lock, which is held while the back accesses memory, as that of a window is.
#[derive(Debug)]
pub struct HeadUnit(Mutex<Display>);

impl DisplayEngine for HeadUnit {
    fn edid(&self) -> Option<Vec<u8>> {
        locked(&self.0).edid().cloned()
    }

    fn set_instance_memory(&self, memory: Option<InstanceMemory>) {
        locked(&self.0).set_instance_memory(memory);
    }

    fn instance_memory(&self) -> Option<InstanceMemory> {
        locked(&self.0).instance_memory()
    }

    fn open(&self, channel: DisplayChannel) {
        locked(&self.0).open(channel);
    }

    fn close(&self, channel: ChannelName) {
        locked(&self.0).close(channel);
    }
}

/// A head, and what it needs beside GSP.
#[derive(Debug)]
pub struct Head<B> {
    unit: Arc<HeadUnit>,
    /// The monitor.
    monitor: Mutex<HeadConfig>,
    /// It is another one since GSP has told the driver.
    replugged: AtomicBool,
    /// Weak: the thread of its frames has it for a moment, and is gone before the function lets it go.
    back: Weak<B>,
    /// The way to that thread.
    pub frames: Frames,
}

impl<B> Head<B> {
    /// A head with that display engine.
    pub fn new((monitor, display): (HeadConfig, Display), back: Weak<B>) -> Self {
        Self {
            unit: Arc::new(HeadUnit(Mutex::new(display))),
            monitor: Mutex::new(monitor),
            replugged: AtomicBool::new(false),
            back,
            frames: Frames::default(),
        }
    }

    /// A monitor that prefers another mode is plugged in, or none. False: it is that one already.
    ///
    /// # Errors
    /// No monitor prefers such a size.
    pub fn plug(&self, size: Option<Size>) -> Result<bool, ModeError> {
        let mode = size.map(Mode::new).transpose()?;
        let edid = {
            let mut monitor = locked(&self.monitor);
            if monitor.mode == mode {
                return Ok(false);
            }
            monitor.mode = mode;
            monitor.edid()
        };
        locked(&self.unit.0).set_edid(edid);
        self.replugged.store(true, Ordering::Release);
        Ok(true)
    }

    /// The mode that the monitor prefers; none: none is plugged in.
    pub fn monitor(&self) -> Option<Mode> {
        locked(&self.monitor).mode
    }

    /// Whether the driver is to be told that the monitor is another one.
    pub fn is_replugged(&self) -> bool {
        self.replugged.load(Ordering::Acquire)
    }

    /// The same, once.
    pub fn take_replugged(&self) -> bool {
        self.replugged.swap(false, Ordering::AcqRel)
    }

    /// The display engine, for firmware.
    pub fn engine(&self) -> Arc<dyn DisplayEngine> {
        Arc::clone(&self.unit) as Arc<dyn DisplayEngine>
    }

    /// The display engine, locked.
    pub fn lock(&self) -> MutexGuard<'_, Display> {
        locked(&self.unit.0)
    }

    /// The back, while the function has one.
    pub fn back(&self) -> Option<Arc<B>> {
        self.back.upgrade()
    }

    /// Function reset.
    pub fn reset(&self) {
        locked(&self.unit.0).reset();
        self.frames.tell(None);
    }

    /// What was counted.
    pub fn counters(&self) -> DisplayCounters {
        locked(&self.unit.0).counters()
    }

    /// The state to save, at a time.
    pub fn state(&self, now: u64) -> DisplayState {
        locked(&self.unit.0).state(now)
    }
}
