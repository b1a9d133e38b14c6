//! 64 vGPUs on one aggregator: how long each takes to start, what each has of the host's memory, what they
//! cost while nobody uses them, and what many busy ones copy together.
//!
//! `cargo bench --bench density [-- --json]`, or `cargo xtask bench density`. Daemons are processes, as
//! operators run them. Guests are as small as can be: a driver of a few hundred lines that speaks vfio-user
//! as QEMU does, so that the host's processors are left to what is measured. They look for the end of their
//! copies in their own memory.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_precision_loss,
    reason = "a benchmark that cannot go on has nothing to tell"
)]

#[path = "../tests/common/client.rs"]
mod client;
#[path = "../tests/common/daemon.rs"]
mod daemon;
#[path = "density/guest.rs"]
mod guest;
#[path = "../tests/common/remote.rs"]
mod remote;
#[path = "../tests/common/tiny_driver/mod.rs"]
mod tiny_driver;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use daemon::{Daemon, write_gpu_of};
use guest::Guest;
use serde_json::{Value, json};

/// vGPUs. A GF100 has 126 channels for all.
const VMS: usize = 64;
/// Busy ones, of which the first stands for what one copies.
const BUSY: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Those that have a limit.
const LIMITED: [usize; 3] = [8, 16, 32];
/// Slots of the ring that a submission has. Long work is longer than the GPU's own slices, which cut it: for
/// what that costs there is no limit.
const SHORT: u32 = 1;
const LONG: u32 = 8;
/// Times that each number is measured, in turns.
const ROUNDS: usize = 5;
/// Until queues are full, and how long is counted.
const SETTLE: Duration = Duration::from_millis(300);
const WATCH: Duration = Duration::from_secs(2);
/// How long nobody does anything.
const IDLE: Duration = Duration::from_secs(3);
/// Ticks of a second in `/proc`, on every x86-64.
const USER_HZ: f64 = 100.0;
/// So many of the first and of the last are taken together: one start alone says little.
const TOGETHER: usize = 5;

/// Limits: see the figures of the same names.
const MOST_START_RATIO: f64 = 2.0;
const MOST_MIB: f64 = 8.0;
const LEAST_SCALING: f64 = 0.95;

/// The middle one.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// Processor time of a process, in seconds.
fn processor_seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, after) = stat.rsplit_once(") ").unwrap();
    // utime and stime are the 14th and the 15th field, of which `after` begins with the third.
    let ticks: u64 = after.split(' ').skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum();
    ticks as f64 / USER_HZ
}

/// Memory that a process has for itself, in MiB. Pages of VRAM and of instance memory, which are the guest's,
/// are none of it.
fn own_mib(pid: u32) -> f64 {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let kib = |name: &str| -> f64 {
        let line = rollup.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim_end_matches(" kB").trim().parse().unwrap()
    };
    (kib("Pss_Anon:") + kib("Pss_File:")) / 1024.0
}

/// All of them, on their aggregator.
struct Site {
    aggregator: Daemon,
    guests: Vec<Guest>,
    /// Milliseconds until each served, and until it had copied something.
    served_ms: Vec<f64>,
    copied_ms: Vec<f64>,
}

impl Site {
    fn start(folder: &Path) -> Self {
        write_gpu_of(folder, "GF100", "5G");
        let mut aggregator = Daemon::start(folder, "aggregator", &["aggregator", "gpu0.toml"]);
        aggregator.wait_for("serves at");
        let mut site = Self { aggregator, guests: Vec::new(), served_ms: Vec::new(), copied_ms: Vec::new() };
        for number in 1..=VMS {
            let begin = Instant::now();
            let (guest, served) = Guest::start(folder, number);
            site.served_ms.push(served.duration_since(begin).as_secs_f64() * 1e3);
            site.copied_ms.push(begin.elapsed().as_secs_f64() * 1e3);
            site.guests.push(guest);
        }
        site
    }

    /// Processor time of all daemons, in seconds.
    fn processor_seconds(&self) -> f64 {
        let devices: f64 = self.guests.iter().map(|guest| processor_seconds(guest.device.pid())).sum();
        devices + processor_seconds(self.aggregator.pid())
    }

    /// Processors that all take while nobody does anything.
    fn idle(&self) -> f64 {
        let (before, begin) = (self.processor_seconds(), Instant::now());
        std::thread::sleep(IDLE);
        (self.processor_seconds() - before) / begin.elapsed().as_secs_f64()
    }

    /// MB a second of each, where so many copy, so many slots at a time.
    fn copy(&mut self, busy: usize, slots: u32) -> Vec<f64> {
        let guests = self.guests.get_mut(..busy).unwrap();
        let drive = |guests: &mut [Guest], time: Duration| {
            let begin = Instant::now();
            while begin.elapsed() < time {
                let found = guests.iter_mut().map(|guest| guest.go_on(slots)).sum::<u64>();
                if found == 0 {
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
        };
        drive(guests, SETTLE);
        let before: Vec<u64> = guests.iter_mut().map(Guest::copied).collect();
        let begin = Instant::now();
        drive(guests, WATCH);
        let seconds = begin.elapsed().as_secs_f64();
        let after = guests.iter_mut().map(Guest::copied);
        let found =
            after.zip(before).map(|(after, before)| (after - before) as f64 / seconds / 1e6).collect();
        guests.iter_mut().for_each(Guest::finish);
        found
    }
}

/// Jain's index: 1 where all have the same.
fn jain(values: &[f64]) -> f64 {
    let (sum, squares) = values.iter().fold((0.0, 0.0), |(a, b), value| (a + value, b + value * value));
    sum * sum / (values.len() as f64 * squares)
}

/// So many busy ones.
struct Stage {
    vms: usize,
    mb_s: f64,
    over_one: f64,
    jain: f64,
}

impl Stage {
    fn to_json(&self) -> Value {
        json!({
            "vms": self.vms,
            "mb_s": self.mb_s.round(),
            "over_one": rounded(self.over_one),
            "jain": rounded(self.jain),
        })
    }
}

fn stages(site: &mut Site, slots: u32) -> Vec<Stage> {
    let rounds: Vec<Vec<Vec<f64>>> =
        (0..ROUNDS).map(|_| BUSY.map(|busy| site.copy(busy, slots)).into_iter().collect()).collect();
    let of = |index: usize, figure: &dyn Fn(&[f64], f64) -> f64| {
        let figures = rounds.iter().map(|round| figure(&round[index], round[0].iter().sum())).collect();
        median(figures)
    };
    let sum = |all: &[f64]| all.iter().sum::<f64>();
    let stage = |(index, vms): (usize, &usize)| Stage {
        vms: *vms,
        mb_s: of(index, &|all, _| sum(all)),
        over_one: of(index, &|all, one| sum(all) / one),
        jain: of(index, &|all, _| jain(all)),
    };
    BUSY.iter().enumerate().map(stage).collect()
}

/// What all copied together over what one did, by number.
fn scaling(stages: &[Stage]) -> Value {
    let over = |stage: &Stage| (stage.vms.to_string(), json!(rounded(stage.over_one)));
    Value::Object(stages.iter().map(over).collect())
}

fn stages_json(stages: &[Stage]) -> Value {
    stages.iter().map(Stage::to_json).collect()
}

fn main() -> ExitCode {
    let folder = tempfile::tempdir().unwrap();
    let mut site = Site::start(folder.path());
    let idle_processors = site.idle();
    let most_mib =
        |site: &Site| site.guests.iter().map(|guest| own_mib(guest.device.pid())).fold(0.0, f64::max);
    let idle_mib = most_mib(&site);
    let aggregator_mib = own_mib(site.aggregator.pid());
    site.guests.iter_mut().for_each(Guest::prepare);
    let short = stages(&mut site, SHORT);
    let long = stages(&mut site, LONG);
    let busy_mib = most_mib(&site);
    site.guests.iter_mut().for_each(Guest::check);

    let first_and_last = |all: &[f64]| {
        let part = |range: &[f64]| median(range.to_vec());
        (part(&all[..TOGETHER]), part(&all[all.len() - TOGETHER..]))
    };
    let (first_served, last_served) = first_and_last(&site.served_ms);
    let (first_copied, last_copied) = first_and_last(&site.copied_ms);
    let least_scaling = short.iter().filter(|stage| LIMITED.contains(&stage.vms)).map(|stage| stage.over_one);
    let least_scaling = least_scaling.fold(f64::INFINITY, f64::min);
    let rows = [
        ("start_ratio", last_served / first_served, last_served / first_served <= MOST_START_RATIO),
        ("first_copy_ratio", last_copied / first_copied, last_copied / first_copied <= MOST_START_RATIO),
        ("idle_mib_per_vgpu", idle_mib, idle_mib <= MOST_MIB),
        ("memory_mib_per_vgpu", busy_mib, busy_mib <= MOST_MIB),
        ("least_over_one", least_scaling, least_scaling >= LEAST_SCALING),
    ];
    let ok = rows.iter().all(|(.., ok)| *ok);
    for (name, value, ok) in rows {
        println!("{name:28} {value:10.3}{}", if ok { "" } else { "  missed" });
    }
    println!("served after                 {first_served:.1} ms (the first), {last_served:.1} ms (the last)");
    println!("has copied after             {first_copied:.1} ms (the first), {last_copied:.1} ms (the last)");
    println!("the aggregator's memory      {aggregator_mib:.1} MiB");
    println!("processors while all rest    {idle_processors:.3}");
    for (what, stages) in [("short", &short), ("long", &long)] {
        for Stage { vms, mb_s, over_one, jain } in stages {
            println!(
                "{vms:2} of {VMS} busy, {what} work: {mb_s:6.0} MB/s, {over_one:.3} of one's; Jain {jain:.3}"
            );
        }
    }
    // One alone keeps the GPU busy, so its speed tells how long a submission takes.
    let work_us = |slots, stages: &[Stage]| {
        stages.first().map_or(f64::NAN, |one| (guest::bytes(slots) / one.mb_s).round())
    };
    let (short_us, long_us) = (work_us(SHORT, &short), work_us(LONG, &long));
    println!("short and long work          {short_us} and {long_us} us");
    if std::env::args().any(|argument| argument == "--json") {
        let mut all = json!({
            "ok": ok,
            "vgpus": VMS,
            "rounds": ROUNDS,
            "served_ms": { "first": rounded(first_served), "last": rounded(last_served) },
            "copied_ms": { "first": rounded(first_copied), "last": rounded(last_copied) },
            "aggregator_mib": rounded(aggregator_mib),
            "idle_processors": rounded(idle_processors),
            "scaling": scaling(&short),
            "scaling_long": scaling(&long),
            "work_us": { "short": short_us, "long": long_us },
            "stages": stages_json(&short),
            "stages_long": stages_json(&long),
        });
        for (name, value, _) in rows {
            all[name] = json!(rounded(value));
        }
        println!("{all}");
    }
    if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
