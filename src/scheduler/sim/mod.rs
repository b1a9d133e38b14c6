//! A simulator: the scheduler of the daemon, with its policies, accounting and looks, on a modelled GPU in
//! virtual time.
//!
//! Nothing of [`super::Scheduler`] is replaced or left out: doorbells, samples and decisions go through it as
//! through the aggregator's machine. Modelled are the GPU ([`engine`]) and the guests ([`load`]). So a run
//! shows a policy's effect on a load before real VMs have it, in seconds for hours and thousands of VMs. The
//! same seed gives the same run.
//!
//! Not modelled: requests to the aggregator, page tables, and what carrying out a decision costs the
//! aggregator beyond `late`.

mod engine;
mod load;
pub mod plot;
pub mod report;
pub mod scenario;
#[cfg(test)]
mod tests;
mod vms;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use self::engine::{Channel, Channels, EngineModel, Job};
use self::load::Source;
use self::report::Report;
use self::vms::SimVm;
use super::{Gate, Scheduler};
use crate::share::Rejection;
use crate::sim::scenario::Changed;
use crate::sim::scenario::Scenario;
use gpuvmk_chip::Engine;
use gpuvmk_chip::addr::HostChannel;
use gpuvmk_ordered::OrderedMap;

/// Why a scenario cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// There are not enough channel numbers.
    #[error("The VMs have {channels} loads together; a GPU has channels for {} at the most", u16::MAX)]
    TooManyChannels {
        /// How many loads.
        channels: usize,
    },
    /// The policy refuses a VM or a change.
    #[error("{what} at {} us is refused", at.as_micros())]
    Refused {
        /// Which VM or change.
        what: String,
        /// Time since the start of the run.
        at: Duration,
        /// The reason.
        #[source]
        why: Rejection,
    },
}

/// An event of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Come(usize),
    Go(usize),
    Change(usize),
    /// Work comes to a channel.
    Work(HostChannel),
    /// An engine ends or changes something, if nothing else happened to it since.
    Engine(Engine, u64),
    /// The scheduler has something to do, if nothing else happened to it since.
    Step(u64),
}

/// An engine with the number of its latest event.
#[derive(Debug)]
struct Unit {
    model: EngineModel,
    event: u64,
}

/// A channel's VM, engine and load.
#[derive(Debug)]
struct Line {
    vm: usize,
    engine: Engine,
    source: Source,
}

/// All that there is.
#[derive(Debug)]
struct World<'a> {
    scenario: &'a Scenario,
    scheduler: Scheduler,
    now: Duration,
    /// By time, and in the order in which they were planned.
    events: BinaryHeap<Reverse<(Duration, u64, Event)>>,
    planned: u64,
    step: u64,
    step_due: Option<Duration>,
    units: OrderedMap<Engine, Unit>,
    channels: Channels,
    lines: OrderedMap<HostChannel, Line>,
    vms: Vec<SimVm>,
    random: fastrand::Rng,
}

/// Runs a scenario.
///
/// # Errors
/// The policy refuses something, or there are more channels than numbers.
pub fn run(scenario: &Scenario) -> Result<Report, SimError> {
    let mut world = World::new(scenario)?;
    while let Some(Reverse((at, _, event))) = world.events.pop() {
        if at >= scenario.duration {
            break;
        }
        world.now = at;
        world.handle(event)?;
        world.arm();
    }
    world.now = scenario.duration;
    world.advance_all();
    Ok(world.report())
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario) -> Result<Self, SimError> {
        let vms = vms::all(scenario);
        let channels =
            vms.iter().map(|vm| scenario.vms.get(vm.kind).map_or(0, |kind| kind.loads.len())).sum();
        if channels >= usize::from(u16::MAX) {
            return Err(SimError::TooManyChannels { channels });
        }
        let mut world = Self {
            scenario,
            scheduler: Scheduler::seeded(scenario.policy, scenario.settings, scenario.seed)
                .with_switch_time(scenario.gpu.taken_for),
            now: Duration::ZERO,
            events: BinaryHeap::new(),
            planned: 0,
            step: 0,
            step_due: None,
            units: OrderedMap::new(),
            channels: Channels::new(),
            lines: OrderedMap::new(),
            vms,
            random: fastrand::Rng::with_seed(scenario.seed),
        };
        for index in 0..world.vms.len() {
            let times = world
                .vms
                .get(index)
                .and_then(|vm| scenario.vms.get(vm.kind))
                .map(|kind| (kind.come, kind.go));
            let Some((come, go)) = times else { continue };
            world.plan(come, Event::Come(index));
            if let Some(go) = go {
                world.plan(go, Event::Go(index));
            }
        }
        for (index, change) in scenario.changes.iter().enumerate() {
            world.plan(change.at, Event::Change(index));
        }
        Ok(world)
    }

    fn plan(&mut self, at: Duration, event: Event) {
        self.planned = self.planned.saturating_add(1);
        self.events.push(Reverse((at.max(self.now), self.planned, event)));
    }

    /// Plans the scheduler's next step.
    fn arm(&mut self) {
        let due = self.scheduler.next_due();
        if due == self.step_due {
            return;
        }
        self.step_due = due;
        self.step = self.step.saturating_add(1);
        if let Some(due) = due {
            let late = self.scenario.gpu.late.mul_f64(self.random.f64());
            self.plan(due.saturating_add(late), Event::Step(self.step));
        }
    }

    fn handle(&mut self, event: Event) -> Result<(), SimError> {
        match event {
            Event::Come(vm) => self.come(vm)?,
            Event::Go(vm) => self.go(vm),
            Event::Change(change) => self.change(change)?,
            Event::Work(channel) => self.work(channel),
            Event::Engine(engine, number) => {
                if self.units.get(&engine).is_some_and(|unit| unit.event == number) {
                    self.advance(engine);
                    self.dispatch(engine);
                }
            }
            Event::Step(number) => {
                if self.step == number {
                    self.step_due = None;
                    self.step_scheduler();
                }
            }
        }
        Ok(())
    }

    /// As the aggregator's machine does it.
    fn step_scheduler(&mut self) {
        if self.scheduler.sample_due(self.now) {
            self.sample();
            self.decide();
        } else if self.scheduler.review_due(self.now) {
            self.decide();
        }
    }

    fn sample(&mut self) {
        let (seen, times) = self.look();
        let channels = &self.channels;
        self.scheduler
            .sample(self.now, &seen, &times, |channel| channels.get(&channel).map(|channel| channel.fetched));
    }

    /// The channels that engines run now, and the engines' busy times if hardware counts them.
    fn look(&mut self) -> (Vec<Running>, Vec<(Engine, Duration)>) {
        self.advance_all();
        let seen = self.units.iter().map(|(engine, unit)| (*engine, unit.model.running())).collect();
        let counted = self.units.iter().filter(|_| self.scenario.gpu.counts);
        (seen, counted.map(|(engine, unit)| (*engine, unit.model.busy)).collect())
    }

    fn decide(&mut self) {
        let Some(change) = self.scheduler.decide(self.now) else { return };
        let (seen, times) = self.look();
        self.scheduler.cut(self.now, &seen, &times);
        let runlist: gpuvmk_ordered::OrderedSet<_> = self.scheduler.runlist().into_iter().collect();
        for (number, channel) in &mut self.channels {
            let unit = self.lines.get(number).and_then(|line| self.units.get_mut(&line.engine));
            if let Some(unit) = unit {
                unit.model.list(*number, channel, runlist.contains(number));
            }
        }
        for (number, put) in change.ring {
            self.ring(number, put);
        }
        for engine in Engine::ALL {
            self.dispatch(engine);
        }
    }

    fn ring(&mut self, number: HostChannel, put: u32) {
        let Some(line) = self.lines.get(&number) else { return };
        if let (Some(unit), Some(channel)) =
            (self.units.get_mut(&line.engine), self.channels.get_mut(&number))
        {
            unit.model.ring(number, channel, put);
        }
    }

    fn advance_all(&mut self) {
        for engine in Engine::ALL {
            self.advance(engine);
        }
    }

    /// Lets an engine work until now.
    fn advance(&mut self, engine: Engine) {
        let Some(unit) = self.units.get_mut(&engine) else { return };
        let Some(worked) = unit.model.advance(self.now, &mut self.channels) else { return };
        if let Some(vm) = vms::place(worked.vm).and_then(|place| self.vms.get_mut(place)) {
            vm.worked(engine, worked.from, worked.length, self.scenario.window);
            if let Some((number, job)) = worked.done {
                vm.done(&job);
                let next = self.lines.get(&number).and_then(|line| line.source.next_after_end());
                if let Some(think) = next {
                    self.plan(self.now.saturating_add(think), Event::Work(number));
                }
                if self.scenario.gpu.tells {
                    self.scheduler.work_done();
                }
            }
        }
    }

    fn dispatch(&mut self, engine: Engine) {
        let Some(unit) = self.units.get_mut(&engine) else { return };
        let next = unit.model.dispatch(&mut self.channels);
        unit.event = unit.event.saturating_add(1);
        let event = Event::Engine(engine, unit.event);
        if let Some(next) = next {
            self.plan(next, event);
        }
    }

    /// Work comes to a channel.
    fn work(&mut self, number: HostChannel) {
        let Some(engine) = self.lines.get(&number).map(|line| line.engine) else { return };
        self.advance(engine);
        let Some(line) = self.lines.get_mut(&number) else { return };
        let (Some(unit), Some(channel)) = (self.units.get_mut(&engine), self.channels.get_mut(&number))
        else {
            return;
        };
        let job = Job::new(self.now, line.source.length());
        let next = line.source.next_after_arrival();
        unit.model.submit(channel, job);
        let put = channel.put;
        if let Some(vm) = self.vms.get_mut(line.vm) {
            vm.submissions = vm.submissions.saturating_add(1);
        }
        if let Some(after) = next {
            self.plan(self.now.saturating_add(after), Event::Work(number));
        }
        match self.scheduler.doorbell(number, put, self.now) {
            Gate::Ring => self.ring(number, put),
            Gate::Decide => {
                if self.scheduler.looks_at_wakeups() {
                    self.sample();
                }
                self.decide();
            }
            Gate::Hold => {}
        }
        self.dispatch(engine);
    }

    fn come(&mut self, index: usize) -> Result<(), SimError> {
        let Some(vm) = self.vms.get_mut(index) else { return Ok(()) };
        let Some(kind) = self.scenario.vms.get(vm.kind) else { return Ok(()) };
        let refused = |why| SimError::Refused { what: format!("VM {}", vm.name), at: self.now, why };
        self.scheduler.add_vm(vm.id, vm.share).map_err(refused)?;
        vm.came = Some(self.now);
        let mut list = Vec::new();
        for (load, seed) in kind.loads.iter().zip(vm.first_channel..) {
            let number = HostChannel(seed);
            let source =
                Source::new(load, self.scenario.seed.wrapping_mul(0x9e37_79b9).wrapping_add(seed.into()));
            self.scheduler.add_channel(number, vm.id, load.engine.into(), WHOLE_NUMBER);
            self.units
                .entry(load.engine)
                .or_insert_with(|| Unit { model: EngineModel::new(self.scenario.gpu), event: 0 });
            self.channels.insert(number, Channel::new(vm.id, load.piece));
            self.lines.insert(number, Line { vm: index, engine: load.engine, source });
            list.push(number);
        }
        self.scheduler.set_list(vm.id, list.clone());
        // Engines may be new, or the runlist another one.
        self.advance_all();
        let runlist = self.scheduler.runlist();
        for number in list {
            let Some(line) = self.lines.get_mut(&number) else { continue };
            let first = line.source.first();
            if let (Some(unit), Some(channel)) =
                (self.units.get_mut(&line.engine), self.channels.get_mut(&number))
            {
                unit.model.list(number, channel, runlist.contains(&number));
            }
            for at in first {
                self.plan(self.now.saturating_add(at), Event::Work(number));
            }
        }
        Ok(())
    }

    fn go(&mut self, index: usize) {
        self.advance_all();
        let Some(vm) = self.vms.get_mut(index) else { return };
        vm.leave(self.now, &self.scheduler);
        let id = vm.id;
        let numbers: Vec<_> =
            self.lines.iter().filter(|(_, line)| line.vm == index).map(|(n, _)| *n).collect();
        for number in numbers {
            let (line, channel) = (self.lines.remove(&number), self.channels.remove(&number));
            if let (Some(line), Some(channel)) = (line, channel)
                && let Some(unit) = self.units.get_mut(&line.engine)
            {
                unit.model.remove(number, &channel);
                if let Some(vm) = self.vms.get_mut(index) {
                    channel.unfinished().for_each(|job| vm.unfinished(job, self.now));
                }
            }
            self.scheduler.remove_channel(number);
        }
        self.scheduler.remove_vm(id);
        self.decide();
        for engine in Engine::ALL {
            self.dispatch(engine);
        }
    }

    fn change(&mut self, index: usize) -> Result<(), SimError> {
        let Some(change) = self.scenario.changes.get(index) else { return Ok(()) };
        let refused = |what: String| move |why| SimError::Refused { what, at: change.at, why };
        match &change.what {
            Changed::Policy(kind, settings) => {
                let what = refused("The change of policy".to_owned());
                self.scheduler.set_policy(*kind, *settings).map_err(what)?;
            }
            Changed::Share(name, settings) => {
                for vm in &mut self.vms {
                    if self.scenario.vms.get(vm.kind).is_none_or(|kind| kind.name != *name) {
                        continue;
                    }
                    let share = settings.iter().fold(vm.share, |share, setting| share.with(*setting));
                    if vm.is_present() {
                        let what = refused(format!("The change of VM {}", vm.name));
                        self.scheduler.set_share(vm.id, share).map_err(what)?;
                    }
                    vm.share = share;
                }
            }
        }
        self.decide();
        Ok(())
    }

    fn report(mut self) -> Report {
        for (number, channel) in &self.channels {
            let vm = self.lines.get(number).and_then(|line| self.vms.get_mut(line.vm));
            if let Some(vm) = vm {
                channel.unfinished().for_each(|job| vm.unfinished(job, self.now));
            }
        }
        for vm in self.vms.iter_mut().filter(|vm| vm.is_present()) {
            vm.leave(self.now, &self.scheduler);
        }
        let engines = self.units.iter().map(|(engine, unit)| (*engine, &unit.model));
        report::report(self.scenario, self.scheduler.settings().0, &self.vms, engines)
    }
}

/// The channel that an engine runs.
type Running = (Engine, Option<HostChannel>);

/// Rings of the simulator never wrap.
const WHOLE_NUMBER: u8 = 32;
