//! The GPU's clocks: a yardstick that is timed beside what is measured, and work that gets clocks up.
//!
//! A GPU that had nothing to do runs slower for some hundred milliseconds. So launches that are timed come
//! right behind others, with the yardstick before and after them; what it took says whether clocks were up.

use std::time::{Duration, Instant};

use crate::gpu::Launch;

const BLOCKS: u32 = 1056;
const THREADS: u32 = 256;
/// Some 5 ms of an H200 at its highest clock, 30 ms at that of idle times.
const ROUNDS: u64 = 1 << 17;

/// Bytes that the yardstick writes.
pub const YARD_BYTES: usize = (BLOCKS * THREADS * 4) as usize;

/// Yardsticks in front of what is timed: where the GPU had nothing to do, and right behind other work.
const COLD: usize = 160;
const WARM: usize = 16;
/// After so long without work the GPU's clocks may be down.
const IDLE: Duration = Duration::from_millis(100);
/// How much longer than the shortest a yardstick may take.
const MORE: f64 = 0.02;

/// The yardstick, which keeps all multiprocessors busy and writes there.
#[must_use]
pub fn yard(at: u64) -> Launch {
    Launch { kernel: "loop", grid: [BLOCKS, 1, 1], block: [THREADS, 1, 1], arguments: vec![at, ROUNDS] }
}

/// What is known of the clocks.
#[derive(Clone, Debug, Default)]
pub struct Clocks {
    best: Option<Duration>,
    /// When the GPU last had work, with clocks up.
    busy: Option<Instant>,
}

impl Clocks {
    /// How many yardsticks are to be put before work that is timed.
    #[must_use]
    pub fn before(&self) -> usize {
        if self.busy.is_some_and(|busy| busy.elapsed() < IDLE) { WARM } else { COLD }
    }

    /// Takes in what yardsticks directly before and after took. Whether clocks were up.
    pub fn saw(&mut self, yards: [Duration; 2]) -> bool {
        let best = yards.into_iter().chain(self.best).min().unwrap_or_default();
        self.best = Some(best);
        let is_up = yards.iter().all(|yard| yard.as_secs_f64() <= best.as_secs_f64() * (1.0 + MORE));
        self.busy = is_up.then(Instant::now);
        is_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_up_where_both_yardsticks_are_near_the_best() {
        let ms = |tenths: u64| Duration::from_micros(tenths * 100);
        let mut clocks = Clocks::default();
        assert_eq!(clocks.before(), COLD);
        assert!(clocks.saw([ms(295), ms(295)]), "the best so far");
        assert!(!clocks.saw([ms(295), ms(51)]) && clocks.before() == COLD);
        assert!(!clocks.saw([ms(295), ms(295)]));
        assert!(clocks.saw([ms(51), ms(52)]) && clocks.before() == WARM);
        assert!(!clocks.saw([ms(51), ms(54)]));
    }
}
