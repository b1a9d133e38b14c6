//! The ledger, resets, and memory that is taken away.

use std::sync::Arc;
use std::time::Instant;

use super::commands::*;
use super::rig::*;
use crate::Core;
use gpuvmk_backend::{Backend, EngineBackend, EngineEvents};
use gpuvmk_chip::addr::{GuestChannel, HostChannel, HostVram, Iova, TenantId};
use gpuvmk_chip::channel_event::{ChannelStop, MmuFault};
use gpuvmk_chip::gf100::methods::CLASS_3D;
use gpuvmk_chip::{Engine, EngineSet, FaultReason};
use gpuvmk_gpu::OwnershipLedger;

const SRC: u64 = 0x4000_0000;
const DST: u64 = 0x5000_0000;
const SIZE: u64 = 4 << 20;
const ME: TenantId = TenantId(4);
const OTHER: TenantId = TenantId(5);

fn long_copy() -> Vec<u32> {
    m2mf_copy(DST, DST + 64, 0, SIZE as u32 - 64, 4000)
}

/// A channel with SIZE bytes at DST, and their address.
fn busy_channel(rig: &Rig, number: u16) -> (Channel, u64) {
    let mut space = rig.space();
    let memory = rig.alloc(SIZE);
    rig.map_pages(&mut space, DST, vram(memory), SIZE, 17, PageFlags::default());
    (rig.channel(number, &mut space), memory)
}

#[test]
fn ledger_counts_foreign_accesses_and_no_others() {
    let rig = Rig::new();
    let ledger = rig.core.ledger();
    let mut space = rig.space();
    let mut channel = rig.channel(1, &mut space);
    let (mine, foreign) = (rig.alloc(0x1000), rig.alloc(0x1000));
    rig.map(&mut space, SRC, vram(mine), 0x1000);
    rig.map(&mut space, DST, vram(foreign), 0x1000);
    let _memory = rig.system_memory(0x8000_0000, 0x2000);
    rig.map(&mut space, SRC + 0x10_0000, system(0x8000_0000), 0x2000);
    // What the tenant owns; tables, instance block and contexts stay the host's.
    for (start, size) in
        [(mine, 0x1000), (channel.ring, 0x1000), (channel.push, 256 << 10), (channel.userd, 0x1000)]
    {
        ledger.own_vram(HostVram(start), size, Some(ME));
    }
    ledger.own_vram(HostVram(foreign), 0x1000, Some(OTHER));
    ledger.own_channel(HostChannel(1), Some(ME));
    ledger.own_system(Iova(0x8000_0000), 0x1000, Some(ME));

    let words = [
        inc(0, 0, &[u32::from(CLASS_3D)]),
        m2mf_copy(SRC, SRC + 0x800, 64, 64, 1),
        m2mf_copy(SRC, SRC + 0x10_0000, 64, 64, 1),
        pcopy_copy(0x90b5, SRC, SRC + 0x800, 64, 64, 1),
        semaphore(SRC + 0x40, 1, 2),
    ];
    rig.run(&mut channel, &words.concat());
    assert_eq!(ledger.foreign_accesses(ME), 0);

    rig.run(&mut channel, &m2mf_copy(DST, SRC, 64, 64, 1));
    assert_eq!(ledger.foreign_accesses(ME), 1);
    rig.run(&mut channel, &semaphore(SRC + 0x10_1000, 1, 2 | 1 << 24));
    assert_eq!(ledger.foreign_accesses(ME), 2);
    assert_eq!(ledger.foreign_accesses(OTHER), 0);
}

#[test]
fn foreign_userd_counts() {
    let rig = Rig::new();
    let ledger = rig.core.ledger();
    let mut space = rig.space();
    let mut channel = rig.channel(1, &mut space);
    ledger.own_channel(HostChannel(1), Some(ME));
    for (start, size) in [(channel.ring, 0x1000), (channel.push, 256 << 10)] {
        ledger.own_vram(HostVram(start), size, Some(ME));
    }
    rig.run(&mut channel, &immediate(0, 8, 0));
    assert!(ledger.foreign_accesses(ME) > 0);
}

/// Calls back into the core from every event.
struct Rude(std::sync::Weak<Core>, std::sync::atomic::AtomicU32);

impl Rude {
    fn act(&self) {
        let Some(core) = self.0.upgrade() else { return };
        match self.1.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % 5 {
            0 => core.reset(),
            1 => core.bind_channel(GuestChannel(1), None),
            2 => core.preempt_channel(GuestChannel(2)),
            3 => core.reset_engines(EngineSet::all()),
            _ => core.bind_graphics_context(Some(vram(0x10_0000))),
        }
    }
}

impl EngineEvents for Rude {
    fn monitor(&self, _size: Option<(u16, u16)>) {}

    fn non_stall(&self, _: Engine) {
        self.act();
    }
    fn message_delivered(&self, engines: EngineSet) {
        engines.engines().for_each(|engine| self.non_stall(engine));
    }

    fn unsent(&self) {}

    fn stopped(&self, _: ChannelStop<GuestChannel>) {
        self.act();
    }
    fn fault(&self, _: MmuFault) {
        self.act();
    }
    fn preempted(&self, _: GuestChannel) {}
    fn patch_register(&self, _: u32, _: u32) {
        self.act();
    }
    fn lost(&self, _: &str) {}
}

#[test]
fn receivers_of_events_may_call_back() {
    let rig = Rig::with_events(64 << 20, |core| {
        Arc::new(Rude(Arc::downgrade(core), std::sync::atomic::AtomicU32::default()))
    });
    for round in 0..40 {
        rig.core.set_fifo_state(Rig::running());
        let mut space = rig.space();
        for number in 1..4 {
            let mut channel = rig.channel(number, &mut space);
            rig.write_u32(channel.graphics_image, 3);
            let class = inc(0, 0, &[u32::from(CLASS_3D)]);
            rig.submit(&mut channel, &[class, immediate(0, 0x20, 0), immediate(0, 4, 0)].concat());
        }
        if round % 8 == 7 {
            rig.core.reset();
            *rig.free.lock().unwrap() = 1 << 20;
        }
    }
    // Nothing hangs: the core still resets, and ends.
    rig.core.reset();
}

#[test]
fn nothing_is_written_after_a_reset() {
    let rig = Rig::new();
    let (mut first, memory) = busy_channel(&rig, 1);
    let (mut second, _) = busy_channel(&rig, 2);
    let (mut third, _) = busy_channel(&rig, 3);
    rig.submit(&mut first, &long_copy());
    rig.submit(&mut second, &pcopy_copy(0x90b5, DST, DST + 64, 0, 0xffff, 0x1fff));
    rig.submit(&mut third, &semaphore(DST, 77, 1));
    rig.wait(|| rig.core.engine_status(Engine::Graphics).busy);

    let start = Instant::now();
    rig.core.reset();
    assert!(start.elapsed().as_millis() < 1000, "{:?}", start.elapsed());

    let before = rig.read(0, 60 << 20);
    rig.settle();
    assert!(rig.read(0, 60 << 20) == before);
    for engine in [Engine::Graphics, Engine::COPY0, Engine::COPY1] {
        assert_eq!(rig.core.engine_status(engine), Default::default());
    }
    rig.core.set_fifo_state(Rig::running());
    rig.write_u32(memory, 77);
    rig.settle();
    assert!(!rig.done(&third) && !rig.done(&first));
}

#[test]
fn core_works_again_after_a_reset() {
    let rig = Rig::new();
    let (mut first, _) = busy_channel(&rig, 1);
    rig.submit(&mut first, &long_copy());
    rig.wait(|| rig.core.engine_status(Engine::Graphics).busy);
    rig.core.reset();
    rig.core.set_fifo_state(Rig::running());

    let (mut again, memory) = busy_channel(&rig, 1);
    rig.write(memory, &pattern(1, 64));
    rig.run(&mut again, &m2mf_copy(DST, DST + 0x1000, 64, 64, 1));

    assert_eq!(rig.read(memory + 0x1000, 64), pattern(1, 64));
}

#[test]
fn engine_reset_drops_its_work_and_leaves_the_others() {
    let rig = Rig::new();
    let (mut hung, memory) = busy_channel(&rig, 1);
    let (mut other, _) = busy_channel(&rig, 2);
    rig.submit(&mut hung, &long_copy());
    rig.submit(&mut other, &pcopy_copy(0x90b5, DST, DST + 64, 0, 0x8000, 0x400));
    rig.wait(|| rig.core.engine_status(Engine::Graphics).busy);

    let start = Instant::now();
    rig.core.reset_engines(EngineSet::GRAPHICS);
    assert!(start.elapsed().as_millis() < 500, "{:?}", start.elapsed());

    let before = rig.read(memory, SIZE as usize);
    rig.wait_done(&other);
    assert!(rig.read(memory, SIZE as usize) == before);
    assert!(!rig.done(&hung));
    let (mut next, memory) = busy_channel(&rig, 3);
    rig.write(memory, &pattern(1, 64));
    rig.run(&mut next, &m2mf_copy(DST, DST + 0x1000, 64, 64, 1));
    assert_eq!(rig.read(memory + 0x1000, 64), pattern(1, 64));
}

#[test]
fn flush_waits_for_copies_through_old_translations() {
    let rig = Rig::new();
    let mut space = rig.space();
    let (old, new) = (rig.alloc(SIZE), rig.alloc(SIZE));
    rig.map_pages(&mut space, DST, vram(old), SIZE, 17, PageFlags::default());
    let mut channel = rig.channel(1, &mut space);
    rig.submit(&mut channel, &long_copy());
    rig.wait(|| rig.core.engine_status(Engine::Graphics).busy);

    for round in 0..50u8 {
        let (gone, present) = if round % 2 == 0 { (old, new) } else { (new, old) };
        rig.map_pages(&mut space, DST, vram(present), SIZE, 17, PageFlags::default());
        rig.flush(&space);
        rig.write(gone, &vec![round; SIZE as usize]);
        assert!(rig.read(gone, SIZE as usize).iter().all(|&byte| byte == round), "round {round}");
    }
    assert!(!rig.done(&channel), "too short to tell");
}

#[test]
fn memory_that_is_taken_away_faults() {
    let rig = Rig::new();
    let mut space = rig.space();
    let memory = rig.system_memory(0x8000_0000, SIZE);
    rig.map(&mut space, DST, system(0x8000_0000), SIZE);
    let mut channel = rig.channel(1, &mut space);
    rig.submit(&mut channel, &long_copy());
    rig.wait(|| rig.core.engine_status(Engine::Graphics).busy);

    rig.core.dma_unmap(0x8000_0000, SIZE).unwrap();
    memory.fill(0, SIZE, 0x77).unwrap();

    assert_eq!(rig.events.wait_fault().1.reason, FaultReason::UnsupportedAperture);
    let mut bytes = vec![0; SIZE as usize];
    memory.read(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|&byte| byte == 0x77));
}

#[test]
fn dropped_core_ends_its_threads_in_the_middle_of_work() {
    let rig = Rig::new();
    let (mut channel, _) = busy_channel(&rig, 1);
    rig.submit(&mut channel, &long_copy());
    rig.wait(|| rig.core.engine_status(Engine::Graphics).busy);
    let start = Instant::now();
    drop(rig);
    assert!(start.elapsed().as_millis() < 1000, "{:?}", start.elapsed());
}
