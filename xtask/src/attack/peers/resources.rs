//! What a daemon holds: descriptors, threads, memory of its own. After an attack it must hold no more than
//! before.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use gpuvmk_lab::rig::Rig;

/// How long a daemon may take to let go of what an attacker left.
const PATIENCE: Duration = Duration::from_secs(8);
/// Private memory that an allocator may keep for later.
const SLACK_KIB: u64 = 8 << 10;
const LOOK: Duration = Duration::from_millis(50);

/// What one daemon holds.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Held {
    name: String,
    id: u32,
    descriptors: usize,
    threads: usize,
    private_kib: u64,
}

impl Held {
    fn of(name: &str, id: u32) -> Self {
        let entries = |what| fs::read_dir(format!("/proc/{id}/{what}")).map_or(0, Iterator::count);
        let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        Self {
            name: name.to_owned(),
            id,
            descriptors: entries("fd"),
            threads: entries("task"),
            private_kib: field(&status, "RssAnon:").unwrap_or(0),
        }
    }

    /// What it holds more than `before`.
    fn growth(&self, before: &Self) -> Vec<String> {
        let mut found = Vec::new();
        let name = &self.name;
        if self.id != before.id {
            found.push(format!("{name} is process {} instead of {}", self.id, before.id));
        }
        for (what, now, then) in
            [("descriptors", self.descriptors, before.descriptors), ("threads", self.threads, before.threads)]
        {
            if now > then {
                found.push(format!("{name} has {now} {what} instead of {then}"));
            }
        }
        if self.private_kib > before.private_kib.saturating_add(SLACK_KIB) {
            found.push(format!(
                "{name} has {} KiB of private memory instead of {}",
                self.private_kib, before.private_kib
            ));
        }
        found
    }
}

/// A number of KiB in /proc/PID/status.
fn field(status: &str, name: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}

/// What all daemons hold, and what of the GPU is given to somebody.
#[derive(Debug, Clone)]
pub struct Baseline {
    daemons: Vec<Held>,
    tenants: Vec<String>,
    vram_free: u64,
    channels_free: u64,
}

impl Baseline {
    /// What is held now.
    fn take(rig: &mut Rig) -> Result<Self> {
        let status = rig.status()?;
        let vram_free = status.iter().map(|status| status.gpu.vram_free).sum();
        let channels_free = status.iter().map(|status| u64::from(status.gpu.channels_free)).sum();
        let mut tenants: Vec<_> =
            status.into_iter().flat_map(|status| status.tenants).map(|tenant| tenant.name).collect();
        tenants.sort_unstable();
        let held = |daemon: &mut gpuvmk_lab::daemons::Daemon| {
            let process = daemon.process();
            Held::of(process.name(), process.id())
        };
        Ok(Self { daemons: rig.daemons().map(held).collect(), tenants, vram_free, channels_free })
    }

    /// What is held once the only tenants are the two that stay.
    pub fn settled(rig: &mut Rig) -> Result<Self> {
        let start = Instant::now();
        loop {
            let now = Self::take(rig)?;
            if now.tenants.len() == 2 {
                return Ok(now);
            }
            ensure!(start.elapsed() < PATIENCE, "The tenants are {:?}", now.tenants);
            thread::sleep(LOOK);
        }
    }

    /// Waits until no more is held than in this baseline; returns what still is after all.
    pub fn await_return(&self, rig: &mut Rig) -> Result<Vec<String>> {
        let start = Instant::now();
        loop {
            let growth = Self::take(rig)?.growth(self);
            if growth.is_empty() || start.elapsed() > PATIENCE {
                return Ok(growth);
            }
            thread::sleep(LOOK);
        }
    }

    fn growth(&self, before: &Self) -> Vec<String> {
        let pairs = self.daemons.iter().zip(&before.daemons);
        let mut found: Vec<_> = pairs.flat_map(|(now, then)| now.growth(then)).collect();
        if self.tenants != before.tenants {
            found.push(format!("the tenants are {:?} instead of {:?}", self.tenants, before.tenants));
        }
        for (what, now, then) in [
            ("bytes of VRAM", self.vram_free, before.vram_free),
            ("channels", self.channels_free, before.channels_free),
        ] {
            if now < then {
                found.push(format!("{now} {what} are free instead of {then}"));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_of_anything_is_growth_and_less_is_not() {
        let before = Held::of("xtask", std::process::id());
        assert!(before.descriptors > 2 && before.threads > 0 && before.private_kib > 0);
        let grown = Held { descriptors: before.descriptors + 1, ..before.clone() };
        assert_eq!(grown.growth(&before).len(), 1);
        assert!(before.growth(&grown).is_empty());
        let other = Held { id: before.id + 1, threads: before.threads + 2, ..before.clone() };
        assert_eq!(other.growth(&before).len(), 2);
    }

    #[test]
    fn memory_is_read_in_kib() {
        assert_eq!(field("RssFile:\t 12 kB\nRssAnon:\t 3456 kB\n", "RssAnon:"), Some(3456));
    }
}
