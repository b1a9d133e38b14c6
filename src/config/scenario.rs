//! A scenario for `gpuvmk sched-sim`: VMs with loads on a modelled GPU, what changes when, and what is
//! expected of it.
//!
//! All times are whole numbers of microseconds. docs/scheduling.md documents the keys; examples are in
//! tests/scenarios.

use std::path::Path;
use std::time::Duration;

use toml::de::DeValue;

use super::file::{parse, read_file};
use super::gpu::settings;
use super::mistake::ConfigError;
use super::reader::TableReader;
use super::value::{self, NAME_ALLOWED};
use super::vm::share;
use crate::chip::Engine;
use crate::scheduler::policy::PolicyKind;
use crate::scheduler::share::ShareSetting;
use crate::scheduler::sim::scenario::{
    Arrival, Change, Changed, Expect, GpuModel, Length, Load, Scenario, VmKind,
};

/// Longest virtual time of a run: an hour.
const MAX_TIME: u64 = 3_600_000_000;
/// Most VMs of one kind.
const MAX_COUNT: u64 = 10_000;
/// Most entries of a list, and lines of a file of submissions.
pub(super) const MAX_ENTRIES: usize = 1_000_000;

/// Reads a scenario.
///
/// # Errors
/// The file cannot be read, or has mistakes.
pub fn load(path: &Path) -> Result<Scenario, ConfigError> {
    of_text(path, &read_file(path)?)
}

/// The same of a text; `path` is where it comes from.
///
/// # Errors
/// It has mistakes.
pub fn of_text(path: &Path, text: &str) -> Result<Scenario, ConfigError> {
    parse(path, text, scenario)
}

pub(super) fn scenario(reader: &mut TableReader<'_, '_>) -> Option<Scenario> {
    let duration = micros(reader, "duration", None, 1000, MAX_TIME);
    let seed = reader.defaulted("seed", 1, "a whole number", |v| value::integer(v, 0, i64::MAX as u64));
    let allowed = PolicyKind::allowed();
    let policy = reader.required("policy", &allowed, |v| value::word(v, &PolicyKind::ALL));
    let settings = settings(reader);
    let switch = micros(reader, "switch", Some(150), 0, 1_000_000)?;
    let gpu = GpuModel {
        switch,
        taken_for: micros(reader, "switch_taken_for", Some(as_micros(switch)), 0, 1_000_000)?,
        timeslice: micros(reader, "timeslice", Some(1000), 10, 1_000_000)?,
        late: micros(reader, "late", Some(0), 0, 1_000_000)?,
        counts: reader.defaulted("counts", true, "true or false", value::boolean)?,
        tells: reader.defaulted("tells", true, "true or false", value::boolean)?,
    };
    let default = duration.map_or(1000, |time| as_micros(time).div_ceil(100).max(1000));
    let window = micros(reader, "window", Some(default), 1000, MAX_TIME);
    let vms = reader.tables("vm", vm_kind);
    let changes = reader.tables("change", change);
    let expect = if reader.has("expect") { reader.table("expect", expect) } else { Some(NOTHING) };
    let (vms, mut changes) = (vms?, changes?);
    if vms.is_empty() {
        reader.reject("vm", "is missing".to_owned(), "one or more [[vm]] sections");
        return None;
    }
    changes.sort_by_key(|change| change.at);
    for change in &changes {
        if let Changed::Share(name, _) = &change.what
            && !vms.iter().any(|vm| vm.name == *name)
        {
            reader.reject("change", format!("`{name}` is no VM of this file"), "the name of a [[vm]]");
            return None;
        }
    }
    Some(Scenario {
        duration: duration?,
        seed: seed?,
        policy: policy?,
        settings: settings?,
        gpu,
        window: window?,
        vms,
        changes,
        expect: expect?,
    })
}

fn vm_kind(reader: &mut TableReader<'_, '_>) -> Option<VmKind> {
    let name = reader.required("name", NAME_ALLOWED, value::name);
    let allowed = format!("a whole number from 1 to {MAX_COUNT}");
    let count = reader.defaulted("count", 1, &allowed, |v| value::integer(v, 1, MAX_COUNT));
    let share = share(reader);
    let come = micros(reader, "come", Some(0), 0, MAX_TIME);
    let go = optional_micros(reader, "go", 1, MAX_TIME);
    let expect = optional_percent(reader, "expect");
    let loads = reader.tables("load", channel_load);
    Some(VmKind {
        name: name?,
        count: u32::try_from(count?).ok()?,
        share: share?,
        come: come?,
        go: go?,
        loads: loads?,
        expect: expect?,
    })
}

fn channel_load(reader: &mut TableReader<'_, '_>) -> Option<Load> {
    let names: Vec<_> = Engine::ALL.into_iter().map(|engine| (engine.to_string(), engine)).collect();
    let words: Vec<_> = names.iter().map(|(name, engine)| (name.as_str(), *engine)).collect();
    let engine =
        reader.defaulted("engine", Engine::Graphics, "an engine: \"graphics\", \"copy0\", ...", |v| {
            value::word(v, &words)
        });
    let piece = optional_micros(reader, "piece", 1, MAX_TIME);
    if reader.has("submissions") {
        let why = "belongs to loads without `submissions`";
        for key in ["length", "mean", "lengths", "think", "depth", "every"] {
            reader.unused(key, why, "`submissions` alone");
        }
        let recorded = recorded(reader)?;
        let arrival = Arrival::Recorded(recorded);
        return Some(Load { engine: engine?, length: Length::Listed(vec![]), piece: piece?, arrival });
    }
    let length = length(reader);
    let arrival = arrival(reader);
    Some(Load { engine: engine?, length: length?, piece: piece?, arrival: arrival? })
}

fn length(reader: &mut TableReader<'_, '_>) -> Option<Length> {
    let allowed = format!("a whole number of microseconds from 1 to {MAX_TIME}");
    let constant = reader.optional("length", &allowed, |v| value::integer(v, 1, MAX_TIME));
    let mean = reader.optional("mean", &allowed, |v| value::integer(v, 1, MAX_TIME));
    let allowed = format!("a list of whole numbers of microseconds from 1 to {MAX_TIME}");
    let listed = reader.optional("lengths", &allowed, |v| {
        let list = v.as_array().ok_or_else(|| value::wrong_type(v, "a list"))?;
        if list.is_empty() || list.len() > MAX_ENTRIES {
            return Err(format!("has {} entries", list.len()));
        }
        list.iter()
            .map(|entry| value::integer(entry.get_ref(), 1, MAX_TIME).map(Duration::from_micros))
            .collect()
    });
    let given = usize::from(constant.is_some()) + usize::from(mean.is_some()) + usize::from(listed.is_some());
    match (constant, mean, listed) {
        (Some(time), None, None) => Some(Length::Constant(Duration::from_micros(time))),
        (None, Some(time), None) => Some(Length::Exponential(Duration::from_micros(time))),
        (None, None, Some(list)) => Some(Length::Listed(list)),
        _ => {
            if given != 0 || !["length", "mean", "lengths"].iter().any(|key| reader.has(key)) {
                let problem =
                    if given == 0 { "is missing" } else { "is given together with another of its kind" };
                reader.reject(
                    "length",
                    problem.to_owned(),
                    "one of `length`, `mean`, `lengths` and `submissions`",
                );
            }
            None
        }
    }
}

fn arrival(reader: &mut TableReader<'_, '_>) -> Option<Arrival> {
    if reader.has("every") {
        reader.unused("think", "does not go with `every`", "`think` or `every`");
        reader.unused("depth", "does not go with `every`", "`depth` with `think`");
        return Some(Arrival::Periodic { every: micros(reader, "every", None, 1, MAX_TIME)? });
    }
    reader.unused("every", "", "");
    let think = micros(reader, "think", Some(0), 0, MAX_TIME);
    let depth = reader.defaulted("depth", 1, "a whole number from 1 to 1000", |v| value::integer(v, 1, 1000));
    Some(Arrival::Closed { think: think?, depth: u32::try_from(depth?).ok()? })
}

/// Reads the file of submissions: in each line when, and how long the work takes.
fn recorded(reader: &mut TableReader<'_, '_>) -> Option<Vec<(Duration, Duration)>> {
    let allowed = "the path of a file with two whole numbers of microseconds in each line: when work comes, and how \
                   long it takes";
    let path = reader.optional("submissions", allowed, value::string).map(|text| reader.path(&text))?;
    match submissions(&path) {
        Ok(list) => Some(list),
        Err(problem) => {
            reader.reject("submissions", problem, allowed);
            None
        }
    }
}

fn submissions(path: &Path) -> Result<Vec<(Duration, Duration)>, String> {
    let text = read_file(path).map_err(|error| format!("cannot be read: {error}"))?;
    let mut list = Vec::new();
    for (number, line) in
        (1..).zip(text.lines()).filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
    {
        let mut words = line.split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(at)), Some(Ok(length)), None) = (words.next(), words.next(), words.next()) else {
            return Err(format!("line {number} of {}: \"{line}\" is not two numbers", path.display()));
        };
        if at > MAX_TIME || !(1..=MAX_TIME).contains(&length) {
            return Err(format!("line {number} of {}: \"{line}\" is out of range", path.display()));
        }
        list.push((Duration::from_micros(at), Duration::from_micros(length)));
    }
    if list.is_empty() { Err(format!("{} has no submissions", path.display())) } else { Ok(list) }
}

fn change(reader: &mut TableReader<'_, '_>) -> Option<Change> {
    let at = micros(reader, "at", None, 0, MAX_TIME);
    if reader.has("vm") {
        reader.unused("policy", "does not go with `vm`", "`policy` or `vm`");
        let vm = reader.optional("vm", NAME_ALLOWED, value::name);
        let set = reader.required("set", "a list of settings such as \"weight=200\"", wishes);
        return Some(Change { at: at?, what: Changed::Share(vm?, set?) });
    }
    reader.unused("set", "needs a `vm`", "`set` with `vm`");
    reader.unused("vm", "", "");
    let allowed = PolicyKind::allowed();
    let policy = reader.required("policy", &allowed, |v| value::word(v, &PolicyKind::ALL));
    let settings = settings(reader);
    Some(Change { at: at?, what: Changed::Policy(policy?, settings?) })
}

fn wishes(value: &DeValue<'_>) -> Result<Vec<ShareSetting>, String> {
    let list = value.as_array().ok_or_else(|| value::wrong_type(value, "a list"))?;
    list.iter()
        .map(|entry| {
            value::string(entry.get_ref())?.parse::<ShareSetting>().map_err(|error| error.to_string())
        })
        .collect()
}

/// Percent of time by which shares may be wrong, unless the scenario says otherwise.
const ERROR: f64 = 2.0;
const NOTHING: Expect = Expect { jain: None, error: ERROR, wait_p99: None, idle: None };

fn expect(reader: &mut TableReader<'_, '_>) -> Option<Expect> {
    let jain = reader.defaulted("jain", None, "a number from 0 to 1", |v| fraction(v, 1.0).map(Some));
    let error = optional_percent(reader, "error");
    let wait_p99 = optional_micros(reader, "wait_p99", 1, MAX_TIME);
    let idle = optional_percent(reader, "idle");
    Some(Expect { jain: jain?, error: error?.unwrap_or(ERROR), wait_p99: wait_p99?, idle: idle? })
}

fn micros(
    reader: &mut TableReader<'_, '_>,
    key: &'static str,
    default: Option<u64>,
    least: u64,
    most: u64,
) -> Option<Duration> {
    let allowed = format!("a whole number of microseconds from {least} to {most}");
    let read = |v: &DeValue<'_>| value::integer(v, least, most);
    let time = match default {
        Some(default) => reader.defaulted(key, default, &allowed, read),
        None => reader.required(key, &allowed, read),
    };
    time.map(Duration::from_micros)
}

/// `Some(None)` when the key is absent, `None` when it is wrong.
fn optional_micros(
    reader: &mut TableReader<'_, '_>,
    key: &'static str,
    least: u64,
    most: u64,
) -> Option<Option<Duration>> {
    let allowed = format!("a whole number of microseconds from {least} to {most}");
    let read = |v: &DeValue<'_>| value::integer(v, least, most).map(|us| Some(Duration::from_micros(us)));
    reader.defaulted(key, None, &allowed, read)
}

fn optional_percent(reader: &mut TableReader<'_, '_>, key: &'static str) -> Option<Option<f64>> {
    reader.defaulted(key, None, "a number of percent from 0 to 100", |v| fraction(v, 100.0).map(Some))
}

fn fraction(value: &DeValue<'_>, most: f64) -> Result<f64, String> {
    let number = match value {
        DeValue::Float(float) => float.as_str().parse::<f64>().ok(),
        DeValue::Integer(whole) => whole.as_str().parse::<f64>().ok(),
        _ => return Err(value::wrong_type(value, "a number")),
    };
    number.filter(|number| (0.0..=most).contains(number)).ok_or_else(|| "is out of range".to_owned())
}

fn as_micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
