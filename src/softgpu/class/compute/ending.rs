//! What happens when a grid has ended: semaphores are released, and QMDs that depend on it are acted on.

use gpuvmk_chip::compute::ComputeClass;
use gpuvmk_chip::qmd::{Action, Dependent, Grid, Release, ReleaseSize};
use gpuvmk_chip::reduction::{Operand, Reduction};

use super::launch::GR_EXCEPTION;
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

/// Changes the dependence counter of the QMD at `va`. Returns what it is then.
pub(super) fn count(
    run: &Run<'_>,
    class: &ComputeClass,
    va: u64,
    change: fn(u32) -> u32,
) -> Result<u32, Refusal> {
    let refused = || {
        log::debug!("softgpu: the QMD at {va:#x} has no dependence counter");
        Refusal::Robust(GR_EXCEPTION)
    };
    let mut head = [0; 256];
    run.memory.read(va, &mut head)?;
    let mut words = [0; gpuvmk_chip::qmd::MAX_WORDS];
    for (word, bytes) in words.iter_mut().zip(head.as_chunks().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    let qmd = gpuvmk_chip::qmd::Qmd::from(words);
    let layout = qmd.layout(class.layouts).ok_or_else(refused)?;
    let field = layout.dependence_counter.ok_or_else(refused)?;
    let index = field.low / 32;
    let shift = field.low % 32;
    let mask = (u32::MAX >> (31_u16.saturating_sub(field.high.saturating_sub(field.low)))) << shift;
    let place = va.saturating_add(u64::from(index) * 4);
    let combine = |word: u32| word & !mask | change((word & mask) >> shift) << shift & mask;
    let before = run.memory.update_u32(place, &mut |word| Some(combine(word)))?;
    Ok((combine(before) & mask) >> shift)
}

/// The QMD that is to be launched next, if the action launches one.
fn follow(run: &Run<'_>, class: &ComputeClass, dependent: Dependent) -> Result<Option<u64>, Refusal> {
    let Dependent { address, action } = dependent;
    match action {
        Action::Schedule | Action::InvalidateCopySchedule => Ok(Some(address)),
        Action::DecrementDependence => {
            Ok((count(run, class, address, |counter| counter.saturating_sub(1))? == 0).then_some(address))
        }
        Action::IncrementPut => {
            log::warn!("The software GPU does not execute queues of compute grids (QMD_INCREMENT_PUT)");
            Err(Refusal::Robust(GR_EXCEPTION))
        }
    }
}

/// Tells the end of a grid. Returns the QMDs that are to be launched next.
pub(super) fn end(
    run: &Run<'_>,
    class: &ComputeClass,
    grid: &Grid,
    effects: &mut Effects,
) -> Result<Vec<u64>, Refusal> {
    // Stores of shaders are in memory by now, whatever CWD_MEMBAR_TYPE asks for.
    for fields in &grid.releases {
        release(run, fields)?;
        effects.released = true;
    }
    let next = grid.dependents.iter().filter_map(|dependent| follow(run, class, *dependent).transpose());
    next.collect()
}
