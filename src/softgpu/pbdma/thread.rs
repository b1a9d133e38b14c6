//! A PBDMA: takes channels in turn, and executes them until they have nothing left, have to wait, are told to
//! leave, or have used up their timeslice while others wait.

use gpuvmk_chip::channel_event::ChannelStop;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::ending::Ending;
use super::execution::Execution;
use super::host::HostUnit;
use super::shared::{Shared, become_pbdma};
use crate::fifo::{Channel, Departure, Job};

/// The thread of PBDMA number `pbdma`. Ends when the core shuts down.
pub(crate) fn run(shared: &Shared, host: HostUnit, pbdma: u8) {
    become_pbdma();
    while let Some(job) = next_job(shared, pbdma) {
        let ending = match Execution::load(shared, host, pbdma, job) {
            Ok(mut execution) => stay(shared, pbdma, &mut execution),
            Err(ending) => leave(shared, pbdma, job, ending),
        };
        if let Some(cause) = ending.cause {
            shared.events.stopped(ChannelStop { channel: job.channel, cause });
            shared.told(job.channel);
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
            // If this one watched the clock, somebody else has to now.
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
fn stay(shared: &Shared, pbdma: u8, execution: &mut Execution<'_>) -> Ending {
    loop {
        let ending = execution.run();
        let job = execution.job();
        let same = |entry: &&mut Channel| entry.generation == job.generation;
        // Saved while it still counts as loaded, so that nobody else has it by then.
        if shared.fifo().channel_mut(job.channel).filter(same).is_some() {
            execution.save();
        }
        let mut fifo = shared.fifo();
        let stays = ending.departure == Departure::Idle && fifo.may_run(job.channel);
        let entry = fifo.channel_mut(job.channel).filter(same);
        let rung = stays && entry.is_some_and(|entry| std::mem::take(&mut entry.rung));
        drop(fifo);
        if !rung {
            return leave(shared, pbdma, job, ending);
        }
        if let Err(ending) = execution.read_put() {
            return leave(shared, pbdma, job, ending);
        }
    }
}

/// Gives the channel back.
fn leave(shared: &Shared, pbdma: u8, job: Job, ending: Ending) -> Ending {
    let mut fifo = shared.fifo();
    let same = |entry: &&Channel| entry.generation == job.generation;
    let preempted = fifo.channel(job.channel).filter(same).is_some_and(|entry| entry.preempting);
    if preempted {
        drop(fifo);
        shared.evict(job.channel, true);
        fifo = shared.fifo();
    }
    let now = Instant::now();
    fifo.leave(&job, ending.departure, now);
    // Whoever takes the channel's number back waits until all is told: nothing is said of its next owner.
    for _ in 0..u8::from(preempted).saturating_add(u8::from(ending.cause.is_some())) {
        fifo.begin_telling(job.channel);
    }
    // This one takes a channel that is ready, unless it has something to tell before.
    let at_once = fifo.pbdma_enabled(pbdma) && !preempted && ending.cause.is_none();
    let called = fifo.call(now, usize::from(at_once));
    drop(fifo);
    shared.tell_left();
    shared.wake_these(called);
    if preempted {
        shared.events.preempted(job.channel);
        shared.told(job.channel);
    }
    ending
}
