//! What the neighbour says of its times, exactly.

use anyhow::{Context, Result};
use serde::Deserialize;

/// One line of the neighbour's: times in microseconds.
#[derive(Debug, Clone, Deserialize)]
struct Window {
    from: u64,
    to: u64,
    requests: Vec<u32>,
    copies: Vec<u32>,
    /// How late a thread was that only sleeps, each time.
    machine: Vec<u32>,
    /// Copies whose data were wrong.
    wrong: u64,
}

/// Everything of some time.
#[derive(Debug, Clone, Default)]
pub struct Period {
    requests: Vec<u32>,
    copies: Vec<u32>,
    machine: Vec<u32>,
    /// Copies whose data were wrong.
    pub wrong: u64,
    /// Lines that count.
    windows: u32,
    /// Lines of times in which one of the machine's processors was slow by itself.
    slow: Vec<Window>,
}

impl Period {
    /// Adds a line. What was timed while one of the machine's processors was slow by itself is kept apart.
    pub fn add(&mut self, line: &str, was_slow: impl Fn(u64, u64) -> bool) -> Result<()> {
        let window: Window =
            serde_json::from_str(line).with_context(|| format!("The neighbour said: {line}"))?;
        if was_slow(window.from, window.to) {
            self.wrong += window.wrong;
            self.slow.push(Window { wrong: 0, ..window });
        } else {
            self.count(window);
        }
        Ok(())
    }

    fn count(&mut self, window: Window) {
        self.requests.extend(window.requests);
        self.copies.extend(window.copies);
        self.machine.extend(window.machine);
        self.wrong += window.wrong;
        self.windows += 1;
    }

    /// If most of it does not count, all of it does: there is nothing better.
    pub fn settle(mut self) -> Self {
        if self.slow.len() > self.windows as usize {
            std::mem::take(&mut self.slow).into_iter().for_each(|window| self.count(window));
        }
        self
    }

    /// This and `other` together.
    pub fn and(mut self, other: &Self) -> Self {
        self.requests.extend(&other.requests);
        self.copies.extend(&other.copies);
        self.machine.extend(&other.machine);
        self.wrong += other.wrong;
        self.windows += other.windows;
        self.slow.extend(other.slow.iter().cloned());
        self
    }

    /// True if nothing was timed.
    pub fn is_empty(&self) -> bool {
        (self.requests.is_empty() || self.copies.is_empty()) && self.slow.is_empty()
    }

    /// The figures.
    pub fn figures(&self) -> Figures {
        Figures {
            request_p99: per_mille(&self.requests, 990),
            copy_p99: per_mille(&self.copies, 990),
            machine_late: per_mille(&self.machine, MACHINE),
            request_max: most(self.all(&self.requests, |window| &window.requests)),
            copy_max: most(self.all(&self.copies, |window| &window.copies)),
            machine_max: most(self.all(&self.machine, |window| &window.machine)),
            windows: self.windows,
            slow_windows: self.slow.len(),
        }
    }

    /// What counts and what does not.
    fn all<'a>(
        &'a self,
        counts: &'a [u32],
        of: impl Fn(&'a Window) -> &'a [u32],
    ) -> impl Iterator<Item = &'a u32> {
        counts.iter().chain(self.slow.iter().flat_map(of))
    }
}

/// In microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Figures {
    pub request_p99: f64,
    pub copy_p99: f64,
    pub request_max: f64,
    pub copy_max: f64,
    /// How late a thread was that does nothing but sleep, of so many times as [`MACHINE`] says: the machine's
    /// own doing.
    pub machine_late: f64,
    /// How late it was at most.
    pub machine_max: f64,
    /// Tenths of a second whose times count for the 99th percentiles,
    pub windows: u32,
    /// and those that do not, because a processor was slow by itself. The longest times are of all.
    pub slow_windows: usize,
}

fn most<'a>(times: impl IntoIterator<Item = &'a u32>) -> f64 {
    f64::from(times.into_iter().copied().max().unwrap_or(0))
}

/// A request wakes four threads (porter, owner, porter, neighbour). If each wakes late once in four hundred
/// times, one of a hundred requests is late.
const MACHINE: usize = 997;

/// What so many of a thousand are at most.
fn per_mille(times: &[u32], so_many: usize) -> f64 {
    let mut times = times.to_vec();
    times.sort_unstable();
    let index = (times.len() * so_many).div_ceil(1000).saturating_sub(1);
    f64::from(times.get(index).copied().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_end_is_exact() {
        let times: Vec<u32> = (1..=200).rev().collect();
        assert_eq!((per_mille(&times, 990), most(&times)), (198.0, 200.0));
        assert_eq!((per_mille(&[7], 990), per_mille(&[], MACHINE)), (7.0, 0.0));
    }

    #[test]
    fn windows_add_up() {
        let mut period = Period::default();
        assert!(period.is_empty());
        let quiet = |_: u64, _: u64| false;
        period
            .add(r#"{"from":0,"to":9,"requests":[1,2],"copies":[5],"machine":[3,1],"wrong":1}"#, quiet)
            .unwrap();
        period
            .add(r#"{"from":9,"to":19,"requests":[9],"copies":[4],"machine":[2],"wrong":0}"#, quiet)
            .unwrap();
        let figures = period.figures();
        assert_eq!((figures.request_max, figures.copy_max, figures.machine_max), (9.0, 5.0, 3.0));
        assert_eq!((period.wrong, period.is_empty()), (1, false));
        assert!(period.add("thread 'main' panicked", quiet).is_err());
    }

    #[test]
    fn what_was_timed_on_a_slow_machine_counts_only_if_there_is_little_else() {
        let line = |from: u64, time: u64| {
            format!(
                r#"{{"from":{from},"to":{},"requests":[{time}],"copies":[{time}],"machine":[1],"wrong":1}}"#,
                from + 9
            )
        };
        let mut period = Period::default();
        period.add(&line(0, 1), |_, _| false).unwrap();
        period.add(&line(10, 99), |from, to| (from, to) == (10, 19)).unwrap();
        let settled = period.clone().settle();
        let figures = settled.figures();
        assert_eq!((figures.copy_p99, figures.copy_max, settled.wrong), (1.0, 99.0, 2));
        assert_eq!((figures.windows, figures.slow_windows), (1, 1));

        period.add(&line(20, 98), |_, _| true).unwrap();
        let settled = period.settle();
        let figures = settled.figures();
        assert_eq!((figures.copy_p99, settled.wrong, figures.windows, figures.slow_windows), (99.0, 3, 3, 0));
    }
}
