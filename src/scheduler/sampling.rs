//! When to look at engines, and how much time each look stands for.
//!
//! Hardware tells what an engine runs now, not how long it has run it. Looks at regular times would measure
//! nonsense for work that is regular itself (hardware's own time slices are as long as our period), and a
//! guest that knew the times could run between them. So time is cut into windows of a millisecond, with one
//! look at a random moment in each, which stands for the whole window. That is right on average for any
//! pattern of work, and exact where an engine does one thing all along.
//!
//! Windows end where the scheduler changes who runs (the end of a turn), so that a look stands for one VM's
//! turn and not for its neighbour's. A change that engines cause (work is done, new work comes) ends no
//! window: a look at such a moment would be biased by the moment, the more so the shorter the work is. For
//! the same reason a window in which the last work ends is looked at and charged in full.

use std::time::Duration;

use gpuvmk_chip::Engine;
use gpuvmk_chip::addr::HostChannel;

/// Length of a window.
pub const WINDOW: Duration = Duration::from_millis(1);

/// Length of windows where hardware takes turns among several VMs and counts time, which has to be divided
/// between looks; and where a VM waits that gets the engine as soon as it is seen to be idle.
pub(super) const SHARED_WINDOW: Duration = Duration::from_micros(250);

/// The channel that an engine ran at a look.
pub type Seen = (Engine, HostChannel);

/// Time that is charged to the channels that were seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampledTime {
    /// Length of the time.
    pub length: Duration,
    /// The channels that engines ran.
    pub seen: Vec<Seen>,
}

/// A change that is so near after a window's end is its end.
const NEAR: Duration = Duration::from_micros(100);

/// A sampled of time with one look.
#[derive(Clone, Debug)]
struct Window {
    start: Duration,
    length: Duration,
    look_at: Duration,
    /// Result of its look, once it was made.
    seen: Option<Vec<Seen>>,
}

impl Window {
    fn end(&self) -> Duration {
        self.start.saturating_add(self.length)
    }
}

/// The windows, with their random moments.
#[derive(Clone, Debug)]
pub struct Sampler {
    random: fastrand::Rng,
    /// The present one; `None` while nothing is busy.
    window: Option<Window>,
    /// Nothing is busy: the present window is the last.
    last: bool,
    /// Up to when time has been charged.
    charged_to: Duration,
    /// When the scheduler is going to change who runs, if it knows.
    change: Option<Duration>,
    /// Length of windows.
    window_length: Duration,
    /// The next one, once the present one was looked at: its look must not depend on what happens until then.
    next: Option<Window>,
}

impl Sampler {
    /// A sampler whose moments follow from `seed`.
    pub fn new(seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        Self {
            random,
            window: None,
            last: false,
            charged_to: Duration::ZERO,
            change: None,
            window_length: WINDOW,
            next: None,
        }
    }

    /// Something is busy: starts the first window, if none is open.
    pub fn begin(&mut self, now: Duration) {
        self.last = false;
        if self.window.is_none() {
            let start = now.max(self.charged_to);
            self.window = Some(self.plan(start, start));
        }
    }

    /// The scheduler is going to change who runs at that time, unless something happens before.
    pub fn expect(&mut self, change: Option<Duration>) {
        self.change = change;
    }

    /// How long windows are from now on, [`WINDOW`] at most.
    pub fn set_window(&mut self, length: Duration) {
        self.window_length = length.min(WINDOW);
    }

    /// When to look next.
    pub fn due(&self) -> Option<Duration> {
        let window = self.window.as_ref()?;
        if window.seen.is_none() {
            return Some(window.look_at);
        }
        self.next.as_ref().filter(|_| !self.last).map(|next| next.look_at)
    }

    /// A look that is due. Returns the time of windows that are over.
    pub fn look(&mut self, now: Duration, seen: Vec<Seen>) -> Vec<SampledTime> {
        let mut over = self.close(now, &seen, Duration::ZERO);
        if let Some(window) = &mut self.window
            && window.seen.is_none()
            && now >= window.look_at
        {
            window.seen = Some(seen);
            let end = window.end();
            self.next = Some(self.plan(end, end));
            over.extend(self.finish());
        }
        over
    }

    /// The scheduler changes who runs now. Returns the time of windows that are over; `seen` is what engines
    /// run until this moment.
    pub fn cut(&mut self, now: Duration, seen: &[Seen]) -> Vec<SampledTime> {
        self.close(now, seen, NEAR)
    }

    /// Nothing is busy any more. Returns the time of the last window, unless its look is still to come.
    pub fn end(&mut self) -> Option<SampledTime> {
        self.last = true;
        self.finish()
    }

    /// Nothing is busy any more, and what there was ended by itself: nothing is charged.
    pub fn abandon(&mut self) {
        self.window = None;
    }

    /// Charges the last window once its look has been.
    fn finish(&mut self) -> Option<SampledTime> {
        if !self.last {
            return None;
        }
        let window = self.window.take_if(|window| window.seen.is_some())?;
        self.charged_to = window.end();
        Some(SampledTime { length: window.length, seen: window.seen.unwrap_or_default() })
    }

    /// Closes windows whose time is over. The next one is planned anew where less than `near` of it has
    /// passed, which must not be because of its look.
    fn close(&mut self, now: Duration, seen: &[Seen], near: Duration) -> Vec<SampledTime> {
        let mut over = Vec::new();
        while let Some(window) = self.window.take_if(|window| now >= window.end()) {
            // Where we come too late for its look, the present one has to do for all of the time since.
            let (end, saw) = match window.seen.clone() {
                Some(saw) => (window.end(), saw),
                None => (now, seen.to_vec()),
            };
            over.push(SampledTime { length: end.saturating_sub(window.start), seen: saw });
            self.charged_to = end;
            let planned = self.next.take().filter(|_| now.saturating_sub(end) >= near);
            if !self.last {
                // Right at the end it is known better when the next change is.
                self.window = Some(planned.unwrap_or_else(|| self.plan(end, now)));
            }
        }
        over
    }

    /// A window from `start`, whose look is not before `now`.
    fn plan(&mut self, start: Duration, now: Duration) -> Window {
        let to_change = self.change.map(|change| change.saturating_sub(start)).filter(|rest| *rest > NEAR);
        let length = match to_change {
            Some(rest) if rest <= self.window_length.saturating_add(NEAR) => rest,
            _ => self.window_length,
        };
        let rest = start.saturating_add(length).saturating_sub(now);
        let look_at = now.saturating_add(rest.mul_f64(self.random.f64()));
        Window { start, length, look_at, seen: None }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    const CHANNEL: HostChannel = HostChannel(7);

    fn us(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    /// What is charged of `total` when the engine works at times for which `busy` says so, with every look as
    /// it is due.
    fn charged(seed: u64, total: Duration, busy: impl Fn(Duration) -> bool) -> Duration {
        let mut sampler = Sampler::new(seed);
        sampler.begin(Duration::ZERO);
        let mut sum = Duration::ZERO;
        let see = |now| if busy(now) { vec![(Engine::Graphics, CHANNEL)] } else { vec![] };
        while let Some(now) = sampler.due().filter(|now| *now < total) {
            for sampled in sampler.look(now, see(now)) {
                sum += sampled.length * u32::try_from(sampled.seen.len()).unwrap();
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
        assert_eq!(over, [SampledTime { length: us(5300), seen: vec![(Engine::Graphics, CHANNEL)] }]);
        assert!(sampler.due().unwrap() >= us(5300) && sampler.due().unwrap() <= us(6300));
    }

    #[test]
    fn windows_end_where_a_change_is_expected() {
        let mut sampler = Sampler::new(1);
        sampler.expect(Some(us(400)));
        sampler.begin(us(100));
        let graphics = vec![(Engine::Graphics, CHANNEL)];

        assert!(sampler.due().unwrap() < us(400));
        sampler.look(us(399), graphics.clone());

        assert_eq!(sampler.cut(us(400), &[]), [SampledTime { length: us(300), seen: graphics }]);
    }

    #[test]
    fn changes_that_come_of_what_engines_do_end_no_window() {
        let mut sampler = Sampler::new(1);
        sampler.begin(us(0));
        let (due, graphics) = (sampler.due().unwrap(), vec![(Engine::Graphics, CHANNEL)]);

        assert_eq!(sampler.cut(due / 2, &[]), []);
        assert_eq!(sampler.look(due, graphics.clone()), []);

        assert_eq!(sampler.cut(us(1000), &[]), [SampledTime { length: WINDOW, seen: graphics }]);
    }

    #[test]
    fn last_window_is_looked_at_and_charged_in_full_and_nothing_after_it() {
        let mut sampler = Sampler::new(1);
        assert_eq!((sampler.due(), sampler.cut(us(5), &[])), (None, vec![]));
        sampler.begin(us(10));
        let look = sampler.due().unwrap();

        assert_eq!((sampler.end(), sampler.due()), (None, Some(look)));
        let over = sampler.look(look, vec![(Engine::Graphics, CHANNEL)]);

        assert_eq!(over, [SampledTime { length: WINDOW, seen: vec![(Engine::Graphics, CHANNEL)] }]);
        assert_eq!((sampler.due(), sampler.end()), (None, None));
        // New work in the same window is charged from its end on.
        sampler.begin(look);
        assert!(sampler.due().unwrap() >= us(1010));
    }

    #[test]
    fn short_work_that_ends_by_itself_is_charged_right_on_average() {
        // Every 5 ms comes work of 300 us; the scheduler sees 150 us later that it is done.
        let mut sampler = Sampler::new(3);
        let mut sum = Duration::ZERO;
        for start in (0..20_000).map(|n| us(5000) * n) {
            let done = start + us(300);
            let see = |now| if now < done { vec![(Engine::Graphics, CHANNEL)] } else { vec![] };
            sampler.begin(start);
            let mut ended = false;
            while let Some(due) = sampler.due() {
                let mut over = Vec::new();
                if !ended && due >= done + us(150) {
                    ended = true;
                    over.extend(sampler.end());
                } else {
                    over.extend(sampler.look(due, see(due)));
                }
                sum += over.iter().filter(|s| !s.seen.is_empty()).map(|s| s.length).sum::<Duration>();
            }
        }
        assert!((sum.as_secs_f64() - 6.0).abs() < 0.12, "{sum:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]
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
