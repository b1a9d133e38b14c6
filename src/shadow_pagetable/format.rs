//! A GPU's page-table format, as much as walking it needs.
//!
//! A tree is made of tables of several kinds. Each kind has entries of one size that cover equal pieces of
//! the virtual range. An entry is empty, maps a page, or names up to two tables of lower kinds (small and
//! large pages of the same range). Fermi has two levels; Pascal and later have more, and pages in upper ones.

use super::budget::Limits;
use gpuvmk_chip::PhysicalAddress;

/// A kind of table of a format. Entries name tables of *lower* numbers only, so every walk ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableKind(pub u8);

/// Size of a table and what its entries cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of entries.
    pub entries: u32,
    /// Bytes of an entry: 8 or 16.
    pub entry_size: usize,
    /// log2 of the bytes of virtual range that an entry covers.
    pub entry_shift: u8,
}

/// A table that a directory entry names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubTable {
    /// Its kind, lower than that of the directory.
    pub kind: TableKind,
    /// Where it is.
    pub address: PhysicalAddress,
}

/// A page that an entry maps. Its size is what the entry covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// First byte, a multiple of the page size.
    pub target: PhysicalAddress,
    /// True when stores fault.
    pub read_only: bool,
    /// Storage kind, as in a page-table entry.
    pub kind: u8,
}

/// A decoded entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Translates nothing.
    Empty,
    /// Maps a page.
    Page(Leaf),
    /// Maps what no guest has, such as another GPU's memory.
    Refused,
    /// Names tables, at most one for each slot.
    Tables([Option<SubTable>; 2]),
}

/// A page-table format. Implementations are pure and total.
pub trait MmuFormat: Copy {
    /// The kind of table that a page-directory base names.
    fn root(&self) -> TableKind;

    /// The kind of table that an entry of a root names, where there are more than two levels.
    fn below_root(&self) -> TableKind {
        self.root()
    }

    /// The shape of tables of `kind`.
    fn shape(&self, kind: TableKind) -> Shape;

    /// Default limits of a VM's page tables in this format.
    fn limits(&self) -> Limits {
        Limits::DEFAULT
    }

    /// The difference between an entry of 8 bytes and the entry that maps the next page in memory, in tables
    /// whose entries are pages and nothing else: one page, in the address field. The field has room for more
    /// pages than a table has entries. If an address leaves it, the entry does not mean the next page.
    fn step(&self, _kind: TableKind) -> Option<u64> {
        None
    }

    /// Decodes an entry (8-byte entries zero-extended). One that is 0 is empty.
    fn decode(&self, kind: TableKind, raw: u128) -> Entry;
}

/// What an entry says that [`MmuFormat::decode`] calls empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emptiness {
    /// Names no table.
    NoTable,
    /// Has no page. A table of smaller pages of the same range may have one.
    NoPage,
    /// Has no page, and no smaller one is looked for.
    NoSmallerPage,
}

/// A format that a window of the CPU is walked in, too, which asks more of it than shadowing. Implementations
/// are pure and total.
pub trait WindowFormat: MmuFormat {
    /// What an empty entry says.
    fn emptiness(&self, kind: TableKind, raw: u128) -> Emptiness;
}
