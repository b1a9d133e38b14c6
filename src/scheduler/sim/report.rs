//! Result of a run, and the check against the scenario's expectations.

use std::time::Duration;

use serde::Serialize;

use super::engine::EngineModel;
use super::vms::SimVm;
use crate::policy::PolicyKind;
use crate::share::Share;
use crate::sim::scenario::Scenario;
use crate::sim::scenario::{Expect, VmKind};
use gpuvmk_chip::Engine;

/// By how much accounting may differ from the truth.
const MAX_ACCOUNTING_ERROR: f64 = 0.02;
/// Least use of a VM for its accounting to be judged: chance evens out over many looks.
const JUDGED_FROM: Duration = Duration::from_secs(1);
/// Part of its time in which a VM must have had work to count as one that always wants more.
const BUSY: f64 = 0.95;

/// The result of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Everything is as expected.
    pub ok: bool,
    /// The expectations that were not met.
    pub problems: Vec<String>,
    /// The policy at the end.
    pub policy: &'static str,
    /// Length of the run in seconds of virtual time.
    pub seconds: f64,
    /// Jain's index of the VMs that always wanted more, each measured by what it is entitled to; `None` when
    /// there are fewer than two.
    pub jain: Option<f64>,
    /// The largest error of a VM's account against what engines really did, of those that used at least a
    /// second; of all together if none did.
    pub accounting_error: f64,
    /// All accounts together against all that engines did.
    pub accounting_error_total: f64,
    /// Time in percent in which engines rested or changed over while work waited.
    pub idle_with_work: f64,
    /// Changes from one VM to another.
    pub switches: u64,
    /// One row for each engine.
    pub engines: Vec<EngineReport>,
    /// One row for each VM.
    pub vms: Vec<VmReport>,
    /// Length of a step of [`VmReport::course`], in seconds.
    #[serde(skip)]
    pub step: f64,
}

/// Figures of an engine.
#[derive(Clone, Debug, Serialize)]
pub struct EngineReport {
    /// Name of the engine.
    pub engine: String,
    /// Percent of time in which it worked.
    pub busy: f64,
    /// Percent of time in which it did not although work waited.
    pub idle_with_work: f64,
    /// Changes from one VM to another.
    pub switches: u64,
}

/// Figures of a VM.
#[derive(Clone, Debug, Serialize)]
pub struct VmReport {
    /// Name of the VM.
    pub name: String,
    /// Name of its kind.
    pub kind: String,
    /// Percent of its time in which its first load's engine worked for it.
    pub share: f64,
    /// Seconds that engines worked for it.
    pub used: f64,
    /// Seconds that the scheduler accounted.
    pub accounted: f64,
    /// Percent of its time in which it had work that was not done, on its first load's engine.
    pub wanting: f64,
    /// Pieces of work that came.
    pub submissions: u64,
    /// Those that were done.
    pub done: u64,
    /// Microseconds that half of the work waited at the most until an engine began with it.
    pub wait_p50_us: u64,
    /// The same for 99 of 100.
    pub wait_p99_us: u64,
    /// The longest wait.
    pub wait_max_us: u64,
    /// Percent of time that engines worked for it, step by step.
    #[serde(skip)]
    pub course: Vec<f64>,
}

pub(super) fn report<'a>(
    scenario: &Scenario,
    policy: PolicyKind,
    vms: &[SimVm],
    engines: impl Iterator<Item = (Engine, &'a EngineModel)>,
) -> Report {
    let engines: Vec<_> = engines.collect();
    let busy: Duration = engines.iter().map(|(_, engine)| engine.busy).sum();
    let idle: Duration = engines.iter().map(|(_, engine)| engine.idle_with_work).sum();
    let accounted = total(vms.iter().flat_map(|vm| vm.accounted.values()));
    let all_time = scenario.duration.mul_f64(as_f64(engines.len()));
    let name = PolicyKind::ALL.iter().find(|(_, kind)| *kind == policy).map_or("", |(name, _)| name);
    let mut report = Report {
        ok: false,
        problems: Vec::new(),
        policy: name,
        seconds: scenario.duration.as_secs_f64(),
        jain: jain(policy, vms, scenario),
        accounting_error: 0.0,
        accounting_error_total: error(accounted, busy),
        idle_with_work: percent(idle, all_time),
        switches: engines.iter().map(|(_, engine)| engine.switches).sum(),
        engines: engines
            .iter()
            .map(|(name, engine)| engine_report(*name, engine, scenario.duration))
            .collect(),
        vms: vms.iter().map(|vm| vm_report(vm, scenario)).collect(),
        step: scenario.window.as_secs_f64(),
    };
    let judged = vms.iter().map(|vm| (total(vm.accounted.values()), total(vm.worked.values())));
    let worst = judged
        .filter(|(_, worked)| *worked >= JUDGED_FROM)
        .map(|(accounted, worked)| error(accounted, worked));
    report.accounting_error = worst.reduce(f64::max).unwrap_or(report.accounting_error_total);
    report.problems = problems(&report, scenario);
    report.ok = report.problems.is_empty();
    report
}

fn engine_report(name: Engine, engine: &EngineModel, duration: Duration) -> EngineReport {
    EngineReport {
        engine: name.to_string(),
        busy: percent(engine.busy, duration),
        idle_with_work: percent(engine.idle_with_work, duration),
        switches: engine.switches,
    }
}

fn vm_report(vm: &SimVm, scenario: &Scenario) -> VmReport {
    let kind = scenario.vms.get(vm.kind);
    let present = vm.present.unwrap_or_default();
    let first = kind.and_then(first_engine);
    let of_first = |map: &gpuvmk_ordered::OrderedMap<Engine, Duration>| {
        first.and_then(|engine| map.get(&engine)).copied().unwrap_or_default()
    };
    VmReport {
        name: vm.name.clone(),
        kind: kind.map_or_else(String::new, |kind| kind.name.clone()),
        share: percent(of_first(&vm.worked), present),
        used: total(vm.worked.values()).as_secs_f64(),
        accounted: total(vm.accounted.values()).as_secs_f64(),
        wanting: percent(of_first(&vm.wanting), present),
        submissions: vm.submissions,
        done: vm.done,
        wait_p50_us: vm.wait(50.0),
        wait_p99_us: vm.wait(99.0),
        wait_max_us: vm.wait(100.0),
        course: vm.windows.iter().map(|used| percent(*used, scenario.window)).collect(),
    }
}

fn first_engine(kind: &VmKind) -> Option<Engine> {
    kind.loads.first().map(|load| load.engine)
}

fn problems(report: &Report, scenario: &Scenario) -> Vec<String> {
    let Expect { jain, error, wait_p99, idle } = scenario.expect;
    let mut problems = Vec::new();
    if report.accounting_error > MAX_ACCOUNTING_ERROR {
        problems.push(format!("accounting is wrong by {:.2} percent", 100.0 * report.accounting_error));
    }
    if let Some(least) = jain
        && report.jain.is_none_or(|jain| jain < least)
    {
        let found = report.jain.map_or("not to be had".to_owned(), |jain| format!("{jain:.4}"));
        problems.push(format!("fairness is {found}, less than {least}"));
    }
    if let Some(most) = idle
        && report.idle_with_work > most
    {
        let found = report.idle_with_work;
        problems
            .push(format!("engines rest for {found:.2} percent of time while work waits, more than {most}"));
    }
    for vm in &report.vms {
        let expected = scenario.vms.iter().find(|kind| kind.name == vm.kind).and_then(|kind| kind.expect);
        if let Some(expected) = expected
            && (vm.share - expected).abs() > error
        {
            problems.push(format!("{} has {:.2} percent of time, not {expected}", vm.name, vm.share));
        }
        if let Some(most) = wait_p99
            && u128::from(vm.wait_p99_us) > most.as_micros()
        {
            let (waits, most) = (vm.wait_p99_us, most.as_micros());
            problems.push(format!("{} waits for {waits} us at p99, more than {most}", vm.name));
        }
    }
    problems
}

/// A VM's entitlement under a policy, relative to others.
fn entitled(policy: PolicyKind, share: &Share) -> f64 {
    match policy {
        PolicyKind::Weighted | PolicyKind::Credit | PolicyKind::Band => share.weight.into(),
        PolicyKind::FixedShare => share.fixed.unwrap_or(1).into(),
        PolicyKind::Fifo | PolicyKind::BestEffort | PolicyKind::EqualShare | PolicyKind::Deadline => 1.0,
    }
}

fn jain(policy: PolicyKind, vms: &[SimVm], scenario: &Scenario) -> Option<f64> {
    let parts: Vec<f64> = vms
        .iter()
        .filter_map(|vm| {
            let (engine, present) = (first_engine(scenario.vms.get(vm.kind)?)?, vm.present?.as_secs_f64());
            let wanting = vm.wanting.get(&engine).copied().unwrap_or_default().as_secs_f64();
            let wants_more = wanting >= BUSY * present && vm.share.cap.is_none();
            let got = vm.worked.get(&engine).copied().unwrap_or_default().as_secs_f64() / present;
            wants_more.then(|| got / entitled(policy, &vm.share))
        })
        .collect();
    let (sum, squares) = parts.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    (parts.len() > 1 && squares > 0.0).then(|| sum * sum / (as_f64(parts.len()) * squares))
}

fn total<'a>(times: impl Iterator<Item = &'a Duration>) -> Duration {
    times.fold(Duration::ZERO, |sum, time| sum.saturating_add(*time))
}

fn percent(part: Duration, whole: Duration) -> f64 {
    if whole.is_zero() { 0.0 } else { 100.0 * part.as_secs_f64() / whole.as_secs_f64() }
}

/// How wrong a measured time is.
fn error(measured: Duration, truth: Duration) -> f64 {
    if truth.is_zero() { 0.0 } else { measured.abs_diff(truth).as_secs_f64() / truth.as_secs_f64() }
}

fn as_f64(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}
