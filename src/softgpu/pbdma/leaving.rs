//! How a channel is given back by whoever had it, a PBDMA or an engine.

use std::time::Instant;

use super::ending::Ending;
use super::shared::Shared;
use crate::fifo::{Channel, Departure, Job, Worker};
use gpuvmk_chip::channel_event::ChannelStop;

/// Gives the channel back, and tells what there is to tell of it.
pub(super) fn leave(shared: &Shared, worker: Worker, job: &Job, ending: Ending) {
    let mut fifo = shared.fifo();
    let same = |entry: &&Channel| entry.generation == job.generation;
    let preempted = fifo.channel(job.channel).filter(same).is_some_and(|entry| entry.preempting);
    let departure = match ending.departure {
        // A preempted channel has no time left, and no engine.
        Departure::Done(_) if preempted => Departure::Yielded,
        departure => departure,
    };
    if preempted {
        drop(fifo);
        shared.evict(job.channel, true);
        fifo = shared.fifo();
    }
    let now = Instant::now();
    fifo.leave(job, departure, now);
    // Whoever takes the channel's number back waits until all is told: nothing is said of its next owner.
    for _ in 0..u8::from(preempted).saturating_add(u8::from(ending.cause.is_some())) {
        fifo.begin_telling(job.channel);
    }
    // A PBDMA takes a channel that is ready, unless it has something to tell before.
    let at_once = match worker {
        Worker::Pbdma(pbdma) => fifo.pbdma_enabled(pbdma) && !preempted && ending.cause.is_none(),
        Worker::Engine(_) => false,
    };
    let called = fifo.call(now, usize::from(at_once));
    let lender = if called == 0 { fifo.lender(job.channel) } else { None };
    drop(fifo);
    shared.tell_left();
    shared.wake_these(called);
    if let Some(pbdma) = lender {
        shared.alert(Worker::Pbdma(pbdma));
    }
    if preempted {
        shared.events.preempted(job.channel);
        shared.told(job.channel);
    }
    if let Some(cause) = ending.cause {
        shared.events.stopped(ChannelStop { channel: job.channel, cause });
        shared.told(job.channel);
    }
}
