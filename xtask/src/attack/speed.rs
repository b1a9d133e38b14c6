//! What the victim lost of its speed, by one measurement or by several.
//!
//! On a machine with few processors a victim's speed varies by a third from second to second. An attack whose
//! first measurement misses is therefore measured five times, and if their medians miss as well, eleven
//! times; then the median of each figure counts. A single slow second does not fail it, and a loss that is
//! there each time does. Only at those two numbers is it looked at: to stop as soon as it is well would be to
//! choose.

use std::time::{Duration, Instant};

use super::figures::{Tick, Work, fair_share};

/// The least of its fair share that the victim must keep.
const THROUGHPUT: f64 = 0.95;
/// How much slower the slow end of the victim's register reads may become.
const SLOWER: f64 = 2.0;
/// How long the victim may stand still.
const STANDSTILL: Duration = Duration::from_secs(2);
/// How often an attack is measured whose first measurement misses, and one whose medians of so many miss.
const MORE: usize = 5;
const MOST: usize = 11;

/// The victim while nobody attacks.
#[derive(Debug, Clone)]
pub struct Undisturbed {
    /// What it did.
    pub work: Work,
    /// The part of the time in which it had work for the GPU.
    pub wanting: f64,
}

impl Undisturbed {
    /// The times before and after an attack together: so a load that comes or goes meanwhile is halved.
    pub fn and(self, after: &Self) -> Self {
        Self { work: self.work.and(&after.work), wanting: (self.wanting + after.wanting) / 2.0 }
    }
}

/// The victim's speed under an attack, against its undisturbed one.
#[derive(Debug, Clone, Copy)]
pub struct Speed {
    /// Its throughput, divided by the undisturbed one and by `fair_share`.
    pub throughput: Option<f64>,
    /// The 99th percentile of its register reads, divided by the undisturbed one.
    pub p99: Option<f64>,
    /// The part of its undisturbed throughput that is its by right.
    pub fair_share: f64,
    /// The longest time in which it said nothing.
    pub pause: Duration,
}

impl Speed {
    /// What `ticks` say, all of an attack that lasted from `time.0` to `time.1`; the other VMs wanted the GPU
    /// for the part `others_wanted` of that time.
    pub fn of(
        ticks: &[Tick],
        time: (Instant, Instant),
        undisturbed: &Undisturbed,
        others_wanted: f64,
    ) -> Self {
        let work = Work::of(ticks.iter());
        let share = fair_share(undisturbed.wanting, others_wanted);
        let ratio = |now: Option<f64>, then: Option<f64>| Some(now? / then.filter(|then| *then > 0.0)?);
        Self {
            throughput: ratio(work.rate(), undisturbed.work.rate()).map(|ratio| ratio / share),
            p99: ratio(work.p99(), undisturbed.work.p99()),
            fair_share: share,
            pause: longest_pause(time, ticks),
        }
    }

    /// In what the victim is too slow. Under an attack that hangs the engine only standing still counts.
    pub fn misses(&self, hang: bool) -> Vec<String> {
        let mut misses = Vec::new();
        match self.throughput {
            Some(ratio) if ratio >= THROUGHPUT || hang => {}
            Some(ratio) => {
                misses.push(format!("the victim had {ratio:.3} of its fair share of {:.3}", self.fair_share));
            }
            None => misses.push("the victim did nothing".into()),
        }
        if let Some(ratio) = self.p99.filter(|ratio| *ratio > SLOWER) {
            misses.push(format!("the victim's register reads took {ratio:.2} times as long at the slow end"));
        }
        if self.pause > STANDSTILL {
            misses.push(format!("the victim stood still for {:.1?}", self.pause));
        }
        misses
    }
}

/// The measurements of one attack.
#[derive(Debug, Clone, Default)]
pub struct Speeds(Vec<Speed>);

impl Speeds {
    /// One measurement.
    pub fn of(speed: Speed) -> Self {
        Self(vec![speed])
    }

    /// These and `more`.
    pub fn and(mut self, more: Self) -> Self {
        self.0.extend(more.0);
        self
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Whether one more is to be made: those at which it was looked so far missed, and there are not enough
    /// for the next look.
    pub fn ask_for_more(&self, hang: bool) -> bool {
        let missed = |count: usize| {
            self.0.get(..count).is_some_and(|part| !Self(part.to_vec()).misses(hang).is_empty())
        };
        match self.0.len() {
            0 => false,
            1..MORE => missed(1),
            MORE..MOST => missed(1) && missed(MORE),
            _ => false,
        }
    }

    /// The median of each figure; `None` if nothing was measured.
    pub fn median(&self) -> Option<Speed> {
        let numbers = |figure: fn(&Speed) -> Option<f64>| {
            // A victim that did nothing is slower than any.
            median(self.0.iter().map(|speed| figure(speed).unwrap_or(0.0)).collect())
                .filter(|ratio| *ratio > 0.0)
        };
        let pause = median(self.0.iter().map(|speed| speed.pause.as_secs_f64()).collect())?;
        Some(Speed {
            throughput: numbers(|speed| speed.throughput),
            p99: numbers(|speed| speed.p99),
            fair_share: median(self.0.iter().map(|speed| speed.fair_share).collect())?,
            pause: Duration::try_from_secs_f64(pause).unwrap_or_default(),
        })
    }

    /// In what the victim is too slow by the median.
    pub fn misses(&self, hang: bool) -> Vec<String> {
        self.median().map_or_else(Vec::new, |median| median.misses(hang))
    }
}

/// The one in the middle, the lower of two.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len().checked_sub(1)? / 2).copied()
}

/// The longest time in which the victim said nothing.
fn longest_pause((start, end): (Instant, Instant), ticks: &[Tick]) -> Duration {
    let inner = ticks.iter().map(|tick| tick.at).filter(|at| *at <= end);
    let times: Vec<_> = std::iter::once(start).chain(inner).chain([end]).collect();
    let pause = |pair: &[Instant]| match pair {
        [before, after] => after.saturating_duration_since(*before),
        _ => Duration::ZERO,
    };
    times.windows(2).map(pause).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speed(throughput: f64, p99: f64) -> Speed {
        Speed { throughput: Some(throughput), p99: Some(p99), fair_share: 1.0, pause: Duration::ZERO }
    }

    fn speeds(all: &[f64]) -> Speeds {
        Speeds(all.iter().map(|ratio| speed(*ratio, 1.0)).collect())
    }

    #[test]
    fn only_a_miss_asks_for_more_and_only_at_five_and_eleven_it_is_looked_again() {
        assert!(!speeds(&[0.95]).ask_for_more(false));
        assert!(speeds(&[0.94]).ask_for_more(false) && !speeds(&[0.94]).ask_for_more(true));
        assert!(speeds(&[0.5, 2.0, 2.0, 2.0]).ask_for_more(false));
        assert!(!speeds(&[0.5, 2.0, 2.0, 2.0, 2.0]).ask_for_more(false));
        assert!(!Speeds::default().ask_for_more(false));
        // Five that miss ask for eleven, even if six of them would do.
        let mut many = vec![0.5, 0.5, 0.5, 2.0, 2.0];
        while many.len() < 11 {
            assert!(speeds(&many).ask_for_more(false), "{many:?}");
            many.push(2.0);
        }
        assert!(!speeds(&many).ask_for_more(false) && speeds(&many).misses(false).is_empty());
    }

    #[test]
    fn loss_in_most_measurements_is_a_miss_and_one_in_few_is_none() {
        assert!(speeds(&[0.5, 0.6, 1.1, 1.2, 1.0]).misses(false).is_empty());
        let misses = speeds(&[0.5, 0.6, 1.1, 0.7, 1.0]).misses(false);
        assert!(matches!(misses.as_slice(), [miss] if miss.contains("0.700")), "{misses:?}");
    }

    #[test]
    fn slow_reads_and_standing_still_are_misses() {
        assert_eq!(speed(1.0, 2.1).misses(true).len(), 1);
        assert_eq!(Speed { pause: Duration::from_millis(2001), ..speed(0.1, 1.0) }.misses(true).len(), 1);
        assert_eq!(Speed { throughput: None, ..speed(1.0, 1.0) }.misses(true), ["the victim did nothing"]);
    }

    #[test]
    fn victim_that_did_nothing_counts_as_slowest() {
        let nothing = Speed { throughput: None, ..speed(0.0, 1.0) };
        let all = Speeds(vec![nothing, nothing, speed(1.0, 1.0)]);
        assert_eq!(all.misses(false), ["the victim did nothing"]);
    }

    #[test]
    fn time_before_the_first_and_after_the_last_word_counts_as_pause() {
        let start = Instant::now();
        let after = |millis| start + Duration::from_millis(millis);
        let ticks: Vec<_> = [300, 500].map(|millis| Tick::at(after(millis))).to_vec();
        assert_eq!(longest_pause((start, after(1500)), &ticks), Duration::from_secs(1));
        assert_eq!(longest_pause((start, start), &[]), Duration::ZERO);
    }
}
