//! One engine of the modelled GPU: it runs the channels that are on its runlist in its own time slices, and
//! stops where work can be interrupted.
//!
//! Its work is the truth against which the scheduler's accounting is checked. Not modelled: prefetching of
//! rings, work that waits for semaphores, and contention of engines for memory.

use std::collections::VecDeque;
use std::time::Duration;

use crate::sim::scenario::GpuModel;
use gpuvmk_chip::addr::{HostChannel, TenantId};
use gpuvmk_ordered::{OrderedMap, OrderedSet};

/// A piece of work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub submitted: Duration,
    pub length: Duration,
    left: Duration,
    pub started: Option<Duration>,
}

impl Job {
    pub fn new(submitted: Duration, length: Duration) -> Self {
        Self { submitted, length, left: length, started: None }
    }
}

/// A channel as hardware knows it.
#[derive(Debug)]
pub(super) struct Channel {
    pub vm: TenantId,
    piece: Option<Duration>,
    jobs: VecDeque<Job>,
    /// Jobs since the channel began: submitted,
    pub put: u32,
    /// known to hardware,
    known: u32,
    /// begun,
    pub fetched: u32,
    /// Number of pieces that are done.
    done: u32,
    listed: bool,
}

/// Channels by number.
pub(super) type Channels = OrderedMap<HostChannel, Channel>;

impl Channel {
    pub fn new(vm: TenantId, piece: Option<Duration>) -> Self {
        let jobs = VecDeque::new();
        Self { vm, piece, jobs, put: 0, known: 0, fetched: 0, done: 0, listed: true }
    }

    /// Work that is not done.
    pub fn unfinished(&self) -> impl Iterator<Item = &Job> {
        self.jobs.iter()
    }

    fn runnable(&self) -> bool {
        self.listed && self.known != self.done
    }

    /// How much longer the present job runs until it can be interrupted; zero: now.
    fn to_boundary(&self) -> Duration {
        let (Some(job), Some(piece)) = (self.jobs.front(), self.piece) else { return Duration::ZERO };
        let worked = job.length.saturating_sub(job.left);
        match worked.as_nanos().checked_rem(piece.as_nanos()) {
            None | Some(0) => Duration::ZERO,
            Some(into) => {
                let into = Duration::from_nanos(u64::try_from(into).unwrap_or(u64::MAX));
                job.left.min(piece.saturating_sub(into))
            }
        }
    }
}

/// State of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    /// It changes to a channel of another VM until then.
    Changing {
        to: HostChannel,
        until: Duration,
    },
    /// It runs a channel, which it may change for another of the runlist from then on.
    Working {
        on: HostChannel,
        turn_end: Duration,
    },
}

/// The model of an engine.
#[derive(Debug)]
pub(super) struct EngineModel {
    gpu: GpuModel,
    state: State,
    /// Up to when `state` was accounted.
    now: Duration,
    last_vm: Option<TenantId>,
    /// Channels that could run, in the order of turns.
    runnable: OrderedSet<HostChannel>,
    /// Jobs that were submitted and are not done.
    waiting: u64,
    /// Time in which it worked.
    pub busy: Duration,
    /// Time in which it did not although work waited.
    pub idle_with_work: Duration,
    /// Changes from one VM to another.
    pub switches: u64,
}

/// A VM's work that an engine did.
#[derive(Clone, Copy, Debug)]
pub(super) struct Worked {
    pub vm: TenantId,
    pub from: Duration,
    pub length: Duration,
    /// A job that is done by it.
    pub done: Option<(HostChannel, Job)>,
}

impl EngineModel {
    pub fn new(gpu: GpuModel) -> Self {
        Self {
            gpu,
            state: State::Idle,
            now: Duration::ZERO,
            last_vm: None,
            runnable: OrderedSet::new(),
            waiting: 0,
            busy: Duration::ZERO,
            idle_with_work: Duration::ZERO,
            switches: 0,
        }
    }

    /// The channel that works now, as its status registers say.
    pub fn running(&self) -> Option<HostChannel> {
        match self.state {
            State::Working { on, .. } => Some(on),
            State::Idle | State::Changing { .. } => None,
        }
    }

    /// Lets time pass, at most to the time that [`Self::dispatch`] returned.
    pub fn advance(&mut self, now: Duration, channels: &mut Channels) -> Option<Worked> {
        let from = std::mem::replace(&mut self.now, now);
        let length = now.saturating_sub(from);
        let Some((on, channel)) = self.running().and_then(|on| Some((on, channels.get_mut(&on)?))) else {
            if self.waiting > 0 {
                self.idle_with_work = self.idle_with_work.saturating_add(length);
            }
            return None;
        };
        self.busy = self.busy.saturating_add(length);
        let mut worked = Worked { vm: channel.vm, from, length, done: None };
        let job = channel.jobs.front_mut()?;
        job.left = job.left.saturating_sub(length);
        if job.left.is_zero() {
            worked.done = channel.jobs.pop_front().map(|job| (on, job));
            channel.done = channel.done.wrapping_add(1);
            self.waiting = self.waiting.saturating_sub(1);
            if !channel.runnable() {
                self.runnable.remove(&on);
                self.state = State::Idle;
            }
        }
        Some(worked)
    }

    /// Work was submitted; hardware does not know yet.
    pub fn submit(&mut self, channel: &mut Channel, job: Job) {
        channel.jobs.push_back(job);
        channel.put = channel.put.wrapping_add(1);
        self.waiting = self.waiting.saturating_add(1);
    }

    /// Rings a channel's doorbell.
    pub fn ring(&mut self, number: HostChannel, channel: &mut Channel, put: u32) {
        channel.known = put;
        self.note_runnable(number, channel);
    }

    /// A runlist with or without the channel.
    pub fn list(&mut self, number: HostChannel, channel: &mut Channel, listed: bool) {
        if channel.listed != listed {
            channel.listed = listed;
            self.note_runnable(number, channel);
        }
    }

    fn note_runnable(&mut self, number: HostChannel, channel: &Channel) {
        if channel.runnable() {
            self.runnable.insert(number);
        } else {
            self.runnable.remove(&number);
        }
    }

    /// A channel goes, with all its work.
    pub fn remove(&mut self, number: HostChannel, channel: &Channel) {
        self.waiting = self.waiting.saturating_sub(u64::try_from(channel.jobs.len()).unwrap_or(u64::MAX));
        self.runnable.remove(&number);
        match self.state {
            State::Working { on: other, .. } | State::Changing { to: other, .. } if other == number => {
                self.state = State::Idle;
            }
            State::Working { .. } | State::Changing { .. } | State::Idle => {}
        }
    }

    /// Goes on to whatever is next. Returns when to come again.
    pub fn dispatch(&mut self, channels: &mut Channels) -> Option<Duration> {
        match self.state {
            State::Working { on, turn_end } => {
                let leaves = channels.get(&on).is_none_or(|channel| {
                    let over = !channel.runnable() || (self.others_want(on) && self.now >= turn_end);
                    over && channel.to_boundary().is_zero()
                });
                if leaves {
                    self.choose(channels, Some(on));
                }
            }
            State::Changing { to, until } => {
                if !channels.get(&to).is_some_and(Channel::runnable) {
                    self.choose(channels, Some(to));
                } else if self.now >= until {
                    self.last_vm = channels.get(&to).map(|channel| channel.vm);
                    self.work(to);
                }
            }
            State::Idle => self.choose(channels, None),
        }
        self.begin(channels);
        self.next_event(channels)
    }

    fn others_want(&self, than: HostChannel) -> bool {
        self.runnable.iter().take(2).any(|other| *other != than)
    }

    fn choose(&mut self, channels: &Channels, last: Option<HostChannel>) {
        let after = last.and_then(|last| self.runnable.range(last..).find(|other| **other != last));
        let Some(next) = after.or_else(|| self.runnable.first()).copied() else {
            self.state = State::Idle;
            return;
        };
        let vm = channels.get(&next).map(|channel| channel.vm);
        let changes = self.last_vm.is_some() && vm != self.last_vm;
        if changes {
            self.switches = self.switches.saturating_add(1);
        }
        if changes && !self.gpu.switch.is_zero() {
            self.state = State::Changing { to: next, until: self.now.saturating_add(self.gpu.switch) };
        } else {
            self.last_vm = vm;
            self.work(next);
        }
    }

    fn work(&mut self, on: HostChannel) {
        self.state = State::Working { on, turn_end: self.now.saturating_add(self.gpu.timeslice) };
    }

    /// The job that is worked on counts as fetched from its first moment.
    fn begin(&self, channels: &mut Channels) {
        let Some(channel) = self.running().and_then(|on| channels.get_mut(&on)) else { return };
        if let Some(job) = channel.jobs.front_mut()
            && job.started.is_none()
        {
            job.started = Some(self.now);
            channel.fetched = channel.done.wrapping_add(1);
        }
    }

    fn next_event(&self, channels: &Channels) -> Option<Duration> {
        match self.state {
            State::Idle => None,
            State::Changing { until, .. } => Some(until),
            State::Working { on, turn_end } => {
                let channel = channels.get(&on)?;
                let end = self.now.saturating_add(channel.jobs.front()?.left);
                let boundary = self.now.saturating_add(channel.to_boundary());
                if !channel.runnable() {
                    Some(end.min(boundary))
                } else if self.others_want(on) {
                    Some(end.min(if self.now < turn_end { turn_end } else { boundary }))
                } else {
                    Some(end)
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: HostChannel = HostChannel(1);
    const B: HostChannel = HostChannel(2);

    fn us(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    /// Two VMs with a job of 1 ms each, whose pieces take so long.
    fn two(piece: Option<Duration>) -> (EngineModel, Channels) {
        let mut engine = EngineModel::new(GpuModel {
            switch: us(10),
            taken_for: us(10),
            timeslice: us(300),
            late: us(0),
            counts: true,
            tells: true,
        });
        let mut channels = Channels::new();
        for (number, vm) in [(A, 1), (B, 2)] {
            let mut channel = Channel::new(TenantId(vm), piece);
            engine.submit(&mut channel, Job::new(us(0), us(1000)));
            engine.ring(number, &mut channel, 1);
            channels.insert(number, channel);
        }
        (engine, channels)
    }

    /// Who worked from when to when.
    fn course(engine: &mut EngineModel, channels: &mut Channels) -> Vec<(u32, Duration, Duration)> {
        let mut course: Vec<(u32, Duration, Duration)> = Vec::new();
        while let Some(next) = engine.dispatch(channels) {
            let Some(worked) = engine.advance(next, channels).filter(|worked| !worked.length.is_zero())
            else {
                continue;
            };
            match course.last_mut() {
                Some((vm, _, end)) if *vm == worked.vm.0 && *end == worked.from => *end += worked.length,
                _ => course.push((worked.vm.0, worked.from, worked.from + worked.length)),
            }
        }
        course
    }

    #[test]
    fn channels_of_a_runlist_take_turns_and_changing_takes_time() {
        let (mut engine, mut channels) = two(None);

        let course = course(&mut engine, &mut channels);

        assert_eq!(course[..3], [(1, us(0), us(300)), (2, us(310), us(610)), (1, us(620), us(920))]);
        assert_eq!((engine.busy, engine.idle_with_work), (us(2000), us(10 * engine.switches)));
    }

    #[test]
    fn work_is_interrupted_only_between_its_pieces() {
        let (mut engine, mut channels) = two(Some(us(400)));

        let course = course(&mut engine, &mut channels);

        assert_eq!(course[..2], [(1, us(0), us(400)), (2, us(410), us(810))]);
    }

    #[test]
    fn channel_that_leaves_the_runlist_stops_at_its_next_boundary() {
        let (mut engine, mut channels) = two(Some(us(250)));
        engine.list(B, channels.get_mut(&B).unwrap(), false);
        engine.dispatch(&mut channels);
        engine.advance(us(100), &mut channels);

        engine.list(A, channels.get_mut(&A).unwrap(), false);
        let next = engine.dispatch(&mut channels);

        assert_eq!((next, engine.running()), (Some(us(250)), Some(A)));
        engine.advance(us(250), &mut channels);
        assert_eq!((engine.dispatch(&mut channels), engine.running()), (None, None));
    }

    #[test]
    fn work_that_hardware_does_not_know_of_waits() {
        let (mut engine, mut channels) = two(None);
        let mut channel = Channel::new(TenantId(3), None);
        engine.submit(&mut channel, Job::new(us(0), us(5)));
        channels.insert(HostChannel(3), channel);

        let course = course(&mut engine, &mut channels);
        engine.advance(us(9000), &mut channels);

        assert!(course.iter().all(|(vm, ..)| *vm != 3));
        assert!(engine.idle_with_work > us(6000));
    }
}
