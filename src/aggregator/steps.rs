//! How long the thread that owns the GPU was at each kind of thing without looking at anything else, as
//! operators see it.
//!
//! Times are of the clock, so they include what the host's scheduler took away. Steps that can be cut end
//! after a slice ([`super::machine::SLICE`]); a kind whose longest step is far beyond that, on a machine with
//! processors to spare, holds others up.

use gpuvmk_control_client::{StepTable, StepTimes};

/// Lengths above which steps are counted, in nanoseconds: more than a short request should wait for, twice a
/// slice, and a long time.
const OVER: [u64; 3] = [20_000, 200_000, 2_000_000];

/// A kind of the thread's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Takes the doorbells of all tenants that are awake.
    Doorbells,
    /// Takes the GPU's events.
    Events,
    /// Begins a tenant's request, and carries out what fits in a slice.
    Request,
    /// Admits a tenant, or does not.
    Hello,
    /// Begins the end of a tenant.
    Leave,
    /// Carries out an operator's order, or reports the status.
    Order,
    /// Looks at engines and decides whose turn it is.
    Schedule,
    /// Goes on with what the driver has begun.
    Driver,
    /// Goes on with long requests, resets and departures.
    Work,
    /// Sends events to tenants.
    Tell,
}

impl Step {
    const ALL: [Self; 10] = [
        Self::Doorbells,
        Self::Events,
        Self::Request,
        Self::Hello,
        Self::Leave,
        Self::Order,
        Self::Schedule,
        Self::Driver,
        Self::Work,
        Self::Tell,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Doorbells => "doorbells",
            Self::Events => "events",
            Self::Request => "request",
            Self::Hello => "hello",
            Self::Leave => "leave",
            Self::Order => "order",
            Self::Schedule => "schedule",
            Self::Driver => "driver",
            Self::Work => "work",
            Self::Tell => "tell",
        }
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Steps([StepTimes; Step::ALL.len()]);

impl Steps {
    /// Counts a step that took so many nanoseconds.
    pub fn note(&mut self, step: Step, nanos: u64) {
        let index = Step::ALL.iter().position(|other| *other == step);
        let Some(times) = index.and_then(|index| self.0.get_mut(index)) else { return };
        times.count = times.count.saturating_add(1);
        for (count, limit) in
            [&mut times.over_20us, &mut times.over_200us, &mut times.over_2ms].into_iter().zip(OVER)
        {
            *count = count.saturating_add(u64::from(nanos > limit));
        }
        times.longest_ns = times.longest_ns.max(nanos);
    }

    /// All that were taken so far.
    pub fn table(&self) -> StepTable {
        let taken = Step::ALL.iter().zip(&self.0).filter(|(_, times)| times.count > 0);
        taken.map(|(step, times)| (step.name().into(), *times)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_counted_by_kind_and_length() {
        let mut steps = Steps::default();
        OVER.into_iter().chain([2_000_001]).for_each(|nanos| steps.note(Step::Hello, nanos));
        steps.note(Step::Tell, 1);
        let hello = StepTimes { count: 4, over_20us: 3, over_200us: 2, over_2ms: 1, longest_ns: 2_000_001 };
        let tell = StepTimes { count: 1, longest_ns: 1, ..StepTimes::default() };
        assert_eq!(steps.table(), StepTable::from([("hello".into(), hello), ("tell".into(), tell)]));
    }
}
