//! The process that does the work, unprivileged: every step, and the figures that come of them.

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use gpuvmk_lab::interrupt;
use gpuvmk_lab::machine::Accelerator;
use gpuvmk_lab::pack::Pack;
use gpuvmk_lab::rig::Backend;
use serde_json::{Value, json};

use crate::figures::{self, Figures};
use crate::native::Native;
use crate::options::Options;
use crate::papers::{self, Papers};
use crate::record::Record;
use crate::step::{self, Bench, StepResult};
use crate::{cuda, suite, supervisor, vulkan};

/// Runs everything; what comes of it is in the logs' folder. `Ok(false)` if something failed.
pub fn run(options: &Options, work: &Path) -> Result<bool> {
    let mut worker = Worker { options, record: Record::new(options), logs: supervisor::logs_in(work) };
    let done = worker.everything(&Pack::at(&supervisor::pack_in(work)));
    if let Err(error) = &done {
        worker.record.problem(format!("{error:#}"));
    }
    worker.keep()?;
    Ok(done.is_ok() && worker.record.problems().is_empty())
}

struct Worker<'a> {
    options: &'a Options,
    record: Record,
    logs: std::path::PathBuf,
}

impl Worker<'_> {
    fn keep(&self) -> Result<()> {
        self.record.write(&self.logs)
    }

    fn everything(&mut self, pack: &Pack) -> Result<()> {
        cuda::check(self.options, &pack.manifest()?)?;
        let bench = Bench {
            options: self.options,
            qemu: pack.qemu()?,
            kernel: pack.kernel()?,
            initramfs: if self.options.vulkan { vulkan::initramfs(pack)? } else { pack.initramfs() },
            gpuvmk: pack.gpuvmk(),
            accelerator: Accelerator::of_this_machine(),
            logs: self.logs.clone(),
        };
        self.record.set("pack", json!(pack.manifest()?));
        self.record.set("machine", this_machine(bench.accelerator));
        self.keep()?;

        let native = Native::new(pack.gpuvmk(), &self.logs);
        let hardware = self.options.backend == Backend::Rm;
        if hardware {
            self.hardware(&native.list()?)?;
        } else {
            self.record.set("gpu", format!("software {}", self.options.chip));
        }
        if hardware && !self.options.quick && !self.options.is_special() {
            self.machine_code(&native, pack);
            self.keep()?;
        }
        let mut figures = Figures::default();
        let (mut benched, mut papers) = (0, Papers::default());
        let mut steps = suite::steps(self.options).into_iter();
        while let Some(step) = steps.next() {
            interrupt::check()?;
            // Native figures before and after the step that stands beside them: clocks rise under load.
            let beside = hardware && step.name == suite::SPEED;
            let is_table = hardware && step.name == papers::ALONE;
            if beside {
                benched += self.bench(&native, "before", &mut figures);
            }
            if is_table {
                self.papers(&native, (pack, "before"), &mut papers);
            }
            eprintln!("{}: {} guests", step.name, step.guests.len());
            let start = Instant::now();
            let result = step::run(&bench, &step);
            eprintln!("{}: {:.1} s", step.name, start.elapsed().as_secs_f64());
            if beside {
                benched += self.bench(&native, "after", &mut figures);
            }
            if is_table {
                self.papers(&native, (pack, "after"), &mut papers);
            }
            self.note(&result, &mut figures);
            self.note_papers(&result, &mut papers)?;
            if self.options.is_special() && !result.problems.is_empty() {
                self.skip(steps.map(|step| step.name));
                return self.keep();
            }
            self.keep()?;
        }
        if hardware && benched == 0 && !self.options.quick && !self.options.is_special() {
            self.record.problem("no native figures to compare with".into());
        }
        Ok(())
    }

    /// Notes steps that are not run. Guests' shaders and kernels may provoke faults on a GPU that has other
    /// users, so that nothing of Vulkan or CUDA is run after a failure.
    fn skip(&mut self, names: impl Iterator<Item = String>) {
        let names: Vec<String> = names.collect();
        if !names.is_empty() {
            self.record.problem(format!("not run after this failure: {}", names.join(", ")));
        }
    }

    /// Notes which GPUs there are; an error that says why, if none can serve guests.
    fn hardware(&mut self, list: &Value) -> Result<()> {
        let gpus = list.get("gpus").and_then(Value::as_array).cloned().unwrap_or_default();
        let usable = usable(&gpus);
        self.record.set("driver", list.get("nvidia_driver").cloned().unwrap_or_default());
        self.record.set("gpus", gpus.clone());
        self.record.set("gpu", usable?.get("name").cloned().unwrap_or_default());
        Ok(())
    }

    /// Native figures, once; returns how many were had.
    fn bench(&mut self, native: &Native, label: &str, figures: &mut Figures) -> usize {
        match native.bench(label) {
            Ok(values) => {
                for (key, theirs) in [("gpu", "name"), ("driver", "driver"), ("gpu_address", "address")] {
                    if let Some(value) = values.get(theirs) {
                        self.record.set(key, value.clone());
                    }
                }
                for failure in values.get("failed").and_then(Value::as_array).into_iter().flatten() {
                    self.record.problem(format!("native figures, {label}: {failure}"));
                }
                figures.native(&values);
                1
            }
            Err(error) => {
                self.record.problem(format!("native figures, {label}: {error:#}"));
                0
            }
        }
    }

    /// The papers' table by a native client.
    fn papers(&mut self, native: &Native, (pack, label): (&Pack, &str), papers: &mut Papers) {
        let problems = match native.papers(pack, label) {
            Ok(report) => papers.native(label, report),
            Err(error) => vec![format!("native programs, {label}: {error:#}")],
        };
        problems.into_iter().for_each(|problem| self.record.problem(problem));
    }

    /// Its figures, and the page that shows them, as far as they are known.
    fn note_papers(&mut self, result: &StepResult, papers: &mut Papers) -> Result<()> {
        papers.step(result);
        for (key, value) in papers.to_json() {
            self.record.set(key, value);
        }
        if let Some(page) = papers::page(self.record.fields()) {
            let path = self.logs.join("table.html");
            fs::write(&path, page).with_context(|| format!("Cannot write {}", path.display()))?;
        }
        Ok(())
    }

    /// What the GPU gives for recorded machine code, beside the software GPU.
    fn machine_code(&mut self, native: &Native, pack: &Pack) {
        match native.machine_code(pack) {
            Ok(report) => {
                let problems = machine_code_problems(&report);
                problems.into_iter().for_each(|problem| self.record.problem(problem));
                self.record.set("sass", report);
            }
            Err(error) => self.record.problem(format!("machine code: {error:#}")),
        }
    }

    fn note(&mut self, result: &StepResult, figures: &mut Figures) {
        self.record.add("steps", result.to_json());
        for guest in &result.guests {
            self.record.add("guests", guest.to_json(&result.name));
        }
        result.problems.iter().for_each(|problem| self.record.problem(problem.clone()));
        figures.step(result);
        for (key, value) in figures.ratios() {
            self.record.set(key, value);
        }
        self.record.set("targets", figures::targets(&figures.ratios()));
        self.record.set("figures", figures.to_json());
    }
}

/// What is wrong in a report of recorded machine code: nothing ran, programs gave nothing, and results that
/// differ and are not known to.
fn machine_code_problems(report: &Value) -> Vec<String> {
    let texts = |key: &str| report.get(key).and_then(Value::as_array).into_iter().flatten().cloned();
    let nothing = report.get("instances").and_then(Value::as_u64).unwrap_or(0) == 0;
    let nothing = nothing.then(|| "machine code: nothing ran".to_owned());
    texts("problems")
        .map(|problem| format!("machine code: {problem}"))
        .chain(texts("unknown").map(|line| format!("machine code: not known to differ: {line}")))
        .chain(nothing)
        .collect()
}

/// What the guests ran on.
fn this_machine(accelerator: Accelerator) -> Value {
    let line = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let memory_mib = line("/proc/meminfo")
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok())
        .map(|kib| kib >> 10);
    json!({
        "kernel": line("/proc/sys/kernel/osrelease"),
        "cpus": std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        "memory_mib": memory_mib,
        "accelerator": accelerator.name(),
    })
}

/// The first GPU that can serve guests through the NVIDIA driver, by what `gpuvmk gpu list --json` says.
fn usable(gpus: &[Value]) -> Result<&Value> {
    let says = |gpu: &Value, key: &str| gpu.pointer(&format!("/backends/rm/{key}")).cloned();
    if let Some(gpu) = gpus.iter().find(|gpu| says(gpu, "possible") == Some(Value::Bool(true))) {
        return Ok(gpu);
    }
    let Some(first) = gpus.first() else {
        bail!("This machine has no NVIDIA GPU: give --backend soft to try without one");
    };
    match says(first, "why") {
        Some(Value::String(why)) => bail!("No GPU of this machine can serve guests: {why}"),
        _ => bail!("`gpuvmk gpu list` does not say what the backend rm can do with {first}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(name: &str, possible: bool, why: &str) -> Value {
        json!({ "name": name, "backends": { "rm": { "possible": possible, "why": why } } })
    }

    #[test]
    fn machine_code_that_differs_is_a_problem() {
        let report = json!({ "instances": 9, "differences": 1, "problems": [], "unknown": [] });
        assert!(machine_code_problems(&report).is_empty(), "one is known to differ");
        let report = json!({ "instances": 0, "problems": ["a"], "unknown": ["FADD"] });
        let problems = machine_code_problems(&report);
        assert!(problems.len() == 3 && problems[1].contains("FADD") && problems[2].contains("nothing"));
    }

    #[test]
    fn first_gpu_that_can_serve_is_taken_and_else_its_reason_is_told() {
        let gpus = [gpu("A100", false, "Ampere, which no chip here is"), gpu("H200", true, "Hopper")];

        assert_eq!(usable(&gpus).unwrap()["name"], "H200");
        assert!(usable(&gpus[..1]).unwrap_err().to_string().contains("Ampere"));
        assert!(usable(&[]).unwrap_err().to_string().contains("--backend soft"));
        assert!(usable(&[json!({ "name": "x" })]).unwrap_err().to_string().contains("gpu list"));
    }
}
