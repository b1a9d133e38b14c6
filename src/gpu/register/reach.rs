//! What a card reaches of the host's memory for tenants: told to the kernel a piece at a time, when a page
//! table first names it, and by other threads than the one that owns the GPU.
//!
//! The kernel holds in place what a card reaches. That takes some 0.1 ms for a piece whose pages are there,
//! far longer for one whose pages have to be made, and other calls wait meanwhile. So the owner gives orders,
//! and whatever needs a piece waits for its own. Nothing here waits: who asks is told to ask again. What no
//! page table names is not held.
//!
//! Pages of a guest's memory that are not there would be made in the aggregator's name. Such a piece is
//! refused, and its pages stay faults: a device back end has filled its guest's memory in blocks of [`PIECE`]
//! bytes before it asks for it. What is taken out of the file between the look and the call is not made
//! either: a guest's memory is mapped here so that it makes no pages
//! ([`gpuvmk_pci::mapping::Mapping::of_others`]), and the call fails.

mod ranges;
#[cfg(test)]
mod tests;

use std::os::fd::AsFd;
use std::sync::Arc;

pub(super) use self::ranges::Memory;
use self::ranges::Ranges;
use crate::order_threads::OrderThreads;
use crate::{Budget, GpuError, Progress};
use gpuvmk_chip::addr::Iova;
use gpuvmk_jail::Role;
use gpuvmk_ordered::OrderedMap;
use gpuvmk_pci::dma::BLOCK;
use gpuvmk_pci::mapping::unbacked;
use gpuvmk_pci::{DmaError, DmaMapping, PciFunction};

/// Bytes of bus addresses that the card is told of at a time.
pub(super) const PIECE: u64 = BLOCK;

/// Something to tell the kernel.
#[derive(Debug)]
pub(super) enum Order {
    /// The card may reach memory.
    Map(DmaMapping, Memory),
    /// It reaches a range no more, which may be a part of what it was told of.
    Unmap { iova: u64, size: u64 },
}

/// Result of an order, by its first bus address.
#[derive(Debug)]
pub(super) enum Answer {
    Mapped(u64, Result<(), DmaError>),
    Unmapped(u64, Result<(), DmaError>),
}

/// Carries orders out.
pub(super) trait Teller: Send {
    /// Gives an order. Does not wait.
    fn order(&mut self, order: Order);

    /// The next answer that is there.
    fn answer(&mut self) -> Option<Answer>;
}

impl Teller for OrderThreads<Order, Answer> {
    fn order(&mut self, order: Order) {
        Self::order(self, order);
    }

    fn answer(&mut self) -> Option<Answer> {
        Self::answer(self)
    }
}

/// Threads that carry orders out.
pub(super) fn threads(function: Arc<dyn PciFunction>) -> std::io::Result<Box<dyn Teller>> {
    let threads =
        OrderThreads::start("pinner", Role::Pinner, None, move |order| carry_out(function.as_ref(), order))?;
    Ok(Box::new(threads))
}

fn carry_out(function: &dyn PciFunction, order: Order) -> Answer {
    match order {
        Order::Map(mapping, memory) => {
            let iova = mapping.iova;
            let there = if memory == Memory::Guest { is_filled(&mapping) } else { Ok(()) };
            Answer::Mapped(iova, there.and_then(|()| function.dma_map(mapping)))
        }
        Order::Unmap { iova, size } => Answer::Unmapped(iova, function.dma_unmap(iova, size)),
    }
}

/// An error unless all pages of a range are there.
fn is_filled(mapping: &DmaMapping) -> Result<(), DmaError> {
    let DmaMapping { iova, size, backing, .. } = mapping;
    let Some(backing) = backing else { return Ok(()) };
    let missing = unbacked(backing.fd.as_fd(), backing.offset, *size, 0).map_err(|error| {
        DmaError::Backing { iova: *iova, size: *size, source: std::io::Error::other(error) }
    })?;
    if missing == 0 {
        return Ok(());
    }
    let why = "its pages are not all there, and to make them is for the VM's device back end to do";
    Err(DmaError::Invalid { iova: *iova, size: *size, why })
}

/// How far a piece is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// The kernel is being told of it.
    Ordered,
    /// The card reaches it.
    Held,
    /// It could not be told. The next request gets the error, and a later one tries again.
    Refused(String),
    /// It is being taken away.
    Going,
    /// What was one piece with it is being taken away.
    Rest,
}

/// Consecutive bus addresses that the kernel was told of together.
#[derive(Clone, Debug)]
struct Piece {
    size: u64,
    state: State,
}

/// What a card may reach, and what it does.
pub(super) struct Reach {
    teller: Box<dyn Teller>,
    ranges: Ranges,
    pieces: OrderedMap<u64, Piece>,
    /// The error of taking a piece away, until a caller gets it.
    failed: Option<DmaError>,
}

impl Reach {
    pub(super) fn new(teller: Box<dyn Teller>) -> Self {
        Self { teller, ranges: Ranges::default(), pieces: OrderedMap::new(), failed: None }
    }

    /// Memory that page tables may name from now on.
    ///
    /// # Errors
    /// It is no memory that a card can be told of, or there is other memory.
    pub(super) fn announce(&mut self, mapping: DmaMapping, memory: Memory) -> Result<(), DmaError> {
        let DmaMapping { iova, size, .. } = mapping;
        if self.pieces_in(iova, size).next().is_some() {
            return Err(DmaError::Overlap { iova, size });
        }
        self.ranges.add(mapping, memory)
    }

    /// True when the card reaches all of `[iova, iova + size)`. Otherwise it is being told: ask again.
    ///
    /// # Errors
    /// Nothing was announced there, or the kernel did not let the card reach a part of it.
    pub(super) fn hold(&mut self, iova: Iova, size: u64) -> Result<bool, GpuError> {
        self.take_answers();
        let end = iova.0.saturating_add(size);
        let (mut at, mut all) = (iova.0, true);
        while at < end {
            let (first, last) = self.piece_of(at)?;
            match self.pieces.get(&first).map(|piece| &piece.state) {
                Some(State::Held) => {}
                Some(State::Ordered | State::Going | State::Rest) => all = false,
                Some(State::Refused(why)) => {
                    let why = GpuError::Unmappable(why.clone());
                    self.pieces.remove(&first);
                    return Err(why);
                }
                None => {
                    let (mapping, memory) = self.ranges.part(first, last.saturating_sub(first))?;
                    self.note(first, last, State::Ordered);
                    self.teller.order(Order::Map(mapping, memory));
                    all = false;
                }
            }
            at = last;
        }
        Ok(all)
    }

    /// Takes memory away from the card, for as long as the budget lasts; it stays announced.
    ///
    /// # Errors
    /// The kernel refuses: the card may still reach it.
    pub(super) fn advance_release(
        &mut self,
        iova: Iova,
        size: u64,
        budget: &mut Budget,
    ) -> Result<Progress, GpuError> {
        self.take_answers();
        if let Some(error) = self.failed.take() {
            return Err(error.into());
        }
        let end = iova.0.saturating_add(size);
        let held: Vec<(u64, Piece)> =
            self.pieces_in(iova.0, size).map(|(first, piece)| (first, piece.clone())).collect();
        let mut waits = false;
        for (first, piece) in held {
            match piece.state {
                State::Ordered | State::Going | State::Rest => waits = true,
                State::Refused(_) => {
                    self.pieces.remove(&first);
                }
                State::Held => {
                    self.cut(first, piece.size, iova.0, end);
                    waits = true;
                }
            }
            if budget.spend(1) {
                return Ok(Progress::More);
            }
        }
        Ok(if waits { Progress::Waits } else { Progress::Done })
    }

    /// Takes memory away from the card, for as long as the budget lasts, and forgets it.
    ///
    /// # Errors
    /// As [`Self::advance_release`].
    pub(super) fn advance_withdraw(
        &mut self,
        iova: Iova,
        size: u64,
        budget: &mut Budget,
    ) -> Result<Progress, GpuError> {
        self.ranges.remove(iova.0, size);
        self.advance_release(iova, size, budget)
    }

    /// Orders that a part of a piece goes; what is left of it is out of the card's reach meanwhile.
    fn cut(&mut self, first: u64, size: u64, from: u64, to: u64) {
        let last = first.saturating_add(size);
        let (cut, end) = (first.max(from), last.min(to));
        self.note(cut, end, State::Going);
        for (start, end) in [(first, cut), (end, last)] {
            if start < end {
                self.note(start, end, State::Rest);
            }
        }
        self.teller.order(Order::Unmap { iova: cut, size: end.saturating_sub(cut) });
    }

    fn take_answers(&mut self) {
        while let Some(answer) = self.teller.answer() {
            match answer {
                Answer::Mapped(first, told) => {
                    if let Some(piece) = self.pieces.get_mut(&first) {
                        let why = |error: DmaError| GpuError::from(error).with_causes();
                        piece.state = told.map_or_else(|error| State::Refused(why(error)), |()| State::Held);
                    }
                }
                Answer::Unmapped(first, taken) => {
                    let Some(gone) = self.pieces.remove(&first) else { continue };
                    // What was left of a piece that was cut is told of again by the same call.
                    let end = first.saturating_add(gone.size);
                    let before = self.pieces.range_mut(..first).next_back();
                    let before = before.filter(|(start, piece)| start.saturating_add(piece.size) == first);
                    if let Some((_, piece)) = before {
                        settle(piece);
                    }
                    if let Some(piece) = self.pieces.get_mut(&end) {
                        settle(piece);
                    }
                    if let Err(error) = taken {
                        self.failed.get_or_insert(error);
                    }
                }
            }
        }
    }

    fn note(&mut self, first: u64, last: u64, state: State) {
        self.pieces.insert(first, Piece { size: last.saturating_sub(first), state });
    }

    /// First and last bus address (exclusive) of the piece that an address lies in, or would.
    fn piece_of(&self, at: u64) -> Result<(u64, u64), GpuError> {
        let (start, end) = self.ranges.around(at)?;
        if let Some((first, piece)) = self.pieces.range(..=at).next_back()
            && at < first.saturating_add(piece.size)
        {
            return Ok((*first, first.saturating_add(piece.size)));
        }
        let floor = at / PIECE * PIECE;
        // A piece of which a part went may have left others in its block.
        let before = self.pieces.range(..at).next_back();
        let before = before.map_or(0, |(first, piece)| first.saturating_add(piece.size));
        let behind = self.pieces.range(at..).next().map_or(u64::MAX, |(first, _)| *first);
        Ok((floor.max(start).max(before), floor.saturating_add(PIECE).min(end).min(behind)))
    }

    /// The pieces that have a byte in a range.
    fn pieces_in(&self, iova: u64, size: u64) -> impl Iterator<Item = (u64, &Piece)> {
        let end = iova.saturating_add(size);
        let below = self.pieces.range(..iova).next_back();
        let below = below.filter(|(first, piece)| first.saturating_add(piece.size) > iova);
        below.into_iter().chain(self.pieces.range(iova..end.max(iova))).map(|(first, piece)| (*first, piece))
    }
}

/// The rest of a piece that was cut is whole again.
fn settle(piece: &mut Piece) {
    if piece.state == State::Rest {
        piece.state = State::Held;
    }
}
