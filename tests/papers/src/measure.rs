//! A job's phases, one after the other, and how long each takes.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::gpu::{Area, Direction, Gpu, Launch};
use crate::job::Job;

/// How long a program took. Phases are by the processor's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Its memory was allocated.
    pub init: Duration,
    /// Its inputs were copied to the device.
    pub to_device: Duration,
    /// Its kernels were launched, and ended: the median.
    pub launch: Duration,
    /// Its results were copied back.
    pub from_device: Duration,
    /// Its memory was given back.
    pub close: Duration,
    /// What its kernels took (or copies by an engine, where it has no kernels), by the GPU's clock, once for
    /// each repetition.
    pub on_gpu: Vec<Duration>,
    /// What yardsticks directly before and after each repetition took by the same clock.
    pub yards: Vec<Option<[Duration; 2]>>,
    /// Repetitions more that were left out, since the GPU's clocks were not up.
    pub left_out: usize,
    /// Launches of a repetition.
    pub launches: usize,
    /// Bytes that were copied to the device and back.
    pub copied: (usize, usize),
}

/// A job whose memory is there, with its inputs in it.
#[derive(Debug)]
pub struct Prepared {
    /// Its memory, room by room.
    pub areas: Vec<Area>,
    /// What is launched.
    pub launches: Vec<Launch>,
    /// How long it took to allocate.
    pub init: Duration,
    /// How long it took to copy.
    pub to_device: Duration,
}

impl Prepared {
    /// Allocates memory and copies inputs.
    ///
    /// # Errors
    /// There is not enough memory, or the GPU failed.
    pub fn new(gpu: &mut dyn Gpu, job: &Job) -> Result<Self> {
        let start = Instant::now();
        let areas: Result<Vec<Area>> = job.rooms.iter().map(|room| gpu.allocate(room.bytes)).collect();
        let areas = areas.context("memory")?;
        let init = start.elapsed();
        let launches = job.launches(&areas)?;
        let start = Instant::now();
        for (room, area) in job.rooms.iter().zip(&areas) {
            if let Some(input) = &room.input {
                gpu.write(*area, input).context("inputs")?;
            }
        }
        Ok(Self { areas, launches, init, to_device: start.elapsed() })
    }

    /// Copies the results back, in time, and compares them.
    ///
    /// # Errors
    /// They are wrong, or the GPU failed.
    pub fn check(&self, gpu: &mut dyn Gpu, job: &Job) -> Result<Duration> {
        let start = Instant::now();
        let mut results = Vec::new();
        for part in &job.results {
            let area = self.areas.get(part.room).context("There is no such room")?;
            results.push(gpu.read(area.part(part.at, part.bytes)).context("results")?);
        }
        let took = start.elapsed();
        (job.check)(&results)?;
        Ok(took)
    }
}

/// Repetitions that may be left out for each that counts.
const MOST_LEFT_OUT: usize = 2;

/// Runs a job, its kernels several times, and compares what comes back.
///
/// # Errors
/// The results are wrong, or the GPU failed.
pub fn measure(gpu: &mut dyn Gpu, job: &Job, times: usize) -> Result<Measured> {
    ensure!(times > 0, "nothing is to be run");
    let prepared = Prepared::new(gpu, job)?;
    let (mut on_gpu, mut launch, mut yards) = (Vec::new(), Vec::new(), Vec::new());
    let mut left_out = 0;
    while on_gpu.len() < times && left_out < MOST_LEFT_OUT * times {
        let mut took = (Duration::ZERO, Duration::ZERO);
        let mut yard = None;
        if !prepared.launches.is_empty() {
            let timed = gpu.timed(&prepared.launches).context("kernels")?;
            launch.push(timed.wall);
            if timed.yards.is_some_and(|(_, is_up)| !is_up) {
                left_out += 1;
                continue;
            }
            took.0 = timed.gpu;
            yard = timed.yards.map(|(yards, _)| yards);
        }
        for (room, direction) in &job.transfers {
            let area = prepared.areas.get(*room).context("There is no such room")?;
            let (gpus, mine) = gpu.transfer(*area, *direction).context("copies")?;
            took = (took.0 + gpus, took.1 + mine);
        }
        on_gpu.push(took.0);
        yards.push(yard);
        if prepared.launches.is_empty() {
            launch.push(took.1);
        }
    }
    let from_device = prepared.check(gpu, job)?;
    let start = Instant::now();
    gpu.release()?;
    let moved = |wanted: Direction| -> usize {
        let of = |(room, direction): &(usize, Direction)| {
            let bytes = job.rooms.get(*room).map_or(0, |room| room.bytes);
            if *direction == wanted { bytes } else { 0 }
        };
        job.transfers.iter().map(of).sum()
    };
    let inputs: usize = job.rooms.iter().filter_map(|room| room.input.as_ref()).map(Vec::len).sum();
    let outputs: usize = job.results.iter().map(|part| part.bytes).sum();
    Ok(Measured {
        init: prepared.init,
        to_device: prepared.to_device,
        launch: median(&launch),
        from_device,
        close: start.elapsed(),
        on_gpu,
        yards,
        left_out,
        launches: prepared.launches.len(),
        copied: (inputs + moved(Direction::ToDevice), outputs + moved(Direction::FromDevice)),
    })
}

/// The middle one of these times, the later where their number is even.
#[must_use]
pub fn median(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}
