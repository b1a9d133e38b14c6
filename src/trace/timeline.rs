//! How many entries of each kind came when: a fixed number of equal buckets of time, however long a trace
//! is.

use super::event::Kind;

/// Buckets at the most; there are at least half as many once a trace is longer than so many nanoseconds.
pub const MOST: usize = 480;

/// Entries by kind.
pub type Counts = [u64; Kind::ALL.len()];

/// Counts over time.
#[derive(Clone, Debug)]
pub struct Timeline {
    first: Option<u64>,
    width: u64,
    buckets: Vec<Counts>,
}

impl Default for Timeline {
    fn default() -> Self {
        Self { first: None, width: 1, buckets: Vec::new() }
    }
}

impl Timeline {
    /// Counts an entry. One from before the first counts as of the first bucket.
    pub fn add(&mut self, nanos: u64, kind: Kind) {
        let since = nanos.saturating_sub(*self.first.get_or_insert(nanos));
        while since / self.width >= MOST as u64 {
            self.halve();
        }
        let index = usize::try_from(since / self.width).unwrap_or(0);
        if index >= self.buckets.len() {
            self.buckets.resize(index + 1, Counts::default());
        }
        if let Some(count) = self.buckets.get_mut(index).and_then(|counts| counts.get_mut(kind as usize)) {
            *count += 1;
        }
    }

    /// Makes buckets twice as long.
    fn halve(&mut self) {
        self.width = self.width.saturating_mul(2);
        let pairs = self.buckets.chunks(2).map(|pair| {
            let mut sum = Counts::default();
            for counts in pair {
                sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            }
            sum
        });
        self.buckets = pairs.collect();
    }

    /// Length of a bucket in nanoseconds.
    pub const fn width(&self) -> u64 {
        self.width
    }

    /// The buckets, from the first entry on.
    pub fn buckets(&self) -> &[Counts] {
        &self.buckets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_counts_once_however_long_the_trace_is() {
        let mut timeline = Timeline::default();
        for i in 0..100_000_u64 {
            timeline.add(5_000 + i * 1_000, if i % 10 == 0 { Kind::Read } else { Kind::Write });
        }
        let buckets = timeline.buckets();
        assert!((MOST / 2..=MOST).contains(&buckets.len()), "{}", buckets.len());
        let sum = |kind: Kind| buckets.iter().map(|counts| counts[kind as usize]).sum::<u64>();
        assert_eq!((sum(Kind::Read), sum(Kind::Write)), (10_000, 90_000));
        // Evenly over time, but for the last bucket.
        let per = timeline.width() / 1_000;
        let (last, others) = buckets.split_last().unwrap();
        assert!(others.iter().all(|counts| counts.iter().sum::<u64>().abs_diff(per) <= 1), "{others:?}");
        assert!(last.iter().sum::<u64>() <= per + 1);
    }

    #[test]
    fn entries_out_of_order_are_not_lost() {
        let mut timeline = Timeline::default();
        [100, 50, u64::MAX, 0].into_iter().for_each(|nanos| timeline.add(nanos, Kind::Read));
        assert_eq!(timeline.buckets().iter().map(|counts| counts[Kind::Read as usize]).sum::<u64>(), 4);
    }
}
