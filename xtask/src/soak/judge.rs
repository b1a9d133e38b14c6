//! What grew: every census against the first one, and the second half of the run against the first half.
//!
//! Descriptors, threads, what aggregators grant, and files must be as in the first census, which is taken
//! before the first VM comes. Memory may not: allocators keep some of what they had, and a software GPU's
//! VRAM is allocated when it is first touched. But it must not go on growing: its most in the second half of
//! the run may exceed its most in the first half by a slack only.

use std::collections::BTreeSet;

use serde::Serialize;

use super::census::{Census, Granted, Process};

/// What allocators may keep more of, in KiB.
const PRIVATE_SLACK: u64 = 4096;
/// What may be touched for the first time in the second half, in KiB.
const SHARED_SLACK: u64 = 4096;
/// Mappings: arenas of allocators, threads' stacks that are kept.
const MAPPINGS_SLACK: u64 = 16;
/// What an idle device back end may have for itself, in KiB.
const IDLE_BACKEND: u64 = 8 << 10;

/// Something that did not come back to what it was.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Grew {
    pub process: String,
    pub what: &'static str,
    pub before: u64,
    pub after: u64,
}

/// A count of a process.
type Of<T> = fn(&T) -> u64;

const EXACT: [(&str, Of<Process>); 2] =
    [("descriptors", |process| process.descriptors), ("threads", |process| process.threads)];
const TREND: [(&str, Of<Process>, u64); 3] = [
    ("private_kib", |process| process.private_kib, PRIVATE_SLACK),
    ("shared_kib", |process| process.shared_kib, SHARED_SLACK),
    ("mappings", |process| process.mappings, MAPPINGS_SLACK),
];
const GRANTED: [(&str, Of<Granted>); 8] = [
    ("tenants", |granted| granted.tenants),
    ("vram", |granted| granted.vram),
    ("channels_granted", |granted| granted.channels_granted),
    ("channels", |granted| granted.channels),
    ("spaces", |granted| granted.spaces),
    ("mapped_pages", |granted| granted.pages),
    ("table_bytes", |granted| granted.table_bytes),
    ("guest_memory", |granted| granted.guest_memory),
];

/// What is not as it was in `first`.
pub fn differs(first: &Census, now: &Census) -> Vec<Grew> {
    let mut grew = Vec::new();
    for (name, process) in &now.processes {
        let before = first.processes.get(name).copied().unwrap_or_default();
        for (what, of) in EXACT {
            if of(process) > of(&before) {
                grew.push(Grew { process: name.clone(), what, before: of(&before), after: of(process) });
            }
        }
        if name.starts_with("device-") && process.private_kib > IDLE_BACKEND {
            let what = "private_kib of an idle back end, of which so many are allowed";
            grew.push(Grew { process: name.clone(), what, before: IDLE_BACKEND, after: process.private_kib });
        }
    }
    for (chip, granted) in &now.granted {
        let before = first.granted.get(chip).copied().unwrap_or_default();
        for (what, of) in GRANTED {
            if of(granted) != of(&before) {
                let process = format!("aggregator-{chip}");
                grew.push(Grew { process, what, before: of(&before), after: of(granted) });
            }
        }
    }
    for name in now.files.difference(&first.files) {
        grew.push(Grew { process: name.clone(), what: "files", before: 0, after: 1 });
    }
    grew
}

/// What grew from the first half of the run to the second.
pub fn trend(all: &[Census]) -> Vec<Grew> {
    let (early, late) = all.split_at(all.len() / 2);
    if early.is_empty() {
        return Vec::new();
    }
    let names: BTreeSet<&String> = all.iter().flat_map(|census| census.processes.keys()).collect();
    let mut grew = Vec::new();
    for name in names {
        for (what, of, slack) in TREND {
            let most = |half: &[Census]| {
                half.iter().filter_map(|census| census.processes.get(name)).map(of).max().unwrap_or(0)
            };
            let (before, after) = (most(early), most(late));
            if after > before.saturating_add(slack) {
                grew.push(Grew { process: name.clone(), what, before, after });
            }
        }
    }
    grew
}

#[cfg(test)]
mod tests {
    use super::*;

    fn census(private_kib: u64, descriptors: u64) -> Census {
        let process = Process { private_kib, descriptors, threads: 3, ..Process::default() };
        let granted = Granted { tenants: 1, vram: 64, ..Granted::default() };
        Census {
            processes: [("aggregator-GF100".to_owned(), process)].into(),
            granted: [("GF100".to_owned(), granted)].into(),
            files: ["a.sock".to_owned()].into(),
        }
    }

    #[test]
    fn descriptor_too_many_tenant_lost_and_file_left_are_named() {
        let first = census(1000, 9);
        assert_eq!(differs(&first, &census(90_000, 9)), []);
        let mut now = census(1000, 10);
        now.granted.insert("GF100".to_owned(), Granted::default());
        now.files.insert("b.sock".to_owned());
        let found: Vec<_> = differs(&first, &now).into_iter().map(|grew| (grew.what, grew.after)).collect();
        assert_eq!(found, [("descriptors", 10), ("tenants", 0), ("vram", 0), ("files", 1)]);
    }

    #[test]
    fn device_process_that_keeps_much_for_itself_is_named() {
        let mut now = census(9000, 3);
        let process = now.processes["aggregator-GF100"];
        now.processes.insert("device-a".to_owned(), process);
        let found = differs(&now.clone(), &now);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].process.as_str(), found[0].after), ("device-a", 9000));
    }

    #[test]
    fn memory_that_goes_on_growing_is_a_trend_and_a_jump_at_first_is_none() {
        let of = |all: &[u64]| trend(&all.iter().map(|kib| census(*kib, 1)).collect::<Vec<_>>());
        assert_eq!(of(&[1000, 30_000, 30_000, 31_000]), []);
        let grew = of(&[1000, 11_000, 21_000, 31_000]);
        assert_eq!((grew[0].what, grew[0].before, grew[0].after), ("private_kib", 11_000, 31_000));
    }
}
