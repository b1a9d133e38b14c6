//! What a TLB flush costs: walking the tables of an address space and sending what changed.
//!
//! `cargo bench --bench shadow_pagetable`. A flush reads all tables of the space (264 KiB for each 128 MiB that
//! are mapped with small pages), so the time without changes is the price of reading and comparing them.

#![allow(clippy::expect_used, reason = "a bench that cannot go on panics")]

use std::convert::Infallible;

use divan::Bencher;
use gpuvmk::chip::gf100::mmu::{Pde, Pte};
use gpuvmk::chip::{Aperture, PhysicalAddress};
use gpuvmk::pci::mapping::{Access, Mapping, create_memory_file};
use gpuvmk::shadow_pagetable::{
    Budget, Fermi, GuestMemory, Limits, MapRun, NotGuestMemory, RunSink, ShadowSpace, UnmapRun,
};
use std::os::fd::AsFd;

fn main() {
    divan::main();
}

const VRAM: u64 = 64 << 20;
const TABLE: u64 = 0x4_0000;

struct Memory(Mapping);

impl GuestMemory for Memory {
    fn read(&self, address: PhysicalAddress, data: &mut [u8]) -> Result<(), NotGuestMemory> {
        self.0.read(address.address, data).map_err(|_| NotGuestMemory)
    }

    fn contains(&self, address: PhysicalAddress, size: u64) -> bool {
        address.address.checked_add(size).is_some_and(|end| end <= VRAM)
    }
}

struct Discard;

impl RunSink for Discard {
    type Error = Infallible;

    fn batch(&mut self, unmap: Vec<UnmapRun>, map: Vec<MapRun>) -> Result<(), Infallible> {
        divan::black_box((unmap, map));
        Ok(())
    }
}

fn vram(address: u64) -> PhysicalAddress {
    PhysicalAddress { aperture: Aperture::Vram, address }
}

fn pte(address: u64) -> [u8; 8] {
    Pte { target: vram(address), read_only: false, privileged: false, kind: 0 }.encode().to_le_bytes()
}

/// A directory at 0 with `tables` small tables, of which `pages` entries each are valid.
fn space(tables: u64, pages: u64) -> (Memory, Budget, ShadowSpace<Fermi>) {
    let fd = create_memory_file(c"vram", VRAM).expect("a memory file");
    let memory = Memory(Mapping::of_file(fd.as_fd(), 0, VRAM, Access::ReadWrite).expect("a mapping"));
    for table in 0..tables {
        let at = (table + 1) * TABLE;
        let pde = Pde { large: None, small: Some(vram(at)) }.encode();
        memory.0.write(table * 8, &pde.to_le_bytes()).expect("in range");
        for page in 0..pages {
            memory.0.write(at + page * 8, &pte(page << 12 & (VRAM - 1))).expect("in range");
        }
    }
    let mut budget = Budget::new(Limits::DEFAULT);
    let mut space = ShadowSpace::new(Fermi::default(), vram(0), &mut budget).expect("within the budget");
    space.sync(&memory, &mut budget, &mut Discard).expect("within the budget");
    (memory, budget, space)
}

#[divan::bench(args = [1, 4, 16])]
fn flush_without_changes(bencher: Bencher<'_, '_>, tables: u64) {
    let (memory, mut budget, mut space) = space(tables, 8192);
    bencher.bench_local(|| space.sync(&memory, &mut budget, &mut Discard).expect("within the budget"));
}

#[divan::bench(args = [1, 512, 8192])]
fn flush_with_changed_pages(bencher: Bencher<'_, '_>, pages: u64) {
    let (memory, mut budget, mut space) = space(1, 8192);
    let mut round = 0;
    bencher.bench_local(|| {
        round += 1;
        for page in 0..pages {
            memory.0.write(TABLE + page * 8, &pte((page + round) << 12 & (VRAM - 1))).expect("in range");
        }
        space.sync(&memory, &mut budget, &mut Discard).expect("within the budget")
    });
}
