//! Copies and fills, piece by piece: a piece is little work, and what is left is known after each.

use super::action::{Component, Components, Element, Transfer};
use super::memory::{Access, KernelMemory, Place};
use super::refusal::Refusal;

/// Bytes of the target of a piece, at most.
const PIECE: usize = 4096;
/// What a piece counts at least: short lines are not read and written much faster than long ones.
const LEAST: u64 = 1024;

/// A transfer under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    transfer: Transfer,
    /// Lines that are done.
    line: u32,
    /// Elements of the present line that are done.
    element: u32,
}

impl Progress {
    /// A transfer that has not begun.
    pub const fn new(transfer: Transfer) -> Self {
        Self { transfer, line: 0, element: 0 }
    }

    /// A transfer of which these lines are done, and of the next these elements; none where nothing is left.
    pub fn at(transfer: Transfer, (line, element): (u32, u32)) -> Option<Self> {
        let progress = Self { transfer, line, element };
        (!progress.is_done() && element < transfer.length).then_some(progress)
    }

    /// How many lines are done, and of the next how many elements.
    pub const fn done(&self) -> (u32, u32) {
        (self.line, self.element)
    }

    /// True when nothing is left.
    pub const fn is_done(&self) -> bool {
        self.line >= self.transfer.lines || self.transfer.length == 0
    }

    /// Carries out the next piece. Returns what it counts in bytes, which is not 0 while something is left.
    ///
    /// # Errors
    /// Memory is not there. What comes before may have been written then.
    pub fn piece<M: KernelMemory>(&mut self, access: &mut Access<'_, M>) -> Result<u64, Refusal> {
        if self.is_done() {
            return Ok(0);
        }
        let Transfer { source, target, source_pitch, target_pitch, length, element, .. } = self.transfer;
        let (read, written) = element.sizes();
        let most = PIECE / read.max(written).max(1);
        let left = length.saturating_sub(self.element);
        let count = usize::try_from(left).map_or(most, |left| left.min(most));
        let from = self.place(source, source_pitch, read)?;
        let to = self.place(target, target_pitch, written)?;
        let mut sources = [0; PIECE];
        let mut targets = [0; PIECE];
        let sources = sources.get_mut(..count.saturating_mul(read)).unwrap_or_default();
        let targets = targets.get_mut(..count.saturating_mul(written)).unwrap_or_default();
        if read > 0 {
            access.read(from, sources)?;
        }
        match element {
            Element::Byte => targets.copy_from_slice(sources),
            Element::Zero => {}
            Element::Components(components) => {
                if components.leaves_some() {
                    access.read(to, targets)?;
                }
                components.fill(sources, read, targets, written);
            }
        }
        access.write(to, targets)?;
        self.element = self.element.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        if self.element >= length {
            (self.line, self.element) = (self.line.saturating_add(1), 0);
        }
        Ok((targets.len() as u64).max(LEAST))
    }

    /// Where the next element is.
    fn place(&self, first: Place, pitch: i32, size: usize) -> Result<Place, Refusal> {
        // CAST: both are widening; products of 32 bits fit in 64, with their sign.
        let lines = i64::from(pitch).saturating_mul(i64::from(self.line));
        let elements = i64::from(self.element).saturating_mul(i64::try_from(size).unwrap_or(i64::MAX));
        first.moved(lines)?.moved(elements)
    }
}

impl Components {
    /// Whether the target keeps some.
    fn leaves_some(&self) -> bool {
        let mut of_target = self.target.iter().take(self.targets.into());
        of_target.any(|component| *component == Component::Stays)
    }

    /// Makes elements of the target.
    fn fill(&self, sources: &[u8], read: usize, targets: &mut [u8], written: usize) {
        let size = usize::from(self.size);
        for (number, target) in targets.chunks_exact_mut(written.max(1)).enumerate() {
            let start = number.saturating_mul(read);
            let source = sources.get(start..start.saturating_add(read)).unwrap_or_default();
            for (component, bytes) in self.target.iter().zip(target.chunks_exact_mut(size.max(1))) {
                match component {
                    Component::Stays => {}
                    Component::Constant(value) => {
                        bytes.iter_mut().zip(value.to_le_bytes()).for_each(|(to, from)| *to = from);
                    }
                    Component::Source(which) => {
                        let start = usize::from(*which).saturating_mul(size);
                        let from = source.get(start..).unwrap_or_default();
                        bytes.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
                    }
                }
            }
        }
    }
}
