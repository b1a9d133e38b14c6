//! 1, 2, 4 ... VMs on one GPU, each copying as fast as it can.
//!
//! The set-up grows: VMs join those that are there, so each number is measured with exactly so many VMs.
//! Those that join are started at the same moment, as far as the host's processors can boot them.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use gpuvmk_chip::Face;
use gpuvmk_lab::chip::{Chip, GuestChip as _};
use gpuvmk_lab::crowd::figures::jain;
use gpuvmk_lab::crowd::{Crowd, is_ready};
use gpuvmk_lab::interrupt;
use gpuvmk_lab::machine::{LOOK, Machine};
use gpuvmk_lab::rig::{Rig, RigSpec, Topology};
use gpuvmk_lab::verdict;
use serde_json::{Value, json};

use super::host;
use crate::bench::{median, round3};
use crate::cases::Guest;
use crate::workshop::{Workshop, expected};

const MIB: f64 = (1 << 20) as f64;
/// Each VM's copies inside VRAM: short enough for hundreds of submissions in a second.
const BUSY: &str = "busy 65536";
/// Until queues are full, and until they are empty: for all, and for each VM.
const SETTLE: Duration = Duration::from_secs(2);
const SETTLE_EACH: Duration = Duration::from_millis(200);
/// Guests that boot at a time, for each of the host's processors: more keep each other's kernels from their
/// clocks.
const BOOT_AT_A_TIME: usize = 4;
const WATCH: Duration = Duration::from_secs(5);
/// Channels of all VMs together, and what one needs: the kernel's own, its program's, and one while another
/// is closed.
const FERMI_CHANNELS: usize = 126;
const HOPPER_CHANNELS: usize = 510;
const LEAST_CHANNELS: usize = 3;
const MOST_CHANNELS: usize = 15;
const GUEST_MIB: u32 = 384;
const VRAM_MIB: u32 = 64;
/// What a VM is taken to cost the host before one was seen, in MiB.
const FIRST_GUESS: f64 = 450.0;
/// What is left to everybody else.
const RESERVE_MIB: f64 = 2048.0;

/// So many VMs.
#[derive(Debug, Clone, PartialEq)]
pub struct Stage {
    pub vms: usize,
    /// What all copied together, in MB a second.
    pub mb_s: f64,
    /// Part of the time that the GPU was busy, where it tells (software GPUs); engines add up.
    pub busy: f64,
    /// Jain's index of what each copied.
    pub fairness: f64,
    /// Private memory of each VM's device process in MiB: the median, and the most.
    pub memory_mib: f64,
    pub most_memory_mib: f64,
    /// How many were started for this stage, and after how many seconds the first and the last of them were
    /// ready.
    pub started: usize,
    pub first_ready_s: f64,
    pub last_ready_s: f64,
}

/// What was found on a chip.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scaling {
    pub stages: Vec<Stage>,
    pub left_out: Vec<String>,
    pub problems: Vec<String>,
}

impl Scaling {
    /// What all copied together over what one did, by number of VMs.
    pub fn over_one(&self) -> BTreeMap<usize, f64> {
        let Some(one) = self.stages.iter().find(|stage| stage.vms == 1) else { return BTreeMap::new() };
        let over = |stage: &Stage| (stage.vms, stage.mb_s / one.mb_s.max(f64::MIN_POSITIVE));
        self.stages.iter().map(over).collect()
    }

    /// The most private memory of a device process.
    pub fn memory_mib(&self) -> Option<f64> {
        self.stages.iter().map(|stage| stage.most_memory_mib).reduce(f64::max)
    }

    pub fn to_json(&self) -> Value {
        let over: BTreeMap<String, f64> =
            self.over_one().into_iter().map(|(vms, over)| (vms.to_string(), round3(over))).collect();
        let stage = |stage: &Stage| {
            json!({
                "vms": stage.vms,
                "mb_s": stage.mb_s.round(),
                "busy": round3(stage.busy),
                "jain": round3(stage.fairness),
                "memory_mib": round3(stage.memory_mib),
                "most_memory_mib": round3(stage.most_memory_mib),
                "started": stage.started,
                "first_ready_s": round3(stage.first_ready_s),
                "last_ready_s": round3(stage.last_ready_s),
            })
        };
        let stages: Vec<Value> = self.stages.iter().map(stage).collect();
        json!({ "over_one": over, "stages": stages, "left_out": self.left_out })
    }

    pub fn print(&self, chip: Chip) {
        let over = self.over_one();
        for stage in &self.stages {
            let over = over.get(&stage.vms).map_or("-".to_owned(), |over| format!("{over:.3}"));
            println!(
                "{chip}: {:2} VMs copy {:6.0} MB/s, {over} of one; GPU busy {:.2}; Jain {:.3}; {:.2} MiB each ({:.2} at most); {} ready after {:.1} to {:.1} s",
                stage.vms,
                stage.mb_s,
                stage.busy,
                stage.fairness,
                stage.memory_mib,
                stage.most_memory_mib,
                stage.started,
                stage.first_ready_s,
                stage.last_ready_s
            );
        }
    }
}

/// Numbers of VMs that the chip has channels for, smallest first, and what is said of the others.
fn possible(chip: Chip, wanted: &[usize]) -> (Vec<usize>, Vec<String>) {
    let channels = channels(chip);
    let mut wanted: Vec<usize> = wanted.iter().copied().filter(|vms| *vms > 0).collect();
    wanted.sort_unstable();
    wanted.dedup();
    let (can, cannot): (Vec<usize>, Vec<usize>) =
        wanted.into_iter().partition(|vms| vms * LEAST_CHANNELS <= channels);
    let why = |vms: &usize| {
        format!("{vms} VMs: a {chip} has {channels} channels for all, and each VM needs {LEAST_CHANNELS}")
    };
    let left_out = cannot.iter().map(why).collect();
    (can, left_out)
}

fn channels(chip: Chip) -> usize {
    match chip.face {
        Face::Registers => FERMI_CHANNELS,
        Face::Gsp => HOPPER_CHANNELS,
    }
}

/// Why `vms` VMs do not fit, if they do not. `used` is what those that are there cost.
fn too_many(vms: usize, there: usize, used: f64, available: f64) -> Option<String> {
    let each = if there == 0 { FIRST_GUESS } else { (used / there as f64).max(1.0) };
    let needed = each * vms.saturating_sub(there) as f64 + RESERVE_MIB;
    (needed > available).then(|| {
        format!(
            "{vms} VMs: {} more want {needed:.0} MiB ({each:.0} each, {RESERVE_MIB:.0} for others), {available:.0} are free",
            vms.saturating_sub(there)
        )
    })
}

pub fn run(workshop: &Workshop, chip: Chip, wanted: &[usize]) -> Result<Scaling> {
    let (numbers, left_out) = possible(chip, wanted);
    let Some(most) = numbers.last().copied() else {
        return Ok(Scaling { left_out, ..Scaling::default() });
    };
    let case = format!("suite-{chip}-vms").to_lowercase();
    eprintln!("{case}");
    let guests = guests(chip, most);
    workshop.forget_logs(&case)?;
    let spec = workshop.rig_spec(&case, Topology::Mediated, &guests);
    let channels = u16::try_from((channels(chip) / most).min(MOST_CHANNELS))?;
    let rig = Rig::start(RigSpec { channels, ..spec })?;
    let free = host::available_mib()?;
    let mut crowd = Crowd::gather(rig, Vec::new(), Vec::new())?;
    let mut found = Scaling { left_out, ..Scaling::default() };
    let mut there = 0;
    for (index, vms) in numbers.iter().copied().enumerate() {
        let available = host::available_mib()?;
        if let Some(why) = too_many(vms, there, free - available, available) {
            let others = numbers.get(index + 1..).unwrap_or_default();
            found.left_out.push(why);
            found.left_out.extend(others.iter().map(|vms| format!("{vms} VMs: fewer did not fit")));
            break;
        }
        eprintln!("{case}: {vms}");
        let new = guests.get(there..vms).unwrap_or_default();
        match stage(workshop, &case, &mut crowd, new, there) {
            Ok(stage) => found.stages.push(stage),
            Err(error) => {
                interrupt::check()?;
                // What was measured with fewer stays; the set-up ends by force.
                found.problems.push(format!("{vms} VMs: {error:#}"));
                return Ok(found);
            }
        }
        there = vms;
    }
    found.problems = end(crowd, chip)?;
    Ok(found)
}

fn guests(chip: Chip, number: usize) -> Vec<Guest> {
    let guest = |number: usize| Guest {
        kernel_words: &["gpuvmk.limit=3000"],
        vram_mib: VRAM_MIB,
        memory_mib: Some(GUEST_MIB),
        // As long as the run, which measures once for each chip.
        ..Guest::new(format!("vm{number}").leak(), chip, chip.usual_kernel(), &["contend"])
    };
    (1..=number).map(guest).collect()
}

/// Lets `new` guests join the `there` that are there, and has all of them copy.
fn stage(workshop: &Workshop, case: &str, crowd: &mut Crowd, new: &[Guest], there: usize) -> Result<Stage> {
    let start = Instant::now();
    let (mut ready, mut index) = (Vec::new(), there);
    let together = BOOT_AT_A_TIME * thread::available_parallelism()?.get();
    for part in new.chunks(together) {
        let mut machines = Vec::new();
        for guest in part {
            machines.push(workshop.start_with_orders(case, guest.name, crowd.rig(), guest, index)?);
            index += 1;
        }
        ready.extend(wait_ready(&mut machines, start)?);
        for (guest, machine) in part.iter().zip(machines) {
            crowd.join(guest.name.to_owned(), machine)?;
        }
    }
    let vms = there + new.len();
    crowd.order(0..vms, BUSY)?;
    let settle = SETTLE + SETTLE_EACH * u32::try_from(vms)?;
    crowd.pass(settle)?;
    let stretch = crowd.watch(WATCH)?;
    let memory = (0..vms).map(|index| private_mib(crowd.rig(), index)).collect::<Result<Vec<_>>>()?;
    crowd.order(0..vms, "rest")?;
    crowd.pass(settle)?;
    let copied: Vec<f64> = stretch.vms.iter().map(|had| had.copied).collect();
    Ok(Stage {
        vms,
        mb_s: copied.iter().sum::<f64>() / stretch.seconds / 1e6,
        busy: stretch.truth().iter().sum::<f64>() / stretch.seconds,
        fairness: jain(&copied),
        memory_mib: median(&memory),
        most_memory_mib: memory.iter().copied().fold(0.0, f64::max),
        started: new.len(),
        first_ready_s: ready.iter().copied().fold(f64::INFINITY, f64::min),
        last_ready_s: ready.iter().copied().fold(0.0, f64::max),
    })
}

/// After how many seconds each machine was ready.
fn wait_ready(machines: &mut [Machine], start: Instant) -> Result<Vec<f64>> {
    let mut ready: Vec<Option<f64>> = machines.iter().map(|_| None).collect();
    while ready.iter().any(Option::is_none) {
        for (machine, ready) in machines.iter_mut().zip(&mut ready) {
            if ready.is_some() {
                continue;
            }
            if let Some(outcome) = machine.pump(&mut |_| {})? {
                let why = outcome.problem.unwrap_or_else(|| "it powered off".to_owned());
                bail!("{} ended before it was ready: {why}", machine.spec().name);
            }
            if machine.reports().iter().any(is_ready) {
                *ready = Some(start.elapsed().as_secs_f64());
            }
        }
        thread::sleep(LOOK);
    }
    Ok(ready.into_iter().flatten().collect())
}

/// Memory that nobody shares with the process of GPU `index`, as `gpuvmk status` has it.
fn private_mib(rig: &mut Rig, index: usize) -> Result<f64> {
    let id = rig.device(index).context("The set-up has no such device")?.process().id();
    let path = format!("/proc/{id}/smaps_rollup");
    let text = fs::read_to_string(&path).with_context(|| format!("Cannot read {path}"))?;
    private_bytes(&text).map(|bytes| bytes / MIB).with_context(|| format!("{path} has no private pages"))
}

fn private_bytes(rollup: &str) -> Option<f64> {
    let bytes = |name| host::kib(rollup, name).map(|kib| kib * 1024.0);
    Some(bytes("Private_Clean:")? + bytes("Private_Dirty:")?)
}

/// Ends everything; returns what was wrong.
fn end(mut crowd: Crowd, chip: Chip) -> Result<Vec<String>> {
    let tenants = crowd.rig().tenants()?;
    let mut problems = Vec::new();
    for tenant in &tenants {
        if tenant.foreign_accesses != Some(0) {
            problems.push(format!("{}: {:?} accesses left its memory", tenant.name, tenant.foreign_accesses));
        }
        if tenant.unread_entries > 0 {
            problems.push(format!("{}: copies were not counted, so the throughput is too low", tenant.name));
        }
    }
    let expected = expected(guests(chip, 1).first().context("no guest")?);
    for outcome in crowd.end()? {
        problems.extend(verdict::judge(&outcome, &expected).problems);
    }
    problems.extend(crowd.rig().stop()?);
    Ok(problems)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(vms: usize, mb_s: f64, most_memory_mib: f64) -> Stage {
        Stage {
            vms,
            mb_s,
            busy: 1.0,
            fairness: 1.0,
            memory_mib: 1.0,
            most_memory_mib,
            started: 1,
            first_ready_s: 1.0,
            last_ready_s: 2.0,
        }
    }

    #[test]
    fn throughput_of_many_is_told_by_that_of_one() {
        let found =
            Scaling { stages: vec![stage(1, 4000.0, 2.0), stage(4, 3000.0, 2.5)], ..Scaling::default() };
        assert_eq!(found.to_json()["over_one"], json!({ "1": 1.0, "4": 0.75 }));
        assert_eq!(found.memory_mib(), Some(2.5));
        let without_one = Scaling { stages: vec![stage(2, 4000.0, 2.0)], ..Scaling::default() };
        assert!(without_one.over_one().is_empty());
    }

    #[test]
    fn numbers_that_a_chip_has_no_channels_for_are_left_out_and_named() {
        let (can, left_out) = possible(Chip::GF100, &[64, 1, 0, 32, 1]);
        assert_eq!(can, [1, 32]);
        assert!(left_out.len() == 1 && left_out[0].starts_with("64 VMs: a GF100 has 126"), "{left_out:?}");
        assert_eq!(possible(Chip::GH100, &[64]).0, [64]);
    }

    #[test]
    fn vms_fit_by_what_those_before_them_cost() {
        assert_eq!(too_many(8, 4, 800.0, 4000.0), None);
        let why = too_many(64, 32, 12_800.0, 9000.0).unwrap();
        assert!(why.contains("32 more want 14848 MiB (400 each"), "{why}");
        assert!(too_many(1, 0, 0.0, 1000.0).is_some(), "nobody was seen yet");
    }

    #[test]
    fn private_memory_is_both_kinds_of_private_pages() {
        let rollup = "Rss: 9000 kB\nPrivate_Clean:       100 kB\nPrivate_Dirty:   924 kB\n";
        assert_eq!(private_bytes(rollup), Some(1024.0 * 1024.0));
        assert_eq!(private_bytes("Rss: 1 kB\n"), None);
    }
}
