//! What one client's context finds of another's on the GPU, beside memory: shared memory of the shader cores,
//! and the buffers that the NVIDIA driver maps into graphics contexts.
//!
//! Only reads, and only of what is known to be there: shared memory of our own kernels, and pages whose
//! entries the driver says are valid and not privileged. Local memory is not looked at: it lies in memory
//! that each client gives its own contexts.

use gpuvmk_kernels::launch::{self, Parameters, Place, Size3};
use gpuvmk_kernels::{Kernel, SM90};

use crate::bench::Bench;
use crate::report::{Look, Report};
use crate::step_error::StepError;
use gpuvmk_gpu::rm::abi::Handle;
use gpuvmk_gpu::rm::abi::controls::{PteBlock, PteInfo};
use gpuvmk_gpu::rm::raw::{Commands, Device, STAGING, Work, Worker};

const MIB: u64 = 1 << 20;

/// Layout of a worker's data.
const CODE: u64 = STAGING;
const CONSTANTS: u64 = STAGING + 0x1_0000;
const QMD: u64 = CONSTANTS + 0x800;
const OUT: u64 = STAGING + MIB;
const DATA: u64 = 4 * MIB;

/// More blocks than all cores hold at once.
const BLOCKS: u32 = 1024;
const THREADS: u32 = 256;
/// Words of shared memory that a block of these kernels has.
const WORDS: u32 = 11520;

/// What a look found: words of the pattern, and words that are not 0.
type Found = (u32, u32);

/// Looks at shared memory of which somebody has left a pattern: the context itself, a context that is there,
/// and one that is gone.
pub(crate) fn shared_memory(bench: &mut Bench, report: &mut Report) -> Result<(), StepError> {
    let mut look = |what: &str, (same, set): Found| {
        let bytes = u64::from(BLOCKS) * u64::from(WORDS) * 4;
        let (same, set) = (u64::from(same), u64::from(set));
        report.looks.push(Look { what: what.to_owned(), bytes, pattern: Some(same), not_zero: set });
    };
    let mut first = worker(bench)?;
    let outcome = (|| {
        fill(&mut first, 0x1357_9bdf)?;
        look("shared memory, filled by the same context", search(&mut first, 0x1357_9bdf)?);
        fill(&mut first, 0x2468_ace1)?;
        let mut second = worker(bench)?;
        let beside = search(&mut second, 0x2468_ace1);
        second.destroy(&mut bench.device)?;
        look("shared memory, filled by another context that is there", beside?);
        fill(&mut first, 0x3579_bd13)
    })();
    first.destroy(&mut bench.device)?;
    outcome?;
    let mut second = worker(bench)?;
    let after = search(&mut second, 0x3579_bd13);
    second.destroy(&mut bench.device)?;
    look("shared memory, filled by another context that is gone", after?);
    Ok(())
}

fn worker(bench: &mut Bench) -> Result<Worker, StepError> {
    Ok(Worker::new(&mut bench.device, bench.chip, bench.doorbell.clone(), Work::Compute, DATA)?)
}

fn fill(worker: &mut Worker, seed: u32) -> Result<(), StepError> {
    run(worker, &SM90.shared_fill, seed)?;
    for block in [0, BLOCKS - 1] {
        let wanted = seed ^ (block % WORDS).wrapping_mul(2_654_435_761);
        let found = worker.system().read_u32(OUT + u64::from(block) * 4).map_err(outside)?;
        if found != wanted {
            return Err(StepError::Wrong(format!("block {block} left {found:#x} instead of {wanted:#x}")));
        }
    }
    Ok(())
}

fn search(worker: &mut Worker, seed: u32) -> Result<Found, StepError> {
    run(worker, &SM90.shared_look, seed)?;
    let word = |at: u64| worker.system().read_u32(OUT + at).map_err(outside);
    Ok((word(0)?, word(4)?))
}

fn run(worker: &mut Worker, kernel: &Kernel, seed: u32) -> Result<(), StepError> {
    worker.system().fill(OUT, u64::from(BLOCKS) * 4, 0).map_err(outside)?;
    let parameters = Parameters::default().pointer(worker.system_va(OUT)).word(seed);
    let place = Place {
        code: worker.system_va(CODE),
        constants: worker.system_va(CONSTANTS),
        qmd: worker.system_va(QMD),
    };
    let launch = launch::launch(kernel, place, Size3(BLOCKS, 1, 1), Size3(THREADS, 1, 1), parameters.bytes())
        .map_err(|error| StepError::Wrong(format!("the kernel cannot be launched: {error:?}")))?;
    let qmd: Vec<u8> = launch.qmd.words().iter().flat_map(|word| word.to_le_bytes()).collect();
    for (at, bytes) in [(CODE, kernel.code), (CONSTANTS, launch.constants.as_slice()), (QMD, qmd.as_slice())]
    {
        worker.system().write(at, bytes).map_err(outside)?;
    }
    let mut commands = Commands::default();
    commands.compute(&launch::set_up());
    commands.compute(&launch.methods);
    worker.run(&mut commands)?;
    Ok(())
}

/// Addresses that guests cannot use, where the driver puts what graphics contexts need.
const CONTEXT_BUFFERS: (u64, u64) = (0xc0_0000_0000, 1 << 40);
/// A table of small pages covers so much.
const TABLE: u64 = 2 * MIB;

/// A run of pages that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pages {
    pub(crate) va: u64,
    pub(crate) size: u64,
    /// Whoever is not privileged may read them.
    pub(crate) plain: bool,
    pub(crate) video: bool,
}

/// The pages that are there among [`CONTEXT_BUFFERS`].
pub(crate) fn context_buffers(device: &Device, space: Handle) -> Result<Vec<Pages>, StepError> {
    let mut found: Vec<Pages> = Vec::new();
    let mut table = CONTEXT_BUFFERS.0;
    while table < CONTEXT_BUFFERS.1 {
        let tables = entries(device, space, table)?;
        let smallest = tables.iter().map(|block| block.page_size).filter(|size| *size != 0).min();
        let mut at = table;
        while let Some(step) = smallest.filter(|_| at < table + TABLE) {
            let valid = entries(device, space, at)?.into_iter().find(PteBlock::is_valid);
            let step = valid.map_or(step, |block| block.page_size.min(TABLE)).max(0x1000);
            if let Some(block) = valid {
                let (plain, video) = (block.is_plain(), block.is_video());
                match found.last_mut() {
                    Some(last) if last.va + last.size == at && last.plain == plain && last.video == video => {
                        last.size += step;
                    }
                    _ => found.push(Pages { va: at, size: step, plain, video }),
                }
            }
            at += step;
        }
        table += TABLE;
    }
    Ok(found)
}

fn entries(device: &Device, space: Handle, address: u64) -> Result<[PteBlock; 5], StepError> {
    let mut info = PteInfo { address, as_it_is: 1, space, ..Default::default() };
    device.client.control(device.device, &mut info)?;
    Ok(info.blocks)
}

fn outside(error: impl std::fmt::Display) -> StepError {
    StepError::Wrong(format!("the worker's memory: {error}"))
}
