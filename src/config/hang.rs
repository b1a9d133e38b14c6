//! The `[hang]` section of a GPU's file: how long a channel may hold up others, and what it costs its VM to
//! do so again and again.

use std::time::Duration;

use super::reader::TableReader;
use super::value;
use crate::scheduler::HangLimits;

/// Reads the section; what it does not say is as in `default`.
pub(super) fn read(reader: &mut TableReader<'_, '_>, default: HangLimits) -> Option<HangLimits> {
    let hold = millis(reader, "hold_ms", default.hold, 10, 10_000);
    let preempt = millis(reader, "preempt_ms", default.preempt, 10, 10_000);
    let progress = optional(reader, "progress_ms", default.progress);
    let acquire = optional(reader, "acquire_ms", default.acquire);
    let penalty = millis(reader, "penalty_ms", default.penalty, 0, 60_000);
    let penalty_cap = millis(reader, "penalty_cap_ms", default.penalty_cap, 0, 3_600_000);
    let forgive = millis(reader, "forgive_ms", default.forgive, 0, 86_400_000);
    Some(HangLimits {
        hold: hold?,
        preempt: preempt?,
        progress: progress?,
        acquire: acquire?,
        penalty: penalty?,
        penalty_cap: penalty_cap?,
        forgive: forgive?,
    })
}

fn millis(
    reader: &mut TableReader<'_, '_>,
    key: &'static str,
    default: Duration,
    low: u64,
    high: u64,
) -> Option<Duration> {
    let allowed = format!("a whole number of milliseconds from {low} to {high}");
    reader.defaulted(key, default, &allowed, |v| value::integer(v, low, high).map(Duration::from_millis))
}

/// The same where 0 means "no limit".
fn optional(
    reader: &mut TableReader<'_, '_>,
    key: &'static str,
    default: Option<Duration>,
) -> Option<Option<Duration>> {
    let allowed = "0 for no limit, or a whole number of milliseconds from 100 to 86400000";
    reader.defaulted(key, default, allowed, |v| match value::integer(v, 0, 86_400_000)? {
        0 => Ok(None),
        short @ 1..100 => Err(format!("{short} is out of range")),
        millis => Ok(Some(Duration::from_millis(millis))),
    })
}
