use std::cell::{Cell, RefCell};

use proptest::prelude::*;

use super::*;
use crate::aperture::WindowFault;
use gpuvmk_chip::AccessKind;
use gpuvmk_chip::Aperture;

/// VRAM of a mebibyte or more, with little else, and how often it was read.
struct Vram(RefCell<Vec<u8>>, Cell<usize>);

impl Vram {
    fn new(size: usize) -> Self {
        Self(RefCell::new(vec![0; size]), Cell::new(0))
    }

    fn put(&self, address: u64, value: u64) {
        assert!(self.write(vram(address), &value.to_le_bytes()));
    }
}

impl PhysicalMemory for Vram {
    fn read(&self, address: PhysicalAddress, data: &mut [u8]) -> bool {
        self.1.set(self.1.get() + 1);
        let memory = self.0.borrow();
        let Ok(start) = usize::try_from(address.address) else { return false };
        let range = start.checked_add(data.len()).and_then(|end| memory.get(start..end));
        match range {
            Some(from) if address.aperture == Aperture::Vram => {
                data.copy_from_slice(from);
                true
            }
            _ => false,
        }
    }

    fn write(&self, address: PhysicalAddress, data: &[u8]) -> bool {
        let mut memory = self.0.borrow_mut();
        let Ok(start) = usize::try_from(address.address) else { return false };
        let range = start.checked_add(data.len()).and_then(|end| memory.get_mut(start..end));
        match range {
            Some(to) if address.aperture == Aperture::Vram => {
                to.copy_from_slice(data);
                true
            }
            _ => false,
        }
    }
}

const fn vram(address: u64) -> PhysicalAddress {
    PhysicalAddress { aperture: Aperture::Vram, address }
}

const INSTANCE: u64 = 0x1000;
const DIRECTORY: u64 = 0x2000;
const SMALL: u64 = 0x1_2000;
const LARGE: u64 = 0x8_0000;

fn pte(address: u64, read_only: bool) -> u64 {
    Pte { target: vram(address), read_only, privileged: false, kind: 0 }.encode()
}

/// A window of 64 MiB with one directory entry: small pages for 4 KiB number 0 and 1, large pages otherwise.
fn bound() -> (Vram, Window<FermiTables>) {
    let memory = Vram::new(4 << 20);
    memory.put(INSTANCE + ramin::PAGE_DIRECTORY_LO, DIRECTORY);
    memory.put(INSTANCE + ramin::VA_LIMIT_LO, (64 << 20) - 1);
    memory.put(DIRECTORY, Pde { large: Some(vram(LARGE)), small: Some(vram(SMALL)) }.encode());
    memory.put(SMALL, pte(0x20_0000, false));
    memory.put(SMALL + 8, pte(0x20_5000, true));
    memory.put(LARGE + 8, pte(0x26_0000, false));
    let mut window = Window::<FermiTables>::default();
    window.bind_instance(vram(INSTANCE), &memory);
    (memory, window)
}

/// A host's driver asks for the files behind a partition by a window of 512 large pages, beside small ones.
#[test]
fn run_of_large_pages_is_found_in_few_reads() {
    const PAGE: u64 = 128 << 10;
    let (memory, mut window) = bound();
    // As many as the window has, 40 of which are elsewhere and 1 for reading only.
    for page in 2..512 {
        let elsewhere = if (100..140).contains(&page) { 1 << 30 } else { 0 };
        memory.put(LARGE + page * 8, pte(elsewhere + page * PAGE, page == 300));
    }
    window.flush_all();
    let runs = |window: &Window<FermiTables>, first: u64, end: u64| {
        let before = memory.1.get();
        let runs = window.vram_runs(first * PAGE, (end - first) * PAGE, &memory);
        (runs.ok(), memory.1.get() - before)
    };

    let (found, reads) = runs(&window, 2, 300);
    let pages = |first: u64, end: u64, base: u64| (base + first * PAGE, (end - first) * PAGE);
    assert_eq!(found.unwrap(), [pages(2, 100, 0), pages(100, 140, 1 << 30), pages(140, 300, 0)]);
    assert!(reads < 60, "{reads} reads for 298 pages");
    assert_eq!(runs(&window, 299, 301).0, None, "one is not to be written");
    assert_eq!(runs(&window, 301, 512).0.unwrap(), [pages(301, 512, 0)]);

    // A small page in the midst of one goes first.
    memory.put(SMALL + 200 * 256, pte(0x20_0000, false));
    let (found, _) = runs(&window, 150, 250);
    let (before, behind) = ((150 * PAGE, 50 * PAGE), (200 * PAGE + 0x1000, 50 * PAGE - 0x1000));
    assert_eq!(found.unwrap(), [before, (0x20_0000, 0x1000), behind]);
    window.check_runs(190 * PAGE, 20 * PAGE, &memory);
}

#[test]
fn unbound_window_shows_vram() {
    let memory = Vram::new(0x1000);
    let mut window = Window::<FermiTables>::default();
    assert_eq!(window.write(0x10, &[1, 2, 3, 4], &memory), Ok(()));
    assert_eq!(memory.0.borrow()[0x10..0x14], [1, 2, 3, 4]);
    let fault = window.read(0xffe, &mut [0; 4], &memory).unwrap_err();
    assert_eq!(fault.reason, FaultReason::UnsupportedAperture);
}

#[test]
fn small_pages_win_over_large_ones_and_large_ones_fill_the_rest() {
    let (memory, mut window) = bound();
    let mut at = |va| window.translate(va, AccessKind::Read, &memory).unwrap();
    assert_eq!(at(0x123), vram(0x20_0123));
    assert_eq!(at(0x1123), vram(0x20_5123));
    assert_eq!(at(0x2_0000 + 0x1_2345), vram(0x27_2345));
}

#[test]
fn access_over_a_page_border_goes_to_both_pages() {
    let (memory, mut window) = bound();
    memory.put(SMALL + 8, pte(0x20_5000, false));
    assert_eq!(window.write(0xffe, &[1, 2, 3, 4], &memory), Ok(()));
    assert_eq!(memory.0.borrow()[0x20_0ffe..0x20_1000], [1, 2]);
    assert_eq!(memory.0.borrow()[0x20_5000..0x20_5002], [3, 4]);
}

#[test]
fn translation_is_stale_until_its_directory_is_flushed() {
    let (memory, mut window) = bound();
    let at = |window: &mut Window<FermiTables>| window.translate(0, AccessKind::Read, &memory).unwrap();
    assert_eq!(at(&mut window), vram(0x20_0000));
    memory.put(SMALL, pte(0x30_0000, false));
    assert_eq!(at(&mut window), vram(0x20_0000));
    window.flush(vram(0x9000));
    assert_eq!(at(&mut window), vram(0x20_0000));
    window.flush(vram(DIRECTORY));
    assert_eq!(at(&mut window), vram(0x30_0000));
}

#[test]
fn page_that_was_missing_is_found_without_a_flush() {
    let (memory, mut window) = bound();
    let missing = window.translate(0x4_0000, AccessKind::Read, &memory).unwrap_err();
    assert_eq!(missing.reason, FaultReason::PageNotPresent);
    memory.put(LARGE + 16, pte(0x28_0000, false));
    assert_eq!(window.translate(0x4_0000, AccessKind::Read, &memory), Ok(vram(0x28_0000)));
}

#[test]
fn each_defect_has_its_reason() {
    let (memory, mut window) = bound();
    let mut reason = |va, access| window.translate(va, access, &memory).unwrap_err().reason;
    assert_eq!(reason(0x1000, AccessKind::Write), FaultReason::WriteToReadOnly);
    assert_eq!(reason(0x6_0000, AccessKind::Read), FaultReason::PageNotPresent);
    assert_eq!(reason(64 << 20, AccessKind::Read), FaultReason::VmLimitExceeded);
    memory.put(DIRECTORY, 0);
    assert_eq!(reason(0x6_0000, AccessKind::Read), FaultReason::PageTableNotPresent);
    memory.put(DIRECTORY, Pde { large: Some(vram(0x7fff_f000)), small: None }.encode());
    assert_eq!(reason(0x6_0000, AccessKind::Read), FaultReason::UnsupportedAperture);
}

#[test]
fn instance_block_outside_memory_gives_a_window_without_channel() {
    let (memory, mut window) = bound();
    window.bind_instance(vram(0x7fff_f000), &memory);
    let fault = window.read(0, &mut [0; 4], &memory).unwrap_err();
    assert_eq!(fault, WindowFault { address: 0, access: AccessKind::Read, reason: FaultReason::NoChannel });
}

#[test]
fn large_page_size_changes_the_walk() {
    let (memory, mut window) = bound();
    window.set_large_pages(LargePages::K64);
    assert_eq!(window.translate(0x1_0000, AccessKind::Read, &memory), Ok(vram(0x26_0000)));
}

proptest! {
    #[test]
    fn runs_are_what_each_page_says(
        entries in prop::collection::vec((any::<bool>(), 0u64..96, 0u64..64, 0u8..4), 0..60),
        tables in (any::<bool>(), any::<bool>(), any::<bool>()),
        limit in prop_oneof![Just((64u64 << 20) - 1), 0u64..0x10_0000],
        seen in prop::collection::vec(0u64..96, 0..8),
        stale in any::<bool>(),
    ) {
        let (memory, mut window) = bound();
        let (small, large, is_64k) = tables;
        memory.put(INSTANCE + ramin::VA_LIMIT_LO, limit);
        let pde = Pde { large: large.then_some(vram(LARGE)), small: small.then_some(vram(SMALL)) };
        memory.put(DIRECTORY, pde.encode());
        window.set_large_pages(if is_64k { LargePages::K64 } else { LargePages::K128 });
        window.bind_instance(vram(INSTANCE), &memory);
        let put = |(is_large, index, page, kind): &(bool, u64, u64, u8)| {
            let (table, shift) = if *is_large { (LARGE, 17) } else { (SMALL, 12) };
            let raw = if *kind == 0 { 0 } else { pte(0x10_0000 + (page << shift), *kind == 1) };
            memory.put(table + if *is_large { index % 8 } else { *index } * 8, raw);
        };
        // What was translated before tables changed stays as it was.
        let (before, after) = entries.split_at(if stale { entries.len() / 2 } else { entries.len() });
        before.iter().for_each(put);
        for page in seen {
            let _ = window.translate(page << 12, AccessKind::Read, &memory);
        }
        after.iter().for_each(put);
        window.check_runs(0, 0x10_0000, &memory);
        window.check_runs(0x3000, 0x2_5000, &memory);
    }

    #[test]
    fn random_tables_and_accesses_never_panic(
        words in prop::collection::vec((0usize..0x2000, any::<u64>()), 0..64),
        instance in any::<u64>(),
        accesses in prop::collection::vec((any::<u64>(), 0usize..24, any::<bool>()), 1..40),
    ) {
        let memory = Vram::new(0x1_0000);
        for (index, value) in words {
            memory.put(index as u64 * 8, value & 0x000f_ffff_0000_ffff);
        }
        let mut window = Window::<FermiTables>::default();
        window.bind_instance(PhysicalAddress { aperture: Aperture::Vram, address: instance }, &memory);
        window.bind_instance(vram(instance & 0xf000), &memory);
        for (address, len, narrow) in accesses {
            let address = if narrow { address & 0xfff_ffff } else { address };
            let mut data = vec![0; len];
            let _ = window.read(address, &mut data, &memory);
            let _ = window.write(address, &data, &memory);
        }
    }
}
