//! When the work of an engine must pause.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::Preemption;

/// How long an engine works on the host unit's thread after the first quantum: as long as a usual timeslice.
/// What is handed over to the engine's own thread goes on with cold caches, which copies of a few MiB feel:
/// they took a tenth to a fifth longer where they were handed over after 100 us.
const HOST_UNIT_TIME: Duration = Duration::from_millis(1);

/// The thread on which an engine works.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place<'a> {
    /// The thread of a PBDMA, which other channels need. Work may stay there for a short time, counted from
    /// the first time that it asks whether to pause.
    HostUnit(&'a OnceLock<Instant>),
    /// The engine's own thread.
    Engine,
}

impl Place<'_> {
    /// True on the host unit's thread.
    pub(crate) const fn is_host_unit(self) -> bool {
        matches!(self, Self::HostUnit(_))
    }
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
    /// Whether anything but a reset makes it pause on its own thread.
    pub(crate) preemption: Preemption,
    /// The thread on which the engine works.
    pub(crate) place: Place<'a>,
}

impl Control<'_> {
    /// True when a long operation must stop here. To be asked after each quantum of some tens of
    /// microseconds, where something is left to do.
    pub(crate) fn should_pause(&self) -> bool {
        let wanted = || self.attention.load(Ordering::Acquire);
        self.aborted()
            || match self.place {
                // The channel keeps its engine, whose own thread continues the work.
                Place::HostUnit(asked_first) => wanted() || is_time_up(asked_first),
                Place::Engine => {
                    self.preemption == Preemption::Anywhere && (wanted() || Instant::now() >= self.slice_end)
                }
            }
    }

    pub(crate) fn aborted(&self) -> bool {
        self.abort.load(Ordering::Acquire)
    }
}

/// True when the host unit's thread has worked for long enough since it was asked first, which may be now.
fn is_time_up(asked_first: &OnceLock<Instant>) -> bool {
    let now = Instant::now();
    let began = *asked_first.get_or_init(|| now);
    now.saturating_duration_since(began) >= HOST_UNIT_TIME
}
