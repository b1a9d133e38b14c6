//! Engines: graphics and copy engines, each with the context of one channel resident.
//!
//! An engine belongs to one channel at a time (the FIFO model sees to that), keeps its context until another
//! one needs the engine, and then saves it to the image that the instance block names and loads the next. The
//! graphics engine's loader applies the image's patch list.

pub(crate) mod context;
pub(crate) mod unit;
mod work_time;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::Preemption;
use crate::fifo::ramfc::Method;
use crate::mmu::client::Client;
use gpuvmk_units::backend::MmuFault;

/// Why an engine did not execute a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The MMU refused an access.
    Fault(MmuFault),
    /// The graphics engine's error interrupt, with the class bound to the subchannel.
    Graphics { status: u32, class: u16 },
    /// The copy engine's firmware does not know the method, or not these bits of its data.
    Illegal,
    /// The engine's launch check failed: the robust-channel number of that error.
    Robust(u32),
    /// The engine was reset meanwhile.
    Aborted,
}

impl From<MmuFault> for Refusal {
    fn from(fault: MmuFault) -> Self {
        Self::Fault(fault)
    }
}

/// How far a method got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// All of it.
    Done,
    /// Told to pause; to be resumed.
    Paused,
}

/// What a method did beyond its own state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Effects {
    /// The driver is to be notified.
    pub(crate) interrupt: bool,
    /// A report was written, which somebody may wait for.
    pub(crate) released: bool,
}

/// When an engine must pause.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Control<'a> {
    /// The channel may have to leave.
    pub(crate) attention: &'a AtomicBool,
    /// The engine is being reset.
    pub(crate) abort: &'a AtomicBool,
    /// End of the channel's timeslice.
    pub(crate) slice_end: Instant,
    /// Whether anything but a reset makes it pause.
    pub(crate) preemption: Preemption,
}

impl Control<'_> {
    /// True when a long operation must stop here.
    pub(crate) fn should_pause(&self) -> bool {
        let wanted = || self.attention.load(Ordering::Acquire) || Instant::now() >= self.slice_end;
        self.aborted() || self.preemption == Preemption::Anywhere && wanted()
    }

    pub(crate) fn aborted(&self) -> bool {
        self.abort.load(Ordering::Acquire)
    }
}

/// The surroundings of a method.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run<'a> {
    pub(crate) client: Client<'a>,
    pub(crate) control: Control<'a>,
}

/// What an engine is: methods, long operations, and a context that can be saved and loaded.
pub(crate) trait Model: Send + std::fmt::Debug {
    /// Executes a method.
    fn method(&mut self, run: &Run<'_>, method: Method, effects: &mut Effects) -> Result<Progress, Refusal>;

    /// Goes on with the operation that paused.
    fn resume(&mut self, run: &Run<'_>, effects: &mut Effects) -> Result<Progress, Refusal>;

    /// The context, as its image holds it from [`Model::image_offset`] on.
    fn save(&self) -> Vec<u8>;

    /// Takes a context over.
    fn load(&mut self, image: &[u8]);

    /// Bytes that [`Model::save`] gives and [`Model::load`] takes.
    fn image_size(&self) -> usize;

    /// Where in the image the context begins.
    fn image_offset(&self) -> u64;

    /// As after power-on.
    fn reset(&mut self);
}
