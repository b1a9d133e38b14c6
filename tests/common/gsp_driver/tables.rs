//! Page tables of GSP chips as a driver builds them, in the VRAM of its function.

use std::collections::BTreeMap;

use gpuvmk::backend::Backend;
use gpuvmk::chip::gmmu::{Directory, Gmmu, Level, Pde, Pte};
use gpuvmk::chip::{Aperture, PhysicalAddress};

/// Tables from the bottom of VRAM, a page each.
pub struct Tables {
    format: Gmmu,
    next: u64,
    /// Where the entries of the pages lie that were mapped, by address and size.
    known: BTreeMap<(u64, u8), u64>,
}

/// No table is above this.
const END: u64 = 4 << 20;

fn vram(address: u64) -> PhysicalAddress {
    PhysicalAddress { aperture: Aperture::Vram, address }
}

fn read(back: &impl Backend, at: u64) -> u64 {
    let mut raw = [0; 8];
    back.read_tables(vram(at), &mut raw).unwrap();
    u64::from_le_bytes(raw)
}

fn write(back: &impl Backend, at: u64, value: u64) {
    back.write_memory(vram(at), &value.to_le_bytes()).unwrap();
}

impl Tables {
    /// The page directory.
    pub const ROOT: u64 = 0x1000;

    pub fn new(format: Gmmu) -> Self {
        Self { format, next: Self::ROOT + 0x1000, known: BTreeMap::new() }
    }

    /// Their format.
    pub const fn format(&self) -> Gmmu {
        self.format
    }

    /// Zeroes the memory of all tables.
    pub fn clear(&self, back: &impl Backend) {
        for page in (0..END).step_by(0x1000) {
            back.write_memory(vram(page), &[0; 0x1000]).unwrap();
        }
    }

    /// Maps a page of 2 to `shift` bytes.
    pub fn map(&mut self, back: &impl Backend, va: u64, shift: u8, target: PhysicalAddress) {
        let pte = Pte { target, read_only: false, privileged: false, kind: 6 };
        let entry = self.entry(back, va, shift);
        self.known.insert((va, shift), entry);
        write(back, entry, self.format.encode_page(pte));
    }

    /// Makes a fault of a page.
    pub fn unmap(&mut self, back: &impl Backend, va: u64, shift: u8) {
        let entry = self.entry(back, va, shift);
        write(back, entry, 0);
    }

    /// Maps a page anew whose entry is known, whatever became of the tables that lead there.
    pub fn map_again(&mut self, back: &impl Backend, va: u64, shift: u8, target: PhysicalAddress) {
        let pte = Pte { target, read_only: false, privileged: false, kind: 6 };
        if let Some(entry) = self.known.get(&(va, shift)) {
            write(back, *entry, self.format.encode_page(pte));
        }
    }

    /// Where the entry of a mapped 4 KiB page lies.
    pub fn entry_of(&self, va: u64) -> u64 {
        self.known[&(va, 12)]
    }

    fn entry(&mut self, back: &impl Backend, va: u64, shift: u8) -> u64 {
        let format = self.format;
        let (mut at, mut level) = (Self::ROOT, format.root());
        loop {
            let entry = at + format.index(level, va) * level.entry_size();
            if level.shift() == shift {
                return entry;
            }
            let Some(below) = level.below() else {
                // The dual entry: its lower half names the table of big pages.
                let (half, kind) = if shift == 12 { (entry + 8, Level::Small) } else { (entry, Level::Big) };
                let table = self
                    .table(back, half, |table| format.encode_tables(Pde::Table(table), Pde::Invalid) as u64);
                return table + format.index(kind, va) * kind.entry_size();
            };
            at = self.table(back, entry, |table| format.encode_pde(Pde::Table(table)));
            level = below;
        }
    }

    /// The table that an entry names; a new one if it names none.
    fn table(&mut self, back: &impl Backend, entry: u64, encode: impl Fn(PhysicalAddress) -> u64) -> u64 {
        if read(back, entry) == 0 {
            assert!(self.next < END, "no room for tables");
            write(back, entry, encode(vram(self.next)));
            self.next += 0x1000;
        }
        let Directory::Pde(Pde::Table(table)) = self.format.decode_directory(read(back, entry)) else {
            panic!("an entry names no table");
        };
        table.address
    }
}
