//! The log of boots that were refused. A driver can have falcons refuse thousands of times a second: the
//! first refusals are told, then some a second; all are counted (`boot_errors`).

use std::fmt::Display;
use std::sync::Mutex;
use std::time::Duration;

use super::super::locked;
use gpuvmk_host::pace::Pace;

/// Lines a second.
const LINES: u32 = 10;
/// Time for which unused lines are saved: a boot that goes wrong is told whole.
const BURST: Duration = Duration::from_secs(3);

/// Which refusals have a line.
#[derive(Debug)]
pub struct BootLog(Mutex<Pace>);

impl Default for BootLog {
    fn default() -> Self {
        Self(Mutex::new(Pace::new(LINES, BURST)))
    }
}

impl BootLog {
    /// Tells of a refusal at `now`, in nanoseconds, if there may be a line about it.
    pub fn refused(&self, now: u64, refusal: &dyn Display) {
        if self.allows(now) {
            log::warn!("{refusal}");
        }
    }

    fn allows(&self, now: u64) -> bool {
        locked(&self.0).allows(Duration::from_nanos(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flood_of_refusals_has_few_lines() {
        let log = BootLog::default();
        let in_a_second = |second: u64| {
            (0..10_000).filter(|step| log.allows(second * 1_000_000_000 + step * 100_000)).count()
        };
        let first = in_a_second(1);
        assert!((30..=45).contains(&first), "{first}");
        assert!((9..=11).contains(&in_a_second(2)));
    }
}
