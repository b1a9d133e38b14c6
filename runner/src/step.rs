//! Runs one step: the GPU's processes, the guests before them, the judgement of each.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use gpuvmk_control_client::TenantStatus;
use gpuvmk_lab::crowd::Crowd;
use gpuvmk_lab::kernel::GuestKernel;
use gpuvmk_lab::machine::{self, Accelerator, Beside, Machine, MachineSpec};
use gpuvmk_lab::qemu::Qemu;
use gpuvmk_lab::report::Report;
use gpuvmk_lab::rig::{CHANNELS, GpuSpec, Rig, RigSpec, SHARED_AS_IT_COMES, Topology};
use gpuvmk_lab::verdict::{self, Expected, Verdict};
use serde_json::{Map, Value, json};

use crate::options::Options;
use crate::policies::{self, PolicyFigures};
use crate::record::round;
use crate::suite::{Guest, Step};

/// What the shared software GPU has beside the partitions.
const SPARE_VRAM_MIB: u32 = 512;

/// Channels of each guest where there are many.
const FEW_CHANNELS: u16 = 15;

/// Everything that a step needs.
#[derive(Debug)]
pub struct Bench<'a> {
    pub options: &'a Options,
    pub qemu: Qemu,
    pub kernel: GuestKernel,
    pub initramfs: PathBuf,
    pub gpuvmk: PathBuf,
    pub accelerator: Accelerator,
    pub logs: PathBuf,
}

/// One guest's result.
#[derive(Debug)]
pub struct GuestResult {
    pub guest: Guest,
    pub verdict: Verdict,
    pub kernel: Option<String>,
    pub probe_ms: Option<f64>,
    pub wall: Duration,
    /// What the aggregator said of it when it had powered off.
    pub tenant: Option<TenantStatus>,
    /// What its device process wrote.
    pub device_log: String,
}

/// A step's result.
#[derive(Debug, Default)]
pub struct StepResult {
    pub name: String,
    pub guests: Vec<GuestResult>,
    pub problems: Vec<String>,
    pub took: Duration,
    /// What policies did, where that was asked.
    pub policies: Vec<PolicyFigures>,
}

impl StepResult {
    /// The guest called `name`.
    pub fn guest(&self, name: &str) -> Option<&GuestResult> {
        self.guests.iter().find(|result| result.guest.name == name)
    }

    /// What the list of steps has of it.
    pub fn to_json(&self) -> Value {
        json!({ "name": self.name, "ok": self.problems.is_empty(), "seconds": round(self.took.as_secs_f64()) })
    }
}

impl GuestResult {
    /// What the list of guests has of it.
    pub fn to_json(&self, step: &str) -> Value {
        let programs: Map<String, Value> = self
            .verdict
            .results
            .iter()
            .map(|result| {
                let entry = json!({ "ok": result.ok, "error": result.error, "figures": result.figures });
                (result.program.clone(), entry)
            })
            .collect();
        let tenant = self.tenant.as_ref();
        json!({
            "step": step,
            "name": self.guest.name,
            "ok": self.verdict.ok(),
            "kernel": self.kernel,
            "cpus": self.guest.cpus,
            "memory_mib": self.guest.memory_mib,
            "vram_mib": self.guest.vram_mib,
            "probe_ms": self.probe_ms,
            "seconds": round(self.wall.as_secs_f64()),
            "programs": programs,
            "submissions": tenant.map(|tenant| tenant.submissions),
            "faults": tenant.map(|tenant| tenant.counters.faults),
            "gpu_share": tenant.map(|tenant| tenant.gpu_share),
            "doorbell_ns": tenant.map(|tenant| tenant.doorbell_ns),
        })
    }
}

/// Runs `step`. One that cannot be run at all has failed.
pub fn run(bench: &Bench<'_>, step: &Step) -> StepResult {
    let start = Instant::now();
    let mut result = StepResult { name: step.name.clone(), ..StepResult::default() };
    if let Err(error) = everything(bench, step, &mut result) {
        result.problems.push(format!("{}: {error:#}", step.name));
    }
    result.took = start.elapsed();
    result
}

fn everything(bench: &Bench<'_>, step: &Step, result: &mut StepResult) -> Result<()> {
    let folder = bench.logs.join(&step.name);
    let mut rig = rig(bench, step, &folder)?;
    let mut machines = Vec::new();
    for (index, guest) in step.guests.iter().enumerate() {
        machines.push(machine(bench, step, &folder, &rig, index, guest)?);
    }
    let outcomes = if step.ordered {
        let names = step.guests.iter().map(|guest| guest.name.clone()).collect();
        let mut crowd = Crowd::gather(rig, names, machines)?;
        result.policies = policies::compare(&mut crowd, step.guests.len())?;
        let outcomes = crowd.end()?;
        rig = crowd.into_rig();
        outcomes
    } else {
        machine::wait_all(&mut machines, &mut |_, _| {})?
    };
    // The vGPUs are there, their guests are not: the counts are final.
    let tenants: BTreeMap<String, TenantStatus> =
        rig.tenants()?.into_iter().map(|tenant| (tenant.name.clone(), tenant)).collect();
    let ended = rig.stop()?;
    result.problems.extend(ended.into_iter().map(|problem| format!("{}: {problem}", step.name)));
    for (index, (guest, outcome)) in step.guests.iter().zip(outcomes).enumerate() {
        let expected = Expected { programs: guest.programs.clone(), gpus: 1, boots: 1 };
        let verdict = verdict::judge(&outcome, &expected);
        let tenant = tenants.get(&guest.name).cloned();
        let mut problems = verdict.problems.clone();
        match &tenant {
            None => problems.push("the aggregator does not list it".into()),
            // Real hardware does not count them.
            Some(TenantStatus { foreign_accesses: Some(count @ 1..), .. }) => {
                problems.push(format!("{count} accesses outside its own memory"));
            }
            Some(_) => {}
        }
        let place = format!("{}, {}", step.name, guest.name);
        result.problems.extend(problems.into_iter().map(|problem| format!("{place}: {problem}")));
        result.guests.push(GuestResult {
            guest: guest.clone(),
            verdict,
            kernel: event(&outcome.reports, "boot", "kernel")
                .and_then(|value| Some(value.as_str()?.to_owned())),
            probe_ms: event(&outcome.reports, "loaded", "probe_ms").and_then(Value::as_f64),
            wall: outcome.wall,
            tenant,
            device_log: rig.device(index).map(|device| device.log()).unwrap_or_default(),
        });
    }
    Ok(())
}

fn rig(bench: &Bench<'_>, step: &Step, folder: &Path) -> Result<Rig> {
    let gpu = |guest: &Guest| GpuSpec {
        name: guest.name.clone(),
        chip: bench.options.chip,
        topology: Topology::Mediated,
        vram_mib: guest.vram_mib,
        trace: false,
        bar3: "",
        display: "",
    };
    Rig::start(RigSpec {
        gpuvmk: bench.gpuvmk.clone(),
        folder: folder.to_owned(),
        backend: bench.options.backend,
        devices_first: false,
        gpus: step.guests.iter().map(gpu).collect(),
        spare_vram_mib: SPARE_VRAM_MIB,
        policy: SHARED_AS_IT_COMES,
        channels: if step.ordered { FEW_CHANNELS } else { CHANNELS },
        stubborn: false,
        environment: &[],
    })
    .context("The GPU's processes do not start")
}

fn machine(
    bench: &Bench<'_>,
    step: &Step,
    folder: &Path,
    rig: &Rig,
    index: usize,
    guest: &Guest,
) -> Result<Machine> {
    let spec = MachineSpec {
        name: guest.name.clone(),
        folder: folder.join(&guest.name),
        kernel: bench.kernel.clone(),
        initramfs: bench.initramfs.clone(),
        memory_mib: guest.memory_mib,
        cpus: guest.cpus,
        sockets: vec![rig.socket(index)],
        iommu: false,
        beside: Beside::Nothing,
        accelerator: bench.accelerator,
        programs: guest.programs.clone(),
        nouveau_options: Vec::new(),
        kernel_words: kernel_words(step, guest),
        reboots: 0,
        timeout: step.limit,
        takes_orders: step.ordered,
        monitor: None,
    };
    Machine::start(&bench.qemu, spec)
}

/// Words for a guest's kernel. Its own limit is for programs that end by themselves.
fn kernel_words(step: &Step, guest: &Guest) -> Vec<String> {
    let limit = step.ordered.then(|| format!("gpuvmk.limit={}", step.limit.as_secs()));
    guest.kernel_words.iter().map(|word| (*word).to_owned()).chain(limit).collect()
}

/// A field of the first event called `name`.
fn event<'a>(reports: &'a [Report], wanted: &str, field: &str) -> Option<&'a Value> {
    reports.iter().find_map(|report| match report {
        Report::Event { name, fields } if name == wanted => fields.get(field),
        _ => None,
    })
}
