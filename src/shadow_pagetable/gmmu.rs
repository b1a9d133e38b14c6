//! The formats since Pascal ([`Gmmu`]) as [`MmuFormat`]s: directories down to one of 2 MiB entries, pages in
//! the lowest, and from Ampere on in the lowest two of them, tables of 64 KiB and of 4 KiB pages below.
//!
//! Where a directory entry names both tables, hardware looks at the big one first and at the small one where
//! that has no valid page. Drivers never have both valid for an address; the shadow then keeps what changed
//! last.
//!
//! Not handled: sparse entries fault instead of reading as 0, and the privileged bit is dropped. Pages of
//! another GPU's memory are refused: a function has no peers.

use super::budget::Limits;
use super::format::{Emptiness, Entry, Leaf, MmuFormat, Shape, SubTable, TableKind, WindowFormat};
use gpuvmk_chip::PhysicalAddress;
use gpuvmk_chip::gmmu::{Directory, DualPde, Gmmu, Level, Pde, Pte, PteDefect};

/// Levels by their numbers: entries name tables of lower numbers only.
const fn kind(level: Level) -> TableKind {
    TableKind(match level {
        Level::Small => 0,
        Level::Big => 1,
        Level::Pd0 => 2,
        Level::Pd1 => 3,
        Level::Pd2 => 4,
        Level::Pd3 => 5,
        Level::Pd4 => 6,
    })
}

const fn level(kind: TableKind) -> Level {
    match kind.0 {
        0 => Level::Small,
        1 => Level::Big,
        2 => Level::Pd0,
        3 => Level::Pd1,
        4 => Level::Pd2,
        5 => Level::Pd3,
        _ => Level::Pd4,
    }
}

impl MmuFormat for Gmmu {
    fn root(&self) -> TableKind {
        kind((*self).root())
    }

    fn below_root(&self) -> TableKind {
        let root = (*self).root();
        kind(root.below().unwrap_or(root))
    }

    fn shape(&self, kind: TableKind) -> Shape {
        let level = level(kind);
        // CAST: at most 512 entries of at most 16 bytes.
        #[expect(clippy::cast_possible_truncation, reason = "at most 512 entries of at most 16 bytes")]
        Shape {
            entries: self.entries(level) as u32,
            entry_size: level.entry_size() as usize,
            entry_shift: level.shift(),
        }
    }

    fn limits(&self) -> Limits {
        Limits::SMALL_TABLES
    }

    fn step(&self, kind: TableKind) -> Option<u64> {
        match level(kind) {
            level @ (Level::Small | Level::Big) => Some(self.page_step(level)),
            Level::Pd0 | Level::Pd1 | Level::Pd2 | Level::Pd3 | Level::Pd4 => None,
        }
    }

    #[inline]
    fn decode(&self, kind: TableKind, raw: u128) -> Entry {
        let level = level(kind);
        // CAST: entries of all kinds but one are 64 bits wide.
        #[expect(clippy::cast_possible_truncation, reason = "entries are 64 bits wide where this is used")]
        let low = raw as u64;
        match level {
            Level::Small | Level::Big => page(level, self.decode_page(low)),
            Level::Pd0 => match self.decode_dual(raw) {
                DualPde::Page(pte) => page(level, pte),
                DualPde::Tables { big, small } => tables(table(Level::Small, small), table(Level::Big, big)),
            },
            Level::Pd1 | Level::Pd2 | Level::Pd3 | Level::Pd4 => match self.decode_directory(low) {
                Directory::Page(pte) if self.has_pages(level) => page(level, pte),
                Directory::Page(_) => Entry::Empty,
                Directory::Pde(pde) => tables(level.below().and_then(|below| table(below, pde)), None),
            },
        }
    }
}

impl WindowFormat for Gmmu {
    fn emptiness(&self, kind: TableKind, raw: u128) -> Emptiness {
        // CAST: entries of page tables are 64 bits wide.
        #[expect(clippy::cast_possible_truncation, reason = "entries are 64 bits wide where this is used")]
        let low = raw as u64;
        match (level(kind), self.decode_page(low)) {
            (Level::Small, _) | (Level::Big, Err(PteDefect::NotValid)) => Emptiness::NoPage,
            // What is sparse or leads nowhere is so for every size.
            (Level::Big, _) => Emptiness::NoSmallerPage,
            (Level::Pd0 | Level::Pd1 | Level::Pd2 | Level::Pd3 | Level::Pd4, _) => Emptiness::NoTable,
        }
    }
}

fn page(level: Level, pte: Result<Pte, PteDefect>) -> Entry {
    match pte {
        Ok(pte) => {
            // Hardware ignores address bits below the page size.
            let in_page = (1u64 << level.shift()) - 1;
            Entry::Page(Leaf {
                target: PhysicalAddress { address: pte.target.address & !in_page, ..pte.target },
                read_only: pte.read_only,
                kind: pte.kind,
            })
        }
        Err(PteDefect::Peer(_)) => Entry::Refused,
        Err(PteDefect::NotValid | PteDefect::Sparse | PteDefect::Nowhere | PteDefect::NoSmallPages) => {
            Entry::Empty
        }
    }
}

fn table(level: Level, pde: Pde) -> Option<SubTable> {
    pde.table().map(|address| SubTable { kind: kind(level), address })
}

const fn tables(first: Option<SubTable>, second: Option<SubTable>) -> Entry {
    match (first, second) {
        (None, None) => Entry::Empty,
        both => Entry::Tables([both.0, both.1]),
    }
}

#[cfg(test)]
mod tests;
