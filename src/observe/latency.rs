//! How long doorbells take from the device backend to the physical GPU, and changes of page tables in its
//! driver, as operators see it.
//!
//! The sender stamps a doorbell with the low word of the monotonic clock, which all processes of a machine
//! share. A stamp is the sender's word: a tenant that lies spoils its own statistics and nothing else.

pub use gpuvmk_control_client::Times;
use hdrhistogram::Histogram;

/// Longest time that is resolved, in nanoseconds; longer ones count as this.
const LONGEST: u64 = 1_000_000_000;

/// The low word of the monotonic clock, in nanoseconds; it wraps every four seconds.
pub fn stamp() -> u32 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let nanos = now.tv_sec.wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec);
    let [a, b, c, d, ..] = nanos.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// Times of one tenant's doorbells, or of its updates.
#[derive(Clone, Debug)]
pub struct Latency(Option<Histogram<u32>>);

impl Default for Latency {
    fn default() -> Self {
        // The bounds are constants that the library accepts; without them there are no statistics, and no
        // harm.
        Self(Histogram::new_with_bounds(1, LONGEST, 2).ok())
    }
}

impl Latency {
    /// Counts a doorbell that reached hardware at `now`.
    pub fn note(&mut self, stamp: u32, now: u32) {
        self.note_nanos(u64::from(now.wrapping_sub(stamp)));
    }

    /// Counts what took so long.
    pub fn note_nanos(&mut self, nanos: u64) {
        if let Some(times) = &mut self.0 {
            times.saturating_record(nanos.max(1));
        }
    }

    /// All times so far, in nanoseconds.
    pub fn summary(&self) -> Times {
        self.0.as_ref().map_or_else(Times::default, |times| Times {
            count: times.len(),
            p50: times.value_at_quantile(0.5),
            p99: times.value_at_quantile(0.99),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_what_was_noted_also_across_a_wrap_of_the_clock() {
        let mut latency = Latency::default();
        for nanos in 1..=100 {
            latency.note(u32::MAX - 20, (u32::MAX - 20).wrapping_add(nanos * 10));
        }

        let Times { count, p50, p99 } = latency.summary();
        assert_eq!(count, 100);
        assert!((495..=510).contains(&p50) && (980..=1000).contains(&p99), "{p50} {p99}");
    }

    #[test]
    fn the_clock_runs() {
        let first = stamp();
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!((2_000_000..1_000_000_000).contains(&stamp().wrapping_sub(first)));
    }
}
