//! A walker that knows the formats by their bits, and shares nothing with the product's: entries are read one
//! by one and taken apart with masks, as the vendor's headers have them.

use gpuvmk::chip::{Aperture, PhysicalAddress};

/// A page that the tables map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    pub target: PhysicalAddress,
    pub read_only: bool,
    pub kind: u8,
}

/// A format of page tables.
#[derive(Clone, Copy, Debug)]
pub enum Format {
    /// One directory, tables of 4 KiB and of large pages.
    Fermi { large_shift: u8 },
    /// Four levels of directories over 49 bits, of which the lowest above the dual one may have pages.
    V2 { pages_of_512_mib: bool },
    /// Five levels of directories over 57 bits.
    V3,
}

type Read<'a> = &'a dyn Fn(u64) -> Option<u64>;
type Found<'a> = &'a mut dyn FnMut(u8, u64, Page);

impl Format {
    /// Calls `found` with page size, address and page of everything that the tree at `root` in VRAM maps.
    pub fn walk(self, root: u64, read: Read<'_>, found: Found<'_>) {
        match self {
            Self::Fermi { large_shift } => fermi(root, large_shift, read, found),
            Self::V2 { pages_of_512_mib: huge } => {
                Gmmu { upper: &V2_UPPER, huge, bits: V2_BITS }.directory(root, 0, 0, read, found);
            }
            Self::V3 => {
                Gmmu { upper: &V3_UPPER, huge: true, bits: V3_BITS }.directory(root, 0, 0, read, found);
            }
        }
    }

    /// A directory entry that names a table in VRAM; `how` says which, of what else.
    pub fn table(self, address: u64, how: u8) -> u64 {
        match self {
            Self::Fermi { .. } => {
                let small = address >> 12 << 36 | 1 << 32;
                let large = (address ^ u64::from(how >> 4) << 12) >> 8 | 1;
                match how % 4 {
                    0 => small | large,
                    1 => large,
                    2 => small | 2 << 32,
                    _ => small,
                }
            }
            // What is below 4 KiB counts for tables of big pages.
            Self::V2 { .. } => (u64::from(how % 8) | 1) << 1 & !1 | u64::from(how >> 4) << 4 | address >> 4,
            Self::V3 => (u64::from(how % 8) | 1) << 1 & !1 | address,
        }
    }

    /// A page entry.
    pub fn page(self, address: u64, how: u8) -> u64 {
        let aperture = [0, 0, 2, 3][usize::from(how % 4)];
        let read_only = u64::from(how >> 2 & 1);
        match self {
            Self::Fermi { .. } => 1 | read_only << 2 | (address >> 8 & 0xffff_fff0) | aperture << 33,
            // Behind the address of VRAM: a peer's number and tags.
            Self::V2 { .. } => {
                let (field, tags) = if aperture == 0 { (37, u64::from(how >> 3) << 33) } else { (58, 0) };
                let address = address & ((1 << field) - 1);
                1 | aperture << 1 | read_only << 6 | address >> 4 | tags | 6 << 56
            }
            Self::V3 => 1 | aperture << 1 | read_only << 5 | (address & 0x000f_ffff_ffff_f000) | 6 << 8,
        }
    }
}

fn memory(code: u64) -> Option<Aperture> {
    match code {
        0 => Some(Aperture::Vram),
        2 => Some(Aperture::SystemCoherent),
        3 => Some(Aperture::SystemNonCoherent),
        _ => None,
    }
}

fn fermi(root: u64, large_shift: u8, read: Read<'_>, found: Found<'_>) {
    let directory_shift = large_shift + 10;
    let entries = 1u64 << (40 - directory_shift);
    for index in 0..entries {
        let Some(pde) = piece(root, index, entries, read) else { continue };
        let va = index << directory_shift;
        // Only tables in VRAM can be read here: target 1.
        if pde >> 32 & 3 == 1 {
            fermi_table(pde >> 36 << 12, 12, directory_shift, va, read, found);
        }
        if pde & 3 == 1 {
            fermi_table((pde & 0xffff_fff0) << 8, large_shift, directory_shift, va, read, found);
        }
    }
}

fn fermi_table(table: u64, shift: u8, directory_shift: u8, va: u64, read: Read<'_>, found: Found<'_>) {
    let entries = 1u64 << (directory_shift - shift);
    for index in 0..entries {
        let Some(pte) = piece(table, index, entries, read) else { continue };
        let Some(aperture) = memory(pte >> 33 & 3).filter(|_| pte & 1 != 0) else { continue };
        let address = (pte & 0xffff_fff0) << 8 >> shift << shift;
        let target = PhysicalAddress { aperture, address };
        let kind = u8::try_from(pte >> 36 & 0xff).expect("eight bits");
        found(shift, va + (index << shift), Page { target, read_only: pte & 4 != 0, kind });
    }
}

/// Bits that an entry covers and entries, of the upper directories of version 2.
const V2_UPPER: [(u8, u64); 3] = [(47, 4), (38, 512), (29, 512)];
/// The same of version 3.
const V3_UPPER: [(u8, u64); 4] = [(56, 2), (47, 512), (38, 512), (29, 512)];

/// Where the fields of entries are, and by how much addresses are shifted.
#[derive(Clone, Copy)]
struct Bits {
    shift: u8,
    table: u64,
    big_table: u64,
    page_in_vram: u64,
    page_in_system: u64,
    read_only: u8,
    kind: (u8, u64),
}

const V2_BITS: Bits = Bits {
    shift: 4,
    table: 0x1_ffff_ff00,
    big_table: 0x1_ffff_fff0,
    page_in_vram: 0x1_ffff_ff00,
    page_in_system: 0x003f_ffff_ffff_ff00,
    read_only: 6,
    kind: (56, 0xff),
};

const V3_BITS: Bits = Bits {
    shift: 0,
    table: 0x000f_ffff_ffff_f000,
    big_table: 0x000f_ffff_ffff_ff00,
    page_in_vram: 0x000f_ffff_ffff_f000,
    page_in_system: 0x000f_ffff_ffff_f000,
    read_only: 5,
    kind: (8, 0xf),
};

struct Gmmu {
    upper: &'static [(u8, u64)],
    huge: bool,
    bits: Bits,
}

impl Gmmu {
    fn directory(&self, table: u64, depth: usize, va: u64, read: Read<'_>, found: Found<'_>) {
        let Some((shift, entries)) = self.upper.get(depth).copied() else {
            return self.dual(table, va, read, found);
        };
        for index in 0..entries {
            let Some(raw) = piece(table, index, entries, read) else { continue };
            let va = va + (index << shift);
            if raw & 1 == 0 {
                if raw >> 1 & 3 == 1 {
                    let below = (raw & self.bits.table) << self.bits.shift;
                    self.directory(below, depth + 1, va, read, found);
                }
            } else if self.huge && depth + 1 == self.upper.len() {
                self.page(raw, shift, va, found);
            }
        }
    }

    fn dual(&self, table: u64, va: u64, read: Read<'_>, found: Found<'_>) {
        for index in 0..256 {
            let Some(low) = piece(table, index * 2, 512, read) else { continue };
            let Some(high) = piece(table, index * 2 + 1, 512, read) else { continue };
            let va = va + (index << 21);
            if low & 1 != 0 {
                self.page(low, 21, va, found);
                continue;
            }
            if low >> 1 & 3 == 1 {
                self.table((low & self.bits.big_table) << self.bits.shift, 16, 32, va, read, found);
            }
            if high >> 1 & 3 == 1 {
                self.table((high & self.bits.table) << self.bits.shift, 12, 512, va, read, found);
            }
        }
    }

    fn table(&self, table: u64, shift: u8, entries: u64, va: u64, read: Read<'_>, found: Found<'_>) {
        for index in 0..entries {
            if let Some(raw) = piece(table, index, entries, read) {
                self.page(raw, shift, va + (index << shift), found);
            }
        }
    }

    fn page(&self, raw: u64, shift: u8, va: u64, found: Found<'_>) {
        let bits = self.bits;
        let Some(aperture) = memory(raw >> 1 & 3).filter(|_| raw & 1 != 0) else { return };
        let field = if aperture == Aperture::Vram { bits.page_in_vram } else { bits.page_in_system };
        let address = (raw & field) << bits.shift >> shift << shift;
        let kind = u8::try_from(raw >> bits.kind.0 & bits.kind.1).expect("eight bits");
        let target = PhysicalAddress { aperture, address };
        found(shift, va, Page { target, read_only: raw >> bits.read_only & 1 != 0, kind });
    }
}

/// Word `index` of a table of `words` words. What the product reads, it reads by pieces of a page: a piece
/// that is not all there counts as none.
fn piece(table: u64, index: u64, words: u64, read: Read<'_>) -> Option<u64> {
    let word = read(table.checked_add(index * 8)?)?;
    // Most are empty, and empty they are either way.
    if word != 0 {
        read(table.checked_add((index | 0x1ff).min(words - 1) * 8)?)?;
    }
    Some(word)
}
