//! When to look at engines, and how much time each look stands for.
//!
//! Hardware tells what an engine runs now, not how long it has run it. Looking at regular times would measure
//! nonsense of work that is regular itself (hardware's own time slices are as long as our period), and a guest that
//! knew the times could run between them. So time is cut into windows of a millisecond, with one look at a random
//! moment in each, which stands for the whole window: right on average for any pattern of work, and exact where an
//! engine does one thing all along. Where the scheduler itself changes who runs, it ends the window: then only the
//! ends of work and its pauses are a matter of chance.

use std::time::Duration;

use crate::addr::HostChannel;
use crate::chip::Engine;

/// Length of a window.
pub const WINDOW: Duration = Duration::from_millis(1);

/// What an engine ran when it was looked at.
pub type Seen = (Engine, HostChannel);

/// Time that is to be charged for what was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// How long.
    pub length: Duration,
    /// What engines ran.
    pub seen: Vec<Seen>,
}

/// The windows.
#[derive(Clone, Debug)]
pub struct Sampler {
    random: fastrand::Rng,
    /// Start of the present window; `None` while nothing is busy.
    start: Option<Duration>,
    /// From its start to its look.
    look_after: Duration,
    /// What its look saw, once it has been.
    seen: Option<Vec<Seen>>,
}

impl Sampler {
    /// A sampler whose moments follow from `seed`.
    pub fn new(seed: u64) -> Self {
        Self { random: fastrand::Rng::with_seed(seed), start: None, look_after: Duration::ZERO, seen: None }
    }

    /// Starts the first window, if none is open.
    pub fn begin(&mut self, now: Duration) {
        if self.start.is_none() {
            self.open(now);
        }
    }

    /// When to look next.
    pub fn due(&self) -> Option<Duration> {
        let start = self.start?;
        let window = if self.seen.is_some() { start.saturating_add(WINDOW) } else { start };
        Some(window.saturating_add(self.look_after))
    }

    /// A look that is due. Returns the time of windows that are over.
    pub fn look(&mut self, now: Duration, seen: Vec<Seen>) -> Vec<Stretch> {
        let mut over = self.close_past(now);
        let Some(start) = self.start else { return over };
        let passed = now.saturating_sub(start);
        if passed >= WINDOW {
            // We come late: this look has to do for all of it.
            over.push(Stretch { length: passed, seen });
            self.open(now);
        } else if self.seen.is_none() {
            self.seen = Some(seen);
            self.look_after = self.moment();
        }
        over
    }

    /// Ends the window now, because something changes who runs. `seen` is what engines run until this moment.
    pub fn cut(&mut self, now: Duration, seen: Vec<Seen>) -> Vec<Stretch> {
        let mut over = self.close_past(now);
        if let Some(start) = self.start {
            let seen = self.seen.take().unwrap_or(seen);
            over.push(Stretch { length: now.saturating_sub(start), seen });
            self.open(now);
        }
        over
    }

    /// Nothing is busy any more: the rest of the window is charged, and nothing after it.
    pub fn end(&mut self, now: Duration) -> Option<Stretch> {
        let start = self.start.take()?;
        let seen = self.seen.take()?;
        Some(Stretch { length: now.saturating_sub(start).min(WINDOW), seen })
    }

    /// Nothing is busy any more, and what there was ended by itself: nothing is charged.
    pub fn abandon(&mut self) {
        self.start = None;
        self.seen = None;
    }

    /// Closes the window whose time is over, if its look has been.
    fn close_past(&mut self, now: Duration) -> Vec<Stretch> {
        match self.start {
            Some(start) if now.saturating_sub(start) >= WINDOW => match self.seen.take() {
                Some(seen) => {
                    self.start = Some(start.saturating_add(WINDOW));
                    vec![Stretch { length: WINDOW, seen }]
                }
                None => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    fn open(&mut self, now: Duration) {
        self.start = Some(now);
        self.seen = None;
        self.look_after = self.moment();
    }

    fn moment(&mut self) -> Duration {
        WINDOW.mul_f64(self.random.f64())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CHANNEL: HostChannel = HostChannel(7);

    fn us(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    /// What is charged of `total` when the engine works at times for which `busy` says so, with every look as it is due.
    fn charged(seed: u64, total: Duration, busy: impl Fn(Duration) -> bool) -> Duration {
        let mut sampler = Sampler::new(seed);
        sampler.begin(Duration::ZERO);
        let mut sum = Duration::ZERO;
        let see = |now| if busy(now) { vec![(Engine::Graphics, CHANNEL)] } else { vec![] };
        while let Some(now) = sampler.due().filter(|now| *now < total) {
            for stretch in sampler.look(now, see(now)) {
                sum += stretch.length * u32::try_from(stretch.seen.len()).unwrap();
            }
        }
        sum
    }

    #[test]
    fn engine_that_never_rests_is_charged_all_time() {
        let sum = charged(1, Duration::from_secs(1), |_| true);
        assert!(sum >= Duration::from_millis(998) && sum <= Duration::from_secs(1), "{sum:?}");
    }

    #[test]
    fn looks_that_come_late_stand_for_all_the_time_since() {
        let mut sampler = Sampler::new(1);
        sampler.begin(us(0));
        let over = sampler.look(us(5300), vec![(Engine::Graphics, CHANNEL)]);
        assert_eq!(over, [Stretch { length: us(5300), seen: vec![(Engine::Graphics, CHANNEL)] }]);
        assert!(sampler.due().unwrap() >= us(5300) && sampler.due().unwrap() <= us(6300));
    }

    #[test]
    fn cut_charges_what_ran_before_it_to_the_moment() {
        let mut sampler = Sampler::new(1);
        sampler.begin(us(100));
        let over = sampler.cut(us(300), vec![(Engine::Copy(0), CHANNEL)]);
        assert_eq!(over, [Stretch { length: us(200), seen: vec![(Engine::Copy(0), CHANNEL)] }]);
        let over = sampler.cut(us(450), vec![]);
        assert_eq!(over, [Stretch { length: us(150), seen: vec![] }]);
    }

    #[test]
    fn nothing_is_due_or_charged_when_nothing_is_busy() {
        let mut sampler = Sampler::new(1);
        assert_eq!(sampler.due(), None);
        assert_eq!(sampler.cut(us(5), vec![]), []);
        sampler.begin(us(0));
        let look = sampler.due().unwrap();
        sampler.look(look, vec![]);
        let rest = sampler.end(us(1000)).unwrap();
        assert_eq!(rest.length, us(1000));
        assert_eq!((sampler.due(), sampler.end(us(2000))), (None, None));
    }

    proptest! {
        /// Also for patterns as long as the window or a fraction of it.
        #[test]
        fn periodic_work_is_charged_right_on_average(seed: u64, period in 100u64..5000, part in 0.05f64..1.0) {
            let total = Duration::from_secs(20);
            let on = us(period).mul_f64(part);
            let sum = charged(seed, total, |now| {
                now.as_nanos() % us(period).as_nanos() < on.as_nanos()
            });
            let share = sum.as_secs_f64() / total.as_secs_f64();
            prop_assert!((share - part).abs() < 0.025, "{share} of {part}");
        }
    }
}
