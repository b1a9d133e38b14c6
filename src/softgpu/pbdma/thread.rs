//! A PBDMA: takes channels in turn, and executes them until they have nothing left, have to wait, are told to
//! leave, have used up their timeslice while others wait, or are at work for long on an engine.

use std::sync::atomic::Ordering;
use std::time::Instant;

use super::execution::Execution;
use super::host::HostUnit;
use super::leaving::leave;
use super::long_work::LongWork;
use super::shared::{Shared, become_unit};
use crate::fifo::{Channel, Departure, Job, Worker};
use gpuvmk_chip::Engine;

/// The thread of PBDMA number `pbdma`. Ends when the core shuts down.
pub(crate) fn run(shared: &Shared, host: HostUnit, pbdma: u8) {
    become_unit();
    while let Some(job) = next_job(shared, pbdma) {
        match Execution::load(shared, host, pbdma, job) {
            Ok(mut execution) => stay(shared, pbdma, &mut execution),
            Err(ending) => leave(shared, Worker::Pbdma(pbdma), &job, ending),
        }
    }
}

/// Waits for a channel to run.
fn next_job(shared: &Shared, pbdma: u8) -> Option<Job> {
    let mut fifo = shared.fifo();
    loop {
        if fifo.shut_down {
            return None;
        }
        if let Some(job) = fifo.next(pbdma, Instant::now()) {
            shared.attention(pbdma).store(false, Ordering::Release);
            // If this PBDMA watched the clock, another one has to now.
            let called = fifo.call_timekeeper();
            drop(fifo);
            shared.wake_these(called);
            return Some(job);
        }
        // One of the PBDMAs watches the clock for semaphores; the others sleep until they are woken.
        let until = fifo.lie_down(pbdma);
        fifo = shared.sleep(fifo, pbdma, until);
        fifo.get_up(pbdma);
    }
}

/// Executes until the channel leaves for good: a doorbell at the last moment keeps an idle one.
fn stay(shared: &Shared, pbdma: u8, execution: &mut Execution<'_>) {
    loop {
        let ending = execution.run();
        let job = execution.job();
        let same = |entry: &&mut Channel| entry.generation == job.generation;
        // Saved while it still counts as loaded, so that nobody else has it by then.
        if shared.fifo().channel_mut(job.channel).filter(same).is_some() {
            execution.save();
        }
        if let Departure::Working(engine) = ending.departure {
            return hand_over(shared, pbdma, engine, execution.long_work());
        }
        let mut fifo = shared.fifo();
        let stays = ending.departure == Departure::Idle && fifo.may_run(job.channel);
        let entry = fifo.channel_mut(job.channel).filter(same);
        let rung = stays && entry.is_some_and(|entry| std::mem::take(&mut entry.rung));
        drop(fifo);
        if !rung {
            return leave(shared, Worker::Pbdma(pbdma), &job, ending);
        }
        if let Err(ending) = execution.read_put() {
            return leave(shared, Worker::Pbdma(pbdma), &job, ending);
        }
    }
}

/// Leaves the channel to its engine, which goes on with its operation.
fn hand_over(shared: &Shared, pbdma: u8, engine: Engine, work: LongWork) {
    let Some((unit, inbox)) = shared.unit_and_inbox(engine) else { return };
    let now = Instant::now();
    let mut fifo = shared.fifo();
    // What was said to this PBDMA, and what is said from now on, is for the engine to look at.
    unit.attention().store(!fifo.goes_on(&work.job, pbdma), Ordering::Release);
    fifo.leave(&work.job, Departure::Working(engine), now);
    // Others may wait for the engines that it does not need meanwhile; this PBDMA takes one itself.
    let at_once = fifo.pbdma_enabled(pbdma);
    let called = fifo.call(now, usize::from(at_once));
    drop(fifo);
    inbox.put(work);
    shared.wake_these(called);
}
