//! The compute kernel whose time stands beside guests': the same machine code, grid and rounds, between the
//! same time stamps.

use std::time::Duration;

use gpuvmk_kernels::launch::{self, Parameters, Place};
use gpuvmk_kernels::{Kernel, SM90, spin};

use crate::bench::Bench;
use crate::report::{Figure, Report};
use crate::step_error::StepError;
use gpuvmk_gpu::rm::raw::{Commands, STAGING, Work, Worker};
use gpuvmk_pci::mapping::Mapping;

const MIB: u64 = 1 << 20;

/// Layout of the worker's data: code, description of the launch, time stamps, results.
const CODE: u64 = STAGING;
const CONSTANTS: u64 = STAGING + 0x1_0000;
const QMD: u64 = CONSTANTS + 0x800;
const STAMPS: u64 = CONSTANTS + 0x1000;
const OUT: u64 = STAGING + MIB;
const DATA: u64 = 4 * MIB;

/// The code is Hopper's.
const SPIN: Kernel = SM90.spin;
const ROUNDS: usize = 20;
const SEED: u32 = 12345;

pub(crate) fn measure(bench: &mut Bench, report: &mut Report) -> Result<(), StepError> {
    let mut worker = Worker::new(&mut bench.device, bench.chip, bench.doorbell.clone(), Work::Compute, DATA)?;
    let outcome = spins(&mut worker);
    worker.destroy(&mut bench.device)?;
    report.figures.push(Figure::times("compute kernel spin, time of the GPU", outcome?));
    Ok(())
}

fn spins(worker: &mut Worker) -> Result<Vec<Duration>, StepError> {
    let parameters = Parameters::default().pointer(worker.system_va(OUT)).word(spin::ROUNDS).word(SEED);
    let place = Place {
        code: worker.system_va(CODE),
        constants: worker.system_va(CONSTANTS),
        qmd: worker.system_va(QMD),
    };
    let launch = launch::launch(&SPIN, place, spin::GRID, spin::BLOCK, parameters.bytes())
        .map_err(|error| StepError::Wrong(format!("the kernel cannot be launched: {error:?}")))?;
    let qmd: Vec<u8> = launch.qmd.words().iter().flat_map(|word| word.to_le_bytes()).collect();
    for (at, bytes) in [(CODE, SPIN.code), (CONSTANTS, launch.constants.as_slice()), (QMD, qmd.as_slice())] {
        worker.system().write(at, bytes).map_err(outside)?;
    }
    worker.run(Commands::default().compute(&launch::set_up()))?;
    let (first, last) = (worker.system_va(STAMPS), worker.system_va(STAMPS + 16));
    let mut times = Vec::new();
    for value in 1..=ROUNDS {
        let payload = u32::try_from(value).unwrap_or(u32::MAX);
        let mut commands = Commands::default();
        commands.release_with_time(first, payload);
        commands.compute(&launch.methods);
        commands.release_with_time(last, payload);
        worker.run(&mut commands)?;
        let stamp = |at: u64| worker.system().read_u64(at + 8).map_err(outside);
        let (begin, end) = (stamp(STAMPS)?, stamp(STAMPS + 16)?);
        times.push(Duration::from_nanos(end.saturating_sub(begin)));
    }
    check(worker.system())?;
    Ok(times)
}

/// What the first and the last thread left.
fn check(memory: &Mapping) -> Result<(), StepError> {
    for thread in [0, spin::THREADS - 1] {
        let wanted = spin::result(SEED.wrapping_add(thread), spin::ROUNDS);
        let found = memory.read_u32(OUT + u64::from(thread) * 4).map_err(outside)?;
        if found != wanted {
            return Err(StepError::Wrong(format!("thread {thread} left {found:#x} instead of {wanted:#x}")));
        }
    }
    Ok(())
}

fn outside(error: impl std::fmt::Display) -> StepError {
    StepError::Wrong(format!("the worker's memory: {error}"))
}

const _: () = assert!(spin::THREADS as u64 * 4 <= 2 * MIB);
