//! `channels`: several channels at once, on all engines, from threads of one process (one GPU address space)
//! and from other processes (address spaces of their own), all verified.

use std::sync::{Arc, Barrier};
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};

use super::child::Other;
use super::session::Session;
use super::{Figures, Options};
use crate::chip::Chip;
use crate::drm::Device;
use crate::engine::Engine;

const THREADS: u32 = 4;
const PROCESSES: usize = 2;
const TURNS: u32 = 24;
const LENGTH: usize = 96 << 10;

pub fn run(options: &Options) -> Result<Figures> {
    let gpu = options.gpu()?;
    let turns = options.get("turns", TURNS)?;
    let children = (0..PROCESSES)
        .map(|_| Other::start("copy", &[format!("gpu={gpu}"), "largest=65537".to_owned()]))
        .collect::<Result<Vec<_>>>()?;

    let device = Device::open(gpu)?;
    let engines = Chip::of(&device)?.engines();
    // All channels are open before the first is closed: their numbers can then be compared.
    let all_open = Arc::new(Barrier::new(THREADS as usize));
    let workers: Vec<_> = (0..THREADS)
        .map(|worker| {
            let (device, all_open) = (device.clone(), Arc::clone(&all_open));
            let engine = engines.iter().copied().cycle().nth(worker as usize);
            thread::spawn(move || {
                let engine = engine.context("the chip has no engine")?;
                work(&device, engine, worker, turns, &all_open)
            })
        })
        .collect();
    let mut ids = Vec::new();
    for worker in workers {
        ids.push(worker.join().map_err(|_| anyhow!("a thread panicked"))??);
    }
    for child in children {
        child.finish()?;
    }
    ids.sort_unstable();
    let mut distinct = ids.clone();
    distinct.dedup();
    ensure!(ids == distinct, "two channels have one number: {ids:?}");

    let mut figures = Figures::new();
    figures.insert("threads".into(), THREADS.into());
    figures.insert("processes".into(), PROCESSES.into());
    figures.insert("copies".into(), (THREADS * turns).into());
    Ok(figures)
}

/// One thread's copies through its own channel; returns the channel's number.
fn work(device: &Device, engine: Engine, worker: u32, turns: u32, all_open: &Barrier) -> Result<u32> {
    let session = Session::on(device, engine, 256 << 10);
    // Also after a failure: the others wait for this thread.
    all_open.wait();
    let mut session = session?;
    for turn in 0..turns {
        let offset = (turn as usize % 5) * 4096;
        session
            .there_and_back(worker << 16 | turn, [offset, offset * 2, offset], LENGTH)
            .with_context(|| format!("thread {worker}, turn {turn}"))?;
    }
    Ok(session.channel.id())
}
