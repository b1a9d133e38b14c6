//! The systemd units: systemd accepts them, and they allow what the daemons need, which the filters of the
//! jail name.
//!
//! Groups of system calls are taken apart by `systemd-analyze`; where that is missing, only names are looked
//! at.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on panics")]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use gpuvmk::jail::{Role, Rule};

const UNITS: [&str; 2] = ["gpuvmk-aggregator@.service", "gpuvmk-device@.service"];

/// What a daemon calls on its way into the jail, beside what it may call there.
const SET_UP: [&str; 12] = [
    "capset",
    "chmod",
    "bind",
    "close_range",
    "execve",
    "flock",
    "landlock_add_rule",
    "landlock_create_ruleset",
    "landlock_restrict_self",
    "lchown",
    "listen",
    "seccomp",
];

fn path(unit: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "packaging", "systemd", unit].iter().collect()
}

/// The values of a key, in order.
fn values<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    text.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).collect()
}

/// The calls of a group; `None` where systemd-analyze is missing.
fn group(name: &str) -> Option<BTreeSet<String>> {
    let output = Command::new("systemd-analyze").args(["syscall-filter", name]).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut calls = BTreeSet::new();
    for word in text.lines().map(str::trim).filter(|word| *word != name && !word.starts_with('#')) {
        if word.starts_with('@') {
            calls.extend(group(word)?);
        } else {
            calls.insert(word.to_owned());
        }
    }
    Some(calls)
}

/// What the lines of `SystemCallFilter` leave; `None` where groups cannot be taken apart.
fn allowed(text: &str) -> Option<BTreeSet<String>> {
    let mut calls = group("@default")?;
    for line in values(text, "SystemCallFilter") {
        let (words, forbid) = line.strip_prefix('~').map_or((line, false), |words| (words, true));
        for word in words.split_whitespace() {
            let named = if word.starts_with('@') { group(word)? } else { BTreeSet::from([word.to_owned()]) };
            if forbid {
                calls.retain(|call| !named.contains(call));
            } else {
                calls.extend(named);
            }
        }
    }
    Some(calls)
}

#[test]
fn units_allow_what_the_jail_allows() {
    for unit in UNITS {
        let text = std::fs::read_to_string(path(unit)).unwrap();
        let Some(allowed) = allowed(&text) else { continue };

        let needed = Role::ALL.into_iter().flat_map(|role| role.rules().map(Rule::name)).chain(SET_UP);
        let missing: BTreeSet<&str> = needed.filter(|call| !allowed.contains(*call)).collect();

        assert!(missing.is_empty(), "{unit} forbids {missing:?}");
    }
}

#[test]
fn units_take_away_what_the_jail_takes_away() {
    for unit in UNITS {
        let text = std::fs::read_to_string(path(unit)).unwrap();

        for (key, value) in [
            ("NoNewPrivileges", "yes"),
            ("CapabilityBoundingSet", ""),
            ("PrivateNetwork", "yes"),
            ("ProtectSystem", "strict"),
            ("RestrictAddressFamilies", "AF_UNIX"),
            ("MemoryDenyWriteExecute", "yes"),
            ("DevicePolicy", "closed"),
            ("LimitCORE", "0"),
        ] {
            assert_eq!(values(&text, key), [value], "{key} in {unit}");
        }
    }
}

#[test]
fn systemd_accepts_the_units() {
    for unit in UNITS.into_iter().chain(["gpuvmk-device@.socket"]) {
        let Ok(output) = Command::new("systemd-analyze").arg("verify").arg(path(unit)).output() else {
            return;
        };

        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // gpuvmk need not be installed here.
        let complaints: Vec<&str> = said
            .lines()
            .filter(|line| line.contains("gpuvmk-") && !line.contains("is not executable"))
            .collect();

        assert!(complaints.is_empty(), "{unit}: {complaints:?}");
    }
}
