//! The papers' table: what guests measured beside a native client that launched the same machine code.
//!
//! Times are the GPU's own. A guest alone is compared program by program; what several guests at once got of
//! each program is added up over slots of the GPU's clock in which all of them were busy with it.

mod page;
mod yard;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::record::round;
use crate::step::{GuestResult, StepResult};

pub use page::page;

/// Names of the steps that this is made of: of one guest, and of several.
pub const ALONE: &str = "table-1";
pub const CROWD: &str = "table-";

/// Programs with less than this natively, in microseconds, are shown and not judged.
const JUDGED_US: f64 = 1000.0;
/// What one guest, several guests, and copies of 16 MiB and more should get of native.
const LEAST_ALONE: f64 = 0.98;
const LEAST_TOGETHER: f64 = 0.95;
const LEAST_COPY: f64 = 0.95;
const JUDGED_COPY: u64 = 16 << 20;

/// A slot counts where each guest saw so many rounds, over so many microseconds.
const LEAST_ROUNDS: u64 = 3;
const LEAST_TIME: u64 = 500_000;

/// What is known so far.
#[derive(Debug, Clone, Default)]
pub struct Papers {
    /// Reports of the native client.
    native: Vec<Value>,
    /// Results of the guest that was alone, by check, and how long its doorbells took.
    alone: Map<String, Value>,
    doorbell_us: Option<f64>,
    /// By number of guests: slots of each guest.
    crowds: BTreeMap<usize, Vec<Vec<Slot>>>,
}

/// What a guest got done of a program in a slot.
#[derive(Debug, Clone, PartialEq)]
struct Slot {
    number: u64,
    program: String,
    /// Rounds a microsecond.
    rate: Option<f64>,
}

impl Papers {
    /// Takes a native client's report in. What was wrong in it.
    pub fn native(&mut self, label: &str, report: Value) -> Vec<String> {
        let failed = report.get("failed").and_then(Value::as_array).into_iter().flatten();
        let mut problems: Vec<String> =
            failed.map(|failure| format!("native programs, {label}: {failure}")).collect();
        if report.get("table").and_then(Value::as_object).is_none_or(Map::is_empty) {
            problems.push(format!("native programs, {label}: nothing ran"));
        }
        self.native.push(report);
        problems
    }

    /// Takes a step's results in.
    pub fn step(&mut self, result: &StepResult) {
        if result.name == ALONE
            && let [guest] = result.guests.as_slice()
        {
            self.alone = checks(guest);
            self.crowds.insert(1, vec![slots(&self.alone)]);
            self.doorbell_us = guest.tenant.as_ref().map(|tenant| tenant.doorbell_ns.p50 as f64 / 1e3);
        } else if result.name.starts_with(CROWD) {
            let slots = result.guests.iter().map(|guest| slots(&checks(guest))).collect();
            self.crowds.insert(result.guests.len(), slots);
        }
    }

    /// What the result has of all this, by key; nothing where nothing of it was run.
    pub fn to_json(&self) -> Vec<(&'static str, Value)> {
        if self.native.is_empty() && self.alone.is_empty() && self.crowds.is_empty() {
            return Vec::new();
        }
        let native = json!(self.native);
        vec![
            ("table", self.table()),
            ("launch_us", self.launches()),
            ("copies", self.copies().into()),
            ("touch", self.touch()),
            ("missed", self.missed().into()),
            ("native", native),
        ]
    }

    /// The middle of what native clients measured.
    fn native_number(&self, of: impl Fn(&Value) -> Option<f64>) -> Option<f64> {
        middle(self.native.iter().filter_map(of).collect())
    }

    /// What a check of the guest that was alone found, in whichever size.
    fn check(&self, name: &str) -> Option<&Value> {
        let sizes = [name.to_owned(), format!("{name}-small"), format!("{name}-full")];
        sizes.iter().find_map(|name| self.alone.get(name))
    }

    fn rows(&self) -> Option<&Map<String, Value>> {
        self.check("table")?.get("table")?.as_object()
    }

    /// Rows of a program of native clients.
    fn native_rows(&self, program: &str) -> Vec<&Value> {
        self.native.iter().filter_map(|report| report.get("table")?.get(program)).collect()
    }

    fn table(&self) -> Value {
        let mut names: BTreeSet<&str> = BTreeSet::new();
        names.extend(self.rows().into_iter().flatten().map(|(name, _)| name.as_str()));
        for report in &self.native {
            let rows = report.get("table").and_then(Value::as_object);
            names.extend(rows.into_iter().flatten().map(|(name, _)| name.as_str()));
        }
        let best = yard::best(
            self.native
                .iter()
                .filter_map(|report| report.get("table"))
                .chain(self.check("table").and_then(|check| check.get("table"))),
        );
        let row = |name: &str| {
            let row = self.rows().and_then(|rows| rows.get(name));
            let native = yard::steady(&self.native_rows(name), best);
            let guest = yard::steady(&row.into_iter().collect::<Vec<_>>(), best);
            let together = |count| self.together(count, name).zip(native.us).map(|(rate, us)| rate * us);
            let ratio = native.us.zip(guest.us).filter(|(_, guest)| *guest > 0.0);
            json!({
                "native_ms": native.us.map(|us| round(us / 1e3)),
                "guest_ms": guest.us.map(|us| round(us / 1e3)),
                "one": ratio.map(|(native, guest)| round(native / guest)),
                "one_in_slots": together(1).map(round),
                "two": together(2).map(round),
                "four": together(4).map(round),
                "left_out": { "native": native.left_out, "guest": guest.left_out },
                "why_none": native.why_none("native").or(guest.why_none("guest")),
                "phases": row,
            })
        };
        names.into_iter().map(|name| (name.to_owned(), row(name))).collect::<Map<_, _>>().into()
    }

    /// Rounds a microsecond that so many guests got of a program together: the middle of all slots in which
    /// all were busy with it.
    fn together(&self, count: usize, program: &str) -> Option<f64> {
        let guests = self.crowds.get(&count)?;
        let mut sums: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for slot in guests.iter().flatten().filter(|slot| slot.program == program) {
            let rates = sums.entry(slot.number).or_default();
            rates.extend(slot.rate);
        }
        middle(
            sums.into_values().filter(|rates| rates.len() == count).map(|rates| rates.iter().sum()).collect(),
        )
    }

    fn launches(&self) -> Value {
        let native = |name: &'static str| {
            self.native_number(move |report| report.get("launches")?.get(name)?.as_f64())
        };
        let guest = |name: &str| self.check("latencies")?.get(name)?.as_f64();
        json!({
            "native_until_written": native("until_written_us"),
            "guest_until_written": guest("until_written_us"),
            "guest_call": guest("call_us"),
            "native_each_of_row_on_gpu": native("row_gpu_us"),
            "guest_each_of_row_on_gpu": guest("row_gpu_us"),
            "guest_each_of_row": guest("row_us"),
            "guest_each_in_streams": guest("streams_us"),
            "guest_each_of_graph": guest("graph_us"),
            "guest_each_of_graph_on_gpu": guest("graph_gpu_us"),
            "doorbell": self.doorbell_us,
        })
    }

    /// Copies by route and size: bytes a second of both, the native client's on its fastest engine.
    fn copies(&self) -> Vec<Value> {
        let list = self.alone.get("copies").and_then(|check| check.get("copies")?.as_array());
        let of = |copy: &Value| {
            let (route, bytes) = (copy.get("route")?.as_str()?, copy.get("bytes")?.as_u64()?);
            let guest = copy.get("gpu_us")?.as_f64().filter(|us| *us > 0.0)?;
            let native = self.native_copy(route, bytes);
            let gb_s = |us: f64| round(bytes as f64 / us / 1e3);
            Some(json!({
                "route": route,
                "bytes": bytes,
                "native_gb_s": native.map(gb_s),
                "guest_gb_s": gb_s(guest),
                "ratio": native.map(|native| round(native / guest)),
            }))
        };
        list.into_iter().flatten().filter_map(of).collect()
    }

    fn native_copy(&self, route: &str, bytes: u64) -> Option<f64> {
        self.native_number(|report| {
            let copies = report.get("copies")?.as_array()?.iter();
            let fits = |copy: &&Value| {
                copy.get("route").and_then(Value::as_str) == Some(route)
                    && copy.get("bytes").and_then(Value::as_u64) == Some(bytes)
            };
            copies.filter(fits).filter_map(|copy| copy.get("gpu_us")?.as_f64()).min_by(f64::total_cmp)
        })
    }

    fn touch(&self) -> Value {
        let native = self.native.last().and_then(|report| report.get("touch"));
        json!({ "native": native, "guest": self.alone.get("touch") })
    }

    /// What should be better.
    fn missed(&self) -> Vec<String> {
        let mut missed = Vec::new();
        let table = self.table();
        for (name, row) in table.as_object().into_iter().flatten() {
            let number = |key: &str| row.get(key).and_then(Value::as_f64);
            let is_judged = number("native_ms").is_some_and(|ms| ms * 1e3 >= JUDGED_US);
            let limits = [
                ("one", "one guest", LEAST_ALONE),
                ("two", "two guests", LEAST_TOGETHER),
                ("four", "four guests", LEAST_TOGETHER),
            ];
            for (key, who, least) in limits.into_iter().filter(|_| is_judged) {
                if let Some(ratio) = number(key).filter(|ratio| *ratio < least) {
                    missed.push(format!("{name}: {ratio} of native in {who}, at least {least} is wanted"));
                }
            }
        }
        for copy in self.copies() {
            let ratio = copy.get("ratio").and_then(Value::as_f64);
            let bytes = copy.get("bytes").and_then(Value::as_u64).unwrap_or(0);
            if let Some(ratio) = ratio.filter(|ratio| *ratio < LEAST_COPY && bytes >= JUDGED_COPY) {
                let route = copy.get("route").and_then(Value::as_str).unwrap_or_default();
                missed.push(format!("copies {route} of {bytes} bytes: {ratio} of native"));
            }
        }
        missed
    }
}

/// What a guest's CUDA program found, by check.
fn checks(guest: &GuestResult) -> Map<String, Value> {
    let found = guest.verdict.result("cuda", 0).and_then(|result| result.figures.get("checks")?.as_object());
    found.cloned().unwrap_or_default()
}

fn slots(checks: &Map<String, Value>) -> Vec<Slot> {
    let found =
        ["crowd", "crowd-small"].iter().find_map(|check| checks.get(*check)?.get("slots")?.as_array());
    let slot = |slot: &Value| {
        let number = |key: &str| slot.get(key).and_then(Value::as_u64);
        let (rounds, from, to) = (number("rounds")?, number("from_us"), number("to_us"));
        let time = to.zip(from).and_then(|(to, from)| to.checked_sub(from));
        let time = time.filter(|time| *time >= LEAST_TIME && rounds >= LEAST_ROUNDS);
        Some(Slot {
            number: number("slot")?,
            program: slot.get("program")?.as_str()?.to_owned(),
            rate: time.map(|time| rounds as f64 / time as f64),
        })
    };
    found.into_iter().flatten().filter_map(slot).collect()
}

/// The middle of several numbers; the mean of the middle two, where their number is even.
fn middle(mut numbers: Vec<f64>) -> Option<f64> {
    numbers.sort_by(f64::total_cmp);
    let upper = *numbers.get(numbers.len() / 2)?;
    let lower = *numbers.get((numbers.len() - 1) / 2)?;
    Some((lower + upper) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(us: f64) -> Value {
        json!({ "all_gpu_us": [us], "yards_us": [[5000.0, 5010.0]], "left_out": 0 })
    }

    fn native(lud: f64, nop: f64) -> Value {
        json!({
            "failed": [],
            "table": { "LUD": row(lud), "NOP": row(nop) },
            "launches": { "until_written_us": 5.0 },
            "copies": [
                { "route": "inside", "bytes": 16 << 20, "engine": 0, "gpu_us": 20.0 },
                { "route": "inside", "bytes": 16 << 20, "engine": 1, "gpu_us": 10.0 },
            ],
        })
    }

    fn papers() -> Papers {
        let mut papers = Papers::default();
        assert_eq!(papers.native("before", native(2000.0, 2.0)), Vec::<String>::new());
        assert_eq!(papers.native("after", native(2200.0, 2.0)), Vec::<String>::new());
        let alone = json!({
            "table-full": { "table": { "LUD": row(2625.0), "NOP": row(4.0) } },
            "copies": { "copies": [{ "route": "inside", "bytes": 16 << 20, "gpu_us": 12.5 }] },
        });
        papers.alone = alone.as_object().cloned().unwrap();
        papers
    }

    fn slot(number: u64, rate: Option<f64>) -> Slot {
        Slot { number, program: "LUD".into(), rate }
    }

    #[test]
    fn one_guest_is_compared_with_the_middle_of_both_native_runs() {
        let papers = papers();
        let table = papers.table();
        assert_eq!((&table["LUD"]["native_ms"], &table["LUD"]["one"]), (&json!(2.1), &json!(0.8)));
        assert_eq!((&table["NOP"]["one"], &table["NOP"]["two"]), (&json!(0.5), &Value::Null));
        assert_eq!(papers.copies()[0]["ratio"], json!(0.8), "the fastest engine counts");
        // What takes no millisecond is not judged.
        let missed = papers.missed();
        assert!(missed.len() == 2 && missed[0].starts_with("LUD: 0.8") && missed[1].contains("inside"));
    }

    #[test]
    fn nothing_is_compared_where_clocks_were_down_and_it_is_said() {
        let mut papers = papers();
        let slow = json!({ "all_gpu_us": [9000.0], "yards_us": [[29000.0, 29000.0]], "left_out": 3 });
        let alone = json!({ "table-full": { "table": { "LUD": slow, "NOP": row(2.0) } } });
        papers.alone = alone.as_object().cloned().unwrap();
        let row = &papers.table()["LUD"];
        assert_eq!(
            (&row["one"], &row["guest_ms"], &row["native_ms"]),
            (&Value::Null, &Value::Null, &json!(2.1))
        );
        assert_eq!(row["left_out"], json!({ "native": 0, "guest": 4 }));
        assert!(row["why_none"].as_str().is_some_and(|why| why.starts_with("guest: the GPU's clocks")));
        assert_eq!(papers.table()["NOP"]["why_none"], Value::Null);
    }

    #[test]
    fn slots_count_in_which_all_guests_were_busy() {
        let mut papers = papers();
        let rate = Some(0.25 / 1000.0);
        papers.crowds.insert(
            2,
            vec![
                vec![slot(1, rate), slot(14, rate), slot(27, Some(1.0))],
                vec![slot(14, Some(0.2 / 1000.0)), slot(27, None), slot(40, rate)],
            ],
        );
        assert_eq!(papers.table()["LUD"]["two"], json!(0.945));
        assert_eq!(papers.table()["LUD"]["four"], Value::Null);
        assert!(papers.missed().iter().any(|one| one.contains("0.945") && one.contains("two guests")));
    }

    #[test]
    fn slot_with_few_rounds_or_little_time_has_no_rate() {
        let slot = |rounds, from, to| {
            let slots = json!({ "crowd": { "slots": [
                { "slot": 3, "program": "HS", "rounds": rounds, "from_us": from, "to_us": to },
            ] } });
            super::slots(slots.as_object().unwrap())[0].rate
        };
        assert_eq!(slot(80, 150_000, 950_000), Some(1e-4));
        assert_eq!(slot(2, 150_000, 950_000), None);
        assert_eq!(slot(80, 150_000, 350_000), None);
    }

    #[test]
    fn native_client_that_ran_nothing_or_failed_is_a_problem() {
        let mut papers = Papers::default();
        assert!(papers.to_json().is_empty());
        let problems = papers.native("before", json!({ "failed": ["NN: wrong"] }));
        assert!(
            problems.len() == 2 && problems[0].contains("NN: wrong") && problems[1].contains("nothing ran")
        );
    }
}
