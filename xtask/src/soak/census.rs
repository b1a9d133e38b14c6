//! What is there at a quiet moment: descriptors, threads and memory of every daemon, what the aggregators
//! count, and files in the sockets' folder.
//!
//! Private memory is a process's anonymous memory; shared memory is what is allocated of the memory files
//! that it has open. The memory that a software GPU plays VRAM with is among the latter.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result};
use gpuvmk_control_client::{Status, TenantStatus};
use gpuvmk_lab::rig::Rig;

/// A process, by what it has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Process {
    pub descriptors: u64,
    pub threads: u64,
    pub mappings: u64,
    pub private_kib: u64,
    pub shared_kib: u64,
}

/// What an aggregator has given away.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Granted {
    pub tenants: u64,
    pub vram: u64,
    pub channels_granted: u64,
    pub channels: u64,
    pub spaces: u64,
    pub pages: u64,
    pub table_bytes: u64,
    pub guest_memory: u64,
}

/// Everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Census {
    /// By name.
    pub processes: BTreeMap<String, Process>,
    /// By chip.
    pub granted: BTreeMap<String, Granted>,
    /// Names in the sockets' folder.
    pub files: BTreeSet<String>,
}

impl Census {
    /// Of everything that runs.
    pub fn of(rig: &mut Rig) -> Result<Self> {
        let mut census = Self::default();
        for status in rig.status()? {
            let chip = status.gpu.chip.clone();
            census.granted.insert(chip, Granted::of(&status));
        }
        for entry in fs::read_dir(rig.socket_folder()).context("Cannot look at the sockets")? {
            census.files.insert(entry?.file_name().to_string_lossy().into_owned());
        }
        for daemon in rig.daemons() {
            let process = daemon.process();
            let found =
                Process::of(process.id()).with_context(|| format!("Cannot look at {}", process.name()))?;
            census.processes.insert(process.name().to_owned(), found);
        }
        Ok(census)
    }
}

impl Process {
    fn of(id: u32) -> Result<Self> {
        let folder = Path::new("/proc").join(id.to_string());
        let maps = fs::read_to_string(folder.join("maps"))?;
        let rollup = fs::read_to_string(folder.join("smaps_rollup"))?;
        let mut files = BTreeMap::new();
        let mut descriptors = 0;
        for entry in fs::read_dir(folder.join("fd"))? {
            let path = entry?.path();
            descriptors += 1;
            // One that was closed meanwhile is not counted as a file.
            let Ok(target) = fs::read_link(&path) else { continue };
            if target.to_string_lossy().starts_with("/memfd:")
                && let Ok(file) = fs::metadata(&path)
            {
                files.insert((file.dev(), file.ino()), file.blocks());
            }
        }
        Ok(Self {
            descriptors,
            threads: fs::read_dir(folder.join("task"))?.count() as u64,
            mappings: maps.lines().count() as u64,
            private_kib: anonymous(&rollup).context("no 'Anonymous' in smaps_rollup")?,
            // The kernel counts blocks of 512 bytes.
            shared_kib: files.values().sum::<u64>() / 2,
        })
    }
}

fn anonymous(rollup: &str) -> Option<u64> {
    let line = rollup.lines().find_map(|line| line.strip_prefix("Anonymous:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

impl Granted {
    fn of(status: &Status) -> Self {
        let sum = |of: fn(&TenantStatus) -> u64| status.tenants.iter().map(of).sum();
        Self {
            tenants: status.tenants.len() as u64,
            vram: sum(|tenant| tenant.vram),
            channels_granted: status.gpu.channels.saturating_sub(status.gpu.channels_free).into(),
            channels: sum(|tenant| tenant.channels as u64),
            spaces: sum(spaces),
            pages: sum(|tenant| tenant.mapped_pages),
            table_bytes: sum(|tenant| tenant.table_bytes),
            guest_memory: sum(|tenant| tenant.memory),
        }
    }
}

/// A tenant's address spaces.
pub fn spaces(tenant: &TenantStatus) -> u64 {
    tenant.limits.get("spaces").map_or(0, |limit| limit.used)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_process_has_descriptors_threads_and_memory() {
        let found = Process::of(std::process::id()).unwrap();
        assert!(found.descriptors >= 3 && found.threads >= 1 && found.mappings > 10, "{found:?}");
        assert!(found.private_kib > 50, "{found:?}");
    }

    #[test]
    fn aggregators_counts_are_summed_over_tenants() {
        let status = serde_json::from_str(
            r#"{"gpu":{"chip":"GF100","channels":64,"channels_free":40,"scrub":{"departures":{"wanted_us":0}}},"tenants":[
            {"name":"a","vram":10,"channels":2,"mapped_pages":5,"limits":{"spaces":{"used":3}}},
            {"name":"b","vram":20,"channels":1,"memory":7,"limits":{"spaces":{"used":1}}}]}"#,
        )
        .unwrap();
        let granted = Granted::of(&status);
        assert_eq!((granted.tenants, granted.vram, granted.channels_granted), (2, 30, 24));
        assert_eq!((granted.channels, granted.spaces, granted.pages, granted.guest_memory), (3, 4, 5, 7));
    }

    #[test]
    fn private_memory_is_what_the_kernel_calls_anonymous() {
        assert_eq!(anonymous("Rss:  9 kB\nAnonymous:          1234 kB\n"), Some(1234));
        assert_eq!(anonymous("Rss: 9 kB"), None);
    }
}
