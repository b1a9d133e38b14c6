//! Translations that a worker of a grid has at hand: as stale as those that all share, and no staler.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::recorder::PATIENCE;
use super::rig::*;
use crate::mmu::AddressSpace;
use crate::mmu::channel_memory::ChannelMemory;
use crate::mmu::client::Client;
use crate::mmu::near::Near;
use gpuvmk_backend::{Backend, FlushScope};
use gpuvmk_chip::channel_event::{FaultUnit, MmuFault};
use gpuvmk_chip::{AccessKind, Engine, FaultReason};

const VA: u64 = 0x4000_0000;

/// An address space with a page at [`VA`], as engines see it.
struct Fixture {
    rig: Rig,
    space: Space,
    seen: AddressSpace,
    /// The page.
    old: u64,
    /// Another one.
    new: u64,
}

impl Fixture {
    fn new() -> Self {
        let rig = Rig::new();
        let mut space = rig.space();
        let channel = rig.channel(1, &mut space);
        let (old, new) = (rig.alloc(0x1000), rig.alloc(0x1000));
        rig.map(&mut space, VA, vram(old), 0x1000);
        let seen = rig.core.system().mmu.address_space(&rig.read(channel.instance, 0x1000));
        rig.write_u32(old, 1);
        rig.write_u32(new, 2);
        Self { rig, space, seen, old, new }
    }

    fn client(&self) -> Client<'_> {
        let unit = FaultUnit::Engine(Engine::Graphics);
        Client { system: self.rig.core.system(), space: &self.seen, channel: None, unit, privileged: false }
    }

    fn load(&self, near: &mut Near) -> Result<u32, MmuFault> {
        let mut bytes = [0; 4];
        self.client().load(near, VA, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Has the page tables lead to the other page.
    fn remap(&mut self) {
        let new = self.new;
        self.rig.map(&mut self.space, VA, vram(new), 0x1000);
    }
}

#[test]
fn a_translation_at_hand_is_used_until_flushed() {
    let mut fixture = Fixture::new();
    let mut near = Near::default();
    assert_eq!(fixture.load(&mut near), Ok(1));
    fixture.remap();
    assert_eq!(fixture.load(&mut near), Ok(1));
    fixture.client().store(&mut near, VA, &[3, 0, 0, 0]).unwrap();
    assert_eq!([fixture.old, fixture.new].map(|page| fixture.rig.read_u32(page)), [3, 2]);

    fixture.rig.flush(&fixture.space);
    assert_eq!(fixture.load(&mut near), Ok(2));
    fixture.client().store(&mut near, VA, &[4, 0, 0, 0]).unwrap();
    assert_eq!([fixture.old, fixture.new].map(|page| fixture.rig.read_u32(page)), [3, 4]);
}

#[test]
fn flushes_of_others_leave_it() {
    let mut fixture = Fixture::new();
    let mut near = Near::default();
    assert_eq!(fixture.load(&mut near), Ok(1));
    fixture.remap();
    let directory = fixture.space.directory;
    fixture.rig.core.flush_tlb(FlushScope { page_directory: vram(directory + 0x1000), hub_only: false });
    fixture.rig.core.flush_tlb(FlushScope { page_directory: vram(directory), hub_only: true });
    assert_eq!(fixture.load(&mut near), Ok(1));
}

#[test]
fn one_workers_flush_is_everybodys() {
    let mut fixture = Fixture::new();
    let mut all: Vec<Near> = (0..3).map(|_| Near::default()).collect();
    for near in &mut all {
        assert_eq!(fixture.load(near), Ok(1));
    }
    fixture.remap();
    fixture.rig.flush(&fixture.space);
    for near in &mut all {
        assert_eq!(fixture.load(near), Ok(2));
    }
}

#[test]
fn rights_are_checked_with_each_access_and_absence_is_not_kept() {
    let mut fixture = Fixture::new();
    let mut near = Near::default();
    let (old, flags) = (fixture.old, PageFlags { read_only: true, ..PageFlags::default() });
    fixture.rig.map_pages(&mut fixture.space, VA, vram(old), 0x1000, 12, flags);
    assert_eq!(fixture.load(&mut near), Ok(1));
    let fault = fixture.client().store(&mut near, VA + 4, &[0; 4]).unwrap_err();
    assert_eq!((fault.address.0, fault.access), (VA + 4, AccessKind::Write));
    assert_eq!(fault.reason, FaultReason::WriteToReadOnly);

    let behind = fixture.client().load(&mut near, VA + 0x1000, &mut [0; 4]);
    assert_eq!(behind.unwrap_err().reason, FaultReason::PageNotPresent);
    let new = fixture.new;
    fixture.rig.map(&mut fixture.space, VA + 0x1000, vram(new), 0x1000);
    assert_eq!(fixture.client().load(&mut near, VA + 0x1000, &mut [0; 4]), Ok(()));
}

/// Two workers store through a page without an end. It is taken from them, and when the flush has returned,
/// nothing of theirs lands in it any more.
#[test]
fn no_access_through_an_old_translation_is_under_way_after_a_flush() {
    let mut fixture = Fixture::new();
    let (over, stores) = (AtomicBool::new(false), [AtomicU64::new(0), AtomicU64::new(0)]);
    for round in 0..20 {
        let (from, to) = if round % 2 == 0 { (fixture.old, fixture.new) } else { (fixture.new, fixture.old) };
        over.store(false, Ordering::Relaxed);
        let pte = fixture.rig.pte_address(&mut fixture.space, VA, 12);
        let entries = [from, to].map(|page| {
            fixture.rig.map(&mut fixture.space, VA, vram(page), 0x1000);
            fixture.rig.read_u64(pte)
        });
        fixture.rig.write_u64(pte, entries[0]);
        fixture.rig.flush(&fixture.space);
        let (fixture, over) = (&fixture, &over);
        std::thread::scope(|scope| {
            for count in &stores {
                count.store(0, Ordering::Relaxed);
                scope.spawn(move || {
                    let mut near = Near::default();
                    while !over.load(Ordering::Relaxed) {
                        fixture.client().store(&mut near, VA, &[0x5a; 64]).unwrap();
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let reach = |count: u64| {
                let limit = std::time::Instant::now() + PATIENCE;
                while stores.iter().any(|done| done.load(Ordering::Relaxed) < count) {
                    if std::time::Instant::now() > limit {
                        return false;
                    }
                    std::thread::sleep(Duration::from_micros(50));
                }
                true
            };
            let mut goes_on = reach(10);
            fixture.rig.write_u64(pte, entries[1]);
            fixture.rig.flush(&fixture.space);
            fixture.rig.write(from, &[0; 64]);
            let most = stores.iter().map(|done| done.load(Ordering::Relaxed)).max().unwrap_or(0);
            goes_on &= reach(most + 100);
            let found = [from, to].map(|page| fixture.rig.read(page, 64));
            over.store(true, Ordering::Relaxed);
            assert!(goes_on, "the workers do not go on");
            assert_eq!(found, [vec![0; 64], vec![0x5a; 64]], "a store landed after the flush");
        });
    }
}
