//! What is said of tenants: to operators all of it, to each tenant for how long engines have worked for it.

use std::time::Duration;

use gpuvmk_control_client::Status;

use super::super::connection::Stage;
use super::Loop;
use crate::machine::status::{add_copied, add_report};

/// How often tenants are told.
const PERIOD: Duration = Duration::from_millis(10);

impl Loop {
    /// The machine's state, with what the tenants' backends say of themselves.
    pub(super) fn status(&self) -> Status {
        let mut status = self.machine.status(&self.backend);
        status.gpu.refused_peers = self.guards.iter().map(|guard| guard.refused()).sum();
        status.gpu.refused_hellos = self.refused_hellos;
        for (id, tenant) in self.machine.tenants_by_age().zip(&mut status.tenants) {
            let number = self.by_tenant.get(&id);
            if let Some(Stage::Tenant(link)) = number.and_then(|n| self.connections.get(n)).map(|c| &c.stage)
            {
                add_report(tenant, &link.doorbells.report());
                add_copied(tenant, &link.doorbells.copied());
                tenant.trapped = link.doorbells.trapped();
                tenant.driver = link.doorbells.driver();
            }
            let connection = number.and_then(|number| self.connections.get(number));
            tenant.pid = connection.map(|connection| connection.peer.pid);
            tenant.dear_wakeups = connection.map_or(0, |connection| connection.porter.dear_wakeups());
        }
        status.gpu.strangers_refused = self.gate.refusals();
        status
    }

    /// Tells each tenant for how long engines have worked for it, now and then. What it used of the time
    /// since, it hears when there is something else to do.
    pub(super) fn tell_times(&mut self, now: Duration) {
        if now.saturating_sub(self.told_times) < PERIOD {
            return;
        }
        self.told_times = now;
        for link in self.connections.values().filter_map(|connection| match &connection.stage {
            Stage::Tenant(link) => Some(link),
            Stage::Waiting { .. } => None,
        }) {
            link.events.set_engine_time(self.machine.engine_time(link.id));
        }
    }
}
