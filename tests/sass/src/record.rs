//! Records what a GPU gives for programs, and compares it with the software GPU at once.
//!
//! Programs run one after the other. What a program gave is summed and compared by other threads meanwhile;
//! of words that differ all results are kept, so that numerics can be mended without the GPU.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use gpuvmk_isa::Word;

use crate::compiled::Compiled;
use crate::program::Program;
use crate::recorded::{Counts, Recorded, Vector, name, sum};
use crate::soft;
use crate::task::Launched;

/// What runs programs.
pub trait Gpu {
    /// Runs one; what its threads stored.
    ///
    /// # Errors
    /// Nothing can be run any more, or this program cannot.
    fn run(&mut self, program: &dyn Launched) -> Result<Vec<u32>, Stopped>;
}

/// Why a program gave nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Stopped(pub String);

/// What a word gave that the software GPU does not give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Index of its program, and of the instance in it.
    pub at: (usize, usize),
    /// The word.
    pub word: Word,
    /// What all threads stored on the GPU: first words of all, then second ones.
    pub stored: Vec<u32>,
}

/// What was recorded.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The programs that ran to their end.
    pub recorded: Recorded,
    /// By operation, how many words differ.
    pub counts: BTreeMap<String, Counts>,
    /// All results of some words that differ.
    pub differences: Vec<Difference>,
    /// Programs that gave nothing, with the reason.
    pub failed: Vec<(usize, String)>,
    /// Programs for which no time was left.
    pub left: usize,
}

/// How to record.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Threads that compare.
    pub workers: usize,
    /// Differing words of an operation whose results are kept.
    pub kept: usize,
    /// No program begins after this.
    pub until: Instant,
    /// So many programs may fail on the GPU before nothing is tried any more.
    pub failures: usize,
}

/// Results of a program on their way to be compared.
type Job = (usize, Program, Vec<u32>);

/// Runs programs on a GPU, and compares.
pub fn record(gpu: &mut dyn Gpu, programs: &[Program], plan: Plan) -> Outcome {
    let found = Mutex::new(BTreeMap::new());
    let outcome = Mutex::new(Outcome::default());
    let (to, from) = sync_channel::<Job>(plan.workers.max(1));
    let from = Mutex::new(from);
    std::thread::scope(|scope| {
        for _ in 0..plan.workers.max(1) {
            scope.spawn(|| compare_all(&from, &found, &outcome, plan.kept));
        }
        run_all(gpu, programs, plan, to, &outcome);
    });
    let mut outcome = outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
    let found: BTreeMap<usize, (u64, Vec<Vector>)> =
        found.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcome.recorded.threads = programs.first().map_or(0, |program| program.threads);
    outcome.recorded.programs = found.into_values().collect();
    outcome.differences.sort_by_key(|difference| difference.at);
    outcome
}

/// What a kernel gave.
#[derive(Clone, Debug)]
pub struct OfKernel {
    /// Its name.
    pub name: String,
    /// What the GPU's threads stored, or why nothing.
    pub stored: Result<Vec<u32>, Stopped>,
    /// True if the software GPU stores the same; why it stores nothing.
    pub same: Result<bool, String>,
}

/// Runs compiled kernels on a GPU, and compares.
pub fn record_kernels(gpu: &mut dyn Gpu, kernels: &[Compiled], plan: Plan) -> Vec<OfKernel> {
    let mut failures = 0;
    let mut ran = Vec::new();
    for kernel in kernels {
        let stored = if failures >= plan.failures || Instant::now() >= plan.until {
            Err(Stopped("not tried".into()))
        } else {
            gpu.run(kernel)
        };
        failures += usize::from(stored.is_err());
        ran.push((kernel, stored));
    }
    let next = Mutex::new(ran.into_iter());
    let found = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..plan.workers.max(1) {
            scope.spawn(|| {
                loop {
                    let one = next.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some((kernel, stored)) = one else { return };
                    let same = match (&stored, soft::outputs(kernel)) {
                        (_, Err(error)) => Err(error.to_string()),
                        (Ok(theirs), Ok(mine)) => Ok(*theirs == mine),
                        (Err(_), Ok(_)) => Ok(false),
                    };
                    let name = kernel.name.clone();
                    let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                    found.push(OfKernel { name, stored, same });
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.sort_by(|one, other| one.name.cmp(&other.name));
    found
}

fn run_all(
    gpu: &mut dyn Gpu,
    programs: &[Program],
    plan: Plan,
    to: SyncSender<Job>,
    outcome: &Mutex<Outcome>,
) {
    let mut failures = 0;
    for (index, program) in programs.iter().enumerate() {
        if failures >= plan.failures || Instant::now() >= plan.until {
            outcome.lock().unwrap_or_else(PoisonError::into_inner).left = programs.len() - index;
            break;
        }
        match gpu.run(program) {
            Ok(stored) => {
                if to.send((index, program.clone(), stored)).is_err() {
                    break;
                }
            }
            Err(Stopped(why)) => {
                failures += 1;
                outcome.lock().unwrap_or_else(PoisonError::into_inner).failed.push((index, why));
            }
        }
    }
    drop(to);
}

fn compare_all(
    jobs: &Mutex<Receiver<Job>>,
    found: &Mutex<BTreeMap<usize, (u64, Vec<Vector>)>>,
    outcome: &Mutex<Outcome>,
    kept: usize,
) {
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((index, program, stored)) = job else { return };
        let vectors = vectors(&program, &stored);
        found.lock().unwrap_or_else(PoisonError::into_inner).insert(index, (program.seed, vectors));
        let mine = soft::outputs(&without_refused(&program));
        let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = &mut *outcome;
        let mine = match mine {
            Ok(mine) => Some(mine),
            Err(error) => {
                outcome.failed.push((index, format!("the software GPU: {error}")));
                None
            }
        };
        for (number, (instance, stored, mine)) in by_instance(&program, &stored, mine.as_deref()).enumerate()
        {
            let executed = soft::executes(instance.opcode) && mine.is_some();
            let different = executed && mine != Some(stored);
            let counts = outcome.counts.entry(name(program.arch, instance.word)).or_default();
            counts.add(Counts {
                instances: program.threads.into(),
                words: 1,
                different: different.into(),
                not_executed: u64::from(!executed),
            });
            let so_many = counts.different + counts.not_executed;
            if (different || !executed) && usize::try_from(so_many).is_ok_and(|count| count <= kept) {
                let (at, stored) = ((index, number), stored.to_vec());
                outcome.differences.push(Difference { at, word: instance.word, stored });
            }
        }
    }
}

/// The program with waits where the software GPU refuses an operation.
#[must_use]
pub fn without_refused(program: &Program) -> Program {
    let mut runs = program.clone();
    for (at, instance) in &program.instances {
        if !soft::executes(instance.opcode) {
            runs.words[*at] = crate::template::wait();
        }
    }
    runs
}

/// What each instance stored, on the GPU and here.
pub fn by_instance<'a>(
    program: &'a Program,
    stored: &'a [u32],
    mine: Option<&'a [u32]>,
) -> impl Iterator<Item = (&'a crate::instance::Instance, &'a [u32], Option<&'a [u32]>)> {
    let threads = usize::try_from(program.threads).unwrap_or(0);
    let mut at = 0;
    program.instances.iter().map(move |(_, instance)| {
        let range = at..at + instance.slots() * threads;
        at = range.end;
        let theirs = stored.get(range.clone()).unwrap_or_default();
        (instance, theirs, mine.and_then(|mine| mine.get(range)))
    })
}

/// Sums of what each instance stored.
fn vectors(program: &Program, stored: &[u32]) -> Vec<Vector> {
    let threads = usize::try_from(program.threads).unwrap_or(1).max(1);
    let of_warp = |words: &[u32]| -> Vec<u32> {
        words.chunks(threads).flat_map(|slot| &slot[..slot.len().min(32)]).copied().collect()
    };
    by_instance(program, stored, None)
        .map(|(instance, words, _)| Vector {
            word: instance.word,
            all: sum(words),
            warp: sum(&of_warp(words)),
        })
        .collect()
}
