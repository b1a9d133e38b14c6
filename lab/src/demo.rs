//! The demonstration: N stock guests at once on one software GPU, shown while they run, and judged.

mod show;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use gpuvmk_chip::Face;
use gpuvmk_control_client::TenantStatus;
use serde_json::{Map, Value, json};

use crate::cache::Cache;
use crate::chip::{Chip, GuestChip as _};
use crate::firmware::Firmware;
use crate::kernel::{GuestKernel, KernelSeries};
use crate::machine::{Accelerator, Beside, LOOK, Machine, MachineSpec, Outcome};
use crate::qemu::Qemu;
use crate::rig::{Backend, CHANNELS, GpuSpec, Rig, RigSpec, SHARED_AS_IT_COMES, Topology};
use crate::verdict::{self, Expected, Verdict};
use crate::{guest_build, initramfs, nvk};
use show::Show;

/// What each guest runs.
fn programs(chip: Chip, vulkan: bool) -> Vec<&'static str> {
    let mut programs = match chip.face {
        Face::Registers => vec!["probe", "copy", "fence", "channels", "bar1", "evict", "badaddr"],
        Face::Gsp => {
            vec!["probe", "copy", "exec", "fence", "channels", "fill", "i2m", "bar1", "evict", "badaddr"]
        }
    };
    if vulkan {
        programs.push(if chip.computes_by_mesa() { VULKAN } else { VULKAN_WITHOUT_SHADERS });
    }
    programs
}

/// What Vulkan does: list, open, fill, copy and compute.
const VULKAN: &str = "nvk:checks=transfer,code,compute";
/// The same where Mesa's shaders do not run.
const VULKAN_WITHOUT_SHADERS: &str = "nvk:checks=transfer";

/// A vGPU's memory.
const VRAM_MIB: u32 = 128;
const MEMORY_MIB: u32 = 512;
/// The same with Mesa, a part of which lies in it.
const VULKAN_MEMORY_MIB: u32 = 768;
/// What the GPU keeps for itself beside the partitions.
const SPARE_VRAM_MIB: u32 = 512;
/// The most guests that one demonstration runs.
const MOST_VMS: u32 = 16;
const TIMEOUT: Duration = Duration::from_secs(600);
/// How often the aggregator is asked about its tenants.
const ASK: Duration = Duration::from_millis(500);

/// What to demonstrate.
#[derive(Debug, Clone)]
pub struct Options {
    /// The gpuvmk program.
    pub gpuvmk: PathBuf,
    /// How many guests.
    pub vms: u32,
    /// The chip that they see.
    pub chip: Chip,
    /// Their kernel.
    pub kernel: KernelSeries,
    /// Whether they have Mesa's Vulkan driver, and use it.
    pub vulkan: bool,
    /// Whether the configuration files and logs stay when all went well.
    pub keep: bool,
}

/// The folder with a run's configuration files and logs; goes with its value unless it is kept.
#[derive(Debug)]
struct RunFolder {
    path: PathBuf,
    keep: bool,
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        if !self.keep {
            // What cannot be removed does no harm in the temporary folder.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// One guest's result.
#[derive(Debug)]
struct VmResult {
    name: String,
    verdict: Verdict,
    tenant: Option<TenantStatus>,
}

/// Runs the demonstration; returns the JSON result, whose `ok` says whether every guest passed.
pub fn run(options: &Options) -> Result<Value> {
    ensure!(
        (1..=MOST_VMS).contains(&options.vms),
        "{} VMs cannot be demonstrated: 1 to {MOST_VMS} can",
        options.vms
    );
    options.chip.check_kernel(options.kernel)?;
    ensure!(
        !options.vulkan || options.chip.face == Face::Gsp,
        "Mesa has no Vulkan for a {}: choose a chip with a GSP, such as AD104",
        options.chip
    );
    let memory_mib = if options.vulkan { VULKAN_MEMORY_MIB } else { MEMORY_MIB };
    enough_memory(options.vms, memory_mib)?;
    let (chip, programs) = (options.chip, programs(options.chip, options.vulkan));
    let programs = programs.as_slice();
    let cache = Cache::open()?;
    let qemu = Qemu::obtain(&cache)?;
    let kernel = GuestKernel::obtain(&cache, options.kernel)?;
    eprintln!("gpuvmk: building the guest programs");
    let init = guest_build::obtain(&cache)?;
    let firmware = Firmware::for_kernel(options.kernel);
    let files = firmware.files(&cache, &options.gpuvmk, options.kernel)?;
    let mut initramfs = initramfs::obtain(&cache, &kernel, &init, &files, &firmware.label())?;
    if options.vulkan {
        initramfs = nvk::behind(&cache, &initramfs, options.kernel)?;
    }

    let path = std::env::temp_dir().join(format!("gpuvmk-demo-{}", std::process::id()));
    let mut folder = RunFolder { path, keep: options.keep };
    let names: Vec<String> = (1..=options.vms).map(|number| format!("vm{number}")).collect();
    let mut show = Show::new();
    let mut rig = Rig::start(RigSpec {
        gpuvmk: options.gpuvmk.clone(),
        folder: folder.path.clone(),
        backend: Backend::default(),
        devices_first: false,
        gpus: names
            .iter()
            .map(|name| GpuSpec {
                name: name.clone(),
                chip,
                topology: Topology::Mediated,
                vram_mib: VRAM_MIB,
                trace: false,
                bar3: "",
            })
            .collect(),
        spare_vram_mib: SPARE_VRAM_MIB,
        policy: SHARED_AS_IT_COMES,
        channels: CHANNELS,
        stubborn: false,
        environment: &[],
    })?;
    let accelerator = Accelerator::of_this_machine();
    show.title(&format!(
        "{} guests with Linux {} on one {chip} (software GPU), QEMU {} on {}",
        names.len(),
        kernel.release,
        qemu.version,
        accelerator.name()
    ));

    let mut machines = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let spec = MachineSpec {
            name: name.clone(),
            folder: folder.path.join(name),
            kernel: kernel.clone(),
            initramfs: initramfs.clone(),
            memory_mib,
            cpus: 1,
            sockets: vec![rig.socket(index)],
            iommu: false,
            beside: Beside::Nothing,
            accelerator,
            programs: owned(programs),
            nouveau_options: Vec::new(),
            kernel_words: Vec::new(),
            reboots: 0,
            timeout: TIMEOUT,
            takes_orders: false,
            monitor: None,
        };
        machines.push(Machine::start(&qemu, spec)?);
    }
    let (outcomes, tenants) = watch(&mut machines, &rig, &mut show)?;
    let mut problems = rig.stop()?;

    let expected = Expected { programs: owned(programs), gpus: 1, boots: 1 };
    let results: Vec<VmResult> = names
        .iter()
        .zip(&outcomes)
        .map(|(name, outcome)| VmResult {
            name: name.clone(),
            verdict: verdict::judge(outcome, &expected),
            tenant: tenants.get(name).cloned(),
        })
        .collect();
    for result in &results {
        problems.extend(result.verdict.problems.iter().map(|problem| format!("{}: {problem}", result.name)));
        match &result.tenant {
            None => problems.push(format!("{}: the aggregator never listed it", result.name)),
            Some(tenant) => match tenant.foreign_accesses {
                Some(0) => {}
                Some(count) => {
                    problems.push(format!("{}: {count} accesses outside its own memory", result.name));
                }
                None => problems.push(format!("{}: nobody counted its accesses", result.name)),
            },
        }
    }
    let ok = problems.is_empty();
    show.results(programs, &results, &problems);
    // Whoever looks into a failed check needs the logs.
    folder.keep |= !ok;
    if folder.keep {
        show.line(&format!("configuration files and logs are in {}", folder.path.display()));
    }
    let vms: Vec<Value> = results
        .iter()
        .map(|result| {
            let mut vm = vm_json(result, programs, &kernel.release);
            if let (true, Some(vm)) = (options.vulkan, vm.as_object_mut()) {
                vm.insert("vulkan".into(), vulkan_json(&result.verdict));
            }
            vm
        })
        .collect();
    Ok(json!({ "ok": ok, "chip": chip.name(), "vms": vms, "problems": problems }))
}

/// Runs the machines to their ends; returns how each ended, and the last state of each tenant.
fn watch(
    machines: &mut [Machine],
    rig: &Rig,
    show: &mut Show,
) -> Result<(Vec<Outcome>, BTreeMap<String, TenantStatus>)> {
    let mut outcomes: Vec<Option<Outcome>> = machines.iter().map(|_| None).collect();
    let mut tenants = BTreeMap::new();
    let mut asked = Instant::now();
    loop {
        for (machine, outcome) in machines.iter_mut().zip(&mut outcomes) {
            if outcome.is_none() {
                let name = machine.spec().name.clone();
                *outcome = machine.pump(&mut |said| show.said(&name, said))?;
            }
        }
        let all_ended = outcomes.iter().all(Option::is_some);
        if asked.elapsed() >= ASK || all_ended {
            asked = Instant::now();
            for tenant in rig.tenants()? {
                tenants.insert(tenant.name.clone(), tenant);
            }
        }
        if all_ended {
            return Ok((outcomes.into_iter().flatten().collect(), tenants));
        }
        thread::sleep(LOOK);
    }
}

fn owned(programs: &[&str]) -> Vec<String> {
    programs.iter().map(|program| (*program).to_owned()).collect()
}

fn vm_json(result: &VmResult, programs: &[&str], kernel: &str) -> Value {
    let verdict = &result.verdict;
    let mut checks = Map::new();
    for &program in programs {
        let program = verdict::program_of(program);
        let passed = verdict.result(program, 0).is_some_and(|result| result.ok);
        checks.insert(program.to_owned(), passed.into());
    }
    // The kernel's own log counts as a check of its own.
    let quiet = !verdict.problems.iter().any(|problem| problem.starts_with("unexplained"));
    checks.insert("kernel_log".to_owned(), quiet.into());
    let figure = |program: &str, name: &str| {
        verdict.result(program, 0).and_then(|result| result.figures.get(name)).cloned().unwrap_or(Value::Null)
    };
    json!({
        "name": result.name,
        "kernel": kernel,
        "nouveau": figure("probe", "nouveau"),
        "checks": checks,
        "probe_ms": figure("probe", "probe_ms"),
        "submit_us_p50": figure("fence", "submit_us_p50"),
        "foreign_accesses": result.tenant.as_ref().and_then(|tenant| tenant.foreign_accesses),
    })
}

/// What Vulkan found and did, as its program told it.
fn vulkan_json(verdict: &Verdict) -> Value {
    let program = verdict::program_of(VULKAN);
    let Some(result) = verdict.result(program, 0) else { return json!({ "ok": false }) };
    let mut vulkan = Map::from_iter([("ok".to_owned(), Value::from(result.ok))]);
    for name in ["device", "version", "vulkan", "pci", "list_ms", "open_ms", "checks"] {
        vulkan.insert(name.to_owned(), result.figures.get(name).cloned().unwrap_or(Value::Null));
    }
    vulkan.into()
}

/// Refuses to start what would only be killed for memory.
fn enough_memory(vms: u32, memory_mib: u32) -> Result<()> {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")).and_then(|rest| {
        let kib: u64 = rest.trim().strip_suffix(" kB")?.parse().ok()?;
        Some(kib >> 10)
    });
    let needed = u64::from(vms * (memory_mib + VRAM_MIB) + SPARE_VRAM_MIB);
    match available {
        Some(available) if available < needed => {
            anyhow::bail!(
                "{vms} VMs need {needed} MiB of memory, but only {available} MiB are free: try fewer --vms"
            )
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Report;

    fn result(line: &str) -> crate::report::ProgramResult {
        match Report::parse(&format!("GPUVMK-JSON {line}")) {
            Some(Report::Result(result)) => result,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn vm_result_has_the_promised_keys() {
        let verdict = Verdict {
            problems: vec!["unexplained: nouveau: something failed".into()],
            results: vec![
                result(r#"{"prog":"probe","ok":true,"nouveau":"1.4.0","probe_ms":1900.5}"#),
                result(r#"{"prog":"fence","ok":true,"submit_us_p50":82.0}"#),
                result(r#"{"prog":"copy","ok":false}"#),
            ],
        };
        let tenant: TenantStatus = serde_json::from_str(r#"{"name":"vm1","foreign_accesses":0}"#).unwrap();
        let result = VmResult { name: "vm1".into(), verdict, tenant: Some(tenant) };
        let json = vm_json(&result, &programs(Chip::GF100, false), "6.12.1");
        assert_eq!(json["probe_ms"], 1900.5);
        assert_eq!(json["submit_us_p50"], 82.0);
        assert_eq!(json["nouveau"], "1.4.0");
        assert_eq!(json["kernel"], "6.12.1");
        assert_eq!(json["foreign_accesses"], 0);
        assert_eq!(json["checks"]["probe"], true);
        assert_eq!(json["checks"]["copy"], false);
        assert_eq!(json["checks"]["evict"], false, "a check without a result has not passed");
        assert_eq!(json["checks"]["kernel_log"], false);
    }

    #[test]
    fn number_of_vms_is_bounded() {
        let options = Options { vms: 99, ..options(Chip::GF100) };
        assert!(run(&options).unwrap_err().to_string().contains("1 to 16"));
    }

    #[test]
    fn kernel_without_a_driver_for_the_chip_is_refused_before_anything_is_fetched() {
        let message = run(&options(Chip::GH100)).unwrap_err().to_string();
        assert!(message.contains("6.12") && message.contains("--kernel 7.2"), "{message}");
    }

    #[test]
    fn what_vulkan_did_is_told_beside_the_checks() {
        let line =
            r#"{"prog":"nvk","ok":true,"device":"NVIDIA GeForce RTX 4070 (NVK AD104)","vulkan":"1.4.305"}"#;
        let verdict = Verdict { problems: Vec::new(), results: vec![result(line)] };
        let json = vulkan_json(&verdict);
        assert_eq!((&json["ok"], &json["vulkan"]), (&true.into(), &"1.4.305".into()));
        assert_eq!(json["device"], "NVIDIA GeForce RTX 4070 (NVK AD104)");
        let vm = VmResult { name: "vm1".into(), verdict, tenant: None };
        assert_eq!(vm_json(&vm, &[VULKAN], "6.12.1")["checks"]["nvk"], true);
        assert_eq!(vulkan_json(&Verdict::default())["ok"], false);
    }

    #[test]
    fn chip_without_vulkan_is_refused() {
        let message = run(&Options { vulkan: true, ..options(Chip::GF100) }).unwrap_err().to_string();
        assert!(message.contains("no Vulkan for a GF100"), "{message}");
    }

    fn options(chip: Chip) -> Options {
        Options {
            gpuvmk: "/bin/false".into(),
            vms: 2,
            chip,
            kernel: KernelSeries::V6_12,
            vulkan: false,
            keep: false,
        }
    }
}
