//! A guest's memory with page tables in it, and the space that shadows them.

#![allow(dead_code, reason = "benchmarks use what they need of it")]

use std::convert::Infallible;
use std::os::fd::AsFd;

use gpuvmk::chip::gf100::mmu::{Pde, Pte};
use gpuvmk::chip::gmmu::{self, Gmmu};
use gpuvmk::chip::{Aperture, PhysicalAddress};
use gpuvmk::pci::dma::DmaSpace;
use gpuvmk::pci::mapping::{Access, Mapping, create_memory_file};
use gpuvmk::pci::{DmaBacking, DmaMapping};
use gpuvmk::shadow_pagetable::{
    Budget, Fermi, GuestMemory, MapRun, MmuFormat, NotGuestMemory, RunSink, ShadowSpace, SyncReport, UnmapRun,
};

/// Bytes in which tables lie.
const TABLES: u64 = 8 << 20;
/// VRAM that entries may point at: that much is the guest's, though the benchmark has no memory behind it.
const VRAM: u64 = 8 << 30;
/// The guest's system memory.
const RAM: u64 = 4 << 30;
/// Pages of 4 KiB in a gibibyte.
pub const GIB: u64 = 1 << 18;

/// The guest's memory, as the mediator has it: VRAM through a mapping, system memory by its ranges.
pub struct Memory {
    pub tables: Mapping,
    system: DmaSpace,
}

impl GuestMemory for Memory {
    fn read(&self, address: PhysicalAddress, data: &mut [u8]) -> Result<(), NotGuestMemory> {
        self.tables.read(address.address, data).map_err(|_| NotGuestMemory)
    }

    fn contains(&self, address: PhysicalAddress, size: u64) -> bool {
        match address.aperture {
            Aperture::Vram => address.address.checked_add(size).is_some_and(|end| end <= VRAM),
            Aperture::SystemCoherent | Aperture::SystemNonCoherent => {
                self.system.contains(address.address, size)
            }
        }
    }
}

/// Takes runs and does nothing with them.
pub struct Discard;

impl RunSink for Discard {
    type Error = Infallible;

    fn batch(&mut self, unmap: Vec<UnmapRun>, map: Vec<MapRun>) -> Result<(), Infallible> {
        std::hint::black_box((unmap, map));
        Ok(())
    }
}

/// Where a page lies that the guest maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Behind the one before it, in VRAM.
    Vram,
    /// Behind the one before it, in system memory.
    System,
    /// Never behind the one before it: every page is a run of its own.
    Scattered,
}

impl Layout {
    pub const ALL: [Self; 3] = [Self::Vram, Self::System, Self::Scattered];

    /// The target of page `page`, which is another in every round.
    fn target(self, page: u64, round: u64) -> PhysicalAddress {
        match self {
            Self::Vram => vram((page + round % GIB) << 12),
            Self::System => PhysicalAddress {
                aperture: Aperture::SystemCoherent,
                address: ((page + round) % (RAM >> 12)) << 12,
            },
            // An odd factor permutes; neighbours are far apart.
            Self::Scattered => vram(((page.wrapping_mul(0x9_e377) + round) % (VRAM >> 12)) << 12),
        }
    }
}

fn vram(address: u64) -> PhysicalAddress {
    PhysicalAddress { aperture: Aperture::Vram, address }
}

/// A format, and how its tables are written.
pub trait Written {
    /// The format.
    type Format: MmuFormat;
    /// Its value.
    fn format() -> Self::Format;
    /// Where directories begin, and what they are.
    fn write_directories(memory: &Memory, pages: u64);
    /// Where the entry of a page lies.
    fn entry(page: u64) -> u64;
    /// A page's entry.
    fn page(target: PhysicalAddress) -> u64;
}

/// GF100: a directory at 0, tables of 256 KiB behind it.
impl Written for Fermi {
    type Format = Self;

    fn format() -> Self {
        Self::default()
    }

    fn write_directories(memory: &Memory, pages: u64) {
        for table in 0..pages.div_ceil(1 << 15) {
            let pde = Pde { large: None, small: Some(vram(Self::entry(table << 15))) };
            memory.tables.write_u64(table * 8, pde.encode()).expect("in range");
        }
    }

    fn entry(page: u64) -> u64 {
        0x4_0000 + page * 8
    }

    fn page(target: PhysicalAddress) -> u64 {
        Pte { target, read_only: false, privileged: false, kind: 0 }.encode()
    }
}

/// Version 2, of Pascal to Turing.
pub struct V2;
/// Version 3, from Hopper on.
pub struct V3;

/// The upper directories from 0 on, a page each, then the lowest, of two pages, and tables of a page for each
/// 2 MiB.
fn write_directories(format: Gmmu, memory: &Memory, pages: u64) {
    let named = |address| format.encode_pde(gmmu::Pde::Table(vram(address)));
    let mut upper = 0;
    let mut level = format.root();
    while let Some(below) = level.below() {
        (level, upper) = (below, upper + 0x1000);
        memory.tables.write_u64(upper - 0x1000, named(upper)).expect("in range");
    }
    for table in 0..pages.div_ceil(1 << 9) {
        if table % 256 == 0 {
            let lowest = upper + ((table / 256) << 12);
            memory.tables.write_u64(upper - 0x1000 + table / 256 * 8, named(lowest)).expect("in range");
        }
        let small = gmmu::Pde::Table(vram(gmmu_entry(table << 9)));
        let dual = format.encode_tables(gmmu::Pde::Invalid, small);
        memory.tables.write(upper + table * 16, &dual.to_le_bytes()).expect("in range");
    }
}

const fn gmmu_entry(page: u64) -> u64 {
    0x4_0000 + page * 8
}

/// Implements [`Written`] for a version.
macro_rules! written {
    ($version:ident) => {
        impl Written for $version {
            type Format = Gmmu;

            fn format() -> Gmmu {
                Gmmu::$version
            }

            fn write_directories(memory: &Memory, pages: u64) {
                write_directories(Gmmu::$version, memory, pages);
            }

            fn entry(page: u64) -> u64 {
                gmmu_entry(page)
            }

            fn page(target: PhysicalAddress) -> u64 {
                let page = gmmu::Pte { target, read_only: false, privileged: false, kind: 6 };
                Gmmu::$version.encode_page(page)
            }
        }
    };
}

written!(V2);
written!(V3);

/// A guest with one address space.
pub struct Guest<F: Written> {
    pub memory: Memory,
    budget: Budget,
    space: ShadowSpace<F::Format>,
    layout: Layout,
}

impl<F: Written> Guest<F> {
    /// With the first `pages` pages mapped, and nothing shadowed yet.
    pub fn new(pages: u64, layout: Layout) -> Self {
        let fd = create_memory_file(c"vram", TABLES).expect("a memory file");
        let tables = Mapping::of_file(fd.as_fd(), 0, TABLES, Access::ReadWrite).expect("a mapping");
        let system = DmaSpace::new();
        let fd = create_memory_file(c"ram", RAM).expect("a memory file");
        let backing = Some(DmaBacking { fd, offset: 0 });
        system.map(DmaMapping { iova: 0, size: RAM, writable: true, backing, owner: None }).expect("a range");
        let memory = Memory { tables, system };
        F::write_directories(&memory, pages);
        let mut budget = Budget::new(F::format().limits());
        let space = ShadowSpace::new(F::format(), vram(0), &mut budget).expect("within the budget");
        let guest = Self { memory, budget, space, layout };
        guest.remap(0..pages, 0);
        guest
    }

    /// Maps pages anew, elsewhere in every round.
    pub fn remap(&self, pages: impl Iterator<Item = u64>, round: u64) {
        for page in pages {
            let entry = F::page(self.layout.target(page, round));
            self.memory.tables.write_u64(F::entry(page), entry).expect("in range");
        }
    }

    /// What a flush does.
    pub fn flush(&mut self) -> SyncReport {
        self.space.sync(&self.memory, &mut self.budget, &mut Discard).expect("within the budget")
    }

    /// Forgets everything, as if the space was new.
    pub fn forget(&mut self) {
        let fresh = ShadowSpace::new(F::format(), vram(0), &mut self.budget).expect("within the budget");
        std::mem::replace(&mut self.space, fresh).release(&mut self.budget);
    }
}
