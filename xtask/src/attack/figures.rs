//! What the victim lost: its throughput against its fair share, and the slow end of its register reads.

use std::collections::BTreeMap;
use std::time::Instant;

use gpuvmk_lab::report::Report;
use serde_json::Value;

/// What the victim did in a quarter of a second.
#[derive(Debug, Clone)]
pub struct Tick {
    /// When the host heard of it.
    pub at: Instant,
    copies: u64,
    micros: u64,
    reads: Vec<(u32, u64)>,
}

impl Tick {
    /// One in which nothing was done.
    #[cfg(test)]
    pub fn at(at: Instant) -> Self {
        Self { at, copies: 0, micros: 0, reads: Vec::new() }
    }

    /// Reads the victim's event.
    pub fn of(report: &Report, at: Instant) -> Option<Self> {
        let Report::Event { name, fields } = report else { return None };
        let number = |name: &str| fields.get(name).and_then(Value::as_u64);
        let pair = |pair: &Value| Some((u32::try_from(pair.get(0)?.as_u64()?).ok()?, pair.get(1)?.as_u64()?));
        let reads = fields.get("reads")?.as_array()?.iter().filter_map(pair).collect();
        (name == "tick").then_some(Self { at, copies: number("copies")?, micros: number("us")?, reads })
    }
}

/// What the victim did over some time.
#[derive(Debug, Clone, Default)]
pub struct Work {
    copies: u64,
    micros: u64,
    reads: BTreeMap<u32, u64>,
}

impl Work {
    /// All of these ticks together.
    pub fn of<'a>(ticks: impl Iterator<Item = &'a Tick>) -> Self {
        let mut work = Self::default();
        ticks.for_each(|tick| work.add(tick));
        work
    }

    fn add(&mut self, tick: &Tick) {
        self.copies += tick.copies;
        self.micros += tick.micros;
        for (bucket, count) in &tick.reads {
            *self.reads.entry(*bucket).or_default() += count;
        }
    }

    /// This and `other` together.
    pub fn and(mut self, other: &Self) -> Self {
        self.copies += other.copies;
        self.micros += other.micros;
        for (bucket, count) in &other.reads {
            *self.reads.entry(*bucket).or_default() += count;
        }
        self
    }

    /// Copies a second.
    pub fn rate(&self) -> Option<f64> {
        // CAST: both far below 2^53.
        (self.micros > 0).then(|| self.copies as f64 * 1e6 / self.micros as f64)
    }

    /// The time in microseconds below which 99 of 100 register reads were.
    pub fn p99(&self) -> Option<f64> {
        let all: u64 = self.reads.values().sum();
        let mut below = 0;
        self.reads.iter().find_map(|(bucket, count)| {
            below += count;
            (below * 100 >= all * 99).then(|| micros(*bucket))
        })
    }
}

/// The least time of a bucket in microseconds. The victim has eight equally wide ones for each doubling of
/// nanoseconds.
fn micros(bucket: u32) -> f64 {
    f64::from(bucket / 8).exp2() * (1.0 + f64::from(bucket % 8) / 8.0) / 1e3
}

/// The part of its undisturbed throughput that is the victim's by right.
///
/// Both figures are fractions of the time in which a VM had work that was not done, by the scheduler's
/// account. Half of the time belongs to each VM that wants it; what one does not want, the other may have. A
/// victim that wants the GPU for `victim` of the time when it is alone has a right to what the attacker
/// leaves, and to half at least.
pub fn fair_share(victim: f64, attacker: f64) -> f64 {
    let mine = (1.0 - attacker).max(0.5);
    if victim <= mine { 1.0 } else { mine / victim }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tick(copies: u64, micros: u64, reads: &[(u32, u64)]) -> Tick {
        Tick { at: Instant::now(), copies, micros, reads: reads.to_vec() }
    }

    fn about(found: f64, wanted: f64) -> bool {
        (found - wanted).abs() < 1e-9
    }

    #[test]
    fn rate_is_over_all_ticks() {
        let work = Work::of([tick(10, 250_000, &[]), tick(30, 750_000, &[])].iter());
        assert!(about(work.rate().unwrap(), 40.0));
        assert!(Work::default().rate().is_none() && Work::default().p99().is_none());
    }

    #[test]
    fn slow_end_is_the_bucket_of_the_99th_of_a_hundred() {
        let mut work = Work::of([tick(1, 1, &[(40, 98), (48, 1), (80, 1)])].iter());
        assert!(about(work.p99().unwrap(), 0.064));
        work.add(&tick(1, 1, &[(81, 10)]));
        assert!(about(work.p99().unwrap(), 1.152));
    }

    #[test]
    fn half_is_the_least_that_a_victim_has_a_right_to() {
        assert!(about(fair_share(1.0, 0.0), 1.0));
        assert!(about(fair_share(1.0, 1.0), 0.5));
        assert!(about(fair_share(0.8, 1.0), 0.625));
        assert!(about(fair_share(0.3, 1.0), 1.0), "it wants no more than its half");
        assert!(about(fair_share(1.0, 0.2), 0.8));
    }

    #[test]
    fn tick_is_read_from_the_victims_event_only() {
        let line = r#"GPUVMK-JSON {"event":"tick","copies":3,"us":250000,"reads":[[40,7],[41,1]]}"#;
        let tick = Tick::of(&Report::parse(line).unwrap(), Instant::now()).unwrap();
        assert_eq!((tick.copies, tick.micros, tick.reads), (3, 250_000, vec![(40, 7), (41, 1)]));
        let other = Report::parse(r#"GPUVMK-JSON {"event":"boot","reads":[]}"#).unwrap();
        assert!(Tick::of(&other, Instant::now()).is_none());
    }
}
