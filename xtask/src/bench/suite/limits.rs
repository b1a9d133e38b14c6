//! What mediation may cost. Results beyond a limit are problems, and the run says so.

use super::table::Ratios;

/// Mediated speed of everything after each other, native being 1.
const LEAST_SUITE: f64 = 0.95;
/// Mediated speed of work of a millisecond and longer.
const LEAST_WORK: f64 = 0.98;
/// Mediated speed of submissions that do not wait for each other.
const LEAST_PIPELINED: f64 = 0.9;
/// Mediated time of a 4 KiB copy, native being 1.
const MOST_LATENCY: f64 = 1.15;
/// Mediated time of a probe.
const MOST_PROBE: f64 = 1.25;

/// A figure and its limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Judged {
    /// Its name, as results have it.
    pub name: &'static str,
    /// What it is, for people.
    pub what: &'static str,
    pub found: f64,
    pub limit: f64,
    /// Whether it must be at least that, rather than at most.
    pub at_least: bool,
}

impl Judged {
    pub fn ok(&self) -> bool {
        // What is no number is within no limit.
        if self.at_least { self.found >= self.limit } else { self.found <= self.limit }
    }

    /// What is wrong, and by how much.
    pub fn problem(&self) -> Option<String> {
        let Self { name, what, found, limit, at_least } = self;
        let word = if *at_least { "at least" } else { "at most" };
        let missed = (found - limit).abs() / limit * 100.0;
        (!self.ok()).then(|| {
            format!(
                "{name}: {what} is {found:.3} of native, {word} {limit} is allowed: missed by {missed:.1} %"
            )
        })
    }
}

/// Every figure that has a limit.
pub fn judge(ratios: &Ratios) -> [Judged; 5] {
    let least = |name, what, found, limit| Judged { name, what, found, limit, at_least: true };
    let most = |name, what, found, limit| Judged { name, what, found, limit, at_least: false };
    [
        least("suite", "the speed of one of each operation and a probe", ratios.suite, LEAST_SUITE),
        least("work_1ms", "the speed of work of 1 ms and longer", ratios.work_1ms, LEAST_WORK),
        least("pipelined", "the speed of submissions that do not wait", ratios.pipelined, LEAST_PIPELINED),
        most("latency_4k", "the time of a 4 KiB copy", ratios.latency_4k, MOST_LATENCY),
        most("probe", "the time of a probe", ratios.probe, MOST_PROBE),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Ratios {
        Ratios {
            suite: 0.95,
            suite_geometric: 0.5,
            work_1ms: 0.98,
            latency_4k: 1.15,
            pipelined: 0.9,
            probe: 1.25,
            power_off: 9.0,
        }
    }

    fn problems(ratios: &Ratios) -> Vec<String> {
        judge(ratios).iter().filter_map(Judged::problem).collect()
    }

    #[test]
    fn results_at_the_limits_are_within_them() {
        assert_eq!(problems(&good()), Vec::<String>::new());
    }

    #[test]
    fn each_result_beyond_its_limit_is_a_problem_that_says_by_how_much() {
        let worse: [fn(&mut Ratios); 5] = [
            |ratios| ratios.suite = 0.94,
            |ratios| ratios.work_1ms = 0.97,
            |ratios| ratios.pipelined = 0.89,
            |ratios| ratios.latency_4k = 1.16,
            |ratios| ratios.probe = 1.26,
        ];
        for worsen in worse {
            let mut ratios = good();
            worsen(&mut ratios);
            assert_eq!(problems(&ratios).len(), 1, "{ratios:?}");
        }
        let slow = Ratios { latency_4k: 1.38, ..good() };
        let expected = "latency_4k: the time of a 4 KiB copy is 1.380 of native, at most 1.15 is allowed: missed by 20.0 %";
        assert_eq!(problems(&slow), [expected]);
    }

    #[test]
    fn what_is_no_number_is_within_no_limit() {
        assert_eq!(problems(&Ratios { suite: f64::NAN, probe: f64::NAN, ..good() }).len(), 2);
    }
}
