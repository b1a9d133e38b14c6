//! Hangs: which channel holds up others, and why. Samples come in, verdicts go out; [`penalty`] says what it
//! costs its VM.
//!
//! A GPU that cannot take work off an engine in the middle (GF100 stops between two methods, and one method
//! can copy for ever) does not report a hang. From outside one can see which channel each engine runs, how
//! far each ring was finished, and whether a channel leaves when it is asked. All times are counted in
//! samples during which the watchdog really looked: a machine that slept, or a thread that did not get its
//! processor, is no guest's hang.
//!
//! How far a ring was finished (GP_GET) stands in the guest's own memory. A guest that forges it only evades
//! the limits that protect itself. What protects others ([`Reason::Unpreemptible`]) does not look at the ring
//! of who holds an engine, only at those of who waits for it: a channel whose ring moves is served. Where a
//! driver can only guess who has an engine, nobody is asked to leave for such a one.
//!
//! Not handled: a channel that hangs without an engine. It harms no other VM, and cannot be distinguished
//! from one that waits for a semaphore.

pub mod limits;
pub mod penalty;

use std::time::Duration;

use crate::HangLimits;
use gpuvmk_chip::addr::{HostChannel, TenantId};
use gpuvmk_chip::{Engine, EngineSet};
use gpuvmk_ordered::OrderedMap;

/// Limit of the time that one sample counts for: if the sampling thread was late, it is unknown what happened
/// meanwhile.
const LONGEST_SAMPLE: Duration = Duration::from_millis(50);

/// Why a channel counts as hung.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// It did not leave its engine in time after it was asked to.
    Unpreemptible,
    /// It used its engine for longer than it may without finishing anything.
    NoProgress,
    /// It waited for a semaphore for longer than it may.
    StuckAcquire,
    /// Its engine did not come back when the channel was taken off.
    EngineSilent,
    /// An operator wanted it gone.
    Operator,
}

impl Reason {
    /// Its name in logs and in the status.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unpreemptible => "did not leave its engine",
            Self::NoProgress => "made no progress",
            Self::StuckAcquire => "waits for a semaphore that nobody releases",
            Self::EngineSilent => "its engine does not answer",
            Self::Operator => "an operator reset the VM",
        }
    }
}

/// A channel with unfinished work, as a sample sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    /// The host channel.
    pub channel: HostChannel,
    /// Number of its VM.
    pub vm: TenantId,
    /// Engines that it can use.
    pub engines: EngineSet,
    /// How far its ring was finished.
    pub gp_get: u32,
    /// Hardware may run it.
    pub admitted: bool,
}

/// A channel that must be taken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hang {
    /// The host channel.
    pub channel: HostChannel,
    /// Number of its VM.
    pub vm: TenantId,
    /// The engine that it holds, or that it would use.
    pub engine: Engine,
    /// The reason.
    pub reason: Reason,
}

/// The watchdog's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Others wait for the engine that the channel holds: it is to leave, and may come back.
    Ask(HostChannel),
    /// The channel must be destroyed.
    Hung(Hang),
}

/// State of a channel.
#[derive(Clone, Copy, Debug, Default)]
struct Watch {
    gp_get: u32,
    /// Time on engines since its ring moved.
    ran: Duration,
    /// Time without an engine since it had one, or its ring moved.
    waited: Duration,
    /// Time for which it has held an engine that others wait for.
    held: Duration,
    /// Time on an engine since it was asked to leave.
    asked: Option<Duration>,
    /// It was condemned.
    told: bool,
}

/// The watchdog over all channels.
#[derive(Debug)]
pub struct Watchdog {
    limits: HangLimits,
    watches: OrderedMap<HostChannel, Watch>,
    last: Option<Duration>,
}

impl Watchdog {
    /// One that has seen nothing.
    pub const fn new(limits: HangLimits) -> Self {
        Self { limits, watches: OrderedMap::new(), last: None }
    }

    /// The limits in force.
    pub const fn limits(&self) -> &HangLimits {
        &self.limits
    }

    /// Notes that the channel was asked to leave its engine.
    pub fn note_preemption(&mut self, channel: HostChannel) {
        let watch = self.watches.entry(channel).or_default();
        watch.asked.get_or_insert(Duration::ZERO);
    }

    /// The channel was asked to leave its engine, and is not known to have left.
    pub fn is_leaving(&self, channel: HostChannel) -> bool {
        self.watches.get(&channel).is_some_and(|watch| watch.asked.is_some())
    }

    /// The channel left its engine.
    pub fn left(&mut self, channel: HostChannel) {
        if let Some(watch) = self.watches.get_mut(&channel) {
            watch.asked = None;
            watch.held = Duration::ZERO;
        }
    }

    /// The channel is gone.
    pub fn forget(&mut self, channel: HostChannel) {
        self.watches.remove(&channel);
    }

    /// Nothing is busy: the time until the next sample counts for no channel.
    pub fn rest(&mut self) {
        self.last = None;
        self.watches.clear();
    }

    /// Takes a sample: what runs on each engine, and all channels with unfinished work.
    pub fn observe(
        &mut self,
        now: Duration,
        engines: &[(Engine, Option<HostChannel>)],
        channels: &[Watched],
    ) -> Vec<Verdict> {
        let elapsed = now.saturating_sub(self.last.unwrap_or(now)).min(LONGEST_SAMPLE);
        self.last = Some(now);
        self.watches.retain(|channel, _| channels.iter().any(|seen| seen.channel == *channel));
        let mut verdicts = Vec::new();
        let waiting: Vec<Watched> = channels.iter().copied().filter(|seen| !self.has_moved(seen)).collect();
        for seen in channels {
            let held = engines.iter().find(|(_, by)| *by == Some(seen.channel)).map(|(engine, _)| *engine);
            let wanted = held.is_some_and(|engine| wanted_by_others(engine, seen, engines, &waiting));
            let watch =
                self.watches.entry(seen.channel).or_insert(Watch { gp_get: seen.gp_get, ..Watch::default() });
            watch.count(elapsed, seen, held.is_some(), wanted);
            if watch.told {
                continue;
            }
            if let Some(reason) = watch.verdict(&self.limits) {
                watch.told = true;
                let engine = held.or_else(|| seen.engines.engines().next()).unwrap_or(Engine::Graphics);
                let Watched { channel, vm, .. } = *seen;
                verdicts.push(Verdict::Hung(Hang { channel, vm, engine, reason }));
            } else if watch.asked.is_none() && watch.held >= self.limits.hold {
                watch.asked = Some(Duration::ZERO);
                verdicts.push(Verdict::Ask(seen.channel));
            }
        }
        verdicts
    }

    /// True if a channel's ring was finished further since the last sample: whatever holds an engine, does
    /// not hold this one up.
    fn has_moved(&self, seen: &Watched) -> bool {
        self.watches.get(&seen.channel).is_some_and(|watch| watch.gp_get != seen.gp_get)
    }
}

impl Watch {
    /// Adds a sample's time to what it belongs to.
    fn count(&mut self, elapsed: Duration, seen: &Watched, runs: bool, wanted: bool) {
        if self.gp_get != seen.gp_get {
            self.gp_get = seen.gp_get;
            self.ran = Duration::ZERO;
            self.waited = Duration::ZERO;
        }
        if runs {
            self.ran = self.ran.saturating_add(elapsed);
            self.waited = Duration::ZERO;
            self.asked = self.asked.map(|asked| asked.saturating_add(elapsed));
        } else if seen.admitted {
            self.waited = self.waited.saturating_add(elapsed);
        }
        self.held = if wanted { self.held.saturating_add(elapsed) } else { Duration::ZERO };
    }

    fn verdict(&self, limits: &HangLimits) -> Option<Reason> {
        let over = |spent: Duration, limit: Option<Duration>| limit.is_some_and(|limit| spent >= limit);
        if over(self.asked.unwrap_or_default(), Some(limits.preempt)) {
            Some(Reason::Unpreemptible)
        } else if over(self.ran, limits.progress) {
            Some(Reason::NoProgress)
        } else if over(self.waited, limits.acquire) {
            Some(Reason::StuckAcquire)
        } else {
            None
        }
    }
}

/// True when a channel of another VM could use the engine, has none, and does not get on. `waiting` are those
/// that do not.
fn wanted_by_others(
    engine: Engine,
    holder: &Watched,
    engines: &[(Engine, Option<HostChannel>)],
    waiting: &[Watched],
) -> bool {
    waiting.iter().any(|other| {
        other.vm != holder.vm
            && other.admitted
            && other.engines.contains(engine.into())
            && !engines.iter().any(|(_, by)| *by == Some(other.channel))
    })
}

#[cfg(test)]
mod tests;
