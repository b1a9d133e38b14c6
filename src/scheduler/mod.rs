//! Who may use the physical GPU: the mechanism. Which VM that is at a moment is decided by a [`Policy`].
//!
//! Hardware shares time among the channels of one runlist by itself. The scheduler decides which channels are
//! on it, and whether hardware learns of new work now: a doorbell of a VM that is not admitted waits here.
//! A VM counts as busy from its doorbell until hardware has fetched its rings and no engine has run a channel
//! of it for two samples. Nothing ticks while no VM is busy.
//!
//! No clock, no hardware and no lock in here: time and samples come in, decisions go out as values.

pub mod policy;

use std::collections::BTreeMap;
use std::time::Duration;

use self::policy::{Admission, Candidate, Policy};
use crate::addr::{HostChannel, TenantId};

/// How often busy VMs are looked at.
pub const SAMPLE_PERIOD: Duration = Duration::from_millis(1);

/// Samples without work in sight after which a channel counts as idle.
const IDLE_SAMPLES: u8 = 2;

/// One VM as the scheduler sees it.
#[derive(Debug)]
struct Vm {
    weight: u32,
    /// Channels that may run, in the guest's order.
    list: Vec<HostChannel>,
    /// Channels with work that hardware has not finished, as far as known.
    busy: u32,
    /// Engine time used, by sampling.
    used: Duration,
    /// Time in which it had work that was not done.
    wanting: Duration,
    submissions: u64,
}

/// One channel as the scheduler sees it.
#[derive(Debug)]
struct Channel {
    vm: TenantId,
    gp_put: u32,
    busy: bool,
    held: bool,
    idle_samples: u8,
}

/// What to do with a doorbell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Hardware may learn of it now.
    Ring,
    /// It waits until its VM is admitted.
    Hold,
}

/// What a change of admission asks of hardware, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// The new runlist.
    pub runlist: Vec<HostChannel>,
    /// Busy channels of VMs that are not admitted any more.
    pub preempt: Vec<HostChannel>,
    /// Doorbells that waited.
    pub ring: Vec<(HostChannel, u32)>,
}

/// The scheduler.
#[derive(Debug)]
pub struct Scheduler {
    policy: Box<dyn Policy>,
    vms: BTreeMap<TenantId, Vm>,
    channels: BTreeMap<HostChannel, Channel>,
    admission: Admission,
    review: Option<Duration>,
    busy_channels: u32,
    last_sample: Option<Duration>,
}

impl Scheduler {
    /// A scheduler without VMs.
    pub fn new(policy: Box<dyn Policy>) -> Self {
        Self {
            policy,
            vms: BTreeMap::new(),
            channels: BTreeMap::new(),
            admission: Admission::All,
            review: None,
            busy_channels: 0,
            last_sample: None,
        }
    }

    /// The policy's name.
    pub fn policy(&self) -> &'static str {
        self.policy.name()
    }

    /// A VM appears.
    pub fn add_vm(&mut self, vm: TenantId, weight: u32) {
        let fresh = Vm {
            weight,
            list: Vec::new(),
            busy: 0,
            used: Duration::ZERO,
            wanting: Duration::ZERO,
            submissions: 0,
        };
        self.vms.insert(vm, fresh);
    }

    /// A VM goes; its channels have been removed.
    pub fn remove_vm(&mut self, vm: TenantId) {
        self.vms.remove(&vm);
    }

    /// A channel appears.
    pub fn add_channel(&mut self, channel: HostChannel, vm: TenantId) {
        let fresh = Channel { vm, gp_put: 0, busy: false, held: false, idle_samples: 0 };
        self.channels.insert(channel, fresh);
    }

    /// A channel goes.
    pub fn remove_channel(&mut self, channel: HostChannel) {
        self.mark_idle(channel);
        if let Some(gone) = self.channels.remove(&channel)
            && let Some(vm) = self.vms.get_mut(&gone.vm)
        {
            vm.list.retain(|other| *other != channel);
        }
    }

    /// The channels of a VM that may run, in its order.
    pub fn set_list(&mut self, vm: TenantId, list: Vec<HostChannel>) {
        if let Some(vm) = self.vms.get_mut(&vm) {
            vm.list = list;
        }
    }

    /// The runlist that hardware should have now.
    pub fn runlist(&self) -> Vec<HostChannel> {
        self.vms
            .iter()
            .filter(|(id, _)| self.admission.admits(**id))
            .flat_map(|(_, vm)| vm.list.iter().copied())
            .collect()
    }

    /// True for a doorbell that says nothing new of a channel that has no work, as far as known.
    pub fn says_nothing_new(&self, channel: HostChannel, gp_put: u32) -> bool {
        self.channels.get(&channel).is_some_and(|state| !state.busy && state.gp_put == gp_put)
    }

    /// A doorbell: may hardware know? The caller must call [`Scheduler::decide`] when this says
    /// [`Gate::Hold`].
    pub fn doorbell(&mut self, channel: HostChannel, gp_put: u32) -> Gate {
        let Some(state) = self.channels.get_mut(&channel) else {
            return Gate::Hold;
        };
        state.gp_put = gp_put;
        state.idle_samples = 0;
        let mut newly_busy = false;
        if let Some(vm) = self.vms.get_mut(&state.vm) {
            vm.submissions = vm.submissions.saturating_add(1);
            if !state.busy {
                state.busy = true;
                newly_busy = vm.busy == 0;
                vm.busy = vm.busy.saturating_add(1);
                self.busy_channels = self.busy_channels.saturating_add(1);
            }
        }
        // A VM that becomes busy may meet another one: then the policy has to look first.
        let contended = newly_busy && self.policy.arbitrates() && self.vms.len() > 1;
        if contended || !self.admission.admits(state.vm) {
            state.held = true;
            Gate::Hold
        } else {
            Gate::Ring
        }
    }

    /// Lets the policy look. Returns what changes for hardware.
    pub fn decide(&mut self, now: Duration) -> Option<Change> {
        let runnable: Vec<_> = self
            .vms
            .iter()
            .filter(|(_, vm)| vm.busy > 0)
            .map(|(id, vm)| Candidate { vm: *id, weight: vm.weight })
            .collect();
        let decision = self.policy.decide(now, &runnable);
        self.review = decision.review_after.map(|after| now.saturating_add(after));
        let before = std::mem::replace(&mut self.admission, decision.admission);
        let mut change = Change::default();
        for (channel, state) in &mut self.channels {
            if self.admission.admits(state.vm) {
                if std::mem::take(&mut state.held) {
                    change.ring.push((*channel, state.gp_put));
                }
            } else if state.busy && !state.held && before.admits(state.vm) {
                change.preempt.push(*channel);
            }
        }
        let moved = before != self.admission;
        if moved {
            change.runlist = self.runlist();
        }
        (moved || !change.ring.is_empty()).then_some(change)
    }

    /// True when channels of `vm` may be on the runlist now.
    pub fn admits(&self, vm: TenantId) -> bool {
        self.admission.admits(vm)
    }

    /// When [`Scheduler::sample`] or [`Scheduler::decide`] is due; `None` while nothing is busy.
    pub fn next_due(&self, now: Duration) -> Option<Duration> {
        if self.busy_channels == 0 {
            return self.review;
        }
        let sample = self.last_sample.unwrap_or(now).saturating_add(SAMPLE_PERIOD);
        Some(self.review.map_or(sample, |review| review.min(sample)))
    }

    /// True when a sample is due.
    pub fn sample_due(&self, now: Duration) -> bool {
        self.busy_channels > 0
            && self.last_sample.is_none_or(|last| now.saturating_sub(last) >= SAMPLE_PERIOD)
    }

    /// True when the policy asked to look again by now.
    pub fn review_due(&self, now: Duration) -> bool {
        self.review.is_some_and(|review| now >= review)
    }

    /// Starts the sampling clock when work begins after a pause, so that the pause is not accounted.
    pub fn note_activity(&mut self, now: Duration) {
        if self.last_sample.is_none() {
            self.last_sample = Some(now);
        }
    }

    /// Takes a sample: which channel each engine runs, and how far each busy channel's ring was fetched.
    pub fn sample(
        &mut self,
        now: Duration,
        engines: &[Option<HostChannel>],
        mut progress: impl FnMut(HostChannel) -> Option<u32>,
    ) {
        let elapsed = now.saturating_sub(self.last_sample.unwrap_or(now));
        for running in engines.iter().flatten() {
            if let Some(state) = self.channels.get(running)
                && let Some(vm) = self.vms.get_mut(&state.vm)
            {
                vm.used = vm.used.saturating_add(elapsed);
            }
        }
        for vm in self.vms.values_mut().filter(|vm| vm.busy > 0) {
            vm.wanting = vm.wanting.saturating_add(elapsed);
        }
        let mut idle = Vec::new();
        for (channel, state) in self.channels.iter_mut().filter(|(_, state)| state.busy) {
            let fetched = progress(*channel).is_none_or(|get| get == state.gp_put);
            let running = engines.iter().flatten().any(|other| other == channel);
            if fetched && !running && !state.held {
                state.idle_samples = state.idle_samples.saturating_add(1);
                if state.idle_samples >= IDLE_SAMPLES {
                    idle.push(*channel);
                }
            } else {
                state.idle_samples = 0;
            }
        }
        for channel in idle {
            self.mark_idle(channel);
        }
        self.last_sample = if self.busy_channels > 0 { Some(now) } else { None };
    }

    /// Engine time that a VM used.
    pub fn used(&self, vm: TenantId) -> Duration {
        self.vms.get(&vm).map_or(Duration::ZERO, |vm| vm.used)
    }

    /// Time in which a VM had work that was not done, whether it ran or waited for its turn.
    pub fn wanting(&self, vm: TenantId) -> Duration {
        self.vms.get(&vm).map_or(Duration::ZERO, |vm| vm.wanting)
    }

    /// Engine time that all present VMs used.
    pub fn used_by_all(&self) -> Duration {
        self.vms.values().fold(Duration::ZERO, |sum, vm| sum.saturating_add(vm.used))
    }

    /// Doorbells of a VM.
    pub fn submissions(&self, vm: TenantId) -> u64 {
        self.vms.get(&vm).map_or(0, |vm| vm.submissions)
    }

    /// A channel has no work any more (it finished, faulted or went).
    pub fn mark_idle(&mut self, channel: HostChannel) {
        if let Some(state) = self.channels.get_mut(&channel)
            && state.busy
        {
            state.busy = false;
            state.held = false;
            state.idle_samples = 0;
            self.busy_channels = self.busy_channels.saturating_sub(1);
            if let Some(vm) = self.vms.get_mut(&state.vm) {
                vm.busy = vm.busy.saturating_sub(1);
            }
        }
    }
}

#[cfg(test)]
mod tests;
