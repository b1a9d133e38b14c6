//! An engine's own thread: it goes on with long operations that PBDMAs have begun, so that these are free.
//!
//! The channel counts as at work for the engine until its operation is done, refused, or has to leave. What
//! is said to the channel meanwhile is said to the engine ([`Shared::alert`]), which looks between two
//! quanta. What it did is in the engine's context, and in RAMFC that nothing is pending any more: whichever
//! PBDMA loads the channel next goes on behind it.

use std::sync::atomic::Ordering;
use std::time::Instant;

use super::ending::{Ending, refused};
use super::execution::TIMESLICE;
use super::leaving::leave;
use super::long_work::{Inbox, LongWork, owner};
use super::shared::{Shared, become_unit};
use crate::Preemption;
use crate::engine::control::{Control, Place};
use crate::engine::model::Progress;
use crate::engine::unit::{Executed, Operation, Unit};
use crate::fifo::{Departure, Job, Worker};
use crate::ledger::Actor;
use gpuvmk_chip::gf100::ramin::RAMFC_CURRENT_ENGINE;
use gpuvmk_chip::{Engine, PhysicalAddress};

/// The thread of an engine. Ends when the core shuts down.
pub(crate) fn run(shared: &Shared, engine: Engine) {
    become_unit();
    let Some((unit, inbox)) = shared.unit_and_inbox(engine) else { return };
    serve(shared, unit, inbox);
}

fn serve(shared: &Shared, unit: &Unit, inbox: &Inbox) {
    while let Some(mut work) = inbox.take() {
        let ending = go_on(shared, unit, &mut work);
        unit.end_of_long_work();
        if matches!(ending.departure, Departure::Done(_) | Departure::Stopped) {
            end_operation(shared, &work.job);
        }
        leave(shared, Worker::Engine(unit.engine()), &work.job, ending);
    }
}

/// Works until the operation ends or the channel must leave.
fn go_on(shared: &Shared, unit: &Unit, work: &mut LongWork) -> Ending {
    let engine = unit.engine();
    loop {
        let preemption = shared.preemption();
        // Cleared before looking, so that nothing said from now on is missed.
        if unit.attention().swap(false, Ordering::AcqRel)
            && let Some(departure) = must_leave(shared, engine, work, preemption)
        {
            return departure.into();
        }
        let control = Control {
            attention: unit.attention(),
            abort: unit.abort(),
            slice_end: work.slice_end,
            preemption,
            place: Place::Engine,
        };
        match unit.execute(&shared.system, owner(&work.job), &work.space, control, Operation::Resume) {
            // Somebody else had it in between, by hand.
            Ok(Executed::Switched(switch)) => switch.tell(&shared.events),
            Ok(Executed::NotNow) => {}
            Ok(Executed::Ran(Progress::Done, effects)) => {
                shared.tell_effects(engine, effects);
                return Departure::Done(work.slice_end).into();
            }
            Ok(Executed::Ran(Progress::Paused, effects)) => {
                shared.tell_effects(engine, effects);
                let now = Instant::now();
                if now >= work.slice_end {
                    if shared.fifo().engine_wanted(engine) {
                        return Departure::Outlasted(engine).into();
                    }
                    work.slice_end = now + TIMESLICE;
                }
            }
            Err(refusal) => return refused(work.pbdma, engine, work.method, refusal),
        }
    }
}

/// Why the channel must leave in the middle of its operation, if it must.
fn must_leave(shared: &Shared, engine: Engine, work: &LongWork, preemption: Preemption) -> Option<Departure> {
    let fifo = shared.fifo();
    if fifo.is_work_lost(work.job.channel) {
        return Some(Departure::Yielded);
    }
    if preemption == Preemption::Methods {
        return None;
    }
    if !fifo.goes_on(&work.job, work.pbdma) {
        return Some(Departure::Yielded);
    }
    (!fifo.state.ready.contains(engine.into())).then_some(Departure::Outlasted(engine))
}

/// Notes in RAMFC that the engine has finished, unless the channel is somebody else's by now.
fn end_operation(shared: &Shared, job: &Job) {
    if shared.fifo().channel(job.channel).is_none_or(|entry| entry.generation != job.generation) {
        return;
    }
    let Job { channel, instance, .. } = *job;
    let target =
        PhysicalAddress { address: instance.address.saturating_add(RAMFC_CURRENT_ENGINE), ..instance };
    let system = &shared.system;
    system.ledger.check(Actor::Firmware, Some(channel), target, 4);
    let word = system.memory.read_u32(target);
    let word = word.map(|word| word & !RAMFC_CURRENT_ENGINE::PENDING.mask());
    if let Err(missed) = word.and_then(|word| system.memory.write(target, &word.to_le_bytes())) {
        log::debug!("softgpu: RAMFC of channel {} is gone: {missed}", channel.0);
    }
}
