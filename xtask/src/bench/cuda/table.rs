//! The papers' table in small sizes: what each program costs, in messages from QEMU to the GPU's process,
//! doorbells, and bytes that are copied. One boot, a process for each program, and one that runs none: what
//! it takes to open the device and to load the code is taken off the others.

use anyhow::{Context, Result, ensure};
use gpuvmk_control_client::TenantStatus;
use gpuvmk_lab::report::ProgramResult;
use serde_json::{Map, Value, json};

use super::super::suite::boots;
use crate::cases;
use crate::workshop::Workshop;

/// A program's calls, after a second in which all is quiet.
macro_rules! programs {
    ($($name:literal),*) => {
        /// Names, in the order in which they run; the first is none.
        const NAMES: &[&str] = &[$($name),*];
        const CALLS: &[&str] = &[
            $("sleep:secs=1", concat!("cuda:checks=table:only=", $name),)*
            "sleep:secs=1",
        ];
    };
}

programs!(
    "none", "NOP", "LOOP", "MADD", "MMUL", "FMADD", "FMMUL", "CPY", "PINCPY", "BP", "BFS", "HS", "LUD", "NN",
    "NW", "SRAD", "SRAD2"
);

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counts {
    messages: u64,
    doorbells: u64,
    copied: u64,
}

impl Counts {
    const fn of(tenant: &TenantStatus) -> Self {
        Self { messages: tenant.trapped, doorbells: tenant.submissions, copied: tenant.copied_bytes }
    }

    fn less(self, other: Self) -> Self {
        Self {
            messages: self.messages.saturating_sub(other.messages),
            doorbells: self.doorbells.saturating_sub(other.doorbells),
            copied: self.copied.saturating_sub(other.copied),
        }
    }
}

/// Boots the guest, prints the table, and returns it.
pub(super) fn run(workshop: &Workshop) -> Result<Value> {
    let seen = boots::watched(workshop, "cuda-table", &cases::nvidia::with("vm1", CALLS))?;
    let table = of(&seen)?;
    println!("{:8} {:>9} {:>9} {:>9} {:>12}", "program", "launches", "messages", "doorbells", "bytes copied");
    for (name, row) in &table {
        let number = |key: &str| row.get(key).and_then(Value::as_u64).unwrap_or(0);
        let [launches, messages, doorbells, bytes] =
            ["launches", "messages", "doorbells", "copied_bytes"].map(number);
        println!("{name:8} {launches:9} {messages:9} {doorbells:9} {bytes:12}");
    }
    Ok(table.into())
}

/// The table of what was seen after each call.
fn of(seen: &[(ProgramResult, TenantStatus)]) -> Result<Map<String, Value>> {
    ensure!(seen.len() == CALLS.len(), "{} of {} programs ended", seen.len(), CALLS.len());
    // Before and after each: the quiet seconds' ends.
    let quiet: Vec<Counts> = seen.iter().step_by(2).map(|(_, tenant)| Counts::of(tenant)).collect();
    let mut costs = quiet.windows(2).map(|pair| pair[1].less(pair[0]));
    let nothing = costs.next().context("there is no program that does nothing")?;
    let results = seen.iter().skip(1).step_by(2).map(|(result, _)| result);
    let mut table = Map::new();
    for ((name, result), cost) in NAMES.iter().zip(results).skip(1).zip(costs) {
        ensure!(result.ok, "{name}: {}", result.error.as_deref().unwrap_or("it failed"));
        let row =
            result.figures.get("checks").and_then(|checks| checks.get("table")?.get("table")?.get(*name));
        let row = row.with_context(|| format!("{name} did not run"))?;
        let Counts { messages, doorbells, copied } = cost.less(nothing);
        table.insert(
            (*name).to_owned(),
            json!({
                "launches": row.get("launches"), "bytes": row.get("bytes"),
                "messages": messages, "doorbells": doorbells, "copied_bytes": copied,
            }),
        );
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(call: usize) -> (ProgramResult, TenantStatus) {
        let name = NAMES.get(call / 2).copied().unwrap_or_default();
        let checks = json!({ "table": { "table": { name: { "launches": 3, "bytes": [1, 2] } } } });
        let result = ProgramResult {
            program: "cuda".into(),
            gpu: 0,
            ok: true,
            error: None,
            figures: Map::from_iter([("checks".to_owned(), checks)]),
        };
        // 100 messages for nothing, 107 for each program; 2 and 5 doorbells.
        let programs = (call / 2) as u64;
        let more = programs.saturating_sub(1);
        let trapped = programs * 100 + more * 7;
        let tenant =
            TenantStatus { trapped, submissions: programs * 2 + more * 3, ..TenantStatus::default() };
        (result, tenant)
    }

    #[test]
    fn what_opening_costs_is_taken_off() {
        let all: Vec<_> = (0..CALLS.len()).map(seen).collect();
        let table = of(&all).unwrap();
        assert_eq!(table.len(), 16);
        for row in table.values() {
            assert_eq!(
                (&row["messages"], &row["doorbells"], &row["launches"]),
                (&json!(7), &json!(3), &json!(3))
            );
        }
    }

    #[test]
    fn program_that_failed_or_is_missing_is_named() {
        let mut all: Vec<_> = (0..CALLS.len()).map(seen).collect();
        all[5].0.ok = false;
        all[5].0.error = Some("wrong".into());
        assert!(of(&all).unwrap_err().to_string().contains("LOOP: wrong"));
        all.pop();
        assert!(of(&all).is_err());
    }
}
