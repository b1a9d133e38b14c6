//! Engines: graphics and two copy engines, each with the context of one channel resident.
//!
//! An engine belongs to one channel at a time (the FIFO model sees to that), keeps its context until another
//! one needs the engine, and then saves it to the image that the instance block names and loads the next. The
//! graphics engine's loader applies the image's patch list.

mod clear;
pub(super) mod context;
pub(super) mod copy;
pub(super) mod graphics;
pub(super) mod hopper_copy;
pub(super) mod hopper_graphics;
mod inline;
mod layout;
mod m2mf;
mod remap;
mod report;
mod transfer;
pub(super) mod unit;
mod work_time;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::access::Client;
use super::ramfc::Method;
use crate::Preemption;
use gpuvmk_units::backend::MmuFault;

/// Why an engine did not execute a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
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
pub(super) enum Progress {
    /// All of it.
    Done,
    /// Told to pause; to be resumed.
    Paused,
}

/// What a method did beyond its own state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Effects {
    /// The driver is to be notified.
    pub(super) interrupt: bool,
    /// A report was written, which somebody may wait for.
    pub(super) released: bool,
}

/// When an engine must pause.
#[derive(Clone, Copy, Debug)]
pub(super) struct Control<'a> {
    /// The channel may have to leave.
    pub(super) attention: &'a AtomicBool,
    /// The engine is being reset.
    pub(super) abort: &'a AtomicBool,
    /// End of the channel's timeslice.
    pub(super) slice_end: Instant,
    /// Whether anything but a reset makes it pause.
    pub(super) preemption: Preemption,
}

impl Control<'_> {
    /// True when a long operation must stop here.
    pub(super) fn should_pause(&self) -> bool {
        let wanted = || self.attention.load(Ordering::Acquire) || Instant::now() >= self.slice_end;
        self.aborted() || self.preemption == Preemption::Anywhere && wanted()
    }

    pub(super) fn aborted(&self) -> bool {
        self.abort.load(Ordering::Acquire)
    }
}

/// The surroundings of a method.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run<'a> {
    pub(super) client: Client<'a>,
    pub(super) control: Control<'a>,
}

/// What an engine is: methods, long operations, and a context that can be saved and loaded.
pub(super) trait Model: Send + std::fmt::Debug {
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
