//! Whose was the time that hardware counts?
//!
//! Some hardware counts how long each engine worked (the PMU's idle counters), but not for which channel. So
//! the count is read with each look, and the difference is charged to the channels that are known to have had
//! the engine meanwhile: those that were seen on it at either end, and those whose ring was fetched. If none
//! is known, it is charged to those that could have run. Channels that were seen share it evenly: a VM that
//! is early at one look is late at another, so that is right on average, and the sum is always right. A
//! channel whose ring was fetched while another was seen had little to do, or it would have been seen: it
//! gets an eighth. A VM that cuts its work into pieces which fit between two looks after a change is charged
//! too little for them: with looks in time, a tenth of a millisecond in a turn.
//!
//! A look that comes late (by more than [`SLICE`], the time that hardware gives a channel at once) and sees
//! another channel than the last look has missed others in between: the time beyond [`SLICE`] is charged to
//! all that could have run.
//!
//! Where hardware counts nothing, time is measured by looks alone ([`super::sampling`]).

use std::time::Duration;

use gpuvmk_chip::Engine;
use gpuvmk_chip::addr::HostChannel;
use gpuvmk_ordered::OrderedMap;

/// The last look at an engine.
#[derive(Clone, Copy, Debug)]
struct Reading {
    busy: Duration,
    running: Option<HostChannel>,
}

/// Weight of a channel that was seen, beside 1 for one that was not.
const SEEN: u32 = 8;

/// How long hardware lets one of several channels run at the least: NVIDIA's drivers set one or two
/// milliseconds.
const SLICE: Duration = Duration::from_millis(1);

/// Part of an engine's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub engine: Engine,
    pub channel: HostChannel,
    pub time: Duration,
}

/// Counts of all engines' busy times.
#[derive(Clone, Debug, Default)]
pub(super) struct Meter {
    readings: OrderedMap<Engine, Reading>,
}

impl Meter {
    /// True for an engine whose time hardware counts.
    pub fn counts(&self, engine: Engine) -> bool {
        self.readings.contains_key(&engine)
    }

    /// Takes counts as they were read together with `engines`. `known` adds the channels of an engine whose
    /// ring was fetched since the last time, `able` those that could have run on it.
    pub fn read(
        &mut self,
        engines: &[(Engine, Option<HostChannel>)],
        times: &[(Engine, Duration)],
        known: impl Fn(Engine, &mut Vec<HostChannel>),
        able: impl Fn(Engine, &mut Vec<HostChannel>),
    ) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut candidates = Vec::new();
        for (engine, busy) in times.iter().copied() {
            let running =
                engines.iter().find(|(other, _)| *other == engine).and_then(|(_, running)| *running);
            let Some(last) = self.readings.insert(engine, Reading { busy, running }) else { continue };
            let time = busy.saturating_sub(last.busy);
            if time.is_zero() {
                continue;
            }
            candidates.clear();
            known(engine, &mut candidates);
            let seen = [last.running, running];
            candidates.extend(seen.into_iter().flatten());
            if candidates.is_empty() {
                able(engine, &mut candidates);
            }
            candidates.sort_unstable();
            candidates.dedup();
            let changed = last.running != running && last.running.is_some() && running.is_some();
            let missed = if changed { time.saturating_sub(SLICE) } else { Duration::ZERO };
            if !missed.is_zero() {
                let mut all = candidates.clone();
                able(engine, &mut all);
                all.sort_unstable();
                all.dedup();
                let each = u32::try_from(all.len()).ok().and_then(|count| missed.checked_div(count));
                parts.extend(
                    all.iter().filter_map(|channel| Some(Part { engine, channel: *channel, time: each? })),
                );
            }
            let time = time.saturating_sub(missed);
            let weight = |channel: &HostChannel| if seen.contains(&Some(*channel)) { SEEN } else { 1 };
            let sum: u32 = candidates.iter().map(weight).sum();
            let part = |channel: &HostChannel| {
                let time = time.checked_div(sum)?.saturating_mul(weight(channel));
                Some(Part { engine, channel: *channel, time })
            };
            parts.extend(candidates.iter().filter_map(part));
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENGINE: Engine = Engine::COPY0;
    const A: HostChannel = HostChannel(1);
    const B: HostChannel = HostChannel(2);
    const C: HostChannel = HostChannel(3);

    fn us(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    /// Reads a meter whose engine has run `first` and runs `now`, with 100 us between.
    fn parts(
        first: Option<HostChannel>,
        now: Option<HostChannel>,
        known: &[HostChannel],
        able: &[HostChannel],
    ) -> Vec<(HostChannel, Duration)> {
        let mut meter = Meter::default();
        let mut read = |running, time| {
            meter.read(
                &[(Engine::Graphics, Some(C)), (ENGINE, running)],
                &[(ENGINE, time)],
                |_, channels| channels.extend(known),
                |_, channels| channels.extend(able),
            )
        };
        assert_eq!(read(first, us(50)), []);
        read(now, us(150)).into_iter().map(|part| (part.channel, part.time)).collect()
    }

    #[test]
    fn time_goes_to_whoever_was_seen() {
        assert_eq!(parts(Some(A), Some(A), &[], &[B]), [(A, us(100))]);
        assert_eq!(parts(Some(A), None, &[], &[B]), [(A, us(100))]);
        assert_eq!(parts(None, Some(A), &[A], &[B]), [(A, us(100))]);
    }

    #[test]
    fn several_share_it_evenly() {
        assert_eq!(parts(Some(A), Some(B), &[], &[C]), [(A, us(50)), (B, us(50))]);
        assert_eq!(parts(None, None, &[B, A], &[C]), [(A, us(50)), (B, us(50))]);
    }

    #[test]
    fn one_that_was_not_seen_gets_an_eighth_of_one_that_was() {
        let [(a, most), (b, rest)] = parts(Some(A), None, &[B, A], &[C])[..] else { panic!("two") };
        assert_eq!((a, b, most.as_micros(), rest.as_micros()), (A, B, 88, 11));
    }

    #[test]
    fn late_look_that_sees_somebody_else_has_missed_others() {
        let mut meter = Meter::default();
        let mut read = |running, time| {
            let able = |_, channels: &mut Vec<HostChannel>| channels.extend([A, B, C]);
            let mut sums = OrderedMap::new();
            for part in meter.read(&[(ENGINE, Some(running))], &[(ENGINE, us(time))], |_, _| {}, able) {
                *sums.entry(part.channel).or_insert(Duration::ZERO) += part.time;
            }
            sums
        };
        read(A, 0);

        assert_eq!(read(B, 4000), OrderedMap::from([(A, us(1500)), (B, us(1500)), (C, us(1000))]));
        assert_eq!(read(B, 8000), OrderedMap::from([(B, us(4000))]), "nothing says that anybody else ran");
    }

    #[test]
    fn time_of_nobody_known_goes_to_those_who_could() {
        assert_eq!(parts(None, None, &[], &[B]), [(B, us(100))]);
        assert_eq!(parts(None, None, &[], &[]), []);
    }

    #[test]
    fn only_what_is_counted_is_metered() {
        let mut meter = Meter::default();
        meter.read(&[(Engine::Graphics, Some(A))], &[(ENGINE, us(1))], |_, _| {}, |_, _| {});
        assert!(meter.counts(ENGINE) && !meter.counts(Engine::Graphics));
    }
}
