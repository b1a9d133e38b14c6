//! A copy that composes each target element of components of 1 to 4 bytes. A component comes from any
//! component of the source or from a constant, or stays as it was. A fill is a copy that uses constants only.

use super::clear::Clear;
use super::layout::Surface;
use super::transfer::{Position, QUANTUM, RUN_COST};
use crate::engine::model::{Progress, Run};
use gpuvmk_chip::channel_event::MmuFault;

/// The most components that an element may have.
const COMPONENTS: usize = 4;

/// Number of elements that are composed at a time. It bounds buffers to 64 KiB.
const BATCH: u64 = 4096;

/// Where a component of the target comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Select {
    /// A component of the source.
    Source(u8),
    /// A constant, of which the low bytes count.
    Constant(u32),
    /// Nowhere: the target keeps its bytes.
    Keep,
}

/// A remapped copy. Surfaces, origins and pitches are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Remap {
    pub(super) source: Surface,
    pub(super) target: Surface,
    /// Number of elements of a line.
    pub(super) length: u64,
    /// Number of lines.
    pub(super) count: u64,
    /// Bytes of a component, 1 to 4.
    pub(super) component: usize,
    /// Components of a source element, 1 to 4.
    pub(super) sources: usize,
    /// Components of a target element, 1 to 4.
    pub(super) targets: usize,
    /// The source of each component of the target.
    pub(super) selects: [Select; COMPONENTS],
}

impl Remap {
    fn selects(&self) -> impl Iterator<Item = Select> {
        self.selects.into_iter().take(self.targets)
    }

    /// Gives the copy as a [`clear`](super::clear) of memory, if it writes nothing but zeroes to one piece of
    /// memory.
    fn as_clear(&self) -> Option<Clear> {
        let used = u32::MAX >> (32 - 8 * self.component.clamp(1, 4));
        let zero = |select| matches!(select, Select::Constant(value) if value & used == 0);
        let clear = Clear::of(self.target, self.length * (self.component * self.targets) as u64, self.count);
        clear.filter(|_| self.selects().all(zero))
    }

    /// Continues at `position`, which counts elements, and stops at the end or when it has to pause.
    pub(super) fn advance(&self, run: &Run<'_>, position: &mut Position) -> Result<Progress, MmuFault> {
        if self.length == 0 {
            return Ok(Progress::Done);
        }
        if let Some(clear) = self.as_clear() {
            let size = (self.component * self.targets) as u64;
            let elements = position.line.saturating_mul(self.length).saturating_add(position.at);
            let mut done = elements.saturating_mul(size);
            let progress = clear.advance(run, &mut done)?;
            let elements = done / size;
            *position = Position { line: elements / self.length, at: elements % self.length };
            return Ok(progress);
        }
        let mut cost = 0;
        while position.line < self.count {
            let left = self.length.saturating_sub(position.at);
            if left == 0 {
                position.line += 1;
                position.at = 0;
                continue;
            }
            let elements = left.min(BATCH);
            cost += self.batch(run, *position, elements)? + RUN_COST;
            position.at += elements;
            if cost >= QUANTUM {
                cost = 0;
                let over = position.at >= self.length && position.line + 1 >= self.count;
                if !over && run.control.should_pause() {
                    return Ok(Progress::Paused);
                }
            }
        }
        Ok(Progress::Done)
    }

    /// Composes one element.
    fn element(&self, element: &mut [u8], source: &[u8]) {
        for (place, select) in element.chunks_exact_mut(self.component).zip(self.selects()) {
            match select {
                Select::Keep => {}
                Select::Constant(value) => fill(place, &value.to_le_bytes()),
                Select::Source(number) => {
                    fill(place, source.get(usize::from(number) * self.component..).unwrap_or_default());
                }
            }
        }
    }

    /// Composes some elements of a line. Returns the cost, in bytes of copying.
    fn batch(&self, run: &Run<'_>, position: Position, elements: u64) -> Result<u64, MmuFault> {
        let count = usize::try_from(elements).unwrap_or(0);
        let source_size = self.component * self.sources;
        let target_size = self.component * self.targets;
        let reads_source = self.selects().any(|select| matches!(select, Select::Source(_)));
        let keeps = self.selects().any(|select| select == Select::Keep);
        let mut source = vec![0; if reads_source { source_size * count } else { 0 }];
        let mut target = vec![0; target_size * count];
        // Positions are below 2^32 and elements at most 16 bytes: no overflow.
        let source_at = position.at * source_size as u64;
        let target_at = position.at * target_size as u64;
        pieces(&self.source, position.line, source_at, &mut source, |va, piece| run.memory.read(va, piece))?;
        if keeps {
            pieces(&self.target, position.line, target_at, &mut target, |va, piece| {
                run.memory.read(va, piece)
            })?;
        }
        if reads_source || keeps {
            for (index, element) in target.chunks_exact_mut(target_size).enumerate() {
                self.element(element, source.get(index * source_size..).unwrap_or_default());
            }
        } else {
            // All elements are the same: the buffer is filled by doubling what it holds.
            if let Some(first) = target.get_mut(..target_size) {
                self.element(first, &[]);
            }
            let mut done = target_size;
            while done < target.len() {
                let more = done.min(target.len() - done);
                target.copy_within(..more, done);
                done += more;
            }
        }
        let fills = !reads_source && !keeps;
        pieces(&self.target, position.line, target_at, &mut target, |va, piece| {
            if fills {
                run.memory.prepare_to_fill(va, piece.len() as u64);
            }
            run.memory.write(va, piece)
        })?;
        Ok(source.len() as u64 + target.len() as u64)
    }
}

/// Copies as many bytes as there are on both sides.
fn fill(place: &mut [u8], from: &[u8]) {
    for (to, from) in place.iter_mut().zip(from) {
        *to = *from;
    }
}

/// Calls `each` with the pieces of a line that follow each other in memory.
fn pieces(
    surface: &Surface,
    line: u64,
    at: u64,
    bytes: &mut [u8],
    each: impl Fn(u64, &mut [u8]) -> Result<(), MmuFault>,
) -> Result<(), MmuFault> {
    let mut rest = bytes;
    let mut at = at;
    while !rest.is_empty() {
        let (va, length) = surface.locate(line, at, rest.len() as u64);
        let middle = usize::try_from(length).unwrap_or(rest.len()).min(rest.len());
        let (now, later) = std::mem::take(&mut rest).split_at_mut(middle);
        each(va, now)?;
        rest = later;
        at += length;
    }
    Ok(())
}
