//! What `gpuvmk top` shows: rates between two looks at the aggregator.

use std::time::Instant;

use gpuvmk_control_client::{GpuStatus, Status};

use super::columns::{self, COLUMNS, Shown, Values};
use crate::cli::ls::state;

/// A VM's line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub vm: String,
    pub state: String,
    pub paused: bool,
    /// A number for each column.
    pub values: Values,
}

impl Row {
    /// The number of the column that an order is by.
    pub(super) fn of(&self, order: Order) -> f64 {
        order.column().and_then(|column| self.values.get(column)).copied().unwrap_or(0.0)
    }
}

/// Columns to sort by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    #[default]
    Gpu,
    Waiting,
    Submissions,
    Vram,
    Name,
}

impl Order {
    /// The column with its number, unless it is the names'.
    pub(super) fn column(self) -> Option<usize> {
        let heading = match self {
            Self::Gpu => "GPU %",
            Self::Waiting => "WAIT %",
            Self::Submissions => "SUBM/S",
            Self::Vram => "VRAM",
            Self::Name => return None,
        };
        columns::place_of(heading)
    }
}

/// The last status, and how to show it.
#[derive(Debug, Default)]
pub(super) struct View {
    last: Option<(Instant, Status)>,
    rows: Vec<Row>,
    order: Order,
    chosen: Option<String>,
    wrong: Option<String>,
}

impl View {
    /// Takes a state over.
    pub(super) fn see(&mut self, status: Status, now: Instant) {
        let before = self.last.take();
        let seconds = before.as_ref().map_or(0.0, |(then, _)| now.duration_since(*then).as_secs_f64());
        let rate = |now: f64, then: f64| if seconds > 0.0 { (now - then).max(0.0) / seconds } else { 0.0 };
        self.rows = status
            .tenants
            .iter()
            .map(|vm| {
                let earlier = before.as_ref().and_then(|(_, status)| status.tenant(&vm.name));
                let mut values = columns::values(vm);
                // A newcomer has had nothing between the looks that is known.
                let then = columns::values(earlier.unwrap_or(vm));
                for ((column, value), then) in COLUMNS.iter().zip(&mut values).zip(then) {
                    if column.shown == Shown::Rate {
                        *value = rate(*value, then);
                    }
                }
                Row { vm: vm.name.clone(), state: state(vm), paused: vm.paused, values }
            })
            .collect();
        self.last = Some((now, status));
        self.wrong = None;
        self.sort();
    }

    /// Says what went wrong, below the table.
    pub(super) fn note(&mut self, error: Option<anyhow::Error>) {
        if let Some(error) = error {
            self.wrong = Some(format!("{error:#}"));
        }
    }

    pub(super) fn wrong(&self) -> Option<&str> {
        self.wrong.as_deref()
    }

    pub(super) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The GPU's state.
    pub(super) fn gpu(&self) -> Option<&GpuStatus> {
        self.last.as_ref().map(|(_, status)| &status.gpu)
    }

    pub(super) fn order(&self) -> Order {
        self.order
    }

    pub(super) fn sort_by_next(&mut self) {
        self.order = match self.order {
            Order::Gpu => Order::Waiting,
            Order::Waiting => Order::Submissions,
            Order::Submissions => Order::Vram,
            Order::Vram => Order::Name,
            Order::Name => Order::Gpu,
        };
        self.sort();
    }

    fn sort(&mut self) {
        let order = self.order;
        self.rows.sort_by(|a, b| {
            let by_value = b.of(order).total_cmp(&a.of(order));
            by_value.then_with(|| a.vm.cmp(&b.vm))
        });
    }

    /// The line that is chosen.
    pub(super) fn place(&self) -> Option<usize> {
        let chosen = self.chosen.as_ref()?;
        self.rows.iter().position(|row| row.vm == *chosen)
    }

    /// Chooses the VM so many lines further down; the first one where none is chosen.
    pub(super) fn choose(&mut self, down: isize) {
        let last = self.rows.len().saturating_sub(1);
        let place = self.place().map_or(0, |place| place.saturating_add_signed(down).min(last));
        self.chosen = self.rows.get(place).map(|row| row.vm.clone());
    }

    /// The VM that is chosen, and whether it is paused.
    pub(super) fn chosen(&self) -> Option<(String, bool)> {
        let row = self.rows.get(self.place()?)?;
        Some((row.vm.clone(), row.paused))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;

    fn vm(name: &str, used_us: u64, submissions: u64) -> Value {
        json!({
            "name": name, "state": "active", "paused": false, "vram": 64, "submissions": submissions, "copied_bytes": 0,
            "faults": 0, "hangs": 0,
            "engines": [{ "used_us": used_us, "waiting_us": 0, "queue_depth": 2 },
                        { "used_us": used_us, "waiting_us": 0, "queue_depth": 1 }],
        })
    }

    fn status(value: Value) -> Status {
        serde_json::from_value(value).unwrap()
    }

    fn names(view: &View) -> Vec<&str> {
        view.rows().iter().map(|row| row.vm.as_str()).collect()
    }

    #[test]
    fn rates_are_of_the_time_between_two_looks() {
        let (mut view, start) = (View::default(), Instant::now());
        view.see(status(json!({ "tenants": [vm("vm1", 1_000_000, 10), vm("vm2", 0, 0)] })), start);
        assert!(view.rows().iter().all(|row| row.of(Order::Gpu) == 0.0));
        view.see(status(json!({ "tenants": [vm("vm1", 1_100_000, 30), vm("vm2", 400_000, 0), vm("vm3", 9_000_000, 9)] })), start + Duration::from_secs(2));

        assert_eq!(names(&view), ["vm2", "vm1", "vm3"]);
        let rows = view.rows();
        assert!((rows[0].of(Order::Gpu) - 0.4).abs() < 1e-9 && (rows[1].of(Order::Gpu) - 0.1).abs() < 1e-9);
        assert!((rows[1].of(Order::Submissions) - 10.0).abs() < 1e-9);
        assert_eq!((rows[2].of(Order::Gpu), rows[2].values[2]), (0.0, 3.0));
    }

    #[test]
    fn choice_follows_its_vm_when_the_order_changes() {
        let (mut view, start) = (View::default(), Instant::now());
        view.see(status(json!({ "tenants": [vm("vm1", 0, 0), vm("vm2", 0, 0)] })), start);
        assert_eq!(view.chosen(), None);
        view.choose(1);
        view.choose(1);
        view.choose(1);
        assert_eq!(view.chosen(), Some(("vm2".to_owned(), false)));
        view.see(
            status(json!({ "tenants": [vm("vm1", 0, 0), vm("vm2", 5, 0)] })),
            start + Duration::from_secs(1),
        );

        assert_eq!((view.place(), view.chosen().map(|(vm, _)| vm)), (Some(0), Some("vm2".to_owned())));
        view.see(status(json!({ "tenants": [] })), start + Duration::from_secs(2));
        assert_eq!(view.chosen(), None);
    }
}
