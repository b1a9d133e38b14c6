//! Which tenants are notified that work is finished.
//!
//! Hardware's notification names an engine, not a channel. A tenant whose channel could have run on that
//! engine (now, no longer than [`LATE`] ago, or because it was asked to leave and has not left) is notified
//! at once: it may have been its work. Every other tenant with a channel on the engine is notified [`DELAY`]
//! later, once for all notifications that came meanwhile. Most of them are waiting for their turn or for
//! their users, and each notification costs a guest some ten trapped accesses and its host the processor time
//! for them.
//!
//! Which channels could run is known from the scheduler's samples, and these read a ring's indices in the
//! guest's memory. Hardware notifies before it shows work as done. So a channel that was seen to be done
//! still counts until the notifications that hardware sent by then have been handled, however late that is.
//! If a doorbell's work is done already when the doorbell is taken, delayed notifications are sent at once.
//! So no tenant misses a notification: one that was wrongly taken for idle gets it a tenth of a second later.
//!
//! The engines that tenants have named may be out of date, too. A GF100's driver may give a running channel a
//! context on one more engine, by a store to memory, and hardware may do work there before the tenant has
//! named it. Work that ended on engines that a tenant had not named is notified when it names them. A channel
//! that names none may work on any: host methods need no context.

use std::time::Duration;

use super::state::Machine;
use crate::protocol::Event;
use crate::tenant::{DelayedCompletions, TenantState};
use gpuvmk_chip::addr::TenantId;
use gpuvmk_chip::{Engine, EngineSet};

/// How long after its work a notification comes at the most.
const LATE: Duration = Duration::from_millis(2);

/// Delay for tenants whose work it can hardly be.
const DELAY: Duration = Duration::from_millis(100);

impl Machine {
    /// Work was finished on an engine.
    pub(super) fn notify(&mut self, engine: Engine, now: Duration) {
        let Self { tenants, scheduler, hangs, outbox, .. } = self;
        for tenant in tenants.iter_mut() {
            if tenant.state != TenantState::Active {
                continue;
            }
            let may_use = |engines: EngineSet| engines.is_empty() || engines.contains(engine.into());
            if !tenant.live_channels().any(|(_, channel)| may_use(channel.engines)) {
                tenant.unnamed |= engine.into();
                continue;
            }
            let may_be_its = tenant.live_channels().any(|(_, channel)| {
                channel.engines.contains(engine.into())
                    && (scheduler.could_run(channel.host, now, LATE)
                        || hangs.watchdog.is_leaving(channel.host))
            });
            if may_be_its {
                outbox.event(tenant.id, Event::NonStall(engine));
            } else {
                let delayed = tenant.delayed.get_or_insert(DelayedCompletions {
                    engines: EngineSet::empty(),
                    due: now.saturating_add(DELAY),
                });
                delayed.engines |= engine.into();
            }
        }
    }

    /// Notifies a tenant at once of work that ended on these engines lately: it may have been its work.
    pub(super) fn notify_delayed(&mut self, tenant: TenantId, engines: EngineSet) {
        let Some(owner) = self.tenants.get_mut(tenant) else { return };
        let mut now = owner.unnamed & engines;
        owner.unnamed = owner.unnamed.difference(now);
        if let Some(delayed) = &mut owner.delayed {
            now |= delayed.engines & engines;
            delayed.engines = delayed.engines.difference(now);
        }
        owner.delayed = owner.delayed.filter(|delayed| !delayed.engines.is_empty());
        for engine in now.engines() {
            self.outbox.event(tenant, Event::NonStall(engine));
        }
    }

    /// Tells those who had to wait, when it is time.
    pub(super) fn notify_due(&mut self, now: Duration) {
        let due = |delayed: &mut DelayedCompletions| now >= delayed.due;
        let told: Vec<(TenantId, EngineSet)> = self
            .tenants
            .iter_mut()
            .filter_map(|tenant| {
                let delayed = tenant.delayed.take_if(due)?;
                (tenant.state == TenantState::Active).then_some((tenant.id, delayed.engines))
            })
            .collect();
        for (tenant, engines) in told {
            for engine in engines.engines() {
                self.outbox.event(tenant, Event::NonStall(engine));
            }
        }
    }
}
