//! How much was zeroed, by engine or processor, and how fast: for operators.

use std::time::{Duration, Instant};

use gpuvmk_control_client::ScrubReport;

/// The figures as they are kept.
#[derive(Debug, Default)]
pub(super) struct Account {
    figures: ScrubReport,
    /// Up to when the engine's time is counted: pieces may overlap in time.
    counted_to: Option<Instant>,
}

impl Account {
    pub(super) fn untouched(&mut self, bytes: u64) {
        add(&mut self.figures.untouched_bytes, bytes);
    }

    pub(super) fn engine(&mut self, bytes: u64, places: u64, began: Instant) {
        let now = Instant::now();
        let from = self.counted_to.map_or(began, |to| to.max(began));
        self.counted_to = Some(now);
        add(&mut self.figures.engine_bytes, bytes);
        add(&mut self.figures.engine_ns, nanos(now.saturating_duration_since(from)));
        add(&mut self.figures.checked_places, places);
    }

    pub(super) fn processor(&mut self, bytes: u64, took: Duration) {
        add(&mut self.figures.processor_bytes, bytes);
        add(&mut self.figures.processor_ns, nanos(took));
    }

    pub(super) fn failed_check(&mut self) -> u64 {
        add(&mut self.figures.failed_checks, 1);
        self.figures.failed_checks
    }

    /// How often the processor had to help out by now.
    pub(super) fn fallback(&mut self, why: String) -> u64 {
        add(&mut self.figures.fallbacks, 1);
        self.figures.fallback_reason = Some(why);
        self.figures.fallbacks
    }

    pub(super) fn report(&self, by: &'static str) -> ScrubReport {
        let ScrubReport { engine_bytes, engine_ns, .. } = self.figures;
        let rate = u128::from(engine_bytes).saturating_mul(1_000_000_000).checked_div(engine_ns.into());
        ScrubReport {
            by: by.into(),
            engine_bytes_per_second: rate.map_or(0, |rate| u64::try_from(rate).unwrap_or(u64::MAX)),
            ..self.figures.clone()
        }
    }
}

fn add(count: &mut u64, more: u64) {
    *count = count.saturating_add(more);
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
