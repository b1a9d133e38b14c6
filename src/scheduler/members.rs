//! VMs and their channels come and go, and have shares and lists.

use crate::channel::{Channel, list_of};
use crate::list::List;
use crate::policy;
use crate::share::{Rejection, Share};
use crate::{Scheduler, Suspension, Vm};
use gpuvmk_chip::addr::{HostChannel, TenantId};
use gpuvmk_chip::{Engine, EngineSet};
use gpuvmk_ordered::OrderedMap;

impl Scheduler {
    /// A VM appears.
    ///
    /// # Errors
    /// The policy cannot grant it what it is to have.
    pub fn add_vm(&mut self, vm: TenantId, share: Share) -> Result<(), Rejection> {
        self.accepts(vm, &share)?;
        self.vms.insert(
            vm,
            Vm { share, list: Vec::new(), accounts: OrderedMap::new(), suspended: Suspension::empty() },
        );
        Ok(())
    }

    /// The share that a VM was granted.
    pub fn share(&self, vm: TenantId) -> Option<Share> {
        self.vms.get(&vm).map(|vm| vm.share)
    }

    /// Another grant, from the next decision on.
    ///
    /// # Errors
    /// As [`Scheduler::add_vm`]; nothing changes then.
    pub fn set_share(&mut self, vm: TenantId, share: Share) -> Result<(), Rejection> {
        self.accepts(vm, &share)?;
        if let Some(vm) = self.vms.get_mut(&vm) {
            vm.share = share;
        }
        Ok(())
    }

    fn accepts(&self, vm: TenantId, share: &Share) -> Result<(), Rejection> {
        share.check()?;
        let others: Vec<_> =
            self.vms.iter().filter(|(id, _)| **id != vm).map(|(_, other)| other.share).collect();
        self.judge.accepts(&others, share)
    }

    /// A VM goes; its channels have been removed.
    pub fn remove_vm(&mut self, vm: TenantId) {
        self.vms.remove(&vm);
    }

    /// A channel appears.
    pub fn add_channel(&mut self, channel: HostChannel, vm: TenantId, engines: EngineSet, ring_log2: u8) {
        let mask = 1_u32.checked_shl(ring_log2.into()).map_or(u32::MAX, |entries| entries.saturating_sub(1));
        let mut fresh = Channel::new(vm, engines, mask);
        let suspended = self.vms.get(&vm).is_some_and(Vm::is_suspended);
        let list = self.list(fresh.engine);
        fresh.listed = list.admission.admits(vm) && !suspended;
        self.channels.insert(channel, fresh);
    }

    /// A channel has contexts on other engines now.
    pub fn set_engines(&mut self, channel: HostChannel, engines: EngineSet) {
        let Some(state) = self.channels.get_mut(&channel) else { return };
        let (vm, ready) = (state.vm, state.ready());
        state.engines = engines;
        let before = std::mem::replace(&mut state.engine, list_of(engines));
        let engine = state.engine;
        let list = self.list(engine);
        if before != engine {
            if ready {
                list.more(vm);
                self.list(before).less(vm);
            }
            self.relist = true;
        }
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

    pub(super) fn list(&mut self, engine: Engine) -> &mut List {
        let Self { kind, settings, switch, .. } = self;
        self.lists.entry(engine).or_insert_with(|| List::new(policy::policy(*kind, settings, *switch)))
    }

    /// The channels of a VM that may run, in its order.
    pub fn set_list(&mut self, vm: TenantId, list: Vec<HostChannel>) {
        if let Some(vm) = self.vms.get_mut(&vm) {
            vm.list = list;
        }
    }
}
