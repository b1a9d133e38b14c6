//! Events of the aggregator for a recording: which VM had which engine, and how much of its work waited.

use super::host_channels::HostChannels;
use super::tenants::Tenants;
use gpuvmk_chip::Engine;
use gpuvmk_chip::addr::{HostChannel, TenantId};
use gpuvmk_ordered::OrderedMap;
use gpuvmk_scheduler::Scheduler;
use gpuvmk_scheduler::policy::Admission;
use gpuvmk_trace::{Event, Tracer};

/// What was recorded last; a recording that begins later begins with everything.
#[derive(Debug, Default)]
pub(super) struct ScheduleRecorder {
    tracer: Tracer,
    holders: OrderedMap<Engine, Option<TenantId>>,
    depths: OrderedMap<(TenantId, Engine), u64>,
    recording: bool,
}

impl ScheduleRecorder {
    pub fn new(tracer: Tracer) -> Self {
        Self { tracer, ..Self::default() }
    }

    /// True while a recording is on.
    fn is_wanted(&mut self) -> bool {
        let recording = self.tracer.is_on();
        if recording && !self.recording {
            self.holders.clear();
            self.depths.clear();
        }
        self.recording = recording;
        recording
    }

    /// Policies gave engines to others.
    pub fn record_switches(&mut self, switches: &[(Engine, Admission)], tenants: &Tenants) {
        if !self.is_wanted() {
            return;
        }
        for (engine, admission) in switches {
            match admission {
                Admission::Only(vm) => self.record_holder(*engine, Some(*vm), tenants),
                Admission::Nobody => self.record_holder(*engine, None, tenants),
                // Hardware decides, and is sampled.
                Admission::All => {}
            }
        }
    }

    /// Engines and rings were sampled.
    pub fn record_sample(
        &mut self,
        engines: &[(Engine, Option<HostChannel>)],
        scheduler: &Scheduler,
        channels: &HostChannels,
        tenants: &Tenants,
    ) {
        if !self.is_wanted() {
            return;
        }
        for (engine, channel) in engines {
            let owner = channel.and_then(|channel| channels.owner(channel));
            self.record_holder(*engine, owner.map(|owner| owner.tenant), tenants);
        }
        for (vm, engine, entries) in scheduler.depths() {
            let before = self.depths.insert((vm, engine), entries);
            if before.unwrap_or(0) != entries {
                let name = tenants.get(vm).map(|tenant| tenant.name.clone()).unwrap_or_default();
                let engine = engine.to_string();
                self.tracer.event(|| Event::Depth { engine, vm: name, entries });
            }
        }
        self.depths.retain(|(vm, _), _| tenants.get(*vm).is_some());
    }

    fn record_holder(&mut self, engine: Engine, vm: Option<TenantId>, tenants: &Tenants) {
        if self.holders.insert(engine, vm) == Some(vm) {
            return;
        }
        let tenant = vm.and_then(|vm| tenants.get(vm));
        let to = tenant.map(|tenant| tenant.name.clone()).unwrap_or_default();
        self.tracer.event(|| Event::Switch { engine: engine.to_string(), to });
    }
}
