//! What operators and the aggregator are told of a vGPU.

use super::Mediator;
use crate::control::{ChannelControl, Control};
use crate::status::{FailSafe, FailSafeRecord, State, Status};
use gpuvmk_aggregator::report::Report;
use gpuvmk_units::DriverCounters;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

impl<C: ChannelControl> Mediator<C> {
    /// The vGPU at a glance.
    pub fn status(&self) -> Status {
        let control = self.control();
        let connection = self.connection();
        let state = match (&control.state, connection.events.loss()) {
            (State::Running, Some(reason)) => State::FailSafe(FailSafe::AggregatorLost(reason)),
            (state, _) => state.clone(),
        };
        Status {
            state,
            fail_safe: control.record,
            vram: self.vram,
            channels_bound: control.chip.bound(),
            channels_placed: control.chip.placed(),
            spaces: control.spaces.len(),
            tables: control.spaces.budget().tables(),
            snapshot_bytes: control.spaces.budget().snapshot_bytes(),
            counts: self.counters.read(),
            walks: self.counters.walk_times.read(),
            copied: self.copies.sums(),
        }
    }

    /// Counts an access that is answered here, for operators. They come from one thread, that of the session
    /// with the VM's monitor.
    pub(crate) fn note_access(&self) {
        let before = self.trapped.fetch_add(1, Ordering::Relaxed);
        let connection = self.connection.read().unwrap_or_else(PoisonError::into_inner);
        connection.link.report_trapped(before.wrapping_add(1));
    }

    /// Reports to operators what was counted of the driver. Calls must not overlap.
    pub(crate) fn report_driver(&self, counters: &DriverCounters) {
        let connection = self.connection.read().unwrap_or_else(PoisonError::into_inner);
        connection.link.report_driver(counters);
    }

    /// Reports to operators how far the guest is from its limits, unless another thread holds the control
    /// lock; that one may report.
    pub(super) fn report_to_operators(&self) {
        if let Ok(control) = self.control.try_lock() {
            self.connection().link.report(&self.report(&control));
        }
    }

    /// The report for operators.
    pub(super) fn report(&self, control: &Control<C>) -> Report {
        let FailSafeRecord { now, count } = control.record;
        let budget = control.spaces.budget();
        let limits = self.meters.usage(budget.tables(), budget.limits().tables);
        Report { fail_safe: now, fail_safe_count: count, limits }
    }
}
