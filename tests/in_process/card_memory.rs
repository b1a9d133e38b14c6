//! A card's driver: its own memory and tenants' VRAM are in the host's memory, and the card reaches no more
//! of it than it was told of.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "a test that cannot go on panics"
)]

use std::os::fd::AsFd;
use std::sync::Arc;

use crate::card::{Card, FIRST_IOVA};
use crate::tenant::{copy_words, method, pattern, wait_until};
use gpuvmk::addr::{GpuVa, HostVram, Iova};
use gpuvmk::chip::EngineSet;
use gpuvmk::chip::gf100::methods::host;
use gpuvmk::chip::gf100::ramin::{USERD_GP_GET, USERD_GP_PUT};
use gpuvmk::gpu::register::RegisterDriver;
use gpuvmk::gpu::{ChannelSpec, GpuDriver, GpuDriverExt as _, HostMapping, HostTarget};
use gpuvmk::pci::mapping::{Access, Mapping, create_memory_file};
use gpuvmk::pci::{DmaBacking, DmaMapping};

const MIB: u64 = 1 << 20;
/// What the card is told of at a time.
const GRANULE: u64 = 2 * MIB;
/// Virtual addresses of a tenant's pages, and where the pages are in its partition.
const VA: u64 = 0x1000_0000;
const RING: u64 = 0x1000;
const COMMANDS: u64 = 0x2000;
const SEMAPHORE: u64 = 0x3000;
const FROM: u64 = 0x10_0000;
/// In another granule.
const TO: u64 = 0x30_0000;
const SIZE: u64 = 0x1_0000;

/// The card and its driver.
struct Rig {
    card: Arc<Card>,
    driver: RegisterDriver,
}

impl Rig {
    fn new() -> Self {
        let card = Card::new(128 * MIB);
        let driver = RegisterDriver::on_card(card.clone(), None).unwrap();
        Self { card, driver }
    }

    fn first(&self) -> HostVram {
        self.driver.info().tenant_vram
    }

    /// A partition, as its tenant sees it. What was there before goes first, where the card still reaches it.
    fn partition(&mut self, start: HostVram, size: u64) -> Mapping {
        let mut shared = self.driver.share_vram(start, size);
        wait_until("the card lets go of the last tenant's memory", || {
            let goes = shared.as_ref().is_err_and(|error| error.to_string().contains("still being taken"));
            if goes {
                shared = self.driver.share_vram(start, size);
            }
            !goes
        });
        let shared = shared.unwrap();
        let [piece] = shared.as_slice() else { panic!("{} pieces", shared.len()) };
        assert_eq!((piece.offset, piece.size), (0, size));
        Mapping::of_file(piece.fd.as_fd(), 0, size, Access::ReadWrite).unwrap()
    }

    /// Of tenants' memory.
    fn granules_told(&self) -> usize {
        self.card.ranges_from(FIRST_IOVA + self.first().0)
    }
}

fn at(start: HostVram, offset: u64) -> HostVram {
    HostVram(start.0 + offset)
}

fn page(va: u64, target: HostVram, pages: u32) -> HostMapping {
    let target = HostTarget::Vram(target);
    HostMapping { va: GpuVa(va), pages, page_shift: 12, target, read_only: false, kind: 0 }
}

/// Copies in a tenant's VRAM with a channel whose ring, commands and USERD are there too.
#[test]
fn engine_copies_between_pages_of_a_partition_and_doorbells_read_nothing_of_the_card() {
    let mut rig = Rig::new();
    let start = rig.first();
    let memory = rig.partition(start, 16 * MIB);
    let space = rig.driver.create_space().unwrap();
    rig.driver.update_space(space, &[], &[page(VA, start, 4096)], u64::MAX).unwrap();
    let spec = ChannelSpec {
        context_of: None,
        space,
        gpfifo: GpuVa(VA + RING),
        gpfifo_entries_log2: 6,
        userd: start,
        engines: EngineSet::COPY0,
    };
    let channel = rig.driver.create_channel(spec).unwrap();
    rig.driver.enable_channel(channel, true).unwrap();
    rig.driver.commit_runlist(&[channel]).unwrap();
    let sent = pattern(7, SIZE);
    memory.write(FROM, &sent).unwrap();
    let release = host::SEMAPHORE_D::OPERATION::RELEASE | host::SEMAPHORE_D::RELEASE_SIZE.mask();
    let fence =
        [method(host::WFI, 1), 0, method(host::SEMAPHORE_A, 4), 0, (VA + SEMAPHORE) as u32, 77, release];
    let words = [&copy_words(0, VA + FROM, VA + TO, 0x1000, (SIZE / 0x1000) as u32)[..], &fence].concat();
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    memory.write(COMMANDS, &bytes).unwrap();
    memory.write_u64(RING, (VA + COMMANDS) | (words.len() as u64) << 42).unwrap();
    memory.write_u32(USERD_GP_PUT, 1).unwrap();
    let (before, _) = rig.card.accesses();
    rig.driver.doorbell(channel).unwrap();

    wait_until("the copy", || memory.read_u32(SEMAPHORE).unwrap() == 77);
    let mut copied = vec![0; sent.len()];
    memory.read(TO, &mut copied).unwrap();
    assert!(copied == sent, "other bytes came");
    wait_until("GP_GET", || rig.driver.channel_progress(channel).unwrap() == 1);
    assert_eq!(memory.read_u32(USERD_GP_GET).unwrap(), 1);
    let (after, _) = rig.card.accesses();
    assert_eq!(after, before, "a doorbell, and looks at the progress, read from the card");
}

#[test]
fn card_reaches_only_what_tables_name_and_nothing_once_it_is_zeroed() {
    let mut rig = Rig::new();
    let start = rig.first();
    let memory = rig.partition(start, 16 * MIB);
    assert_eq!(rig.granules_told(), 0);
    let space = rig.driver.create_space().unwrap();
    // Across a border of granules, and once more within.
    let maps = [page(VA, at(start, GRANULE - 0x1000), 2), page(VA + MIB, at(start, 0x5000), 1)];
    rig.driver.update_space(space, &[], &maps, u64::MAX).unwrap();
    assert_eq!(rig.granules_told(), 2);
    memory.write(0x1234, b"secret").unwrap();
    memory.write(GRANULE + 0x1234, b"kept").unwrap();
    rig.driver.clear_space(space).unwrap();

    rig.driver.scrub_vram(start, GRANULE).unwrap();
    rig.driver.scrub_vram(at(start, GRANULE), 0x1000).unwrap();

    assert_eq!(rig.granules_told(), 1);
    let mut seen = [1; 6];
    memory.read(0x1234, &mut seen).unwrap();
    assert_eq!(seen, [0; 6]);
    memory.read(GRANULE + 0x1234, &mut seen).unwrap();
    assert_eq!(&seen[..4], b"kept", "a part of a granule is zeroed alone");
    rig.driver.scrub_vram(start, 16 * MIB).unwrap();
    assert_eq!(rig.granules_told(), 0);
    // What is zero is reached again when it is named again.
    rig.driver.update_space(space, &[], &maps, u64::MAX).unwrap();
    assert_eq!(rig.granules_told(), 2);
}

#[test]
fn next_tenant_gets_other_memory_and_the_last_one_keeps_no_hold_on_it() {
    let mut rig = Rig::new();
    let start = rig.first();
    let old = rig.partition(start, 16 * MIB);
    old.write(0, b"secret").unwrap();
    let space = rig.driver.create_space().unwrap();
    rig.driver.update_space(space, &[], &[page(VA, start, 1)], u64::MAX).unwrap();
    rig.driver.clear_space(space).unwrap();

    // Half of its place, and what is behind.
    let new = rig.partition(at(start, 8 * MIB), 16 * MIB);

    assert_eq!(rig.granules_told(), 0, "what nobody has is out of reach");
    new.write(0, b"another").unwrap();
    let mut seen = [0; 6];
    old.read(8 * MIB, &mut seen).unwrap();
    assert_eq!(seen, [0; 6], "who has left sees what the next one writes");
}

#[test]
fn what_no_tenant_has_is_not_mapped() {
    let mut rig = Rig::new();
    let start = rig.first();
    let space = rig.driver.create_space().unwrap();
    let update =
        |rig: &mut Rig, target| rig.driver.update_space(space, &[], &[page(VA, target, 2)], u64::MAX);
    let refused = update(&mut rig, start).unwrap_err();
    assert!(refused.to_string().contains("no tenant's memory"), "{refused}");
    let _memory = rig.partition(start, 4 * MIB);
    update(&mut rig, at(start, 4 * MIB - 0x2000)).unwrap();
    assert!(update(&mut rig, at(start, 4 * MIB - 0x1000)).is_err(), "its last page, and one behind");
    // Where a guest's tables name something else now, what they named before is gone as well.
    assert_eq!(rig.driver.space_usage(space).unwrap().pages, 0, "what cannot be mapped leaves a hole");
    for (offset, size) in [(0x1000, GRANULE), (0, 0x1000), (0, 0), (0, u64::MAX - 0x1fff)] {
        assert!(rig.driver.share_vram(at(start, offset), size).is_err(), "{offset:#x}+{size:#x}");
    }
    assert!(rig.driver.share_vram(HostVram(0), GRANULE).is_err(), "the host's own");
}

/// The kernel holds what a card reaches in place, which takes long.
#[test]
fn another_thread_than_the_owner_tells_the_card_of_memory_and_takes_it_away() {
    let mut rig = Rig::new();
    let start = rig.first();
    let _memory = rig.partition(start, 16 * MIB);
    let space = rig.driver.create_space().unwrap();
    let iova = rig.driver.info().first_iova;
    let file = create_memory_file(c"ram", 8 * MIB).unwrap();
    let filled = Mapping::of_file(file.as_fd(), 0, 6 * MIB, Access::ReadWrite).unwrap();
    filled.fill(0, 6 * MIB, 1).unwrap();
    let backing = Some(DmaBacking { fd: file, offset: 0 });
    let ram = DmaMapping { iova: iova.0, size: 8 * MIB, writable: true, backing, owner: None };
    rig.card.told_by();

    rig.driver.dma_map(ram).unwrap();
    assert_eq!(rig.card.told_by(), [], "it is not reached before it is named");
    let named = |va, offset, pages| HostMapping {
        target: HostTarget::System { iova: Iova(iova.0 + offset), coherent: true },
        ..page(va, start, pages)
    };
    let maps = [page(VA, start, 1024), named(VA + 16 * MIB, 0x1000, 1024)];
    rig.driver.update_space(space, &[], &maps, u64::MAX).unwrap();
    let told = rig.card.told_by();
    assert_eq!((told.len(), rig.card.ranges_from(iova.0)), (2 + 3, 3));
    assert!(!told.contains(&std::thread::current().id()));

    // What its back end has not filled stays a fault.
    let unfilled = named(VA + 64 * MIB, 7 * MIB, 1);
    let error = rig.driver.update_space(space, &[], &[unfilled], u64::MAX).unwrap_err();
    assert!(error.to_string().contains("back end"), "{error}");
    assert_eq!(rig.driver.space_usage(space).unwrap().pages, 2048);

    rig.driver.revoke_system(space, iova, 8 * MIB).unwrap();
    rig.driver.dma_unmap(iova, 8 * MIB).unwrap();
    rig.driver.clear_space(space).unwrap();
    rig.driver.scrub_vram(start, 16 * MIB).unwrap();
    let taken = rig.card.told_by();
    assert_eq!((taken.len(), rig.card.ranges_from(FIRST_IOVA + start.0)), (2 + 3, 0));
    assert!(!taken.contains(&std::thread::current().id()));
}

#[test]
fn bus_addresses_for_other_memory_begin_behind() {
    let rig = Rig::new();
    let info = rig.driver.info();
    assert!(info.first_iova.0 >= FIRST_IOVA + info.tenant_vram.0 + info.tenant_vram_size);
    assert_eq!(info.partition_granule, GRANULE);
}

/// Eight bytes an access through PRAMIN, a page table of 256 KiB would be 32,768 writes.
#[test]
fn tables_and_channels_cost_the_card_few_accesses() {
    let mut rig = Rig::new();
    let (reads, writes) = rig.card.accesses();
    assert!(reads < 1_000 && writes < 2_000, "to bring it up: {reads} reads, {writes} writes");
    let start = rig.first();
    let _memory = rig.partition(start, 16 * MIB);
    let accesses = |rig: &mut Rig, act: &mut dyn FnMut(&mut RegisterDriver)| {
        let (reads, writes) = rig.card.accesses();
        act(&mut rig.driver);
        let (reads_then, writes_then) = rig.card.accesses();
        (reads_then - reads, writes_then - writes)
    };
    let space = rig.driver.create_space().unwrap();
    // A directory entry, a table, and 4,096 entries: one invalidation.
    let mapped = accesses(&mut rig, &mut |driver| {
        driver.update_space(space, &[], &[page(VA, start, 4096)], u64::MAX).unwrap();
    });
    assert_eq!(mapped, (2, 2));
    let made = accesses(&mut rig, &mut |driver| {
        let spec = ChannelSpec {
            context_of: None,
            space,
            gpfifo: GpuVa(VA + RING),
            gpfifo_entries_log2: 6,
            userd: start,
            engines: EngineSet::GRAPHICS | EngineSet::COPY0 | EngineSet::COPY1,
        };
        let channel = driver.create_channel(spec).unwrap();
        driver.enable_channel(channel, true).unwrap();
        driver.commit_runlist(&[channel]).unwrap();
    });
    assert!(made.0 < 10 && made.1 < 12, "a channel took {} reads and {} writes", made.0, made.1);
}
