//! One engine's list: which VMs may run on it now, by the engine's policy.

use std::time::Duration;

use super::policy::{Admission, Policy, VmView};
use gpuvmk_chip::addr::TenantId;
use gpuvmk_ordered::OrderedMap;

/// The list of one engine.
#[derive(Debug)]
pub(super) struct List {
    policy: Box<dyn Policy>,
    pub admission: Admission,
    /// When the policy wants to look again.
    pub review: Option<Duration>,
    /// VMs with channels that could go on.
    ready: OrderedMap<TenantId, Ready>,
    /// When the admission last changed.
    pub since: Duration,
}

/// A VM with channels that could go on.
#[derive(Clone, Copy, Debug, Default)]
struct Ready {
    /// Number of its channels.
    channels: u32,
    /// Work came to it since the last decision when it had none left.
    woke: bool,
}

impl List {
    pub fn new(policy: Box<dyn Policy>) -> Self {
        Self {
            policy,
            admission: Admission::All,
            review: None,
            ready: OrderedMap::new(),
            since: Duration::ZERO,
        }
    }

    pub fn replace_policy(&mut self, policy: Box<dyn Policy>) {
        self.policy = policy;
    }

    /// A channel of the VM has begun to have work that can go on.
    pub fn more(&mut self, vm: TenantId) {
        let ready = self.ready.entry(vm).or_default();
        ready.channels = ready.channels.saturating_add(1);
    }

    /// A channel of the VM has none any more.
    pub fn less(&mut self, vm: TenantId) {
        if let Some(ready) = self.ready.get_mut(&vm) {
            ready.channels = ready.channels.saturating_sub(1);
            if ready.channels == 0 {
                self.ready.remove(&vm);
            }
        }
    }

    /// Notes that work has come to a VM that probably had none left. Its channel counts already.
    pub fn wakes(&mut self, vm: TenantId) {
        if let Some(ready) = self.ready.get_mut(&vm) {
            ready.woke = true;
        }
    }

    /// True if that was since the last decision.
    pub fn woke(&self, vm: TenantId) -> bool {
        self.ready.get(&vm).is_some_and(|ready| ready.woke)
    }

    pub fn is_ready(&self, vm: TenantId) -> bool {
        self.ready.contains_key(&vm)
    }

    /// True when several VMs could be at work at a time.
    pub fn is_shared(&self) -> bool {
        self.admission == Admission::All && self.ready.len() > 1
    }

    /// True when the policy need not look before the next sample because of new work of `vm`: it has to wait
    /// for a VM that is at work.
    pub fn may_wait(&self, vm: TenantId) -> bool {
        match self.admission {
            Admission::Only(other) => {
                other != vm && self.is_ready(other) && self.review.is_some() && !self.cuts_turns()
            }
            Admission::All | Admission::Nobody => false,
        }
    }

    /// True when one VM has the engine and another could use it.
    pub fn is_waited_for(&self) -> bool {
        matches!(self.admission, Admission::Only(vm) if self.ready.keys().any(|other| *other != vm))
    }

    /// True when turns may end before they are over.
    pub fn cuts_turns(&self) -> bool {
        self.policy.cuts_turns()
    }

    /// Lets the policy look. True when its decision is another one.
    pub fn decide(&mut self, now: Duration, vms: &[VmView]) -> bool {
        let decision = self.policy.decide(now, vms);
        self.ready.values_mut().for_each(|ready| ready.woke = false);
        self.review = decision.review_after.map(|after| now.saturating_add(after));
        let changes = self.admission != decision.admission;
        if changes {
            (self.admission, self.since) = (decision.admission, now);
        }
        changes
    }
}
