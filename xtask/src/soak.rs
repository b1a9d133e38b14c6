//! `cargo xtask soak`: VMs come, work, reboot, crash and go at random, for as long as wanted, and everything
//! that they had comes back.
//!
//! Each chip has an aggregator with a software GPU of its own and two vGPUs, one of them with 1 GiB of VRAM.
//! On these, stock guests make checked copies until something happens to them ([`deeds`]). From time to time
//! all go, and what is there then is compared with what was there before the first came ([`census`],
//! [`judge`]).
//!
//! Choices come from a seed, by a generator of each vGPU's own. When they fall due depends on the machine, so
//! a seed brings the same lives, not the same run to the microsecond.

mod census;
mod deeds;
mod judge;
mod place;
mod report;
mod visitor;
mod world;

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use gpuvmk_chip::Face;
use gpuvmk_lab::chip::{Chip, GuestChip as _, USUAL};
use gpuvmk_lab::firmware::Firmware;
use gpuvmk_lab::interrupt;
use gpuvmk_lab::rig::{Rig, RigSpec, SHARED_IN_TURNS, Topology};
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;

use crate::cases::Guest;
use crate::workshop::Workshop;
use census::Census;
use judge::Grew;
use place::{Mood, Place};
use report::Report;
use world::World;

/// The C library keeps an arena of memory for each processor, and the stacks of threads that are gone: with
/// neither, what a daemon maps can be compared with what it mapped before.
const EXACT: [(&str, &str); 1] =
    [("GLIBC_TUNABLES", "glibc.malloc.arena_max=1:glibc.pthread.stack_cache_size=0")];

/// The folder for logs below the one that is asked for.
const CASE: &str = "soak";
/// VRAM of the large and of the small vGPU of each chip.
const LARGE_MIB: u32 = 1024;
const SMALL_MIB: u32 = 128;
/// No longer than this until all must go once, and how many such times a run has if it is short.
const ROUND: Duration = Duration::from_secs(60);
const ROUNDS: u32 = 5;
/// How long what VMs had may take to come back, once all have gone, and how long daemons may take to start.
const SETTLE: Duration = Duration::from_secs(2);
/// How long all VMs may take to go.
const CLOSING: Duration = Duration::from_secs(300);
const LOOK: Duration = Duration::from_millis(20);
/// The same while a departure is timed.
const LOOK_CLOSELY: Duration = Duration::from_millis(2);

/// How long what a VM had may take to come back; and in tests, whose machine may be busy.
const CLEAN_WITHIN: Duration = Duration::from_secs(1);
const CLEAN_WHEN_BUSY: Duration = Duration::from_secs(5);
/// The short run of `cargo xtask test`.
const SHORT: Duration = Duration::from_secs(40);
const SHORT_SEED: u64 = 4;

/// Words for the guests' kernels: programs may run for long.
const WORDS: &[&str] = &["gpuvmk.limit=3000"];
/// What guests do. They look through a part of their memory: through PRAMIN that takes a while.
const LARGE: &[&str] = &["probe", "residue:step=scan:stride=32", "soak"];
const SMALL: &[&str] = &["probe", "residue:step=scan:stride=4", "soak"];
/// More often than any VM reboots here.
const REBOOTS: u32 = 250;

/// How long, and with what.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// How long VMs come and go
    #[arg(long, value_name = "MINUTES")]
    minutes: f64,
    /// What choices are made from; any number, by default the time
    #[arg(long)]
    seed: Option<u64>,
    /// The chip of the vGPUs: gf100, gh100 or both
    #[arg(long, default_value = "both", value_parser = ["gf100", "gh100", "both"])]
    chip: String,
    /// The most VMs at a time
    #[arg(long, default_value_t = 3)]
    vms: usize,
    /// Print one JSON object as the last line
    #[arg(long)]
    json: bool,
    /// Where logs go
    #[arg(long, value_name = "FOLDER", default_value = "target/xtask-soak")]
    logs: PathBuf,
    /// A gpuvmk to use instead of building one
    #[arg(long, value_name = "FILE")]
    gpuvmk: Option<PathBuf>,
}

/// What a run is.
#[derive(Debug, Clone)]
struct Plan {
    time: Duration,
    seed: u64,
    chips: Vec<Chip>,
    vms: usize,
    clean_within: Duration,
}

pub fn run(arguments: &Arguments) -> Result<bool> {
    let seconds = arguments.minutes * 60.0;
    let time = Duration::try_from_secs_f64(seconds).context("--minutes is a number of minutes")?;
    ensure!(arguments.vms > 0, "--vms 0: nobody would come");
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let chips = match arguments.chip.as_str() {
        "both" => USUAL.to_vec(),
        chip => vec![chip.parse()?],
    };
    let plan = Plan {
        time,
        seed: arguments.seed.unwrap_or_else(now),
        chips,
        vms: arguments.vms,
        clean_within: CLEAN_WITHIN,
    };
    let report = soak(&plan, &arguments.logs, arguments.gpuvmk.as_deref())?;
    report.print();
    if arguments.json {
        println!("{}", report.to_json());
    }
    Ok(report.ok())
}

/// The short run that is part of the tests; whether it passed.
pub fn short(logs: &Path, gpuvmk: Option<&Path>) -> Result<bool> {
    let plan =
        Plan { time: SHORT, seed: SHORT_SEED, chips: USUAL.to_vec(), vms: 3, clean_within: CLEAN_WHEN_BUSY };
    let report = soak(&plan, logs, gpuvmk)?;
    report.print();
    Ok(report.ok())
}

fn guests(chips: &[Chip]) -> Vec<Guest> {
    let guest = |name, chip: Chip, vram_mib, programs| Guest {
        vram_mib,
        kernel_words: WORDS,
        reboots: REBOOTS,
        ..Guest::new(name, chip, chip.usual_kernel(), programs)
    };
    let of = |chip: Chip| match chip.face {
        Face::Registers => {
            [guest("gf100-large", chip, LARGE_MIB, LARGE), guest("gf100-small", chip, SMALL_MIB, SMALL)]
        }
        Face::Gsp => {
            [guest("gh100-large", chip, LARGE_MIB, LARGE), guest("gh100-small", chip, SMALL_MIB, SMALL)]
        }
    };
    chips.iter().flat_map(|chip| of(*chip)).collect()
}

fn soak(plan: &Plan, logs: &Path, gpuvmk: Option<&Path>) -> Result<Report> {
    let start = Instant::now();
    let guests = guests(&plan.chips);
    let kinds = guests.iter().map(|guest| (guest.kernel, Firmware::for_kernel(guest.kernel))).collect();
    let workshop = Workshop::open(&kinds, logs, gpuvmk)?;
    workshop.forget_logs(CASE)?;
    let spec = workshop.rig_spec(CASE, Topology::Mediated, &guests);
    let rig = Rig::start(RigSpec { policy: SHARED_IN_TURNS, environment: &EXACT, ..spec })?;
    eprintln!("seed {}; logs in {}", plan.seed, workshop.folder(CASE).display());
    let places = (0..)
        .zip(guests)
        .map(|(index, guest)| {
            let seed = plan.seed.wrapping_add((index as u64) << 32);
            Place::new(index, guest, Xoshiro256PlusPlus::seed_from_u64(seed))
        })
        .collect();
    let mut run = Run {
        places,
        world: World::new(rig, &workshop, CASE),
        vms: plan.vms,
        first: Census::default(),
        all: Vec::new(),
    };
    let mut grew = match run.everything(plan.time) {
        Ok(grew) => grew,
        Err(error) => {
            run.world.problems.push(format!("{error:#}"));
            Vec::new()
        }
    };
    grew.extend(judge::trend(&run.all));
    // Guests before the daemons.
    run.places.clear();
    let Run { mut world, first, all, .. } = run;
    world.problems.extend(world.rig.stop()?);
    Ok(Report::new(plan, start.elapsed(), world, (first, all), grew))
}

struct Run<'a> {
    // Field order is drop order: guests go before the GPU.
    places: Vec<Place>,
    world: World<'a>,
    vms: usize,
    first: Census,
    all: Vec<Census>,
}

impl Run<'_> {
    /// Rounds until the time is over; what was not given back in the end of any.
    fn everything(&mut self, time: Duration) -> Result<Vec<Grew>> {
        let start = Instant::now();
        let round = (time / ROUNDS).min(ROUND);
        // Threads and connections that the daemons still make.
        thread::sleep(SETTLE);
        self.first = Census::of(&mut self.world.rig)?;
        let mut grew = Vec::new();
        // Two at least: one says nothing of a trend.
        while start.elapsed() < time || self.all.len() < 2 {
            let turn = Instant::now();
            while turn.elapsed() < round {
                self.step(false)?;
            }
            while !self.places.iter().all(Place::is_empty) {
                ensure!(turn.elapsed() < round + CLOSING, "VMs do not go: {:?}", self.places);
                self.step(true)?;
            }
            let census = self.quiet()?;
            grew = judge::differs(&self.first, &census);
            eprintln!(
                "after {:.0} s: {} VMs came, {} boots, {} copies verified{}",
                start.elapsed().as_secs_f64(),
                self.world.counts.of("came"),
                self.world.counts.of("booted"),
                self.world.work.copies,
                if grew.is_empty() { "" } else { "; not everything came back" }
            );
            self.all.push(census);
            self.world.problems.extend(self.world.rig.damage()?);
            if !grew.is_empty() || !self.world.problems.is_empty() {
                break;
            }
        }
        Ok(grew)
    }

    fn step(&mut self, closing: bool) -> Result<()> {
        interrupt::check()?;
        for index in 0..self.places.len() {
            let taken = self.places.iter().filter(|place| place.is_taken()).count();
            let mut others = self.places.iter().enumerate().filter(|(other, _)| *other != index);
            let calm = !others.any(|(_, place)| place.is_leaving());
            let mood = Mood { closing, room: !closing && taken < self.vms, calm };
            if let Some(place) = self.places.get_mut(index) {
                place.step(&mut self.world, mood)?;
            }
        }
        thread::sleep(if self.places.iter().any(Place::is_leaving) { LOOK_CLOSELY } else { LOOK });
        Ok(())
    }

    /// The census of an empty house, as soon as everything is back, or after a while.
    fn quiet(&mut self) -> Result<Census> {
        let start = Instant::now();
        loop {
            let census = Census::of(&mut self.world.rig)?;
            if start.elapsed() > SETTLE || judge::differs(&self.first, &census).is_empty() {
                return Ok(census);
            }
            interrupt::check()?;
            thread::sleep(LOOK);
        }
    }
}
