//! When work comes to a channel, and how long it takes.

use std::time::Duration;

use crate::sim::scenario::{Arrival, Length, Load};

/// A load's course.
#[derive(Debug)]
pub(super) struct Source {
    load: Load,
    random: fastrand::Rng,
    /// Entries of lists that are used up.
    used: usize,
}

impl Source {
    pub fn new(load: &Load, seed: u64) -> Self {
        Self { load: load.clone(), random: fastrand::Rng::with_seed(seed), used: 0 }
    }

    /// Times after the VM came at which work comes first.
    pub fn first(&mut self) -> Vec<Duration> {
        match &self.load.arrival {
            Arrival::Closed { depth, .. } => vec![Duration::ZERO; usize::try_from(*depth).unwrap_or(1)],
            // VMs of one kind do not keep step with each other.
            Arrival::Periodic { every } => vec![every.mul_f64(self.random.f64())],
            Arrival::Recorded(list) => list.first().map(|(at, _)| *at).into_iter().collect(),
        }
    }

    /// How long the work takes that comes now.
    pub fn length(&mut self) -> Duration {
        let entry = self.used;
        self.used = self.used.saturating_add(1);
        let length = match (&self.load.arrival, &self.load.length) {
            (Arrival::Recorded(list), _) => list.get(entry).map_or(Duration::ZERO, |(_, length)| *length),
            (_, Length::Constant(length)) => *length,
            (_, Length::Exponential(mean)) => mean.mul_f64(-(1.0 - self.random.f64()).ln()),
            (_, Length::Listed(list)) => {
                let entry = entry.checked_rem(list.len()).unwrap_or(0);
                list.get(entry).copied().unwrap_or_default()
            }
        };
        length.max(Duration::from_nanos(1))
    }

    /// How long after work came the next comes, whatever becomes of it.
    pub fn next_after_arrival(&self) -> Option<Duration> {
        match &self.load.arrival {
            Arrival::Closed { .. } => None,
            Arrival::Periodic { every } => Some(*every),
            Arrival::Recorded(list) => {
                let (before, next) = (list.get(self.used.checked_sub(1)?)?, list.get(self.used)?);
                Some(next.0.saturating_sub(before.0))
            }
        }
    }

    /// How long after work is done the next comes.
    pub fn next_after_end(&self) -> Option<Duration> {
        match &self.load.arrival {
            Arrival::Closed { think, .. } => Some(*think),
            Arrival::Periodic { .. } | Arrival::Recorded(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuvmk_chip::Engine;

    fn us(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    fn source(length: Length, arrival: Arrival) -> Source {
        Source::new(&Load { engine: Engine::Graphics, length, piece: None, arrival }, 7)
    }

    #[test]
    fn recorded_work_comes_when_it_came_and_takes_as_long() {
        let list = vec![(us(10), us(1)), (us(30), us(2)), (us(30), us(3))];
        let mut source = source(Length::Listed(vec![]), Arrival::Recorded(list));

        let mut at = source.first()[0];
        let mut course = vec![(at, source.length())];
        while let Some(after) = source.next_after_arrival() {
            at += after;
            course.push((at, source.length()));
        }

        assert_eq!(course, [(us(10), us(1)), (us(30), us(2)), (us(30), us(3))]);
        assert_eq!(source.next_after_end(), None);
    }

    #[test]
    fn lists_go_round_and_exponential_lengths_have_their_mean() {
        let closed = Arrival::Closed { think: us(5), depth: 2 };
        let mut listed = source(Length::Listed(vec![us(1), us(9)]), closed.clone());
        let mut random = source(Length::Exponential(us(1000)), closed);

        assert_eq!([(); 3].map(|()| listed.length()), [us(1), us(9), us(1)]);
        assert_eq!((listed.first().len(), listed.next_after_end()), (2, Some(us(5))));
        let sum: Duration = (0..20_000).map(|_| random.length()).sum();
        assert!((sum.as_secs_f64() - 20.0).abs() < 0.6, "{sum:?}");
    }
}
