//! VRAM that firmware saves over a suspension, for drivers that leave that to it: they list pages of their
//! own memory, then pieces of VRAM, each with its place in those pages.
//!
//! A piece is copied when it is listed: the driver has stopped everything by then. It is put back when GSP
//! goes on and VRAM may have lost it. The back checks each address, as of any other access.

use gpuvmk_backend::GspBackend;
use gpuvmk_chip::addr::PAGE_SIZE;
use gpuvmk_chip::{Aperture, PhysicalAddress};
use gpuvmk_saved_state::{Check, StateError};
use serde::{Deserialize, Serialize};

use crate::abi::status::Status;
use crate::abi::values::{Id, SuspendRegion};
use crate::model::shared::bus;

/// Pages of one list at most: what an RPC can name.
const MOST_PAGES: usize = 0x3_0000 / 8;
/// Pieces at most. A driver lists some fifty.
const MOST_PIECES: usize = 4096;
/// Bytes of a page.
// CAST: 4096.
#[allow(clippy::cast_possible_truncation, reason = "4096")]
const PAGE: usize = PAGE_SIZE as usize;

/// The list of pages that was made last: drivers use a list before they make another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageList {
    /// Its client.
    pub client: u32,
    /// Its handle.
    pub handle: u32,
    /// Addresses of the pages: bus addresses, or those of VRAM.
    pub pages: Vec<u64>,
}

/// What is saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VramSave {
    /// Bus addresses of the pages in which it is.
    pub pages: Vec<u64>,
    /// The pieces.
    pub pieces: Vec<VramPieceSave>,
}

/// A page of VRAM that is saved, or a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VramPieceSave {
    /// VRAM address.
    pub vram: u64,
    /// Offset in the pages.
    pub at: u64,
    /// Bytes.
    pub size: u64,
}

impl PageList {
    /// A list of an object.
    pub(super) fn new(id: Id, pages: Vec<u64>) -> Self {
        Self { client: id.client, handle: id.handle, pages }
    }

    /// The pages, if the list is that of an object.
    fn of(&self, id: Id) -> Option<&[u64]> {
        (self.client == id.client && self.handle == id.handle).then_some(self.pages.as_slice())
    }
}

impl VramSave {
    /// Room in the pages of a list that was just made.
    pub(super) fn new(list: Option<&PageList>, id: Id) -> Result<Self, Status> {
        let pages = list.and_then(|list| list.of(id)).ok_or(Status::InvalidState)?;
        Ok(Self { pages: pages.to_vec(), pieces: Vec::new() })
    }

    /// Bytes of room.
    const fn room(&self) -> u64 {
        // CAST: widening.
        (self.pages.len() as u64).saturating_mul(PAGE_SIZE)
    }

    /// Saves a piece of VRAM in a list that was just made. What is not in VRAM has nothing to save.
    pub(super) fn add(
        &mut self,
        back: &dyn GspBackend,
        vram: u64,
        list: Option<&PageList>,
        region: SuspendRegion,
    ) -> Result<(), Status> {
        let SuspendRegion { client, list: handle, from, to, size } = region;
        let pages = list.and_then(|list| list.of(Id { client, handle })).ok_or(Status::InvalidState)?;
        if to.checked_add(size).is_none_or(|end| end > self.room()) {
            return Err(Status::InvalidLimit);
        }
        let mut pieces = Vec::new();
        let mut done = 0;
        while done < size {
            let start = from.checked_add(done).ok_or(Status::InvalidLimit)?;
            let page = usize::try_from(start / PAGE_SIZE).ok().and_then(|page| pages.get(page));
            let page = page.ok_or(Status::InvalidLimit)?;
            let within = start % PAGE_SIZE;
            let part = (PAGE_SIZE - within).min(size - done);
            let address = page.saturating_add(within);
            if address.checked_add(part).is_some_and(|end| end <= vram) {
                grow(&mut pieces, VramPieceSave { vram: address, at: to.saturating_add(done), size: part });
            }
            done = done.saturating_add(part);
        }
        if self.pieces.len().saturating_add(pieces.len()) > MOST_PIECES {
            return Err(Status::InsufficientResources);
        }
        for piece in &pieces {
            self.copy(back, *piece, Direction::Save).map_err(|()| Status::InvalidAddress)?;
        }
        self.pieces.extend(pieces);
        Ok(())
    }

    /// Puts everything back. The error is the bus address of memory that is gone.
    pub(super) fn restore(&self, back: &dyn GspBackend) -> Result<(), ()> {
        self.pieces.iter().try_for_each(|piece| self.copy(back, *piece, Direction::Restore))
    }

    fn copy(&self, back: &dyn GspBackend, piece: VramPieceSave, direction: Direction) -> Result<(), ()> {
        let mut data = [0; PAGE];
        let mut done = 0;
        while done < piece.size {
            let at = piece.at.saturating_add(done);
            let page = usize::try_from(at / PAGE_SIZE).ok().and_then(|page| self.pages.get(page)).ok_or(())?;
            let within = at % PAGE_SIZE;
            let part = (PAGE_SIZE - within).min(piece.size - done);
            let data = data.get_mut(..usize::try_from(part).map_err(drop)?).ok_or(())?;
            let memory = bus(page.saturating_add(within));
            let vram = PhysicalAddress { aperture: Aperture::Vram, address: piece.vram.saturating_add(done) };
            let (from, to) = match direction {
                Direction::Save => (vram, memory),
                Direction::Restore => (memory, vram),
            };
            back.read_memory(from, data).map_err(drop)?;
            back.write_memory(to, data).map_err(drop)?;
            done = done.saturating_add(part);
        }
        Ok(())
    }

    /// Numbers that say all of it, for the memory in which a GSP is suspended.
    pub(super) fn write(&self, mut put: impl FnMut(u64)) {
        // CAST: widening.
        [self.pages.len() as u64, self.pieces.len() as u64].into_iter().for_each(&mut put);
        self.pages.iter().copied().for_each(&mut put);
        self.pieces.iter().flat_map(|piece| [piece.vram, piece.at, piece.size]).for_each(&mut put);
    }

    /// Bytes of these numbers, at most.
    pub(super) const fn most_bytes() -> u64 {
        // CAST: widening.
        8 * (2 + MOST_PAGES as u64 + 3 * MOST_PIECES as u64)
    }

    /// From such numbers; none if they say something that could not have been saved.
    pub(super) fn read<E>(vram: u64, mut take: impl FnMut() -> Result<u64, E>) -> Result<Option<Self>, E> {
        let (pages, pieces) = (take()?, take()?);
        let mut save = Self { pages: Vec::new(), pieces: Vec::new() };
        // Each number is taken before there is room for the next: a count that lies costs nothing.
        for _ in 0..pages {
            save.pages.push(take()?);
        }
        for _ in 0..pieces {
            save.pieces.push(VramPieceSave { vram: take()?, at: take()?, size: take()? });
        }
        Ok(save.is_possible(vram).then_some(save))
    }

    fn is_possible(&self, vram: u64) -> bool {
        let inside =
            |start: u64, size: u64, end: u64| start.checked_add(size).is_some_and(|last| last <= end);
        let fits = |piece: &VramPieceSave| {
            piece.size > 0
                && inside(piece.vram, piece.size, vram)
                && inside(piece.at, piece.size, self.room())
        };
        self.pages.len() <= MOST_PAGES
            && self.pieces.len() <= MOST_PIECES
            && self.pages.iter().all(|page| are_pages(*page))
            && self.pieces.iter().all(fits)
    }

    /// Checks what a saved state has.
    ///
    /// # Errors
    /// No driver can have listed it.
    pub(super) fn check(list: Option<&PageList>, save: Option<&Self>, vram: u64) -> Result<(), StateError> {
        let check = Check("VRAM that is saved");
        check
            .that(save.is_none_or(|save| save.is_possible(vram)), || "a piece cannot be there".to_owned())?;
        let pages = list.map_or(&[][..], |list| list.pages.as_slice());
        check.at_most("pages of a list", pages.len(), MOST_PAGES)?;
        check.that(pages.iter().all(|page| are_pages(*page)), || "a page of a list is none".to_owned())
    }
}

/// Where bytes go.
#[derive(Clone, Copy)]
enum Direction {
    Save,
    Restore,
}

/// The address of a page, or what stands for one that is too large.
const fn are_pages(address: u64) -> bool {
    address.is_multiple_of(PAGE_SIZE) || address == u64::MAX
}

/// Adds a piece, to the last one where it goes on there.
fn grow(pieces: &mut Vec<VramPieceSave>, piece: VramPieceSave) {
    match pieces.last_mut() {
        Some(last)
            if last.vram.saturating_add(last.size) == piece.vram
                && last.at.saturating_add(last.size) == piece.at =>
        {
            last.size = last.size.saturating_add(piece.size);
        }
        _ => pieces.push(piece),
    }
}
