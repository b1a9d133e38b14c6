//! The demonstration: N stock guests at once on one software GPU, shown while they run, and judged.

mod judged;
mod plan;
mod seen;
mod show;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use gpuvmk_companion::GuestDriver;
use gpuvmk_control_client::TenantStatus;
use serde_json::{Value, json};

use crate::cache::Cache;
use crate::chip::Chip;
use crate::kernel::KernelSeries;
use crate::machine::{Accelerator, Beside, LOOK, Machine, MachineSpec, Outcome};
use crate::qemu::Qemu;
use crate::rig::{Backend, CHANNELS, GpuSpec, Rig, RigSpec, SHARED_AS_IT_COMES, Topology};
use crate::screen::Audience;
use crate::verdict::{self, Expected};
use judged::VmResult;
use plan::Plan;
use seen::Seen;
use show::Show;

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
    /// Whose driver they have.
    pub driver: GuestDriver,
    /// The chip that they see, if not the usual one of the driver.
    pub chip: Option<Chip>,
    /// Their kernel, if not the usual one of the chip or the driver.
    pub kernel: Option<KernelSeries>,
    /// Whether they have Mesa's Vulkan driver, and use it.
    pub vulkan: bool,
    /// Whether they have heads, whose pictures are looked at.
    pub display: bool,
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

/// Runs the demonstration; returns the JSON result, whose `ok` says whether every guest passed.
pub fn run(options: &Options) -> Result<Value> {
    ensure!(
        (1..=MOST_VMS).contains(&options.vms),
        "{} VMs cannot be demonstrated: 1 to {MOST_VMS} can",
        options.vms
    );
    let plan = Plan::new(options)?;
    let (chip, programs) = (plan.chip, plan.programs.as_slice());
    plan.enough_memory(options.vms)?;
    let cache = Cache::open()?;
    let qemu = Qemu::obtain(&cache)?;
    let (kernel, initramfs) = plan.obtain(&cache, &options.gpuvmk)?;

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
                vram_mib: plan.vram_mib,
                trace: false,
                bar3: "",
                display: if options.display { plan::DISPLAY } else { "" },
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

    let (mut machines, mut audiences) = (Vec::new(), Vec::new());
    for (index, name) in names.iter().enumerate() {
        let spec = MachineSpec {
            name: name.clone(),
            folder: folder.path.join(name),
            kernel: kernel.clone(),
            initramfs: initramfs.clone(),
            memory_mib: plan.memory_mib,
            cpus: plan.cpus,
            sockets: vec![rig.socket(index)],
            iommu: false,
            beside: Beside::Nothing,
            accelerator,
            programs: owned(programs),
            nouveau_options: Vec::new(),
            kernel_words: owned(plan.kernel_words),
            reboots: 0,
            timeout: TIMEOUT,
            takes_orders: options.display,
            monitor: None,
        };
        machines.push(Machine::start(&qemu, spec)?);
        audiences.push(Audience::new(&options.gpuvmk, &rig, index, &folder.path.join(name)));
    }
    let (outcomes, tenants) = watch(&mut machines, &mut audiences, &rig, &mut show)?;
    let mut problems = rig.stop()?;

    let expected = Expected { programs: owned(programs), gpus: 1, boots: 1 };
    let results: Vec<VmResult> = names
        .iter()
        .zip(&outcomes)
        .zip(&audiences)
        .map(|((name, outcome), audience)| {
            Ok(VmResult {
                name: name.clone(),
                verdict: verdict::judge(outcome, &expected),
                tenant: tenants.get(name).cloned(),
                seen: options.display.then(|| Seen::of(name, audience.looks())).transpose()?,
            })
        })
        .collect::<Result<_>>()?;
    for result in &results {
        let seen = result.seen.iter().flat_map(Seen::problems);
        let all = result.verdict.problems.iter().cloned().chain(seen);
        problems.extend(all.map(|problem| format!("{}: {problem}", result.name)));
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
    let vms: Vec<Value> =
        results.iter().map(|result| result.json(options, programs, &kernel.release)).collect();
    Ok(json!({ "ok": ok, "chip": chip.name(), "vms": vms, "problems": problems }))
}

/// Runs the machines to their ends; returns how each ended, and the last state of each tenant.
fn watch(
    machines: &mut [Machine],
    audiences: &mut [Audience],
    rig: &Rig,
    show: &mut Show,
) -> Result<(Vec<Outcome>, BTreeMap<String, TenantStatus>)> {
    let mut outcomes: Vec<Option<Outcome>> = machines.iter().map(|_| None).collect();
    let mut tenants = BTreeMap::new();
    let mut asked = Instant::now();
    loop {
        for ((machine, audience), outcome) in machines.iter_mut().zip(&mut *audiences).zip(&mut outcomes) {
            if outcome.is_none() {
                let name = machine.spec().name.clone();
                *outcome = machine.pump(&mut |said| show.said(&name, said))?;
            }
            if outcome.is_none() {
                audience.attend(machine)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_vms_is_bounded() {
        let options = Options {
            gpuvmk: "/bin/false".into(),
            vms: 99,
            driver: GuestDriver::Nouveau,
            chip: None,
            kernel: None,
            vulkan: false,
            display: false,
            keep: false,
        };
        assert!(run(&options).unwrap_err().to_string().contains("1 to 16"));
    }
}
