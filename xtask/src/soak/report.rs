//! What came of a run, for people and as JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::Plan;
use super::census::{Census, Process};
use super::deeds::Counts;
use super::judge::Grew;
use super::visitor::Work;
use super::world::{Cleanup, World};

/// What came of a run.
#[derive(Debug)]
pub struct Report {
    plan: Plan,
    wall: Duration,
    counts: Counts,
    work: Work,
    cleanups: Vec<Cleanup>,
    foreign_accesses: u64,
    first: Census,
    all: Vec<Census>,
    grew: Vec<Grew>,
    problems: Vec<String>,
}

impl Report {
    /// From what was seen: the first census, and those of all quiet moments.
    pub fn new(
        plan: &Plan,
        wall: Duration,
        world: World<'_>,
        (first, all): (Census, Vec<Census>),
        grew: Vec<Grew>,
    ) -> Self {
        let World { counts, work, cleanups, foreign_accesses, mut problems, .. } = world;
        if cleanups.is_empty() {
            problems.push("no VM went".into());
        }
        if work.copies == 0 {
            problems.push("no guest did any work".into());
        }
        for cleanup in cleanups.iter().filter(|cleanup| cleanup.took > plan.clean_within) {
            problems.push(format!(
                "what a VM with {} MiB of VRAM had came back after {:?} only",
                cleanup.vram_mib, cleanup.took
            ));
        }
        let plan = plan.clone();
        Self { plan, wall, counts, work, cleanups, foreign_accesses, first, all, grew, problems }
    }

    /// Whether everything is as it must be.
    pub fn ok(&self) -> bool {
        self.problems.is_empty() && self.grew.is_empty() && self.foreign_accesses == 0
    }

    /// For people.
    pub fn print(&self) {
        println!(
            "seed {}, {:.0} s, {} quiet moments",
            self.plan.seed,
            self.wall.as_secs_f64(),
            self.all.len()
        );
        println!("{}", self.counts.to_json());
        println!(
            "{} copies verified ({} MiB), {} pages looked through, {} departures, cleaned up after {} ms at most",
            self.work.copies,
            self.work.bytes >> 20,
            self.work.scanned_pages,
            self.cleanups.len(),
            millis(most(&self.cleanups))
        );
        println!(
            "{:26} descriptors, threads, private KiB, shared KiB: before the first VM, after the last",
            ""
        );
        for (name, first) in &self.first.processes {
            let last = self.all.last().and_then(|census| census.processes.get(name)).copied();
            println!("{name:26} {} -> {}", line(*first), last.map_or("-".into(), line));
        }
        for grew in &self.grew {
            println!("{}: {} grew from {} to {}", grew.process, grew.what, grew.before, grew.after);
        }
        self.problems.iter().for_each(|problem| println!("{problem}"));
        println!("{}", if self.ok() { "everything came back" } else { "FAILED" });
    }

    /// As the JSON result has it.
    pub fn to_json(&self) -> Value {
        let large: Vec<Cleanup> =
            self.cleanups.iter().copied().filter(|cleanup| cleanup.vram_mib >= 1024).collect();
        json!({
            "ok": self.ok(),
            "seed": self.plan.seed,
            "minutes": (self.plan.time.as_secs_f64() / 0.6).round() / 100.0,
            "seconds": self.wall.as_secs(),
            "chips": self.plan.chips.iter().map(|chip| chip.name()).collect::<Vec<_>>(),
            "vms": self.plan.vms,
            "events": self.counts.to_json(),
            "quiet_moments": self.all.len(),
            "grew": self.grew,
            "foreign_accesses": self.foreign_accesses,
            "cleanup": {
                "count": self.cleanups.len(),
                "p50_ms": millis(median(&self.cleanups)),
                "max_ms": millis(most(&self.cleanups)),
                "gibibyte_count": large.len(),
                "gibibyte_p50_ms": millis(median(&large)),
                "gibibyte_max_ms": millis(most(&large)),
            },
            "work": {
                "verified_copies": self.work.copies,
                "verified_bytes": self.work.bytes,
                "scanned_pages": self.work.scanned_pages,
            },
            "processes": self.processes(),
            "problems": self.problems,
        })
    }

    /// What each process had at each quiet moment, the one before the first VM included.
    fn processes(&self) -> BTreeMap<&String, Value> {
        let moments = || std::iter::once(&self.first).chain(&self.all);
        let all = |name: &String, of: fn(&Process) -> u64| -> Vec<u64> {
            moments().filter_map(|census| census.processes.get(name)).map(of).collect()
        };
        let one = |name: &String| {
            json!({
                "descriptors": all(name, |process| process.descriptors),
                "threads": all(name, |process| process.threads),
                "mappings": all(name, |process| process.mappings),
                "private_kib": all(name, |process| process.private_kib),
                "shared_kib": all(name, |process| process.shared_kib),
            })
        };
        self.first.processes.keys().map(|name| (name, one(name))).collect()
    }
}

fn line(process: Process) -> String {
    let Process { descriptors, threads, private_kib, shared_kib, .. } = process;
    format!("{descriptors} {threads} {private_kib} {shared_kib}")
}

fn median(cleanups: &[Cleanup]) -> Duration {
    let mut all: Vec<Duration> = cleanups.iter().map(|cleanup| cleanup.took).collect();
    all.sort_unstable();
    all.get(all.len() / 2).copied().unwrap_or_default()
}

fn most(cleanups: &[Cleanup]) -> Duration {
    cleanups.iter().map(|cleanup| cleanup.took).max().unwrap_or_default()
}

fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e4).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_and_most_are_of_all_departures() {
        let of = |millis: &[u64]| -> Vec<Cleanup> {
            let cleanup = |ms: &u64| Cleanup { took: Duration::from_millis(*ms), vram_mib: 64 };
            millis.iter().map(cleanup).collect()
        };
        assert_eq!(millis(median(&of(&[900, 10, 30]))), 30.0);
        assert_eq!(millis(most(&of(&[10, 900, 30]))), 900.0);
        assert_eq!(median(&[]), Duration::ZERO);
    }
}
