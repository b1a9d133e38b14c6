//! The interface between an engine and the classes that it executes. A class sees its channel's memory, the
//! clock, and whether it has to pause.

use std::any::Any;
use std::ops::Range;

use super::control::Control;
use super::crew::Crew;
use super::not_executed::NotExecuted;
use crate::clock::Clock;
use crate::mmu::channel_memory::ChannelMemory;
use gpuvmk_chip::channel_event::MmuFault;
use gpuvmk_chip::stream::Method;

/// `ROBUST_CHANNEL_GR_EXCEPTION`: what a channel is told when the graphics engine refuses a launch, or a
/// shader or a macro did what it may not.
pub(crate) const GR_EXCEPTION: u32 = 13;

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
    /// The method is done.
    Done,
    /// The method paused, and is to be resumed.
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

/// The surroundings of a method: all that a class sees of the GPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run<'a> {
    /// Memory of the channel.
    pub(crate) memory: &'a dyn ChannelMemory,
    pub(crate) clock: Clock,
    /// Says whether long work has to pause. Work asks it between its steps.
    pub(crate) control: Control<'a>,
    /// Who helps with a grid.
    pub(crate) crew: &'a Crew,
    /// Launches that this model does not execute.
    pub(crate) not_executed: &'a NotExecuted,
}

/// What an engine is: methods, long operations, and a context that can be saved and loaded.
pub(crate) trait Model: Send + std::fmt::Debug {
    /// Executes a method.
    fn method(&mut self, run: &Run<'_>, method: Method, effects: &mut Effects) -> Result<Progress, Refusal>;

    /// Continues the operation that paused.
    fn resume(&mut self, run: &Run<'_>, effects: &mut Effects) -> Result<Progress, Refusal>;

    /// The context, as its image holds it from [`Model::image_offset`] on.
    fn save(&self) -> Vec<u8>;

    /// Restores the state from the words of a context image.
    fn load(&mut self, image: &[u8]);

    /// Bytes that [`Model::save`] gives and [`Model::load`] takes.
    fn image_size(&self) -> usize;

    /// Where in the image the context begins.
    fn image_offset(&self) -> u64;

    /// The bytes of what [`Model::save`] gives that several channels may share: what is set up once for
    /// launches.
    fn setup(&self) -> Option<Range<usize>> {
        None
    }

    /// Takes out what is under way and too large for the image, such as a grid. It is kept for the context
    /// until [`Model::load`] and [`Model::put_back`]; whoever loads an image without it has lost it.
    fn take_out(&mut self) -> Option<Box<dyn Any + Send>> {
        None
    }

    /// Gives back what was taken out, after the image of the same context was loaded.
    fn put_back(&mut self, _kept: Box<dyn Any + Send>) {}

    /// Brings the engine to its state after power-on.
    fn reset(&mut self);
}
