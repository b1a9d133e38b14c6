//! Page-table shadowing against a walker of its own, in all formats: whatever a guest writes into its
//! tables, moves or takes away, the runs of all synchronisations add up to what a walk from scratch finds,
//! and nothing that is not the guest's memory is ever mapped.

mod reference;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::convert::Infallible;

use gpuvmk::chip::gf100::mmu::LargePages;
use gpuvmk::chip::gmmu::Gmmu;
use gpuvmk::chip::{Aperture, PhysicalAddress};
use gpuvmk::shadow_pagetable::{
    Budget, Fermi, GuestMemory, Limits, MAX_BATCH, MapRun, MmuFormat, NotGuestMemory, RunSink, ShadowSpace,
    SyncError, UnmapRun, Version,
};

use crate::input::Input;
use reference::{Format, Page};

/// Bytes of the guest's VRAM.
const VRAM: u64 = 2 << 20;
/// Bytes from which entries can name tables: small, so that tables alias.
const TABLES: u64 = 24;
/// What the tables of the guest may cost.
const LIMITS: Limits = Limits { tables: 10, snapshot_bytes: 1 << 19 };

/// The guest's memory: VRAM, and one range of system memory.
#[derive(Debug)]
struct Memory {
    vram: Vec<u8>,
    /// How often each page of VRAM was written; `None` where the memory does not tell.
    writes: Option<Vec<u64>>,
    system: Cell<(u64, u64)>,
}

impl Memory {
    fn write(&mut self, address: u64, data: &[u8]) {
        let Ok(start) = usize::try_from(address) else { return };
        let end = start.saturating_add(data.len());
        if let Some(place) = self.vram.get_mut(start..end) {
            place.copy_from_slice(data);
            let pages =
                self.writes.iter_mut().flat_map(|writes| writes.get_mut(start >> 12..=(end - 1) >> 12));
            pages.flatten().for_each(|count| *count += 1);
        }
    }

    fn word(&self, address: u64) -> Option<u64> {
        let start = usize::try_from(address).ok()?;
        let bytes = self.vram.get(start..start.checked_add(8)?)?;
        bytes.try_into().ok().map(u64::from_le_bytes)
    }
}

impl GuestMemory for Memory {
    fn read(&self, address: PhysicalAddress, data: &mut [u8]) -> Result<(), NotGuestMemory> {
        if address.aperture != Aperture::Vram {
            return Err(NotGuestMemory);
        }
        let start = usize::try_from(address.address).map_err(|_| NotGuestMemory)?;
        let end = start.checked_add(data.len()).ok_or(NotGuestMemory)?;
        data.copy_from_slice(self.vram.get(start..end).ok_or(NotGuestMemory)?);
        Ok(())
    }

    fn version(&self, address: PhysicalAddress, size: usize) -> Option<Version> {
        let start = usize::try_from(address.address).ok().filter(|_| address.aperture == Aperture::Vram)?;
        let whole = start >> 12 == start.checked_add(size)?.checked_sub(1)? >> 12;
        let writes = self.writes.as_ref().filter(|_| whole)?;
        writes.get(start >> 12).map(|count| Version(*count))
    }

    fn contains(&self, address: PhysicalAddress, size: u64) -> bool {
        let Some(end) = address.address.checked_add(size) else { return false };
        match address.aperture {
            Aperture::Vram => end <= VRAM,
            Aperture::SystemCoherent | Aperture::SystemNonCoherent => {
                let (first, stop) = self.system.get();
                address.address >= first && end <= stop
            }
        }
    }
}

/// What the runs add up to. Checks every run against the contract.
#[derive(Debug, Default)]
struct Shadow {
    pages: BTreeMap<(u8, u64), Page>,
}

impl RunSink for Shadow {
    type Error = Infallible;

    fn batch(&mut self, unmap: Vec<UnmapRun>, map: Vec<MapRun>) -> Result<(), Infallible> {
        assert!((1..=MAX_BATCH).contains(&(unmap.len() + map.len())), "a batch of a size that none may have");
        for run in unmap {
            for page in 0..u64::from(run.pages) {
                let va = run.va.0 + (page << run.page_shift);
                let gone = self.pages.remove(&(run.page_shift, va));
                assert!(gone.is_some(), "{va:#x} is unmapped, and was not mapped");
            }
        }
        for run in map {
            assert!(run.va.is_aligned(1 << run.page_shift), "a run that begins inside a page");
            for page in 0..u64::from(run.pages) {
                let offset = page << run.page_shift;
                let target = PhysicalAddress { address: run.target.address + offset, ..run.target };
                let page = Page { target, read_only: run.read_only, kind: run.kind };
                self.pages.insert((run.page_shift, run.va.0 + offset), page);
            }
        }
        Ok(())
    }
}

/// Edits and synchronises a guest's tables.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    match input.below(5) {
        0 => edit(&mut input, Fermi { large_pages: LargePages::K128 }, Format::Fermi { large_shift: 17 }),
        1 => edit(&mut input, Fermi { large_pages: LargePages::K64 }, Format::Fermi { large_shift: 16 }),
        2 => edit(&mut input, Gmmu::V3, Format::V3),
        3 => edit(&mut input, Gmmu::V2Ampere, Format::V2 { pages_of_512_mib: true }),
        _ => edit(&mut input, Gmmu::V2, Format::V2 { pages_of_512_mib: false }),
    }
}

fn edit<F: MmuFormat>(input: &mut Input<'_>, format: F, reference: Format) {
    let size = usize::try_from(VRAM).expect("a small VRAM");
    let writes = input.flag().then(|| vec![0; size >> 12]);
    let mut memory = Memory { vram: vec![0; size], writes, system: Cell::new((0, 0)) };
    let mut budget = Budget::new(LIMITS);
    let root = PhysicalAddress { aperture: Aperture::Vram, address: u64::from(input.below(5)) << 12 };
    let mut space = ShadowSpace::new(format, root, &mut budget).expect("one table");
    let mut shadow = Shadow::default();
    let mut steps = 0;
    while input.more() && steps < 64 {
        steps += 1;
        match input.below(8) {
            0..=2 => write(input, &mut memory, reference),
            3 | 4 => {
                match space.sync(&memory, &mut budget, &mut shadow) {
                    Ok(_) => {}
                    // A space that was given up may only be dropped.
                    Err(SyncError::Walk(_)) => return give_up(space, budget),
                    Err(SyncError::Sink(never)) => match never {},
                }
                compare(&shadow, &memory, reference, root.address);
                let again =
                    space.sync(&memory, &mut budget, &mut shadow).expect("within the budget, as before");
                assert_eq!(
                    (again.mapped.pages, again.unmapped.pages),
                    (0, 0),
                    "nothing changed, but something is done"
                );
            }
            5 => {
                // Memory is evicted before it goes, as the mediator does.
                let (start, size) =
                    (input.near(&[0, 1 << 20, 1 << 40]), input.near(&[0x1000, 1 << 21, u64::MAX]));
                let before = shadow.pages.clone();
                space
                    .evict_system_memory(start, size, &memory, &mut budget, &mut shadow)
                    .expect("evicting needs no budget");
                check_evicted(&before, &shadow.pages, start, size);
                space
                    .evict_system_memory(0, u64::MAX, &memory, &mut budget, &mut shadow)
                    .expect("evicting needs no budget");
                let first = input.near(&[0, 1 << 20, 1 << 39]) & !0xfff;
                let last = first.saturating_add(input.near(&[0, 1 << 16, 1 << 30, 1 << 40]) & !0xfff);
                memory.system.set((first, last));
            }
            _ => write(input, &mut memory, reference),
        }
        assert!(budget.tables() <= LIMITS.tables && budget.snapshot_bytes() <= LIMITS.snapshot_bytes);
    }
    space.clear(&memory, &mut budget, &mut shadow).expect("clearing needs no budget");
    assert!(shadow.pages.is_empty(), "something stays mapped");
    give_up(space, budget);
}

fn give_up<F: MmuFormat>(space: ShadowSpace<F>, mut budget: Budget) {
    space.release(&mut budget);
    assert_eq!((budget.tables(), budget.snapshot_bytes()), (0, 0), "the budget is not all returned");
}

/// Writes one entry or a row of them somewhere into the tables.
fn write(input: &mut Input<'_>, memory: &mut Memory, format: Format) {
    let table = u64::from(input.u8()) % TABLES * 0x1000;
    let index = match input.below(5) {
        0 => u64::from(input.u16()),
        _ => u64::from(input.below(64)),
    };
    let mut raw = entry(input, format);
    let step = if input.below(5) == 0 { input.near(&[0, 0x10, 0x100, 0x1000]) } else { 0x10 };
    for offset in 0..u64::from(input.u8() >> 4) + 1 {
        memory.write(table + (index + offset) * 8, &raw.to_le_bytes());
        raw = raw.wrapping_add(step);
    }
}

/// An entry: one that means something, or any.
fn entry(input: &mut Input<'_>, format: Format) -> u64 {
    let table = (u64::from(input.u8()) % (TABLES + 2)) << 12;
    match input.below(5) {
        0 => 0,
        1 => format.table(table, input.u8()),
        2 | 3 => format.page(input.near(&[0, VRAM - 0x1000, VRAM, 1 << 39, 0x10_0000]) & !0xfff, input.u8()),
        _ => input.u64(),
    }
}

fn compare(shadow: &Shadow, memory: &Memory, format: Format, root: u64) {
    let mut expected = BTreeMap::new();
    format.walk(root, &|address| memory.word(address), &mut |shift, va, page: Page| {
        if memory.contains(page.target, 1 << shift) {
            expected.insert((shift, va), page);
        }
    });
    for (key, page) in &shadow.pages {
        assert!(memory.contains(page.target, 1 << key.0), "{key:x?} is mapped to {page:x?}");
    }
    assert_eq!(shadow.pages, expected, "the shadow is not what the tables say");
}

/// Evicted are all pages that touch the range, and no others.
fn check_evicted(
    before: &BTreeMap<(u8, u64), Page>,
    after: &BTreeMap<(u8, u64), Page>,
    start: u64,
    size: u64,
) {
    for (key, page) in before {
        let (first, last) = (u128::from(page.target.address), u128::from(page.target.address) + (1 << key.0));
        let (start, end) = (u128::from(start), (u128::from(start) + u128::from(size)).min(1 << 64));
        let hit = page.target.aperture != Aperture::Vram && first < end && start < last;
        assert_eq!(after.contains_key(key), !hit, "{key:x?} at {page:x?} of {start:#x} to {end:#x}");
    }
}
