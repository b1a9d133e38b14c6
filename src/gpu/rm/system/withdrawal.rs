//! Ranges that are withdrawn: what no other range shows is let go of.

use super::{Piece, SystemMemory, Withdrawn};
use crate::rm::device::Device;
use crate::rm::pinner::Order;
use crate::{Budget, GpuError, Progress};
use gpuvmk_chip::addr::Iova;
use gpuvmk_host::reaper;
use gpuvmk_pci::DmaError;

impl SystemMemory {
    /// Withdraws whole ranges, and frees pieces that no range shows any more, for as long as the budget
    /// lasts. No address space may map any of it.
    ///
    /// # Errors
    /// No such range, or the driver refuses.
    pub fn advance_unmap(
        &mut self,
        device: &mut Device,
        iova: Iova,
        size: u64,
        budget: &mut Budget,
    ) -> Result<Progress, GpuError> {
        self.take_answers(device);
        let end = iova.checked_add(size).ok_or(DmaError::NotMapped { iova: iova.0, size })?.0;
        if self.withdrawn.range(iova.0..end).next().is_none() {
            self.withdraw(iova, end)?;
        }
        let starts: Vec<u64> = self.withdrawn.range(iova.0..end).map(|(start, _)| *start).collect();
        for start in starts {
            while let Some(index) = self.next_of(start) {
                self.let_go(start, index);
                if budget.spend(1) {
                    return Ok(Progress::More);
                }
            }
            let file = self.withdrawn.get(&start).and_then(|range| range.pieces.as_ref()).map(|(id, _)| *id);
            if let Some(error) = file.and_then(|id| self.failed.remove(&id)) {
                return Err(error);
            }
            if self.is_being_freed(start) {
                return Ok(Progress::Waits);
            }
            self.withdrawn.remove(&start);
            if budget.spend(1) && self.withdrawn.range(iova.0..end).next().is_some() {
                return Ok(Progress::More);
            }
        }
        Ok(Progress::Done)
    }

    /// Takes ranges, and parts of them, out of the books.
    fn withdraw(&mut self, iova: Iova, end: u64) -> Result<(), GpuError> {
        let below = self.ranges.range(..iova.0).next_back();
        let below = below.filter(|(start, range)| start.saturating_add(range.size) > iova.0);
        let inside: Vec<u64> =
            below.into_iter().chain(self.ranges.range(iova.0..end)).map(|(start, _)| *start).collect();
        for start in inside {
            let Some(range) = self.ranges.remove(&start) else { continue };
            let last = start.saturating_add(range.size);
            let left = (start < iova.0).then(|| (start, range.part(0, iova.0.saturating_sub(start))));
            let right =
                (end < last).then(|| (end, range.part(end.saturating_sub(start), last.saturating_sub(end))));
            let (first, to) = (start.max(iova.0), last.min(end));
            let range = range.part(first.saturating_sub(start), to.saturating_sub(first));
            for (at, part) in left.into_iter().chain(right) {
                if let Some(file) = part.file.and_then(|(id, _)| self.files.get_mut(&id)) {
                    file.ranges.insert(at);
                }
                self.ranges.insert(at, part);
            }
            let pieces = range.pieces();
            if let Some((id, _)) = &pieces
                && let Some(file) = self.files.get_mut(id)
            {
                if !self.ranges.contains_key(&start) {
                    file.ranges.remove(&start);
                }
                if file.ranges.is_empty()
                    && let Some(gone) = self.files.remove(id)
                {
                    reaper::give_up(gone.fd);
                }
            }
            let next = pieces.as_ref().map_or(0, |(_, span)| *span.start());
            self.withdrawn.insert(first, Withdrawn { pieces, next });
        }
        Ok(())
    }

    /// The next piece that a withdrawn range showed.
    fn next_of(&self, start: u64) -> Option<u64> {
        let withdrawn = self.withdrawn.get(&start)?;
        let (file, span) = withdrawn.pieces.as_ref()?;
        let left = (*file, withdrawn.next)..=(*file, *span.end());
        if withdrawn.next > *span.end() {
            return None;
        }
        self.pieces.range(left).next().map(|((_, index), _)| *index)
    }

    /// Lets go of a piece unless another range shows it.
    fn let_go(&mut self, start: u64, index: u64) {
        let Some(withdrawn) = self.withdrawn.get_mut(&start) else { return };
        withdrawn.next = index.saturating_add(1);
        let Some((id, _)) = withdrawn.pieces.clone() else { return };
        let key = (id, index);
        if self.is_shown(key) {
            return;
        }
        match self.pieces.remove(&key) {
            Some(Piece::Held { object, memory, .. }) => {
                self.pinner.order(Order::Free { key, object, memory });
                self.pieces.insert(key, Piece::Going);
            }
            // It goes when the answer is there.
            Some(piece @ (Piece::Ordered | Piece::Going)) => {
                self.pieces.insert(key, piece);
            }
            Some(Piece::Refused(_)) | None => {}
        }
    }

    /// True if the pinner is at a piece that a withdrawn range showed and no other shows.
    fn is_being_freed(&self, start: u64) -> bool {
        let Some((id, span)) = self.withdrawn.get(&start).and_then(|withdrawn| withdrawn.pieces.clone())
        else {
            return false;
        };
        let mut pieces = self.pieces.range((id, *span.start())..=(id, *span.end()));
        pieces.any(|(key, piece)| match piece {
            Piece::Going => true,
            Piece::Ordered => !self.is_shown(*key),
            Piece::Held { .. } | Piece::Refused(_) => false,
        })
    }
}
