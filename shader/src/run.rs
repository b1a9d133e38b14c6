//! A kernel's run on a software GPU.

mod checks;
mod trace;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};
use gpuvmk_companion::RunOptions;
use gpuvmk_isa::Arch;
use gpuvmk_sm::{Constants, Grid, Launch, LocalMemory, Observer, Progress, Started, Step};

use crate::argument::Argument;

use checks::Checks;
use gpuvmk_shader::cubin::{Kernel, Placed};
use gpuvmk_shader::memory::{Areas, words_of};
use trace::Trace;

/// Where generic addresses of shared and of local memory begin.
const SHARED_WINDOW: u64 = 0x7294_0000_0000;
const LOCAL_WINDOW: u64 = 0x7293_0000_0000;

/// CTAs that have local memory at a time.
const CTAS_WITH_STACK: u64 = 64;

/// What a run found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Instructions of warps.
    pub instructions: u64,
    /// What `--check` found, a line each.
    pub findings: Vec<String>,
}

/// What a launch brings with it.
struct Prepared {
    launch: Launch,
    areas: Areas,
    /// Where the code lies.
    code: u64,
    /// Buffers that are written to files.
    outputs: Vec<(u64, usize, PathBuf)>,
}

fn executed(arch: Arch) -> bool {
    matches!(arch, Arch::Sm75 | Arch::Sm80 | Arch::Sm86 | Arch::Sm89 | Arch::Sm90)
}

fn prepare(arch: Arch, kernel: &Kernel, options: &RunOptions) -> Result<Prepared> {
    ensure!(
        executed(arch),
        "{} is of SM {}, which the software GPU does not execute: it executes 75, 80, 86, 89 and 90",
        kernel.name,
        arch.number()
    );
    ensure!(
        options.arg.len() == kernel.parameters.len(),
        "{} takes {} arguments, {} are given",
        kernel.name,
        kernel.parameters.len(),
        options.arg.len()
    );
    let mut areas = Areas::default();
    let code = areas.add_code(&kernel.code);
    let variables =
        if kernel.variables.is_empty() { 0 } else { areas.add(&words_of(&kernel.variables), true) };
    let mut outputs = Vec::new();
    let mut arguments = Vec::new();
    for ((number, argument), parameter) in (1..).zip(&options.arg).zip(&kernel.parameters) {
        let bytes = match argument.parse::<Argument>().map_err(anyhow::Error::msg)? {
            Argument::Value(bytes) => bytes,
            Argument::Buffer { source, to } => {
                let (bytes, written) = source.read()?;
                let address = areas.add(&words_of(&bytes), written);
                outputs.extend(to.map(|to| (address, bytes.len(), to)));
                address.to_le_bytes().to_vec()
            }
        };
        let size = usize::try_from(parameter.size).unwrap_or(usize::MAX);
        if bytes.len() != size {
            bail!("argument {number} has {} bytes, the kernel takes {size}", bytes.len());
        }
        arguments.push((parameter.offset, bytes));
    }
    let threads = options.block.iter().map(|size| u64::from(*size)).product::<u64>();
    let stack = kernel.stack_room();
    let ctas = options.grid.iter().fold(1_u64, |ctas, size| ctas.saturating_mul((*size).into()));
    let local = u64::from(stack) * threads.next_multiple_of(32) * ctas.min(CTAS_WITH_STACK);
    ensure!(local <= 1 << 30, "{} needs {local} bytes of stack, 1 GiB at most is given", kernel.name);
    let words = usize::try_from(local / 4).unwrap_or(0);
    let base = areas.add(&vec![0; words], false);
    let (grid, block) = (options.grid, options.block);
    let placed = Placed { grid, block, variables, local_window: LOCAL_WINDOW, arguments: &arguments };
    let mut constants = Constants::default();
    for (number, bank) in kernel.banks(&placed) {
        constants.set(number, words_of(&bank));
    }
    let launch = Launch {
        arch,
        entry: code,
        registers: kernel.registers,
        grid: options.grid,
        block: options.block,
        shared: kernel.shared.saturating_add(options.shared),
        constants,
        shared_window: SHARED_WINDOW,
        local_window: LOCAL_WINDOW,
        local: LocalMemory { base, size: local, low: 0, high: stack },
    };
    Ok(Prepared { launch, areas, code, outputs })
}

/// Whoever looks on.
struct Onlookers<'a> {
    trace: Option<Trace<'a>>,
    checks: Option<Checks<'a>>,
}

impl Observer for Onlookers<'_> {
    fn step(&mut self, step: &Step<'_>) {
        if let Some(trace) = &mut self.trace {
            trace.step(step);
        }
        if let Some(checks) = &mut self.checks {
            checks.step(step);
        }
    }
}

/// Runs a kernel to its end, and writes its buffers to their files.
///
/// # Errors
/// Arguments do not fit, the launch asks for too much, a warp stopped, or a file cannot be written.
pub fn run(arch: Arch, kernel: &Kernel, options: &RunOptions) -> Result<Found> {
    let prepared = prepare(arch, kernel, options)?;
    let Prepared { launch, areas, code, outputs } = &prepared;
    let grid = Grid::new(launch.clone()).with_context(|| format!("{} cannot be launched", kernel.name))?;
    let mut findings = Vec::new();
    let progress = if options.trace || options.check {
        let mut onlookers = Onlookers {
            trace: options.trace.then(|| Trace::new(arch, *code, &kernel.code)),
            checks: options.check.then(|| Checks::new(arch, *code, &kernel.code, areas)),
        };
        let progress = grid.observe(areas, &mut onlookers);
        if let Some(checks) = onlookers.checks {
            findings = checks.found();
        }
        progress
    } else {
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        grid.run(areas, &Started(workers), &|| true)
    };
    match progress {
        Progress::Done => {}
        Progress::Paused => bail!("{} paused", kernel.name),
        Progress::Faulted(fault) => {
            let offset = fault.pc.wrapping_sub(*code);
            bail!("{} stopped at offset {offset:#x}: {fault}", kernel.name);
        }
    }
    for (address, size, to) in outputs {
        let mut bytes = areas.bytes(*address);
        bytes.truncate(*size);
        fs::write(to, bytes).with_context(|| format!("Cannot write {}", to.display()))?;
    }
    Ok(Found { instructions: grid.instructions(), findings })
}

#[cfg(test)]
mod recorded;
#[cfg(test)]
mod tests;
