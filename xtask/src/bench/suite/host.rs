//! The machine that a run was made on.

use std::fs;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::workshop::Workshop;

/// What a reader of figures must know.
#[derive(Debug, Clone, PartialEq)]
pub struct Host {
    pub date: String,
    pub processor: String,
    pub processors: usize,
    pub memory_mib: f64,
    pub kernel: String,
    pub qemu: String,
    pub accelerator: &'static str,
    /// Processes that wanted to run when the run began, over a minute: other work.
    pub load: String,
}

impl Host {
    pub fn of_this_run(workshop: &Workshop) -> Result<Self> {
        let date =
            Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]).output().context("Cannot ask date")?;
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Ok(Self {
            date: String::from_utf8_lossy(&date.stdout).trim().to_owned(),
            processor: processor(&cpuinfo).unwrap_or("unknown").to_owned(),
            processors: thread::available_parallelism()?.get(),
            memory_mib: meminfo("MemTotal:")?,
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            qemu: workshop.qemu().version.to_string(),
            accelerator: workshop.accelerator().name(),
            load: load.split(' ').next().unwrap_or("unknown").to_owned(),
        })
    }

    /// Each fact and its name.
    pub fn facts(&self) -> [(&'static str, String); 8] {
        [
            ("date", self.date.clone()),
            ("processor", self.processor.clone()),
            ("processors", self.processors.to_string()),
            ("memory_mib", format!("{:.0}", self.memory_mib)),
            ("kernel", self.kernel.clone()),
            ("qemu", self.qemu.clone()),
            ("accelerator", self.accelerator.to_owned()),
            ("load_before", self.load.clone()),
        ]
    }

    pub fn to_json(&self) -> Value {
        self.facts().into_iter().map(|(name, fact)| (name.to_owned(), json!(fact))).collect()
    }
}

/// Memory that new processes can have, in MiB.
pub fn available_mib() -> Result<f64> {
    meminfo("MemAvailable:")
}

fn meminfo(name: &str) -> Result<f64> {
    let text = fs::read_to_string("/proc/meminfo").context("Cannot read /proc/meminfo")?;
    kib(&text, name).map(|kib| kib / 1024.0).with_context(|| format!("/proc/meminfo has no {name}"))
}

/// The number behind `name` in lines such as `MemTotal:  100 kB`.
pub fn kib(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

fn processor(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_read_from_the_kernel_s_files() {
        assert_eq!(kib("MemTotal:       2048 kB\nMemFree: 1 kB\n", "MemTotal:"), Some(2048.0));
        assert_eq!(kib("MemTotal:       2048 kB\n", "MemAvailable:"), None);
        let cpuinfo = "processor\t: 0\nmodel name\t: Some CPU @ 2.00GHz\nmodel name\t: other\n";
        assert_eq!(processor(cpuinfo), Some("Some CPU @ 2.00GHz"));
        assert!(available_mib().unwrap() > 1.0);
    }
}
