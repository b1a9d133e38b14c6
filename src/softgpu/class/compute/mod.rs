//! The compute class from Turing to Blackwell: launches of grids.
//!
//! A method names a QMD and has it launched. The grid runs to its end before the next method of the channel,
//! which is stronger than what hardware promises. It pauses where the engine has to, goes with its context,
//! and a channel that loses its context loses the grid.

mod ending;
mod grid;
mod launch;
mod state;
mod view;

use std::ops::Range;

use gpuvmk_chip::compute::{self, ComputeClass};
use gpuvmk_chip::gh100::methods::compute as methods;
use gpuvmk_chip::gh100::methods::compute::SEND_SIGNALING_PCAS2_B::PCAS_ACTION;
use gpuvmk_chip::gh100::methods::graphics::NV_PGRAPH_INTR;
use gpuvmk_chip::qmd::Act;

pub(super) use self::grid::Work;
use self::launch::{GR_EXCEPTION, Named};
use self::state::State;
use crate::engine::model::{Effects, Progress, Refusal, Run};

/// Number of words of the saved state: the class's, and whether a grid is under way.
pub(super) const SAVED_WORDS: usize = state::SAVED_WORDS + 1;

/// The words of the saved state that the channels of a group share.
pub(super) const SETUP: Range<usize> = state::SETUP;

/// State of the class.
#[derive(Debug, Default)]
pub(super) struct Compute {
    state: State,
    work: Option<Box<Work>>,
    /// The image said that a grid was under way, and nobody has it.
    lost: bool,
}

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signal {
    Nothing,
    Do(Act),
    NotExecuted,
}

fn signal(method: u16, data: u32) -> Option<Signal> {
    match method {
        methods::SEND_SIGNALING_PCAS_B => {
            let schedule = methods::SEND_SIGNALING_PCAS_B::SCHEDULE.is_set(data);
            Some(if schedule { Signal::Do(Act::Schedule) } else { Signal::Nothing })
        }
        methods::SEND_SIGNALING_PCAS2_B => Some(match PCAS_ACTION.get(data) {
            PCAS_ACTION::NOP | PCAS_ACTION::INVALIDATE | PCAS_ACTION::PREFETCH => Signal::Nothing,
            PCAS_ACTION::SCHEDULE | PCAS_ACTION::PREFETCH_SCHEDULE => Signal::Do(Act::Schedule),
            PCAS_ACTION::INVALIDATE_COPY_SCHEDULE | PCAS_ACTION::INVALIDATE_PREFETCH_COPY_SCHEDULE => {
                Signal::Do(Act::Copy)
            }
            PCAS_ACTION::DECREMENT_DEPENDENCE => Signal::Do(Act::CountDown),
            PCAS_ACTION::INCREMENT_DEPENDENCE => Signal::Do(Act::CountUp),
            _ => Signal::NotExecuted,
        }),
        _ => None,
    }
}

impl Compute {
    /// Executes a method of the class. `None` if it is none that matters to launches.
    pub(super) fn method(
        &mut self,
        run: &Run<'_>,
        (class, method, data): (u16, u16, u32),
        effects: &mut Effects,
    ) -> Option<Result<Progress, Refusal>> {
        if self.state.set(method, data) {
            return Some(Ok(Progress::Done));
        }
        let row = compute::of_class(class.into())?;
        if let Some(signal) = signal(method, data) {
            return Some(self.signal(run, row, signal, effects));
        }
        self.inline_word(run, row, (method, data), effects)
    }

    fn signal(
        &mut self,
        run: &Run<'_>,
        class: &'static ComputeClass,
        signal: Signal,
        effects: &mut Effects,
    ) -> Result<Progress, Refusal> {
        match signal {
            Signal::Nothing => Ok(Progress::Done),
            Signal::Do(act) => self.begin(run, class, Named { qmd: self.state.qmd(), act }, effects),
            Signal::NotExecuted => {
                run.not_executed.note(format_args!("a PCAS action of {}", class.class.name));
                let class = class.class.method_class();
                Err(Refusal::Graphics { status: NV_PGRAPH_INTR::ILLEGAL_METHOD.mask(), class })
            }
        }
    }

    /// A word of a QMD that comes in the command stream. The last one launches it.
    fn inline_word(
        &mut self,
        run: &Run<'_>,
        class: &'static ComputeClass,
        (method, data): (u16, u32),
        effects: &mut Effects,
    ) -> Option<Result<Progress, Refusal>> {
        let (address, words) = self.state.inline_qmd();
        let offset = method.checked_sub(methods::LOAD_INLINE_QMD_DATA)?;
        let index = offset / 4;
        if index >= words {
            return None;
        }
        if let Err(fault) = run.memory.write(address.saturating_add(offset.into()), &data.to_le_bytes()) {
            return Some(Err(fault.into()));
        }
        let last = index.saturating_add(1) == words;
        let named = Named { qmd: address, act: Act::Copy };
        Some(if last { self.begin(run, class, named, effects) } else { Ok(Progress::Done) })
    }

    fn begin(
        &mut self,
        run: &Run<'_>,
        class: &'static ComputeClass,
        named: Named,
        effects: &mut Effects,
    ) -> Result<Progress, Refusal> {
        self.work = Some(Box::new(Work::new(class, named)));
        self.resume(run, effects)
    }

    /// Goes on with the launch that paused.
    pub(super) fn resume(&mut self, run: &Run<'_>, effects: &mut Effects) -> Result<Progress, Refusal> {
        if std::mem::take(&mut self.lost) {
            log::warn!("A compute grid was lost: its context was loaded by somebody who does not have it");
            return Err(Refusal::Robust(GR_EXCEPTION));
        }
        let Some(work) = &mut self.work else { return Ok(Progress::Done) };
        let progress = work.go_on(run, &self.state, effects);
        if progress != Ok(Progress::Paused) {
            self.work = None;
        }
        progress
    }

    /// The state as words.
    pub(super) fn save(&self) -> impl Iterator<Item = u32> {
        self.state.save().into_iter().chain([u32::from(self.work.is_some() || self.lost)])
    }

    /// Restores the state from the words that [`Compute::save`] gave. The grid comes by
    /// [`Compute::put_back`].
    pub(super) fn load(&mut self, words: &mut impl Iterator<Item = u32>) {
        self.state.load(words);
        self.work = None;
        self.lost = words.next().unwrap_or(0) != 0;
    }

    /// Takes the grid out that is under way.
    pub(super) fn take_out(&mut self) -> Option<Box<Work>> {
        self.work.take()
    }

    /// Gives the grid back that was taken out.
    pub(super) fn put_back(&mut self, work: Box<Work>) {
        self.work = Some(work);
        self.lost = false;
    }
}
