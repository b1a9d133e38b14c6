//! A launch under way: its grid, and the grids that it brings with it.

use std::collections::VecDeque;

use gpuvmk_chip::compute::ComputeClass;
use gpuvmk_chip::qmd::{Asked, Bank, Grid};
use gpuvmk_isa::Arch;
use gpuvmk_sm::{Cause, Constants, Fault, Launch, LocalMemory};

use super::ending;
use super::launch::{Block, GR_EXCEPTION, Named};
use super::state::State;
use super::view::Global;
use crate::engine::model::{Effects, Progress, Refusal, Run};

/// Most QMDs that wait behind each other for their launch.
const MAX_WAITING: usize = 64;

/// Bytes of a constant bank that are read at a time.
const PAGE: usize = 4096;

/// Grids of one launch: the one under way, and those that it brings with it.
#[derive(Debug)]
pub(in crate::class) struct Work {
    class: &'static ComputeClass,
    waiting: VecDeque<Named>,
    running: Option<Running>,
}

/// A grid under way.
#[derive(Debug)]
struct Running {
    qmd: u64,
    grid: Grid,
    /// None for what is done at once.
    blocks: Option<gpuvmk_sm::Grid>,
}

/// The instruction set of a class, if it is executed here.
fn executed(sm: u8) -> Option<Arch> {
    match sm {
        75 => Some(Arch::Sm75),
        80 => Some(Arch::Sm80),
        86 => Some(Arch::Sm86),
        89 => Some(Arch::Sm89),
        90 => Some(Arch::Sm90),
        _ => None,
    }
}

/// The words of a constant bank, as they are at the launch. What lies where no memory is reads as zero.
fn constants(run: &Run<'_>, bank: Bank) -> Vec<u32> {
    let size = usize::try_from(bank.size).unwrap_or(0);
    let mut bytes = vec![0; size];
    let mut va = bank.address;
    for page in bytes.chunks_mut(PAGE) {
        if run.memory.read(va, page).is_err() {
            break;
        }
        va = va.saturating_add(page.len() as u64);
    }
    bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

impl Work {
    /// What is done with a QMD, and what follows from it.
    pub(super) fn new(class: &'static ComputeClass, named: Named) -> Self {
        Self { class, waiting: VecDeque::from([named]), running: None }
    }

    /// Goes on until all is done or the engine has to pause.
    pub(super) fn go_on(
        &mut self,
        run: &Run<'_>,
        state: &State,
        effects: &mut Effects,
    ) -> Result<Progress, Refusal> {
        loop {
            if let Some(Running { qmd, grid, blocks }) = &self.running {
                if let Some(blocks) = blocks {
                    match execute(run, self.class.sm, blocks)? {
                        Progress::Done => {}
                        Progress::Paused => return Ok(Progress::Paused),
                    }
                }
                let next = ending::end(run, self.class, (*qmd, grid), effects)?;
                self.running = None;
                if self.waiting.len().saturating_add(next.len()) > MAX_WAITING {
                    log::debug!("softgpu: more than {MAX_WAITING} QMDs wait for each other");
                    return Err(Refusal::Robust(GR_EXCEPTION));
                }
                self.waiting.extend(next);
            }
            if self.waiting.is_empty() {
                return Ok(Progress::Done);
            }
            // A QMD may have itself launched again, without an end.
            if run.control.should_pause() {
                return Ok(Progress::Paused);
            }
            if let Some(named) = self.waiting.pop_front() {
                self.running = self.start(run, state, named)?;
            }
        }
    }

    /// Does what is to be done with a QMD. Its grid, if it runs now.
    fn start(
        &self,
        run: &Run<'_>,
        state: &State,
        Named { qmd, act }: Named,
    ) -> Result<Option<Running>, Refusal> {
        let Some(arch) = executed(self.class.sm) else {
            let ComputeClass { class, sm, .. } = self.class;
            run.not_executed.note(format_args!(
                "machine code of SM {}.{} ({})",
                sm / 10,
                sm % 10,
                class.name
            ));
            return Err(Refusal::Robust(GR_EXCEPTION));
        };
        let block = Block::read(run, self.class, qmd)?;
        let grid = block.grid()?;
        if let Asked::Unknown(kind) = grid.asked {
            run.not_executed.note(format_args!("grids of type {kind} of {}", self.class.class.name));
            return Err(Refusal::Robust(GR_EXCEPTION));
        }
        if !block.act(run, act)? {
            return Ok(None);
        }
        if grid.asked == Asked::Nothing || grid.grid.contains(&0) {
            return Ok(Some(Running { qmd, grid, blocks: None }));
        }
        let mut banks = Constants::default();
        for (number, bank) in grid.banks.iter().enumerate() {
            if let Some(bank) = bank {
                banks.set(number, constants(run, *bank));
            }
        }
        let (base, size) = state.local_memory();
        let launch = Launch {
            arch,
            entry: grid.program,
            registers: u16::try_from(grid.registers.min(255)).unwrap_or(255),
            grid: grid.grid,
            block: grid.block,
            shared: grid.shared,
            constants: banks,
            shared_window: state.shared_window(),
            local_window: state.local_window(),
            local: LocalMemory { base, size, low: grid.local_low, high: grid.local_high },
        };
        let mut blocks = gpuvmk_sm::Grid::new(launch).map_err(|error| {
            log::debug!("softgpu: the QMD at {qmd:#x} is not launched: {error}");
            Refusal::Robust(GR_EXCEPTION)
        })?;
        if grid.asked == Asked::Together
            && let Err(most) = blocks.gather()
        {
            let count = blocks.blocks();
            run.not_executed
                .note(format_args!("{count} blocks that wait for each other, but {most} at most"));
            return Err(Refusal::Robust(GR_EXCEPTION));
        }
        Ok(Some(Running { qmd, grid, blocks: Some(blocks) }))
    }
}

/// Moves a grid on until it ends or the engine has to pause.
fn execute(run: &Run<'_>, sm: u8, running: &gpuvmk_sm::Grid) -> Result<Progress, Refusal> {
    let global = Global::new(run);
    match running.run(&global, run.crew, &|| !run.control.should_pause()) {
        gpuvmk_sm::Progress::Done => Ok(Progress::Done),
        gpuvmk_sm::Progress::Paused => Ok(Progress::Paused),
        gpuvmk_sm::Progress::Faulted(fault) => Err(refusal(run, sm, &global, fault)),
    }
}

/// What a channel is told of a warp that cannot go on.
fn refusal(run: &Run<'_>, sm: u8, global: &Global<'_>, fault: Fault) -> Refusal {
    match fault.cause {
        Cause::Memory(memory) => {
            log::debug!("softgpu: a shader: {fault}");
            global.reason(memory).map_or(Refusal::Robust(GR_EXCEPTION), Refusal::Fault)
        }
        Cause::Exception(_) | Cause::Trap => {
            log::debug!("softgpu: a shader: {fault}");
            Refusal::Robust(GR_EXCEPTION)
        }
        // Ours, not the guest's: what a GPU would make of a word that is not in the table, nobody knows here.
        Cause::NoInstruction(_) | Cause::NotExecuted(_) => {
            let mut word = [0; 16];
            // The code may be gone meanwhile.
            let _ = run.memory.read(fault.pc, &mut word);
            let word = u128::from_le_bytes(word);
            run.not_executed.note(format_args!("{word:#034x} of SM {}.{}: {fault}", sm / 10, sm % 10));
            Refusal::Robust(GR_EXCEPTION)
        }
    }
}
