//! Windows of GF100 to GM107: an instance block names the page directory and the last address. The instance
//! block itself is read when it is bound.

mod state;

use super::{Mapping, Translation, Walk, Window};
use crate::PhysicalMemory;
use gpuvmk_chip::gf100::mmu::{ENTRY_SIZE, LargePages, Pde, Pte, PteDefect, SMALL_PAGE_SHIFT, VA_MAX};
use gpuvmk_chip::gf100::ramin;
use gpuvmk_chip::{FaultReason, PhysicalAddress};
pub use state::{FermiRootState, FermiTablesState};

/// Small pages in the largest large one, of 128 KiB.
const MOST_SMALL: usize = 32;

/// Large pages that are looked at in one go.
const AT_A_TIME: u64 = 64;

/// log2 of the whole range, for which a window without tables has one answer.
const VA_SHIFT: u8 = 40;

/// Where a window's tables begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum Root {
    /// Offsets are VRAM addresses.
    #[default]
    Physical,
    /// Offsets are virtual addresses below this page directory.
    Virtual {
        /// Root of the tables; none when the instance block could not be read.
        directory: Option<PhysicalAddress>,
        /// Last address of the space.
        limit: u64,
    },
}

/// A window's tables in the Fermi format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FermiTables {
    root: Root,
    large_pages: LargePages,
}

impl Translation for FermiTables {
    fn walk(&self, page: u64, memory: &impl PhysicalMemory) -> Walk {
        match self.root {
            Root::Physical => Walk { found: Ok(Mapping::identity(page)), shift: VA_SHIFT },
            Root::Virtual { directory: None, .. } => {
                Walk { found: Err(FaultReason::NoChannel), shift: VA_SHIFT }
            }
            Root::Virtual { directory: Some(directory), limit } => {
                walk(directory, limit, self.large_pages, page, memory)
            }
        }
    }

    fn goes_on_to(&self, page: u64, walk: &Walk, end: u64, memory: &impl PhysicalMemory) -> u64 {
        let behind = walk.behind(page).min(end);
        let (Root::Virtual { directory: Some(directory), limit }, Ok(first)) = (self.root, walk.found) else {
            return behind;
        };
        if walk.shift != self.large_pages.page_shift() {
            return behind;
        }
        let last = end.min(limit.saturating_add(1));
        let more = large_pages_behind(directory, self.large_pages, (behind, first), last, memory);
        behind.saturating_add(more.unwrap_or(0))
    }
}

impl FermiTables {
    /// The page directory and the last address, where there are tables.
    pub const fn root(&self) -> Option<(PhysicalAddress, u64)> {
        match self.root {
            Root::Virtual { directory: Some(directory), limit } => Some((directory, limit)),
            Root::Physical | Root::Virtual { directory: None, .. } => None,
        }
    }
}

impl Window<FermiTables> {
    /// Shows VRAM directly.
    pub fn bind_physical(&mut self) {
        self.set_tables(FermiTables { root: Root::Physical, ..self.tables });
    }

    /// Goes through the page tables that the instance block names.
    pub fn bind_instance(&mut self, instance: PhysicalAddress, memory: &impl PhysicalMemory) {
        self.set_tables(FermiTables { root: read_instance(instance, memory), ..self.tables });
    }

    /// Sets the size of large pages; old translations go. True when it was another one.
    pub fn set_large_pages(&mut self, large_pages: LargePages) -> bool {
        let is_new = self.tables.large_pages != large_pages;
        if is_new {
            self.set_tables(FermiTables { large_pages, ..self.tables });
        }
        is_new
    }

    /// Drops translations of that page directory. True when the window goes through it.
    pub fn flush(&mut self, directory: PhysicalAddress) -> bool {
        let mine =
            matches!(self.tables.root, Root::Virtual { directory: Some(mine), .. } if mine == directory);
        if mine {
            self.flush_all();
        }
        mine
    }
}

fn read_instance(instance: PhysicalAddress, memory: &impl PhysicalMemory) -> Root {
    let word = |offset| {
        let address = instance.address.checked_add(offset)?;
        let mut raw = [0; 8];
        memory.read_tables(PhysicalAddress { address, ..instance }, &mut raw).then(|| u64::from_le_bytes(raw))
    };
    let directory = word(ramin::PAGE_DIRECTORY_LO).and_then(ramin::page_directory);
    let limit = word(ramin::VA_LIMIT_LO).unwrap_or(0);
    Root::Virtual { directory, limit: limit.min(VA_MAX) }
}

/// Walks the tables for the 4 KiB at `address`.
fn walk(
    directory: PhysicalAddress,
    limit: u64,
    large_pages: LargePages,
    address: u64,
    memory: &impl PhysicalMemory,
) -> Walk {
    if address > limit || address > VA_MAX {
        return Walk { found: Err(FaultReason::VmLimitExceeded), shift: SMALL_PAGE_SHIFT };
    }
    let (found, shift) = look_up(directory, large_pages, address, memory);
    // A page that crosses the limit is valid up to the limit.
    let is_cut = (address | ((1 << shift) - 1)) > limit;
    Walk { found, shift: if is_cut { SMALL_PAGE_SHIFT } else { shift } }
}

/// The same below the limit, with the size of what was found.
fn look_up(
    directory: PhysicalAddress,
    large_pages: LargePages,
    address: u64,
    memory: &impl PhysicalMemory,
) -> (Result<Mapping, FaultReason>, u8) {
    let entry = |table: PhysicalAddress, index: u64| {
        let offset = index.checked_mul(ENTRY_SIZE).and_then(|offset| table.address.checked_add(offset));
        let address = offset.ok_or(FaultReason::PageTableTooShort)?;
        let mut raw = [0; 8];
        if memory.read_tables(PhysicalAddress { address, ..table }, &mut raw) {
            Ok(u64::from_le_bytes(raw))
        } else {
            Err(FaultReason::UnsupportedAperture)
        }
    };
    let pde = match entry(directory, large_pages.directory_index(address)) {
        Ok(raw) => Pde::decode(raw),
        Err(reason) => return (Err(reason), SMALL_PAGE_SHIFT),
    };
    let tables = [(pde.small, SMALL_PAGE_SHIFT), (pde.large, large_pages.page_shift())];
    let mut reason = FaultReason::PageTableNotPresent;
    // As much as what was looked at covers.
    let mut covered = large_pages.directory_shift();
    for (table, shift) in tables {
        let Some(table) = table else { continue };
        covered = covered.min(shift);
        match entry(table, large_pages.table_index(address, shift)).map(Pte::decode) {
            Ok(Ok(pte)) => {
                let inside = (1 << shift) - 1;
                let first = pte.target.address & !inside | address & inside;
                let target = PhysicalAddress { address: first, ..pte.target };
                let found = Ok(Mapping { target, read_only: pte.read_only });
                let alone = shift > SMALL_PAGE_SHIFT
                    && pde.small.is_some_and(|small| has_no_small(small, large_pages, address, memory));
                return (found, if alone { shift } else { covered });
            }
            Ok(Err(PteDefect::NotValid)) => reason = FaultReason::PageNotPresent,
            Ok(Err(PteDefect::Aperture)) => reason = FaultReason::UnsupportedAperture,
            Err(reason) => return (Err(reason), SMALL_PAGE_SHIFT),
        }
    }
    (Err(reason), covered)
}

/// Bytes from the border of a large page at `behind` on that large pages show, without small ones, and that
/// continue the page before it, of which `first` is a part. Looks at some of a table only.
fn large_pages_behind(
    directory: PhysicalAddress,
    large_pages: LargePages,
    (behind, first): (u64, Mapping),
    end: u64,
    memory: &impl PhysicalMemory,
) -> Option<u64> {
    let page = 1 << large_pages.page_shift();
    let index = large_pages.table_index(behind, large_pages.page_shift());
    // The next table has a directory entry of its own.
    let left =
        large_pages.table_entries(large_pages.page_shift()).checked_sub(index).filter(|_| index > 0)?;
    let count =
        Some((end.saturating_sub(behind) / page).min(left).min(AT_A_TIME)).filter(|count| *count > 0)?;
    let read = |table: PhysicalAddress, index: u64, count: u64| {
        let address = table.address.checked_add(index.checked_mul(ENTRY_SIZE)?)?;
        let mut raw = vec![0; usize::try_from(count.checked_mul(ENTRY_SIZE)?).ok()?];
        memory.read_tables(PhysicalAddress { address, ..table }, &mut raw).then_some(raw)
    };
    let entries = |raw: Vec<u8>| raw.as_chunks::<8>().0.iter().map(|raw| u64::from_le_bytes(*raw)).collect();
    let pde = read(directory, large_pages.directory_index(behind), 1)?;
    let pde = Pde::decode(u64::from_le_bytes(*pde.first_chunk()?));
    let large: Vec<u64> = entries(read(pde.large?, index, count)?);
    let small_at_a_page = page >> SMALL_PAGE_SHIFT;
    let small: Vec<u64> = match pde.small {
        Some(table) => {
            let first = large_pages.table_index(behind, SMALL_PAGE_SHIFT);
            entries(read(table, first, count.checked_mul(small_at_a_page)?)?)
        }
        None => Vec::new(),
    };
    let mut next = first.target.address.checked_next_multiple_of(page)?;
    if first.target.address.is_multiple_of(page) {
        next = next.checked_add(page)?;
    }
    let mut small = small.chunks(usize::try_from(small_at_a_page).ok()?);
    let goes_on = |raw: &&u64| {
        let no_small = small.next().is_none_or(|some| {
            some.iter().all(|raw| *raw == 0 || matches!(Pte::decode(*raw), Err(PteDefect::NotValid)))
        });
        let follows = Pte::decode(**raw).is_ok_and(|pte| {
            pte.read_only == first.read_only
                && pte.target.aperture == first.target.aperture
                && pte.target.address & !(page - 1) == next
        });
        next = next.saturating_add(page);
        no_small && follows
    };
    (large.iter().take_while(goes_on).count() as u64).checked_mul(page)
}

/// True if no small page is mapped where the large one around an address lies.
fn has_no_small(
    table: PhysicalAddress,
    large_pages: LargePages,
    address: u64,
    memory: &impl PhysicalMemory,
) -> bool {
    let start = address & !((1 << large_pages.page_shift()) - 1);
    let first = large_pages.table_index(start, SMALL_PAGE_SHIFT).saturating_mul(ENTRY_SIZE);
    let count = 1_usize << (large_pages.page_shift() - SMALL_PAGE_SHIFT);
    let mut raw = [0; MOST_SMALL * size_of::<u64>()];
    let Some(raw) = raw.get_mut(..count.saturating_mul(size_of::<u64>())) else { return false };
    let Some(at) = table.address.checked_add(first) else { return false };
    memory.read_tables(PhysicalAddress { address: at, ..table }, raw)
        && raw
            .as_chunks::<8>()
            .0
            .iter()
            .all(|raw| matches!(Pte::decode(u64::from_le_bytes(*raw)), Err(PteDefect::NotValid)))
}

#[cfg(test)]
mod tests;
