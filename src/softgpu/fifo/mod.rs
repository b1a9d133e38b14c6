//! The channel table and the runlist: which channel may run, and whose turn it is. A pure model; its owner
//! locks it and wakes the PBDMAs.
//!
//! A channel runs when it is bound to an instance block, its start bit is set, the runlist names it, the
//! driver has not blocked the runlist, nothing stopped it, and it has work. Of several, the one goes first
//! that has waited longest since it last ran. An engine belongs to the channel that used it until that
//! channel leaves its PBDMA; others that need it wait.
//!
//! A channel also leaves its PBDMA while an engine works long for it: it keeps that engine alone, and the
//! PBDMA is free for others. When the operation is done and the channel's time is not up, the channel goes
//! on before everybody else, as if it had stayed: others had its PBDMA on loan.

mod channel;
mod holders;
pub(crate) mod ramfc;
pub(crate) mod sleepers;

use std::time::Instant;

use self::channel::Wait;
use self::holders::Holders;
use self::sleepers::{Pbdmas, Sleepers, bit};
use gpuvmk_backend::FifoState;
use gpuvmk_chip::addr::HostChannel;
use gpuvmk_chip::{Engine, EngineSet, PhysicalAddress};

pub(crate) use self::channel::{Channel, Departure, Job, Worker};

/// The tables.
#[derive(Debug)]
pub(crate) struct Fifo {
    pbdmas: u8,
    pub(crate) state: FifoState,
    pub(crate) blocked: bool,
    /// The PBDMAs are to end.
    pub(crate) shut_down: bool,
    /// Every channel must leave: a function reset is under way.
    pub(crate) resetting: bool,
    channels: Vec<Channel>,
    runlist: Vec<HostChannel>,
    holders: Holders,
    turns: u64,
    /// A PBDMA that sleeps until a semaphore is due, and until when.
    timekeeper: Option<(u8, Instant)>,
    sleepers: Sleepers,
}

impl Fifo {
    /// Tables of `channels` channels and `pbdmas` PBDMAs, as after power-on.
    pub(crate) fn new(channels: u16, pbdmas: u8) -> Self {
        Self {
            pbdmas,
            state: FifoState::default(),
            blocked: false,
            shut_down: false,
            resetting: false,
            channels: vec![Channel::default(); usize::from(channels)],
            runlist: Vec::new(),
            holders: Holders::default(),
            turns: 0,
            timekeeper: None,
            sleepers: Sleepers::default(),
        }
    }

    /// How many channels there are.
    pub(crate) fn channels(&self) -> u16 {
        u16::try_from(self.channels.len()).unwrap_or(u16::MAX)
    }

    pub(crate) fn channel(&self, number: HostChannel) -> Option<&Channel> {
        self.channels.get(usize::from(number.0))
    }

    pub(crate) fn channel_mut(&mut self, number: HostChannel) -> Option<&mut Channel> {
        self.channels.get_mut(usize::from(number.0))
    }

    /// All channels with their numbers.
    pub(crate) fn channels_mut(&mut self) -> impl Iterator<Item = (HostChannel, &mut Channel)> {
        (0..u16::MAX).map(HostChannel).zip(self.channels.iter_mut())
    }

    /// True while a PBDMA or an engine has any channel.
    pub(crate) fn any_at_work(&self) -> bool {
        self.channels.iter().any(|channel| channel.worker.is_some())
    }

    /// Binds a channel to an instance block; what was known of the number is forgotten.
    pub(crate) fn bind(&mut self, number: HostChannel, instance: Option<PhysicalAddress>) {
        if let Some(channel) = self.channel_mut(number) {
            channel.bind(instance);
        }
    }

    /// Takes a new runlist, without duplicates.
    pub(crate) fn set_runlist(&mut self, list: impl IntoIterator<Item = HostChannel>) {
        self.runlist.clear();
        let before: Vec<bool> =
            self.channels.iter_mut().map(|channel| std::mem::take(&mut channel.listed)).collect();
        for number in list {
            let place = usize::from(number.0);
            if let (Some(channel), Some(before)) = (self.channels.get_mut(place), before.get(place))
                && !channel.listed
            {
                channel.listed = true;
                // The driver may have written GP_PUT before the channel was listed.
                channel.pending |= !before;
                self.runlist.push(number);
            }
        }
    }

    /// Those whose channels may not run any more.
    pub(crate) fn to_leave(&self) -> impl Iterator<Item = Worker> {
        (0..u16::MAX).map(HostChannel).zip(&self.channels).filter_map(|(number, channel)| {
            let worker = channel.worker?;
            (!self.may_run(number)).then_some(worker)
        })
    }

    /// True when nothing but work is missing for the channel to run, or to go on running.
    pub(crate) fn may_run(&self, number: HostChannel) -> bool {
        let open = self.state.enabled && !self.blocked && !self.shut_down && !self.resetting;
        open && self.channel(number).is_some_and(|channel| {
            channel.instance.is_some()
                && channel.enabled
                && channel.listed
                && !channel.stopped
                && !channel.preempting
        })
    }

    /// True when nothing speaks against the stay of a channel that `pbdma` has, or has left to an engine.
    pub(crate) fn goes_on(&self, job: &Job, pbdma: u8) -> bool {
        self.may_run(job.channel)
            && self.pbdma_enabled(pbdma)
            && self.channel(job.channel).is_some_and(|channel| channel.generation == job.generation)
    }

    /// True when an engine has lost, or is about to lose, what it does for the channel.
    pub(crate) fn is_work_lost(&self, number: HostChannel) -> bool {
        self.shut_down || self.resetting || self.channel(number).is_some_and(|channel| channel.stopped)
    }

    /// True when the PBDMA is one that exists and that the driver has enabled.
    pub(crate) fn pbdma_enabled(&self, pbdma: u8) -> bool {
        pbdma < self.pbdmas && self.state.pbdma_mask & (1 << pbdma) != 0
    }

    fn enabled(&self) -> Pbdmas {
        (0..self.pbdmas).filter(|pbdma| self.pbdma_enabled(*pbdma)).fold(0, |all, pbdma| all | bit(pbdma))
    }

    /// The PBDMAs to wake for the channels that are ready, `awake` of which are taken by PBDMAs that look by
    /// themselves.
    pub(crate) fn call(&mut self, now: Instant, awake: usize) -> Pbdmas {
        let enabled = self.enabled();
        if !self.sleepers.any(enabled) {
            return 0;
        }
        let most = usize::from(self.pbdmas).saturating_add(awake);
        // Of those that have waited for one engine, one alone can have it: others would be loaded in vain.
        let mut engines = EngineSet::empty();
        let mut first = |number: HostChannel| match self.channel(number).and_then(|channel| channel.wait) {
            Some(Wait::Engine(engine)) => {
                let before = engines;
                engines |= engine.into();
                engines != before
            }
            _ => true,
        };
        let ready = self.runlist.iter().filter(|number| self.ready(**number, now) && first(**number));
        let ready = ready.take(most).count();
        let ready = u32::try_from(ready.saturating_sub(awake)).unwrap_or(u32::MAX);
        self.sleepers.call(ready, enabled, self.timekeeper.map(|(pbdma, _)| pbdma))
    }

    /// A PBDMA has found nothing and sleeps: until when, if it is to watch the clock for waiting semaphores.
    pub(crate) fn lie_down(&mut self, pbdma: u8) -> Option<Instant> {
        self.sleepers.lie_down(pbdma);
        let due = if self.pbdma_enabled(pbdma) { self.next_retry() } else { None };
        match (due, self.timekeeper) {
            (Some(due), Some((other, until))) if other != pbdma && until <= due => None,
            (Some(due), _) => {
                self.timekeeper = Some((pbdma, due));
                Some(due)
            }
            (None, _) => {
                self.forget_timekeeper(pbdma);
                None
            }
        }
    }

    /// A PBDMA is awake. Whoever watched the clock does so no more.
    pub(crate) fn get_up(&mut self, pbdma: u8) {
        self.sleepers.get_up(pbdma);
        self.forget_timekeeper(pbdma);
    }

    fn forget_timekeeper(&mut self, pbdma: u8) {
        self.timekeeper = self.timekeeper.filter(|(keeper, _)| *keeper != pbdma);
    }

    /// Somebody to watch the clock, if semaphores are waited for and nobody does.
    pub(crate) fn call_timekeeper(&mut self) -> Pbdmas {
        if self.timekeeper.is_some() || self.next_retry().is_none() {
            return 0;
        }
        let enabled = self.enabled();
        self.sleepers.call_one(enabled)
    }

    fn ready(&self, number: HostChannel, now: Instant) -> bool {
        let waits = |wait| match wait {
            Wait::Semaphore { retry_at, .. } => retry_at > now,
            Wait::Engine(engine) => !self.engine_free(engine),
        };
        self.may_run(number)
            && self.channel(number).is_some_and(|channel| {
                channel.pending && channel.worker.is_none() && !channel.wait.is_some_and(waits)
            })
    }

    fn engine_free(&self, engine: Engine) -> bool {
        self.holder(engine).is_none() && self.state.ready.contains(engine.into())
    }

    /// True when some channel waits for the engine, whoever has it.
    pub(crate) fn engine_wanted(&self, engine: Engine) -> bool {
        self.state.ready.contains(engine.into())
            && self.runlist.iter().any(|&number| {
                self.may_run(number)
                    && self.channel(number).is_some_and(|entry| entry.wait == Some(Wait::Engine(engine)))
            })
    }

    /// True when some channel would run if a PBDMA or an engine were free.
    pub(crate) fn others_wait(&self, now: Instant) -> bool {
        self.runlist.iter().any(|&number| {
            let wants_engine = self.may_run(number)
                && self.channel(number).is_some_and(|channel| {
                    matches!(channel.wait, Some(Wait::Engine(engine)) if self.state.ready.contains(engine.into()))
                });
            wants_engine || self.ready(number, now)
        })
    }

    /// Gives the PBDMA the channel whose turn it is.
    pub(crate) fn next(&mut self, pbdma: u8, now: Instant) -> Option<Job> {
        if !self.pbdma_enabled(pbdma) {
            return None;
        }
        let ready = self.runlist.iter().copied().filter(|&number| self.ready(number, now));
        let turn = |channel: &Channel| (channel.back.is_none(), channel.last_ran);
        let number = ready.min_by_key(|&number| self.channel(number).map(turn))?;
        self.channel_mut(number)?.load(number, pbdma)
    }

    /// When the next semaphore is due, if channels wait for one.
    pub(crate) fn next_retry(&self) -> Option<Instant> {
        let due =
            self.runlist.iter().filter(|&&number| self.may_run(number)).filter_map(|&number| {
                match self.channel(number)?.wait? {
                    Wait::Semaphore { retry_at, .. } => Some(retry_at),
                    Wait::Engine(_) => None,
                }
            });
        due.min()
    }

    /// Makes every waiting acquire of the runlist look again. True when there is one.
    pub(crate) fn retry_semaphores(&mut self, now: Instant) -> bool {
        let mut any = false;
        for number in &self.runlist {
            let Some(channel) = self.channels.get_mut(usize::from(number.0)) else { continue };
            any |= channel.retry(now);
        }
        any
    }

    /// Gives the engine to a loaded channel, unless another one has it or it is not ready.
    pub(crate) fn take_engine(&mut self, engine: Engine, number: HostChannel) -> bool {
        self.state.ready.contains(engine.into())
            && self.holder(engine).is_none_or(|holder| holder == number)
            && self.holders.give(engine, number)
    }

    /// The channel that has the engine: it is at work, or about to go on.
    pub(crate) fn holder(&self, engine: Engine) -> Option<HostChannel> {
        let number = self.holders.of(engine)?;
        let channel = self.channel(number)?;
        (channel.worker.is_some() || channel.back.is_some() && self.may_run(number)).then_some(number)
    }

    /// Takes back a channel from whoever has it, or leaves it to an engine alone.
    pub(crate) fn leave(&mut self, job: &Job, departure: Departure, now: Instant) {
        self.turns += 1;
        let turn = self.turns;
        if let Some(channel) = self.channel_mut(job.channel) {
            channel.leave(job, departure, turn, now);
        }
        if self.channel(job.channel).is_some_and(|channel| channel.back.is_some()) {
            return;
        }
        self.holders.release(job.channel);
        if let Departure::Working(engine) = departure {
            self.holders.give(engine, job.channel);
        }
    }

    /// True when a channel is ready whose operation is done, and whose time is not up.
    pub(crate) fn is_any_back(&self, now: Instant) -> bool {
        let back = |number| self.channel(number).is_some_and(|channel| channel.back.is_some());
        self.runlist.iter().any(|&number| back(number) && self.ready(number, now))
    }

    /// The PBDMA that is to let a channel go on which is back, where none is free: the one that it had, if
    /// that has a channel on loan, or another one.
    pub(crate) fn lender(&self, number: HostChannel) -> Option<u8> {
        let back = self.channel(number).filter(|channel| channel.back.is_some())?;
        if self.sleepers.is_anybody_coming(self.enabled()) {
            return None;
        }
        let lent = self.channels.iter().filter(|channel| !channel.resumed).filter_map(|channel| {
            let Some(Worker::Pbdma(pbdma)) = channel.worker else { return None };
            Some(pbdma).filter(|pbdma| self.pbdma_enabled(*pbdma))
        });
        lent.min_by_key(|pbdma| *pbdma != back.pbdma)
    }

    /// As after power-on, except for what PBDMAs and engines are doing.
    pub(crate) fn clear(&mut self) {
        self.state = FifoState::default();
        self.blocked = false;
        self.runlist.clear();
        for channel in &mut self.channels {
            channel.clear();
        }
    }

    /// Who gives a channel back has something to tell of it.
    pub(crate) fn begin_telling(&mut self, number: HostChannel) {
        if let Some(channel) = self.channel_mut(number) {
            channel.telling = channel.telling.saturating_add(1);
        }
    }

    /// It has told everything.
    pub(crate) fn end_telling(&mut self, number: HostChannel) {
        if let Some(channel) = self.channel_mut(number) {
            channel.telling = channel.telling.saturating_sub(1);
        }
    }

    /// True while somebody has the channel, or has yet to tell of it.
    pub(crate) fn is_busy(&self, number: HostChannel) -> bool {
        self.channel(number).is_some_and(|channel| channel.worker.is_some() || channel.telling > 0)
    }
}
