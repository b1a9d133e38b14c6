//! The function's head: the display engine behind its lock, and what goes with it.

use std::sync::{Arc, Mutex, MutexGuard, Weak};

use super::super::frames::Frames;
use super::super::locked;
use crate::display::{Display, DisplayCounters, DisplayState};
use gpuvmk_chip::display::ChannelName;
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
    /// Weak: the thread of its frames has it for a moment, and is gone before the function lets it go.
    back: Weak<B>,
    /// The way to that thread.
    pub frames: Frames,
}

impl<B> Head<B> {
    /// A head with that display engine.
    pub fn new(display: Display, back: Weak<B>) -> Self {
        Self { unit: Arc::new(HeadUnit(Mutex::new(display))), back, frames: Frames::default() }
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
