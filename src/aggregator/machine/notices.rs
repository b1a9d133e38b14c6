//! Who is told that work is finished.
//!
//! Hardware's notification names an engine, not a channel. A tenant whose channel could have run on that engine (now, no
//! longer than [`LATE`] ago, or because it was asked to leave and has not left) is told at once: it may have been its
//! work. Every other tenant with a channel is told [`DELAY`] later, once for all that came meanwhile.
//! Most of them are waiting for their turn or for their users, and each notification costs a guest some ten trapped
//! accesses and its host the processor time for them.
//!
//! That nobody else could run is what the scheduler saw in looks, and what it sees of a ring is in its guest's memory.
//! So nobody is left out altogether: who was wrongly taken for idle hears of its work a tenth of a second later. Nor is the engine a
//! reason to leave anybody out. A GF100's driver may give a running channel a context on one more engine, by a store to memory, and hardware
//! may do work there before the tenant has said so ([`Machine::tell_of_engines`]).

use std::time::Duration;

use super::{Machine, Output};
use crate::addr::TenantId;
use crate::aggregator::protocol::Event;
use crate::aggregator::tenant::TenantState;
use crate::chip::{Engine, EngineSet};

/// How long after its work a notification comes at the most.
const LATE: Duration = Duration::from_millis(2);

/// How long those wait whose work it can hardly be.
const DELAY: Duration = Duration::from_millis(100);

/// Notifications that a tenant is told later.
#[derive(Clone, Copy, Debug)]
pub struct Owed {
    /// Of these engines.
    pub engines: EngineSet,
    /// When.
    pub due: Duration,
}

impl Machine {
    /// Work was finished on an engine.
    pub(super) fn notify(&mut self, engine: Engine, now: Duration) {
        let Self { tenants, scheduler, hangs, outputs, .. } = self;
        for tenant in tenants.values_mut() {
            if tenant.state != TenantState::Active || tenant.live_channels().next().is_none() {
                continue;
            }
            let may_be_its = tenant.live_channels().any(|(_, channel)| {
                channel.engines.contains(engine.into())
                    && (scheduler.could_run(channel.host, now, LATE)
                        || hangs.watchdog.is_leaving(channel.host))
            });
            if may_be_its {
                outputs.push(Output::Event(tenant.id, Event::NonStall(engine)));
            } else {
                let owed = tenant
                    .owed
                    .get_or_insert(Owed { engines: EngineSet::empty(), due: now.saturating_add(DELAY) });
                owed.engines |= engine.into();
            }
        }
    }

    /// A tenant's channel has a context on these engines, of which that was not known: what ended there lately may have been its work.
    pub(super) fn tell_of_engines(&mut self, tenant: TenantId, engines: EngineSet) {
        let Some(owner) = self.tenants.get_mut(&tenant) else { return };
        let Some(owed) = &mut owner.owed else { return };
        let now = owed.engines & engines;
        owed.engines = owed.engines.difference(now);
        if owed.engines.is_empty() {
            owner.owed = None;
        }
        self.outputs.extend(now.engines().map(|engine| Output::Event(tenant, Event::NonStall(engine))));
    }

    /// Tells those who had to wait, when it is time.
    pub(super) fn tell_others(&mut self, now: Duration) {
        let due = |owed: &mut Owed| now >= owed.due;
        let told: Vec<(TenantId, EngineSet)> = self
            .tenants
            .values_mut()
            .filter_map(|tenant| {
                let owed = tenant.owed.take_if(due)?;
                (tenant.state == TenantState::Active).then_some((tenant.id, owed.engines))
            })
            .collect();
        for (tenant, engines) in told {
            let events = engines.engines().map(|engine| Output::Event(tenant, Event::NonStall(engine)));
            self.outputs.extend(events);
        }
    }
}
