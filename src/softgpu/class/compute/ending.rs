//! What happens when a grid has ended: semaphores are released, and QMDs that depend on it are acted on.

use gpuvmk_chip::compute::ComputeClass;
use gpuvmk_chip::qmd::{Act, Action, Dependent, Grid, Release, ReleaseSize};
use gpuvmk_chip::reduction::{Operand, Reduction};

use super::launch::{Block, GR_EXCEPTION, Named};
use crate::engine::model::{Effects, Refusal, Run};
use crate::mmu::channel_memory::Report;

fn release(run: &Run<'_>, release: &Release) -> Result<(), Refusal> {
    let Release { address, payload, size, payload64, reduction } = *release;
    let operand = Operand::of(payload64);
    let payload = payload & operand.mask();
    let report = match size {
        ReleaseSize::FourWords => Report::FourWords,
        ReleaseSize::OneWord if payload64 => Report::DoubleWord,
        ReleaseSize::OneWord => Report::Word,
        ReleaseSize::TwoWords => Report::DoubleWord,
    };
    let Some((operation, signed)) = reduction else {
        return Ok(run.memory.write_report(address, payload, report)?);
    };
    let reduction = Reduction::of_graphics(operation).ok_or(Refusal::Robust(GR_EXCEPTION))?;
    if report == Report::FourWords {
        run.memory.write_time(address)?;
    }
    let operand = if report == Report::DoubleWord { Operand::DoubleWord } else { operand };
    Ok(run.memory.reduce(address, reduction, operand, signed, payload)?)
}

/// What is done with a QMD that depends on one that ended.
fn follow(dependent: Dependent) -> Result<Named, Refusal> {
    let act = match dependent.action {
        Action::Schedule => Act::Schedule,
        Action::InvalidateCopySchedule => Act::Copy,
        Action::DecrementDependence => Act::CountDown,
        Action::IncrementPut => {
            log::warn!("The software GPU does not execute queues of compute grids (QMD_INCREMENT_PUT)");
            return Err(Refusal::Robust(GR_EXCEPTION));
        }
    };
    Ok(Named { qmd: dependent.address, act })
}

/// Tells the end of the grid that the QMD at `qmd` described. Returns what is to be done next.
pub(super) fn end(
    run: &Run<'_>,
    class: &ComputeClass,
    (qmd, grid): (u64, &Grid),
    effects: &mut Effects,
) -> Result<Vec<Named>, Refusal> {
    if grid.begins_anew {
        Block::read(run, class, qmd)?.act(run, Act::Copy)?;
    }
    // Stores of shaders are in memory by now, whatever CWD_MEMBAR_TYPE asks for.
    for fields in &grid.releases {
        release(run, fields)?;
        effects.released = true;
    }
    grid.dependents.iter().copied().map(follow).collect()
}
