//! The numbers that `gpuvmk top` shows of a VM: which of the status' counters, and how. What each of them is
//! is declared with the status.

use gpuvmk_control_client::TenantStatus;
use gpuvmk_counters::{Counted, Place, Unit};

use crate::host::size::show_size;

/// How a counter is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// As it is.
    Now,
    /// What it grew by in a second, between two looks; of times, the part of the time.
    Rate,
}

/// A column with a number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub heading: &'static str,
    /// The counter's place in a VM's status. Of those that each engine has, the sum is shown.
    counter: &'static str,
    pub shown: Shown,
    pub width: u16,
}

const fn column(heading: &'static str, counter: &'static str, shown: Shown, width: u16) -> Column {
    Column { heading, counter, shown, width }
}

/// All of them, from the left.
pub(super) const COLUMNS: [Column; 9] = [
    column("GPU %", "engines[].used_us", Shown::Rate, 7),
    column("WAIT %", "engines[].waiting_us", Shown::Rate, 7),
    column("QUEUE", "engines[].queue_depth", Shown::Now, 7),
    column("VRAM", "vram", Shown::Now, 7),
    column("SUBM/S", "submissions", Shown::Rate, 9),
    column("COPIED/S", "copied_bytes", Shown::Rate, 11),
    column("TRAPS/S", "trapped", Shown::Rate, 9),
    column("FAULTS", "faults", Shown::Now, 7),
    column("HANGS", "hangs", Shown::Now, 6),
];

/// A number for each column.
pub(super) type Values = [f64; COLUMNS.len()];

/// The values of a VM now, in base units.
pub(super) fn values(vm: &TenantStatus) -> Values {
    let mut values = Values::default();
    TenantStatus::walk(Some(vm), &Place::default(), &mut |at, counter, value| {
        let path = at.path_of(counter);
        let shown = COLUMNS.iter().zip(&mut values).filter(|(column, _)| column.counter == path);
        for (_, sum) in shown {
            *sum += counter.in_base(value.unwrap_or(0.0));
        }
    });
    values
}

/// Where a column is.
pub(super) fn place_of(heading: &str) -> Option<usize> {
    COLUMNS.iter().position(|column| column.heading == heading)
}

impl Column {
    /// What its counter is a number of.
    fn unit(&self) -> Unit {
        let mut unit = Unit::Number;
        TenantStatus::walk(None, &Place::default(), &mut |at, counter, _| {
            if at.path_of(counter) == self.counter {
                unit = counter.unit;
            }
        });
        unit
    }

    /// A value of it, for people.
    pub(super) fn show(&self, value: f64) -> String {
        match (self.unit().base(), self.shown) {
            (Some("seconds"), Shown::Rate) => format!("{:.1}", value * 100.0),
            (Some("bytes"), Shown::Rate) => bytes(value),
            (Some("bytes"), Shown::Now) => show_size(whole(value)),
            _ => format!("{value:.0}"),
        }
    }
}

/// A value that was a whole number.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it was one before")]
const fn whole(value: f64) -> u64 {
    value as u64
}

/// Bytes in the largest unit that leaves a number before the point.
fn bytes(bytes: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes;
    for unit in units {
        if value < 1024.0 {
            return format!("{value:.1} {unit}");
        }
        value /= 1024.0;
    }
    format!("{value:.1} PiB")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_column_shows_a_counter_that_is_declared() {
        let mut declared = BTreeSet::new();
        TenantStatus::walk(None, &Place::default(), &mut |at, counter, _| {
            declared.insert(at.path_of(counter));
        });
        for column in &COLUMNS {
            assert!(declared.contains(column.counter), "{}", column.counter);
        }
    }

    #[test]
    fn values_are_shown_in_their_units() {
        let shown: Vec<_> = COLUMNS.iter().map(|column| column.show(1536.0)).collect();
        let wanted = ["153600.0", "153600.0", "1536", "1536", "1536", "1.5 KiB", "1536", "1536", "1536"];
        assert_eq!(shown, wanted);
    }

    #[test]
    fn bytes_have_fitting_units() {
        assert_eq!([0.0, 1023.0, 1536.0, 3.5e9].map(bytes), ["0.0 B", "1023.0 B", "1.5 KiB", "3.3 GiB"]);
    }
}
