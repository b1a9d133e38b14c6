//! What the aggregator tells whoever records it: which VM had which engine, and how much of its work waited.

use std::collections::BTreeMap;

use super::Machine;
use gpuvmk_chip::Engine;
use gpuvmk_chip::addr::{HostChannel, TenantId};
use gpuvmk_scheduler::policy::Admission;
use gpuvmk_trace::{Event, Tracer};

/// What was told last; a recording that begins later begins with everything.
#[derive(Debug, Default)]
pub(super) struct Chronicle {
    tracer: Tracer,
    holders: BTreeMap<Engine, Option<TenantId>>,
    depths: BTreeMap<(TenantId, Engine), u64>,
    recording: bool,
}

impl Chronicle {
    pub fn new(tracer: Tracer) -> Self {
        Self { tracer, ..Self::default() }
    }

    /// True while somebody records.
    fn is_wanted(&mut self) -> bool {
        let recording = self.tracer.is_on();
        if recording && !self.recording {
            self.holders.clear();
            self.depths.clear();
        }
        self.recording = recording;
        recording
    }
}

impl Machine {
    /// The same, with its decisions told to `tracer`.
    pub fn with_tracer(self, tracer: Tracer) -> Self {
        Self { chronicle: Chronicle::new(tracer), ..self }
    }

    /// Policies gave engines to others.
    pub(super) fn tell_decisions(&mut self, switches: &[(Engine, Admission)]) {
        if !self.chronicle.is_wanted() {
            return;
        }
        for (engine, admission) in switches {
            match admission {
                Admission::Only(vm) => self.tell_holder(*engine, Some(*vm)),
                Admission::Nobody => self.tell_holder(*engine, None),
                // Hardware decides, and is looked at.
                Admission::All => {}
            }
        }
    }

    /// Engines and rings were looked at.
    pub(super) fn tell_looks(&mut self, engines: &[(Engine, Option<HostChannel>)]) {
        if !self.chronicle.is_wanted() {
            return;
        }
        for (engine, channel) in engines {
            let owner = channel.and_then(|channel| self.owners.get(&channel));
            self.tell_holder(*engine, owner.map(|owner| owner.tenant));
        }
        for (vm, engine, entries) in self.scheduler.depths() {
            let before = self.chronicle.depths.insert((vm, engine), entries);
            if before.unwrap_or(0) != entries {
                let name = self.tenants.get(&vm).map(|tenant| tenant.name.clone()).unwrap_or_default();
                let engine = engine.to_string();
                self.chronicle.tracer.event(|| Event::Depth { engine, vm: name, entries });
            }
        }
        let tenants = &self.tenants;
        self.chronicle.depths.retain(|(vm, _), _| tenants.contains_key(vm));
    }

    fn tell_holder(&mut self, engine: Engine, vm: Option<TenantId>) {
        if self.chronicle.holders.insert(engine, vm) == Some(vm) {
            return;
        }
        let tenant = vm.and_then(|vm| self.tenants.get(&vm));
        let to = tenant.map(|tenant| tenant.name.clone()).unwrap_or_default();
        self.chronicle.tracer.event(|| Event::Switch { engine: engine.to_string(), to });
    }
}
