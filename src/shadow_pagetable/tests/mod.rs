//! Guest memory, a shadow that checks the contract of the runs, and a naive walker to compare it with.

#![allow(clippy::cast_possible_truncation, reason = "numbers of a test are small")]

mod exhaustive;
mod fermi;
mod follow;
mod gmmu;
mod random;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::convert::Infallible;

use super::*;
use gpuvmk_chip::Aperture;

const VRAM: u64 = 4 << 20;

/// Guest memory: VRAM as bytes, system memory as one range that exists or not.
struct Memory {
    vram: RefCell<Vec<u8>>,
    /// How often each page of VRAM was written: the same numbers for different pages.
    writes: RefCell<BTreeMap<u64, u64>>,
    system: RefCell<Option<(u64, u64)>>,
}

impl Memory {
    fn new(vram: u64) -> Self {
        Self {
            vram: RefCell::new(vec![0; vram as usize]),
            writes: RefCell::default(),
            system: RefCell::new(None),
        }
    }

    fn write(&self, address: u64, data: &[u8]) {
        let start = address as usize;
        if let Some(bytes) = self.vram.borrow_mut().get_mut(start..start + data.len()) {
            bytes.copy_from_slice(data);
        }
        for page in address / 4096..=(address + data.len() as u64 - 1) / 4096 {
            *self.writes.borrow_mut().entry(page).or_default() += 1;
        }
    }

    fn write_u64(&self, address: u64, value: u64) {
        self.write(address, &value.to_le_bytes());
    }
}

impl GuestMemory for Memory {
    fn read(&self, address: PhysicalAddress, data: &mut [u8]) -> Result<(), NotGuestMemory> {
        if address.aperture != Aperture::Vram {
            return Err(NotGuestMemory);
        }
        let start = usize::try_from(address.address).map_err(|_| NotGuestMemory)?;
        let end = start.checked_add(data.len()).ok_or(NotGuestMemory)?;
        data.copy_from_slice(self.vram.borrow().get(start..end).ok_or(NotGuestMemory)?);
        Ok(())
    }

    fn version(&self, address: PhysicalAddress, size: usize) -> Option<Version> {
        let page = address.address / 4096;
        let whole = (address.address + size as u64 - 1) / 4096 == page && address.aperture == Aperture::Vram;
        // Some pages have no copy that could be versioned.
        (whole && page % 7 != 3).then(|| Version(self.writes.borrow().get(&page).copied().unwrap_or(0)))
    }

    fn contains(&self, address: PhysicalAddress, size: u64) -> bool {
        let Some(end) = address.address.checked_add(size) else { return false };
        match address.aperture {
            Aperture::Vram => end <= self.vram.borrow().len() as u64,
            Aperture::SystemCoherent | Aperture::SystemNonCoherent => {
                self.system.borrow().is_some_and(|(start, stop)| address.address >= start && end <= stop)
            }
        }
    }
}

type Pages = BTreeMap<(u8, u64), Leaf>;

/// The shadow that the runs build up. Checks every run against the contract.
#[derive(Default)]
struct Shadow {
    pages: Pages,
    batches: usize,
}

impl RunSink for Shadow {
    type Error = Infallible;

    fn batch(&mut self, unmap: Vec<UnmapRun>, map: Vec<MapRun>) -> Result<(), Infallible> {
        assert!(!unmap.is_empty() || !map.is_empty());
        assert!(unmap.len() + map.len() <= MAX_BATCH);
        self.batches += 1;
        for run in unmap {
            assert!(run.va.is_aligned(1 << run.page_shift));
            for page in 0..u64::from(run.pages) {
                let key = (run.page_shift, run.va.0 + (page << run.page_shift));
                assert!(self.pages.remove(&key).is_some(), "unmapped {key:x?}, which was not mapped");
            }
        }
        for run in map {
            assert!(run.va.is_aligned(1 << run.page_shift));
            for page in 0..u64::from(run.pages) {
                let offset = page << run.page_shift;
                let target = PhysicalAddress { address: run.target.address + offset, ..run.target };
                let leaf = Leaf { target, read_only: run.read_only, kind: run.kind };
                self.pages.insert((run.page_shift, run.va.0 + offset), leaf);
            }
        }
        Ok(())
    }
}

/// Walks a tree from scratch, entry by entry.
fn naive<F: MmuFormat>(format: F, root: PhysicalAddress, memory: &Memory) -> Pages {
    fn visit<F: MmuFormat>(format: F, table: SubTable, va: u64, memory: &Memory, pages: &mut Pages) {
        let shape = format.shape(table.kind);
        for index in 0..u64::from(shape.entries) {
            let mut raw = [0; 16];
            let entry = PhysicalAddress {
                address: table.address.address + index * shape.entry_size as u64,
                ..table.address
            };
            if memory.read(entry, &mut raw[..shape.entry_size]).is_err() {
                continue;
            }
            let va = va + (index << shape.entry_shift);
            match format.decode(table.kind, u128::from_le_bytes(raw)) {
                Entry::Page(leaf) if memory.contains(leaf.target, 1 << shape.entry_shift) => {
                    pages.insert((shape.entry_shift, va), leaf);
                }
                Entry::Tables(tables) => {
                    for table in tables.into_iter().flatten() {
                        visit(format, table, va, memory, pages);
                    }
                }
                Entry::Page(_) | Entry::Refused | Entry::Empty => {}
            }
        }
    }
    let mut pages = Pages::new();
    visit(format, SubTable { kind: format.root(), address: root }, 0, memory, &mut pages);
    pages
}
