//! Which VM may use the physical GPU: the mechanism. Each engine (graphics and compute, each copy engine) has
//! a [`policy::Policy`] that decides which VM that is at a moment.
//!
//! Hardware shares time among the channels of one runlist by itself. The scheduler decides which channels are
//! on it, and whether hardware learns of new work now: the doorbell of a VM that is not admitted waits here.
//! A channel counts as busy from its doorbell until hardware has fetched its ring and no engine has run it
//! for two looks. A channel that has work and leaves its engine idle waits for something else (a semaphore):
//! it stays on the runlist, takes no VM's turn, and counts as busy again as soon as it runs. No timer runs
//! while no channel is busy.
//!
//! A channel that uses several engines (GF100) is on the list of the first of them, and what it uses of the
//! others is charged there too.
//!
//! No clock, no hardware and no lock in here: time and samples come in, decisions go out as values.

// They panic where the output takes no more.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod account;
mod accounting;
mod channel;
pub mod hang;
mod list;
mod looks;
mod members;
mod meter;
pub mod policy;
pub mod sampling;
pub mod settings;
pub mod share;
pub mod sim;

use std::time::Duration;

pub use self::account::Account;
use self::channel::{Channel, LeavingChannel, Pace, Work};
pub use self::hang::limits::HangLimits;
use self::list::List;
use self::meter::Meter;
use self::policy::{Admission, Policy, Settings, VmView};
use self::sampling::Sampler;
use crate::policy::PolicyKind;
use crate::share::{Rejection, Share};
use gpuvmk_chip::Engine;
use gpuvmk_chip::addr::{HostChannel, TenantId};
use gpuvmk_observe::latency::Latency;
use gpuvmk_ordered::OrderedMap;

/// One VM as the scheduler sees it.
#[derive(Debug)]
struct Vm {
    share: Share,
    /// Channels that may run, in the guest's order.
    list: Vec<HostChannel>,
    accounts: OrderedMap<Engine, Account>,
    /// Why its work waits, whatever the policies say; empty if it does not.
    suspended: Suspension,
}

impl Vm {
    const fn is_suspended(&self) -> bool {
        !self.suspended.is_empty()
    }
}

bitflags::bitflags! {
    /// Why a VM's work waits, whatever the policies say.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Suspension: u8 {
        /// It serves a penalty for hangs.
        const PENALTY = 1;
        /// An operator paused it.
        const PAUSE = 2;
    }
}

/// The answer to a doorbell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Hardware may learn of it now.
    Ring,
    /// It waits, and the policy has to look: call [`Scheduler::decide`].
    Decide,
    /// It waits until its VM is admitted, which the next sample or review may bring.
    Hold,
}

/// Changes of hardware that a change of admission needs, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// The new runlist, if it may be another one.
    pub runlist: Option<Vec<HostChannel>>,
    /// Busy channels that are on it no more.
    pub preempt: Vec<HostChannel>,
    /// Doorbells that waited.
    pub ring: Vec<(HostChannel, u32)>,
    /// Engines that others may use now.
    pub switches: Vec<(Engine, Admission)>,
}

/// The scheduler of one GPU.
#[derive(Debug)]
pub struct Scheduler {
    kind: PolicyKind,
    settings: Settings,
    /// Time of an engine's change from one VM to the next; [`Duration::MAX`] if unknown.
    switch: Duration,
    /// Judges parameters; decides nothing.
    judge: Box<dyn Policy>,
    vms: OrderedMap<TenantId, Vm>,
    channels: OrderedMap<HostChannel, Channel>,
    lists: OrderedMap<Engine, List>,
    sampler: Sampler,
    meter: Meter,
    busy_channels: u32,
    /// Those that were seen to be done since [`Self::notifications_handled`].
    unheard: Vec<HostChannel>,
    /// The runlist may be another one than at the last decision.
    relist: bool,
    /// When to look again whether the VM that has an engine still needs it, because others wait.
    recheck: Option<Duration>,
    last_look: Duration,
    metered: Duration,
    /// The channel that has to leave an engine.
    leaving: Option<LeavingChannel>,
    /// How much later than due it was called.
    lateness: Latency,
}

impl Scheduler {
    /// A scheduler without VMs.
    pub fn new(kind: PolicyKind, settings: Settings) -> Self {
        Self::seeded(kind, settings, fastrand::u64(..))
    }

    /// The same, with looks at moments that follow from `seed`.
    pub fn seeded(kind: PolicyKind, settings: Settings, seed: u64) -> Self {
        Self {
            kind,
            settings,
            switch: Duration::MAX,
            judge: policy::policy(kind, &settings, Duration::MAX),
            vms: OrderedMap::new(),
            channels: OrderedMap::new(),
            lists: OrderedMap::new(),
            sampler: Sampler::new(seed),
            meter: Meter::default(),
            busy_channels: 0,
            unheard: Vec::new(),
            relist: false,
            recheck: None,
            last_look: Duration::ZERO,
            metered: Duration::ZERO,
            leaving: None,
            lateness: Latency::default(),
        }
    }

    /// The same, on a GPU whose engines go from one VM to the next in `switch`.
    #[must_use]
    pub fn with_switch_time(self, switch: Duration) -> Self {
        debug_assert!(self.lists.is_empty(), "policies exist that were told another time");
        Self { switch, ..self }
    }

    fn pace(&self) -> Pace {
        Pace::of(self.switch)
    }

    /// The policy's name.
    pub fn policy(&self) -> &'static str {
        self.judge.name()
    }

    /// The policy and its settings.
    pub fn settings(&self) -> (PolicyKind, Settings) {
        (self.kind, self.settings)
    }

    /// Another policy, or other settings, from the next decision on. Statistics of waits begin anew.
    ///
    /// # Errors
    /// The new policy cannot keep what present VMs were granted; nothing changes then.
    pub fn set_policy(&mut self, kind: PolicyKind, settings: Settings) -> Result<(), Rejection> {
        let judge = policy::policy(kind, &settings, self.switch);
        let mut others = Vec::new();
        for vm in self.vms.values() {
            judge.accepts(&others, &vm.share)?;
            others.push(vm.share);
        }
        for list in self.lists.values_mut() {
            list.replace_policy(policy::policy(kind, &settings, self.switch));
        }
        // How long doorbells wait is the policy's doing: a new one is not judged by what the last one did.
        for account in self.vms.values_mut().flat_map(|vm| vm.accounts.values_mut()) {
            account.waits = Latency::default();
        }
        self.lateness = Latency::default();
        (self.kind, self.settings, self.judge) = (kind, settings, judge);
        Ok(())
    }

    /// The runlist that hardware should have now.
    pub fn runlist(&self) -> Vec<HostChannel> {
        let listed = |channel: &&HostChannel| self.channels.get(channel).is_some_and(|state| state.listed);
        self.vms.values().flat_map(|vm| vm.list.iter().filter(listed)).copied().collect()
    }

    /// True for a doorbell with the same GP_PUT as the last one of the channel.
    pub fn is_redundant(&self, channel: HostChannel, gp_put: u32) -> bool {
        self.channels.get(&channel).is_some_and(|state| state.gp_put == gp_put)
    }

    /// A doorbell: may hardware know?
    pub fn doorbell(&mut self, channel: HostChannel, gp_put: u32, now: Duration) -> Gate {
        let (contenders, pace) = (self.vms.len(), self.pace());
        let Some(state) = self.channels.get_mut(&channel) else { return Gate::Hold };
        let Some(list) = self.lists.get_mut(&state.engine) else { return Gate::Hold };
        let first = !list.is_ready(state.vm);
        // Work whose end was not notified counts as work until a look: this may be the first work all the
        // same.
        let may_be_done = state.may_be_done();
        let wakes = first || list.cuts_turns() && may_be_done;
        let suspended = self.vms.get(&state.vm).is_some_and(Vm::is_suspended);
        let gate = if suspended {
            Gate::Hold
        // Hardware has it already, and waits for something else: the more it knows the better.
        } else if state.blocked && state.listed {
            Gate::Ring
        } else if list.admission.admits(state.vm) {
            // A VM that becomes busy may meet another one: then the policy has to look first.
            let meets = first && !state.busy() && self.judge.arbitrates() && contenders > 1;
            if meets { Gate::Decide } else { Gate::Ring }
        } else if list.may_wait(state.vm) || !wakes {
            Gate::Hold
        } else {
            Gate::Decide
        };
        if !state.busy() {
            list.more(state.vm);
            self.busy_channels = self.busy_channels.saturating_add(1);
            self.sampler.begin(now);
        }
        if may_be_done {
            list.wakes(state.vm);
        }
        state.rung(gp_put, now, gate != Gate::Ring, pace);
        if let Some(vm) = self.vms.get_mut(&state.vm) {
            let account = vm.accounts.entry(state.engine).or_default();
            account.submissions = account.submissions.saturating_add(1);
            if gate == Gate::Ring {
                account.note_wait(Duration::ZERO);
            }
        }
        gate
    }

    /// Lets the policies look. Returns what changes for hardware; [`Scheduler::cut`] belongs right before it
    /// is done.
    pub fn decide(&mut self, now: Duration) -> Option<Change> {
        let pace = self.pace();
        let mut moved = std::mem::take(&mut self.relist);
        let mut change = Change::default();
        let mut views = Vec::with_capacity(self.vms.len());
        for (engine, list) in &mut self.lists {
            views.clear();
            views.extend(self.vms.iter().map(|(id, vm)| VmView {
                vm: *id,
                share: vm.share,
                ready: list.is_ready(*id) && !vm.is_suspended(),
                woke: list.woke(*id),
                used: vm.accounts.get(engine).map_or(Duration::ZERO, |account| account.charged),
            }));
            if list.decide(now, &views) {
                moved = true;
                change.switches.push((*engine, list.admission));
                if let Admission::Only(chosen) = list.admission
                    && let Some(vm) = self.vms.get_mut(&chosen)
                {
                    let account = vm.accounts.entry(*engine).or_default();
                    account.switches = account.switches.saturating_add(1);
                }
            }
        }
        let meter = &self.meter;
        let shared = |(engine, list): (&Engine, &List)| {
            meter.counts(*engine) && list.is_shared() || list.cuts_turns() && list.is_waited_for()
        };
        let shared = self.lists.iter().any(shared);
        self.sampler.set_window(if shared { sampling::SHARED_WINDOW } else { sampling::WINDOW });
        self.sampler.expect(self.lists.values().filter_map(|list| list.review).min());
        for (channel, state) in &mut self.channels {
            let Some(list) = self.lists.get(&state.engine) else { continue };
            let suspended = self.vms.get(&state.vm).is_some_and(Vm::is_suspended);
            let admitted = list.admission.admits(state.vm) && !suspended;
            let begun = matches!(state.work, Work::Known | Work::Held { begun: true, .. });
            if admitted && let Work::Held { since, .. } = state.work {
                state.work = Work::Known;
                change.ring.push((*channel, state.gp_put));
                if let Some(account) =
                    self.vms.get_mut(&state.vm).and_then(|vm| vm.accounts.get_mut(&state.engine))
                {
                    account.note_wait(now.saturating_sub(since));
                }
            }
            let listed = admitted || state.blocked && !suspended;
            if state.list(listed, begun, now, pace) {
                moved = true;
                if !listed && begun {
                    change.preempt.push(*channel);
                }
            }
        }
        if moved {
            change.runlist = Some(self.runlist());
        }
        // The VM that has the engine may not need it any more, if the end of its work was not notified.
        if !change.switches.is_empty() && self.looks_at_wakeups() {
            let shows = now.saturating_add(pace.settle);
            self.recheck = Some(self.recheck.map_or(shows, |recheck| recheck.min(shows)));
        }
        (moved || !change.ring.is_empty()).then_some(change)
    }

    /// Ring entries of each VM that its engines had not fetched at the last look.
    pub fn depths(&self) -> impl Iterator<Item = (TenantId, Engine, u64)> + '_ {
        let of = |(id, vm): (&TenantId, &'_ Vm)| {
            let depth = |(engine, account): (&Engine, &Account)| (*id, *engine, account.depth);
            vm.accounts.iter().map(depth).collect::<Vec<_>>()
        };
        self.vms.iter().flat_map(of)
    }

    /// A VM's work waits from the next decision on, or not for this reason any more.
    pub fn suspend(&mut self, vm: TenantId, why: Suspension, waits: bool) {
        if let Some(vm) = self.vms.get_mut(&vm) {
            let before = vm.is_suspended();
            vm.suspended.set(why, waits);
            self.relist |= vm.is_suspended() != before;
        }
    }

    /// Why a VM's work waits, whatever the policies say.
    pub fn suspension(&self, vm: TenantId) -> Suspension {
        self.vms.get(&vm).map_or(Suspension::empty(), |vm| vm.suspended)
    }

    /// Whether hardware may run a channel now; `None` for one without work.
    pub fn may_run(&self, channel: HostChannel) -> Option<bool> {
        let state = self.channels.get(&channel).filter(|state| state.busy())?;
        Some(state.may_run())
    }

    /// True if a notification of hardware may be for a channel: it could run no longer than `before` ago, or
    /// was seen to be done since [`Self::notifications_handled`].
    pub fn could_run(&self, channel: HostChannel, now: Duration, before: Duration) -> bool {
        self.channels.get(&channel).is_some_and(|state| {
            state.may_run()
                || state.unheard
                || state.could_run.is_some_and(|then| now.saturating_sub(then) <= before)
        })
    }

    /// All notifications of hardware up to now have been handled. It notifies the end of work before it shows
    /// the work as done.
    pub fn notifications_handled(&mut self) {
        for channel in self.unheard.drain(..) {
            if let Some(state) = self.channels.get_mut(&channel) {
                state.unheard = false;
            }
        }
    }

    /// When [`Scheduler::sample`] or [`Scheduler::decide`] is due; `None` while nothing is busy.
    pub fn next_due(&self) -> Option<Duration> {
        self.lists.values().filter_map(|list| list.review).chain(self.look_due()).min()
    }

    /// A channel has no work any more (it finished, faulted or went).
    pub fn mark_idle(&mut self, channel: HostChannel) {
        let Some(state) = self.channels.get_mut(&channel) else { return };
        if !state.busy() {
            return;
        }
        if state.ready()
            && let Some(list) = self.lists.get_mut(&state.engine)
        {
            list.less(state.vm);
        }
        state.settle();
        self.relist = true;
        // No VM shall wait for the turn of one that is gone.
        self.work_done();
        // The window in which it ends is charged by what was seen; time goes on with the next doorbell.
        self.busy_channels = self.busy_channels.saturating_sub(1);
        if self.busy_channels == 0 {
            self.sampler.abandon();
        }
    }
}

#[cfg(test)]
mod tests;
