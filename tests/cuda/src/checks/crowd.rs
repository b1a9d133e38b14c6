//! The papers' table in several guests at once: each program over and over, in slots of the GPU's clock,
//! which all guests of a card share. Who adds up what all did in the same slot knows what they got together.
//!
//! Slot by slot it is another program's turn, by the slot's number. Kernels of a round are launched as
//! graphs, rounds come in batches of some milliseconds, and several batches are queued, so that a slow
//! processor keeps the GPU busy, and that the stamp and the event behind each batch cost next to nothing.

use std::collections::VecDeque;
use std::rc::Rc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use gpuvmk_papers::{Area, Gpu as _, Job, Launch, PROGRAMS, Program, Size};
use serde_json::{Value, json};

use super::{Figures, words};
use crate::driver::{Context, Event, Graph, Stream};
use crate::gpu::{Clock, CudaGpu};

/// A slot, of the GPU's nanoseconds.
const SLOT: u64 = 1_000_000_000;
/// What of it counts: before, others may still be at the program before.
const FROM: u64 = 150_000_000;
const TO: u64 = 950_000_000;
/// Nothing is launched from then on.
const LAST: Duration = Duration::from_millis(970);
/// Turns of each program.
const TURNS: usize = 3;
/// Batches that are queued at most.
const QUEUED: usize = 4;
/// Batches that take less have twice as many rounds from then on, and half as many where they take more.
const SHORT: Duration = Duration::from_millis(5);
const LONG: Duration = Duration::from_millis(12);
const MOST_ROUNDS: u64 = 64;
/// Stamps of a slot that are kept.
const STAMPS: usize = 8192;

/// A program whose memory is there.
struct Ready {
    program: &'static Program,
    job: Job,
    areas: Vec<Area>,
    launches: Vec<Launch>,
    /// All launches.
    graph: Graph,
}

/// Sizes for a card.
pub fn full(context: &Rc<Context>) -> Result<Figures> {
    crowd(context, Size::Full)
}

/// Small sizes, for a software GPU.
pub fn small(context: &Rc<Context>) -> Result<Figures> {
    crowd(context, Size::Small)
}

fn crowd(context: &Rc<Context>, size: Size) -> Result<Figures> {
    let mut gpu = CudaGpu::new(context, Clock::None)?;
    let stamps = gpu.keep(STAMPS * 8)?;
    let count = gpu.keep(4)?;
    let stamp = Launch {
        kernel: "stamp",
        grid: [1; 3],
        block: [1; 3],
        arguments: vec![stamps.address, count.address, u64::try_from(STAMPS)?],
    };
    let programs = prepare(context, &mut gpu, size)?;
    let stamp_graph = graph(context, &gpu, std::slice::from_ref(&stamp))?;
    let clock = Clocks::compare(&mut gpu, &stamp, (stamps, count))?;
    let first = clock.now() / SLOT + 1;
    let mut slots = Vec::new();
    for number in first..first + u64::try_from(TURNS * programs.len())? {
        let turn = usize::try_from(number)? % programs.len();
        let ready = programs.get(turn).context("no program")?;
        gpu.write(count, &[0; 4])?;
        gpu.stream.synchronize()?;
        clock.wait(number * SLOT);
        let graphs = (&ready.graph, &stamp_graph);
        let rounds = keep_busy(context, &gpu.stream, graphs, Instant::now() + LAST)?;
        let ended = stamps_of(&mut gpu, (stamps, count))?;
        let ended: Vec<(u64, u64)> = ended.into_iter().zip(rounds).collect();
        slots.push(slot(ready.program.name, number, &ended));
    }
    for ready in &programs {
        gpu.run(&ready.launches)?;
        let mut results = Vec::new();
        for part in &ready.job.results {
            let area = ready.areas.get(part.room).context("no such room")?;
            results.push(gpu.read(area.part(part.at, part.bytes))?);
        }
        (ready.job.check)(&results).context(ready.program.name)?;
    }
    gpu.release()?;
    Ok(Figures::from_iter([("slots".to_owned(), slots.into())]))
}

fn graph(context: &Rc<Context>, gpu: &CudaGpu, launches: &[Launch]) -> Result<Graph> {
    Graph::take_down(context, &gpu.stream, || gpu.launch(launches, &gpu.stream))
}

/// Memory and graphs of all programs that launch enough to be measured. What launches fill lies at the same
/// place for all programs: each fills it anew.
fn prepare(context: &Rc<Context>, gpu: &mut CudaGpu, size: Size) -> Result<Vec<Ready>> {
    let jobs: Vec<_> = PROGRAMS.iter().map(|program| (program, program.job(size))).collect();
    let jobs: Vec<_> =
        jobs.into_iter().filter(|(_, job)| !job.rooms.is_empty() && !job.steps.is_empty()).collect();
    let filled = |job: &Job| -> usize {
        let empty = job.rooms.iter().filter(|room| room.input.is_none());
        empty.map(|room| room.bytes.next_multiple_of(4096)).sum()
    };
    let shared = gpu.keep(jobs.iter().map(|(_, job)| filled(job)).max().unwrap_or(4096))?;
    let mut programs = Vec::new();
    for (program, job) in jobs {
        let (mut areas, mut used) = (Vec::new(), 0);
        for room in &job.rooms {
            areas.push(match &room.input {
                Some(input) => {
                    let area = gpu.keep(room.bytes)?;
                    gpu.write(area, input)?;
                    area
                }
                None => {
                    let area = shared.part(used, room.bytes);
                    used += room.bytes.next_multiple_of(4096);
                    area
                }
            });
        }
        let launches = job.launches(&areas)?;
        let graph = graph(context, gpu, &launches)?;
        programs.push(Ready { program, job, areas, launches, graph });
    }
    Ok(programs)
}

/// Launches batches of rounds until then, with a stamp behind each, and waits for all. How many rounds are
/// before each stamp.
fn keep_busy(
    context: &Rc<Context>,
    stream: &Stream,
    (round, stamp): (&Graph, &Graph),
    until: Instant,
) -> Result<Vec<u64>> {
    let mut queued: VecDeque<Event> = VecDeque::new();
    let mut spare = Vec::new();
    let (mut done, mut batch, mut stamped) = (0, 1_u64, Vec::new());
    let mut last = Instant::now();
    while Instant::now() < until {
        if queued.len() >= QUEUED
            && let Some(oldest) = queued.pop_front()
        {
            oldest.synchronize()?;
            spare.push(oldest);
            let took = last.elapsed();
            last = Instant::now();
            if took < SHORT {
                batch = (batch * 2).min(MOST_ROUNDS);
            } else if took > LONG {
                batch = (batch / 2).max(1);
            }
            continue;
        }
        for _ in 0..batch {
            round.launch_in(stream)?;
        }
        done += batch;
        stamp.launch_in(stream)?;
        stamped.push(done);
        let event = match spare.pop() {
            Some(event) => event,
            None => Event::create(context, false)?,
        };
        event.record(stream)?;
        queued.push_back(event);
    }
    stream.synchronize()?;
    Ok(stamped)
}

/// When batches ended, by the GPU's clock.
fn stamps_of(gpu: &mut CudaGpu, (stamps, count): (Area, Area)) -> Result<Vec<u64>> {
    let count = words(&gpu.read(count)?).first().copied().unwrap_or(0);
    let count = usize::try_from(count)?.min(STAMPS);
    let bytes = gpu.read(stamps.part(0, count * 8))?;
    Ok(bytes.as_chunks().0.iter().map(|stamp| u64::from_le_bytes(*stamp)).collect())
}

/// What is told of a slot, of ends of batches and how many rounds were before each: rounds from the first to
/// the last end that counts, and when these were.
fn slot(name: &str, number: u64, ended: &[(u64, u64)]) -> Value {
    let start = number * SLOT;
    let mut counted = ended.iter().map(|(end, rounds)| (end.saturating_sub(start), *rounds));
    let first = counted.find(|(end, _)| (FROM..TO).contains(end));
    let last = counted.rfind(|(end, _)| (FROM..TO).contains(end)).or(first);
    let us = |end: Option<(u64, u64)>| end.map(|(end, _)| end / 1000);
    json!({
        "slot": number,
        "program": name,
        "rounds": first.zip(last).map_or(0, |(first, last)| last.1 - first.1),
        "from_us": us(first),
        "to_us": us(last),
    })
}

/// The GPU's clock beside ours.
struct Clocks {
    ours: Instant,
    gpus: u64,
}

impl Clocks {
    fn compare(gpu: &mut CudaGpu, stamp: &Launch, places: (Area, Area)) -> Result<Self> {
        // The first launch takes longer.
        for _ in 0..2 {
            gpu.write(places.1, &[0; 4])?;
            gpu.launch(std::slice::from_ref(stamp), &gpu.stream)?;
            gpu.stream.synchronize()?;
        }
        let ours = Instant::now();
        let stamps = stamps_of(gpu, places)?;
        ensure!(stamps.len() == 1, "{} stamps of one launch", stamps.len());
        Ok(Self { ours, gpus: stamps.first().copied().unwrap_or(0) })
    }

    fn now(&self) -> u64 {
        self.gpus + u64::try_from(self.ours.elapsed().as_nanos()).unwrap_or(0)
    }

    fn wait(&self, until: u64) {
        sleep(Duration::from_nanos(until.saturating_sub(self.now())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_between_the_first_and_the_last_end_that_count_are_told() {
        let at = |ms: u64, rounds| (5 * SLOT + ms * 1_000_000, rounds);
        let found = slot("HS", 5, &[at(100, 2), at(160, 6), at(500, 22), at(940, 54), at(960, 56)]);
        assert_eq!((&found["rounds"], &found["from_us"]), (&json!(48), &json!(160_000)));
        assert_eq!(found["to_us"], json!(940_000));
        let found = slot("HS", 5, &[at(160, 6)]);
        assert_eq!((&found["rounds"], &found["from_us"]), (&json!(0), &found["to_us"]));
        assert_eq!(slot("HS", 5, &[])["to_us"], Value::Null);
    }
}
