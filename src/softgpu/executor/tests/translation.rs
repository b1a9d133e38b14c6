use super::rig::*;
use gpuvmk_chip::addr::{GpuVa, HostChannel, HostVram, Iova, TenantId};
use gpuvmk_chip::channel_event::{ChannelStop, FaultUnit, MmuFault, StopCause};
use gpuvmk_chip::{AccessKind, Engine, EngineSet, FaultReason};
use gpuvmk_gpu::*;

const SRC: u64 = 0x30_0000_0000;
const DST: u64 = 0x31_0000_0000;

fn fault(event: &GpuEvent) -> Option<(HostChannel, MmuFault)> {
    match event {
        GpuEvent::Stopped(ChannelStop { channel, cause: StopCause::Fault(fault) }) => {
            Some((*channel, *fault))
        }
        _ => None,
    }
}

#[test]
fn pages_of_every_size_are_found() {
    let mut rig = Rig::new();
    let space = rig.space();
    let mut channel = rig.channel(space, EngineSet::COPY1);
    let memory = rig.alloc(0x40_0000);
    // Small pages between large ones, a read-only one among them; a large page whose target is not a multiple
    // of its size.
    let mut read_only = mapping(SRC, 0x1000, 12, vram(memory + 0x5000));
    read_only.read_only = true;
    let maps = [
        read_only,
        mapping(SRC + 0x1_0000, 0x2_0000, 16, vram(memory + 0x1_0000)),
        mapping(SRC + 0x20_0000, 0x20_0000, 21, vram(memory + 0x1000)),
        mapping(DST, 0x1000, 12, vram(memory + 0x30_0000)),
    ];
    rig.update(space, &[], &maps);
    rig.write(memory, &pattern(1, 0x30_0000));

    let copy = |from: u64, to: u64| copy_lines(from, DST + to, 0, 256, 1, 0);
    let words = [copy(SRC + 0x80, 0), copy(SRC + 0x2_f000, 0x100), copy(SRC + 0x3f_0000, 0x200)];
    rig.run(&mut channel, &words.concat());

    let got = rig.read(memory + 0x30_0000, 0x300);
    assert_eq!(got[..0x100], rig.read(memory + 0x5080, 256));
    assert_eq!(got[0x100..0x200], rig.read(memory + 0x2_f000, 256));
    assert_eq!(got[0x200..], rig.read(memory + 0x1f_1000, 256));
}

#[test]
fn accesses_that_nothing_backs_fault() {
    let cases = [
        (SRC + 0x9000, DST, AccessKind::Read, FaultReason::PageNotPresent),
        (0x77_0000_0000, DST, AccessKind::Read, FaultReason::PageTableNotPresent),
        (SRC, SRC + 0x2000, AccessKind::Write, FaultReason::WriteToReadOnly),
        (SRC + 0x3000, DST, AccessKind::Read, FaultReason::CompressionFault),
        (SRC, SRC + 0x4000, AccessKind::Write, FaultReason::UnsupportedAperture),
    ];
    for (from, to, access, reason) in cases {
        let mut rig = Rig::new();
        let space = rig.space();
        let mut channel = rig.channel(space, EngineSet::COPY2);
        rig.buffer(space, SRC, 0x2000);
        rig.buffer(space, DST, 0x1000);
        let memory = rig.alloc(0x1000);
        let plain = mapping(SRC + 0x2000, 0x1000, 12, vram(memory));
        let read_only = HostMapping { read_only: true, ..plain };
        let odd = HostMapping { va: GpuVa(SRC + 0x3000), kind: 7, ..plain };
        let absent = mapping(SRC + 0x4000, 0x1000, 12, system(0x1_2345_6000));
        rig.update(space, &[], &[read_only, odd, absent]);

        rig.submit(&mut channel, &copy_lines(from, to, 0, 64, 1, 0));

        let fault = rig.wait_event(fault);
        let address = GpuVa(if access == AccessKind::Read { from } else { to });
        let unit = FaultUnit::Engine(Engine::COPY2);
        let expected = (channel.id, MmuFault { unit, address, access, reason });
        assert_eq!(fault, expected);
    }
}

#[test]
fn faulting_channel_stops_and_others_go_on() {
    let mut rig = Rig::new();
    let space = rig.space();
    let (mut bad, mut good) = (rig.channel(space, EngineSet::COPY1), rig.channel(space, EngineSet::COPY1));
    let memory = rig.buffer(space, DST, 0x1000);

    rig.submit(&mut bad, &semaphore(0x77_0000_0000, 1, 1));
    assert_eq!(rig.wait_event(fault).1.unit, FaultUnit::Host);
    rig.submit(&mut bad, &semaphore(DST, 2, 1));
    rig.run(&mut good, &semaphore(DST + 0x10, 3, 1));
    rig.settle();

    assert_eq!((rig.read_u32(memory), rig.read_u32(memory + 0x10)), (0, 3));
    rig.gpu.destroy_channel(bad.id).unwrap();
    let mut again = rig.channel(space, EngineSet::COPY1);
    assert_eq!(again.id, bad.id, "the number is free again");
    rig.run(&mut again, &semaphore(DST, 4, 1));
    assert_eq!(rig.read_u32(memory), 4);
}

#[test]
fn updates_are_seen_by_running_engines() {
    let mut rig = Rig::new();
    let space = rig.space();
    let mut channel = rig.channel(space, EngineSet::COPY1);
    let (old, new) = (rig.alloc(0x20_0000), rig.alloc(0x20_0000));
    rig.buffer(space, SRC, 0x20_0000);
    rig.update(space, &[], &[mapping(DST, 0x20_0000, 21, vram(old))]);
    // Long enough for many updates, also on a busy machine; the fault ends it.
    let mut words = copy_lines(SRC, DST, 0, 0x20_0000, 1, 0);
    let launch = words.split_off(words.len() - 2);
    words.extend(std::iter::repeat_n(launch, 4000).flatten());
    rig.submit(&mut channel, &words);
    rig.wait(|rig| rig.gpu.sample_engines().contains(&(Engine::COPY1, Some(channel.id))));

    for round in 0..30u8 {
        let (gone, present) = if round % 2 == 0 { (old, new) } else { (new, old) };
        rig.update(space, &[range(DST, 0x20_0000, 21)], &[mapping(DST, 0x20_0000, 21, vram(present))]);
        rig.write(gone, &vec![round; 0x20_0000]);
        assert!(rig.read(gone, 0x20_0000).iter().all(|&byte| byte == round), "round {round}");
    }
    assert!(!rig.done(&channel), "too short to tell");
    rig.gpu.clear_space(space).unwrap();
    assert_eq!(rig.wait_event(fault).1.reason, FaultReason::PageTableNotPresent);
    assert_eq!(rig.gpu.space_usage(space).unwrap(), SpaceUsage::default());
}

#[test]
fn revoked_memory_is_reached_no_more() {
    let mut rig = Rig::new();
    let space = rig.space();
    let mut channel = rig.channel(space, EngineSet::COPY1);
    let memory = rig.system_memory(0x1_8000_0000, 0x4000);
    rig.update(space, &[], &[mapping(DST, 0x4000, 12, system(0x1_8000_0000))]);
    rig.run(&mut channel, &semaphore(DST + 0x1000, 7, 1));

    assert_eq!(rig.gpu.revoke_system(space, Iova(0x1_8000_1800), 0x1000).unwrap(), 2);
    rig.gpu.dma_unmap(Iova(0x1_8000_0000), 0x4000).unwrap();
    rig.submit(&mut channel, &semaphore(DST + 0x1000, 8, 1));

    assert_eq!(rig.wait_event(fault).1.reason, FaultReason::PageNotPresent);
    let mut word = [0; 4];
    memory.read(0x1000, &mut word).unwrap();
    assert_eq!(u32::from_le_bytes(word), 7);
}

#[test]
fn spaces_do_not_see_each_other() {
    let mut rig = Rig::new();
    let (first, second) = (rig.space(), rig.space());
    let (mut a, mut b) = (rig.channel(first, EngineSet::COPY1), rig.channel(second, EngineSet::COPY1));
    let (mine, other) = (rig.buffer(first, DST, 0x1000), rig.buffer(second, DST, 0x1000));
    for round in 1..20 {
        rig.run(&mut a, &semaphore(DST, round, 1));
        rig.run(&mut b, &semaphore(DST, 100 + round, 1));
        assert_eq!(u64::from(rig.read_u32(mine)), round);
        assert_eq!(u64::from(rig.read_u32(other)), 100 + round);
    }
}

#[test]
fn ledger_counts_foreign_accesses() {
    const ME: TenantId = TenantId(3);
    const OTHER: TenantId = TenantId(4);
    let mut rig = Rig::new();
    let ledger = rig.gpu.ledger();
    let space = rig.space();
    let mut channel = rig.idle_channel(space, EngineSet::COPY1);
    let (mine, foreign) = (rig.buffer(space, SRC, 0x1000), rig.buffer(space, DST, 0x1000));
    for (start, size) in
        [(mine, 0x1000), (channel.ring, 0x1000), (channel.push, 256 << 10), (channel.userd, 0x200)]
    {
        ledger.own_vram(HostVram(start), size, Some(ME));
    }
    ledger.own_vram(HostVram(foreign), 0x1000, Some(OTHER));
    ledger.own_channel(channel.id, Some(ME));
    rig.start(&channel);

    rig.run(&mut channel, &[copy_lines(SRC, SRC + 0x800, 0, 64, 1, 0), semaphore(SRC, 1, 1)].concat());
    assert_eq!(ledger.foreign_accesses(ME), 0);
    rig.run(&mut channel, &copy_lines(DST, SRC, 0, 64, 1, 0));
    assert_eq!(ledger.foreign_accesses(ME), 1);
    assert_eq!(ledger.foreign_accesses(OTHER), 0);
}
