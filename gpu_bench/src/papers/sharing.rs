//! What several clients get done at once, and what one that has little to do waits for the others.
//!
//! Each client has an address space and channel groups of its own, as each guest has. All queue yardsticks,
//! which get the clocks up, then so many rounds of a program; their doorbells are rung together. The GPU says
//! when the first client began its rounds and when the last one ended.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use gpuvmk_gpu::rm::{HostPaths, Timeslice};
use gpuvmk_papers::reference::mix;
use gpuvmk_papers::{Gpu as _, Launch, PROGRAMS, Prepared, Program, Size, median};
use serde_json::{Map, Value, json};

use super::micros;
use super::native::{NativeGpu, Ran};

/// How long a client's rounds take by themselves, and the launches that a ring has room for.
const LENGTH: Duration = Duration::from_millis(200);
const LAUNCHES: usize = 1_400;
/// Runs of each program with each number of clients; the middle one counts.
const TIMES: usize = 3;
/// Programs of less are not judged: launches are a part of them.
const SHORTEST: Duration = Duration::from_millis(1);
/// Yardsticks in front of each client's rounds, and those of all clients while another one waits (2 s).
const YARDS: usize = 60;
const BUSY_YARDS: usize = 400;
/// What a client that has little to do sleeps between its launches.
const PAUSE: Duration = Duration::from_millis(4);

/// Clients at once, at most: each takes a GiB of video memory.
const MOST: usize = 8;

/// Runs the programs of a millisecond and more with these numbers of clients.
pub(super) fn measure(
    gpu: Option<&str>,
    uid: Option<u32>,
    timeslice: Timeslice,
    numbers: &[usize],
) -> Result<Value> {
    let most = numbers.iter().copied().max().unwrap_or(1);
    let can_be = |number: &usize| (1..=MOST).contains(number);
    ensure!(numbers.iter().all(can_be), "{numbers:?} clients: 1 to {MOST} at once can be measured");
    let mut clients = Vec::new();
    for _ in 0..=most {
        clients.push(NativeGpu::open(&HostPaths::of_host(), gpu, uid, timeslice)?);
    }
    let outcome = programs(&mut clients, numbers);
    for client in clients {
        client.close().context("giving back what the driver gave")?;
    }
    outcome
}

fn programs(clients: &mut [NativeGpu], numbers: &[usize]) -> Result<Value> {
    let (idler, clients) = clients.split_first_mut().context("no clients")?;
    let mut table = Map::new();
    let mut waits = Map::new();
    for program in PROGRAMS.iter().filter(|program| !program.job(Size::Full).steps.is_empty()) {
        let row = one_program(clients, program, numbers).with_context(|| program.name.to_owned())?;
        table.extend(row.map(|row| (program.name.to_owned(), row)));
    }
    for number in numbers {
        let found = waits_beside(idler, clients.get_mut(..*number).context("too few clients")?)?;
        waits.insert(number.to_string(), found);
    }
    Ok(json!({ "sums": table, "waits_us": waits }))
}

/// The sum of a program's rounds over those of one client, by the number of clients.
fn one_program(clients: &mut [NativeGpu], program: &Program, numbers: &[usize]) -> Result<Option<Value>> {
    let job = program.job(Size::Full);
    let (first, others) = clients.split_first_mut().context("no clients")?;
    let mut prepared = vec![Prepared::new(first, &job)?];
    let launches = prepared.iter().map(|one| one.launches.len()).sum::<usize>().max(1);
    let single = first.execute(prepared.first().map_or(&[], |one| &one.launches))?.gpu;
    if single < SHORTEST {
        first.release()?;
        return Ok(None);
    }
    for other in others {
        prepared.push(Prepared::new(other, &job)?);
    }
    let wanted = LENGTH.as_nanos() / single.as_nanos().max(1);
    let rounds = usize::try_from(wanted)?.clamp(1, (LAUNCHES / launches).max(1));
    let all: Vec<&[Launch]> = prepared.iter().map(|one| one.launches.as_slice()).collect();
    let alone = middle(clients, &all, 1, rounds)?;
    let mut row = Map::new();
    row.insert("rounds".into(), rounds.into());
    row.insert("round_us".into(), micros(alone / u32::try_from(rounds)?).into());
    for number in numbers {
        let took = middle(clients, &all, *number, rounds)?;
        let sum = alone.as_secs_f64() * *number as f64 / took.as_secs_f64().max(1e-9);
        row.insert(number.to_string(), ((sum * 1e4).round() / 1e4).into());
    }
    for (client, prepared) in clients.iter_mut().zip(&prepared) {
        prepared.check(client, &job)?;
        client.release()?;
    }
    Ok(Some(row.into()))
}

fn middle(
    clients: &mut [NativeGpu],
    launches: &[&[Launch]],
    number: usize,
    rounds: usize,
) -> Result<Duration> {
    let clients = clients.get_mut(..number).context("too few clients")?;
    let times: Result<Vec<Duration>> = (0..TIMES).map(|_| together(clients, launches, rounds)).collect();
    Ok(median(&times?))
}

/// All at once: from the first one's begin to the last one's end.
fn together(clients: &mut [NativeGpu], launches: &[&[Launch]], rounds: usize) -> Result<Duration> {
    let barrier = Barrier::new(clients.len());
    let ran: Result<Vec<Ran>> = thread::scope(|scope| {
        let threads: Vec<_> = clients
            .iter_mut()
            .zip(launches)
            .map(|(client, launches)| {
                let barrier = &barrier;
                scope.spawn(move || {
                    let queued = client.queue_rounds(YARDS, launches, rounds);
                    barrier.wait();
                    queued.and_then(|()| client.run_rounds())
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?).collect()
    });
    let ran = ran?;
    let begin = ran.iter().map(|ran| ran.begin).min().unwrap_or_default();
    let end = ran.iter().map(|ran| ran.end).max().unwrap_or_default();
    Ok(end.saturating_sub(begin))
}

/// What a client waits for a launch that writes a word, while others have all multiprocessors busy.
fn waits_beside(idler: &mut NativeGpu, busy: &mut [NativeGpu]) -> Result<Value> {
    let yards = BUSY_YARDS / busy.len().max(1);
    let barrier = Barrier::new(busy.len() + 1);
    let has_ended = AtomicBool::new(false);
    let (barrier, has_ended) = (&barrier, &has_ended);
    let mut seen: Vec<Duration> = thread::scope(|scope| {
        let threads: Vec<_> = busy
            .iter_mut()
            .map(|client| {
                scope.spawn(move || {
                    let queued = client.queue_rounds(yards, &[], 0);
                    barrier.wait();
                    let ran = queued.and_then(|()| client.run_rounds());
                    has_ended.store(true, Ordering::Relaxed);
                    ran.map(drop)
                })
            })
            .collect();
        barrier.wait();
        let mut seen = Vec::new();
        let mut waited = Ok(());
        // The first ones begin while the others' doorbells are rung.
        for seed in 0.. {
            // Not in step with slices.
            thread::sleep(PAUSE + Duration::from_micros((mix(seed) % 1000).into()));
            let took = idler.write_word(seed);
            if has_ended.load(Ordering::Relaxed) || took.is_err() {
                waited = took.map(drop);
                break;
            }
            seen.extend(took.ok());
        }
        let ended = threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?);
        ended.and(waited).map(|()| seen)
    })?;
    seen.sort_unstable();
    let at = |part: usize| seen.get(seen.len().saturating_sub(1) * part / 100).copied().unwrap_or_default();
    let figures = [50, 90, 100].map(|part| micros(at(part)));
    Ok(json!({ "waits": seen.len(), "p50": figures[0], "p90": figures[1], "max": figures[2] }))
}
