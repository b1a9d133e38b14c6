//! VMs of a run, and what really became of them.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::engine::Job;
use crate::Scheduler;
use crate::share::Share;
use crate::sim::scenario::Scenario;
use gpuvmk_chip::Engine;
use gpuvmk_chip::addr::TenantId;
use gpuvmk_ordered::OrderedMap;

/// A VM's number for the scheduler.
pub(super) fn tenant(place: usize) -> TenantId {
    TenantId(u32::try_from(place).unwrap_or(u32::MAX).saturating_add(1))
}

/// State of a VM in a run.
#[derive(Debug)]
pub(super) struct SimVm {
    pub id: TenantId,
    /// Which of the scenario's VMs it is one of.
    pub kind: usize,
    pub name: String,
    pub share: Share,
    pub first_channel: u16,
    pub came: Option<Duration>,
    /// How long it was there, once it has gone.
    pub present: Option<Duration>,
    pub submissions: u64,
    pub done: u64,
    /// How long work waited until an engine began with it, in microseconds.
    waits: Option<Histogram<u32>>,
    /// Time that engines worked for it.
    pub worked: OrderedMap<Engine, Duration>,
    /// The same in each window of the run, all engines together.
    pub windows: Vec<Duration>,
    /// Time that the scheduler accounted.
    pub accounted: OrderedMap<Engine, Duration>,
    /// Time in which the scheduler saw that it had work on its first engine.
    pub wanting: OrderedMap<Engine, Duration>,
}

/// All VMs of a scenario.
pub(super) fn all(scenario: &Scenario) -> Vec<SimVm> {
    let total: u32 = scenario.vms.iter().map(|kind| kind.count).sum();
    // As the aggregator does with parts of the VRAM, all being equal.
    let part = 100_u32.checked_div(total).and_then(|part| u8::try_from(part.max(1)).ok());
    let windows = scenario.duration.as_nanos().div_ceil(scenario.window.as_nanos().max(1));
    let windows = usize::try_from(windows).unwrap_or(0);
    let mut vms: Vec<SimVm> = Vec::new();
    let mut channel: u16 = 1;
    for (place, kind) in scenario.vms.iter().enumerate() {
        for number in 1..=kind.count {
            let name = if kind.count == 1 { kind.name.clone() } else { format!("{}-{number}", kind.name) };
            vms.push(SimVm {
                id: tenant(vms.len()),
                kind: place,
                name,
                share: Share { fixed: kind.share.fixed.or(part), ..kind.share },
                first_channel: channel,
                came: None,
                present: None,
                submissions: 0,
                done: 0,
                waits: waits(),
                worked: OrderedMap::new(),
                windows: vec![Duration::ZERO; windows],
                accounted: OrderedMap::new(),
                wanting: OrderedMap::new(),
            });
            channel = channel.saturating_add(u16::try_from(kind.loads.len()).unwrap_or(u16::MAX));
        }
    }
    vms
}

/// The place of the VM with this number.
pub(super) fn place(vm: TenantId) -> Option<usize> {
    usize::try_from(vm.0.checked_sub(1)?).ok()
}

/// Waits up to an hour with three digits, which the library accepts; without it there are no waits, and no
/// harm.
fn waits() -> Option<Histogram<u32>> {
    let mut waits = Histogram::new(3).ok()?;
    waits.auto(true);
    Some(waits)
}

impl SimVm {
    pub fn is_present(&self) -> bool {
        self.came.is_some() && self.present.is_none()
    }

    /// An engine worked for it.
    pub fn worked(&mut self, engine: Engine, from: Duration, length: Duration, window: Duration) {
        let sum = self.worked.entry(engine).or_default();
        *sum = sum.saturating_add(length);
        let (mut from, mut left) = (from, length);
        while !left.is_zero() {
            let number = from.as_nanos().checked_div(window.as_nanos()).unwrap_or(0);
            let into = from.as_nanos().checked_rem(window.as_nanos()).unwrap_or(0);
            let rest = window.saturating_sub(Duration::from_nanos(u64::try_from(into).unwrap_or(u64::MAX)));
            let part = left.min(rest.max(Duration::from_nanos(1)));
            if let Some(sum) = usize::try_from(number).ok().and_then(|number| self.windows.get_mut(number)) {
                *sum = sum.saturating_add(part);
            }
            (from, left) = (from.saturating_add(part), left.saturating_sub(part));
        }
    }

    /// Work of it is done.
    pub fn done(&mut self, job: &Job) {
        self.done = self.done.saturating_add(1);
        self.waited(job.started.unwrap_or(job.submitted).saturating_sub(job.submitted));
    }

    /// Notes work that is not done at the end. Work that never began has waited until now.
    pub fn unfinished(&mut self, job: &Job, now: Duration) {
        self.waited(job.started.unwrap_or(now).saturating_sub(job.submitted));
    }

    fn waited(&mut self, wait: Duration) {
        if let Some(waits) = &mut self.waits {
            // It refuses only what it cannot grow to, which is more than any run's time.
            let _ = waits.record(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX));
        }
    }

    /// So many of a hundred pieces of work waited no longer than this, in microseconds.
    pub fn wait(&self, percent: f64) -> u64 {
        self.waits.as_ref().map_or(0, |waits| waits.value_at_percentile(percent))
    }

    /// It goes, and the scheduler is going to forget it.
    pub fn leave(&mut self, now: Duration, scheduler: &Scheduler) {
        self.present = self.came.map(|came| now.saturating_sub(came));
        for (engine, account) in scheduler.accounts(self.id) {
            self.accounted.insert(engine, account.used);
            self.wanting.insert(engine, account.wanting);
        }
    }
}
