//! What the host does to the attacker's machine: stops it and lets it go on, or has it crash again and again.

use std::fs;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{ATTACKER, BOOT, Count, Field, MORE, Told};

/// How long the machine stands still.
const STANDS: Duration = Duration::from_secs(2);
/// Crashes beside the first one.
const CRASHES: u32 = 4;
/// What may pass until nothing is left of a machine that crashed.
const CLEAN_UP: Duration = Duration::from_secs(2);

/// What must be no more than before when the machine is up again.
#[derive(Debug)]
struct Deferred {
    /// Counts of the tenant: VRAM, channels, pages, bytes of page tables, guest memory.
    counts: Vec<(&'static str, u64)>,
    /// Open files of the device process and of the aggregator.
    files: [usize; 2],
}

impl Deferred {
    /// Whether there is more of anything than there was.
    fn exceeds(&self, before: &Self) -> bool {
        let counts = self.counts.iter().zip(&before.counts).any(|((_, now), (_, then))| now > then);
        counts || self.files.iter().zip(&before.files).any(|(now, then)| now > then)
    }
}

const COUNTS: [(&str, Count); 5] = [
    ("vram", |tenant| tenant.vram),
    ("channels", |tenant| tenant.channels as u64),
    ("mapped_pages", |tenant| tenant.mapped_pages),
    ("table_bytes", |tenant| tenant.table_bytes),
    ("memory", |tenant| tenant.memory),
];

impl Field<'_> {
    /// Has the attacker work while its machine is stopped twice.
    pub(super) fn stopped(&mut self, name: &str, time: Duration) -> Result<Told> {
        self.order(&format!("{name} {}", time.as_secs_f64()))?;
        for _ in 0..2 {
            self.idle(time / 4)?;
            self.machine()?.stop_processors()?;
            let stood = self.idle(STANDS);
            self.machine()?.continue_processors()?;
            stood?;
        }
        self.await_event(ATTACKER, "attack-over", time + MORE).map(|_| Told::default())
    }

    /// Has the machine crash several times; after each, as much must be left of it as after the first.
    pub(super) fn crashes(&mut self, name: &str) -> Result<Told> {
        self.crash(name, 0)?;
        let first = self.kept()?;
        for round in 1..=CRASHES {
            self.crash(name, round)?;
            let mut now = self.kept()?;
            // Windows onto memory are unmapped by the kernel when it gets to it.
            let start = std::time::Instant::now();
            while now.exceeds(&first) && start.elapsed() < CLEAN_UP {
                thread::sleep(Duration::from_millis(100));
                now = self.kept()?;
            }
            ensure!(
                !now.exceeds(&first),
                "after crash {round} there are {now:?}, after the first there were {first:?}"
            );
        }
        self.order("works 0")?;
        self.await_event(ATTACKER, "attack-over", MORE)?;
        let [device, aggregator] = first.files;
        let seen = format!(
            "{} crashes; never more afterwards than after the first ({device} and {aggregator} open files)",
            CRASHES + 1
        );
        Ok(Told { seen, ..Told::default() })
    }

    fn crash(&mut self, name: &str, round: u32) -> Result<()> {
        self.order(&format!("{name} 0 {round}"))?;
        self.await_event(ATTACKER, "attacker-ready", BOOT).map(drop)
    }

    fn kept(&mut self) -> Result<Deferred> {
        let snapshot = self.snapshot()?;
        let counts = COUNTS.map(|(name, of)| (name, snapshot.count(ATTACKER, of))).to_vec();
        let device = self.rig.device(1).context("There is no device process")?.process().id();
        let aggregator = self.rig.aggregator().context("There is no aggregator")?.process().id();
        Ok(Deferred { counts, files: [open_files(device)?, open_files(aggregator)?] })
    }
}

/// How many files a process has open.
fn open_files(process: u32) -> Result<usize> {
    let folder = format!("/proc/{process}/fd");
    Ok(fs::read_dir(&folder).with_context(|| format!("Cannot look at {folder}"))?.count())
}
