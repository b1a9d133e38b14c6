//! Guest memory and address spaces.

#[path = "../../../../tests/common/small_tmpfs.rs"]
mod small_tmpfs;

use self::small_tmpfs::{give_back, small_tmpfs};
use super::*;
use crate::report::FailSafeReason;
use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_chip::channel_event::StopCause;
use gpuvmk_pci::DmaBacking;

#[test]
fn space_in_use_is_not_destroyed() {
    let (mut machine, _fake, a, _) = two_tenants();

    assert_eq!(refused(&mut machine, a, Request::DestroySpace(SpaceId(0))), RefusalKind::BadId);
}

#[test]
fn unmapped_memory_leaves_page_tables_first() {
    let (mut machine, fake, a, _) = two_tenants();
    done(&mut machine, a, map(0x5000, system(0x3000)));
    done(&mut machine, a, map(0x6000, GuestTarget::Vram(GuestVram(0))));

    done(&mut machine, a, Request::DmaUnmap { gpa: Gpa(0), size: 16 * MIB });

    assert_eq!(fake.pages().len(), 1);
    assert_eq!(fake.state().dma.len(), 1);
    assert_eq!(refused(&mut machine, a, map(0x5000, system(0x3000))), RefusalKind::OutsidePartition);
    dma_map(&mut machine, a, 0, MIB);
}

#[test]
fn long_update_is_carried_out_in_pieces_between_others_requests() {
    let (mut machine, fake, a, b) = two_tenants();
    done(&mut machine, a, Request::DmaUnmap { gpa: Gpa(0), size: 16 * MIB });
    dma_map(&mut machine, a, 0, 1 << 30);

    assert_eq!(machine.request(a, map_of_a_gib(), None, T0), Outcome::Later);
    assert_eq!(refused(&mut machine, a, Request::CreateSpace(SpaceId(1))), RefusalKind::Protocol);
    assert!(machine.step(T0));
    done(&mut machine, b, map(0x5000, GuestTarget::Vram(GuestVram(0))));
    assert_eq!(outputs(&mut machine), []);
    settle(&mut machine, T0);

    assert_eq!(outputs(&mut machine), [Output::Reply(a, Reply::Done)]);
    assert_eq!(fake.pages().len(), (1 << 18) + 1);
}

#[test]
fn memory_requests_are_checked() {
    let (mut machine, fake, a, _) = two_tenants();
    let with_file = |machine: &mut Machine, gpa, size| {
        let request = Request::DmaMap { gpa: Gpa(gpa), size, offset: 0, writable: true };
        machine.request(a, request, Some(memfd(0x1000)), T0)
    };

    for (gpa, size) in [(0, 0x1000), (15 * MIB, 2 * MIB), (0x800, 0x1000), (32 * MIB, 0), (1 << 50, 1 << 38)]
    {
        let outcome = with_file(&mut machine, gpa, size);
        assert!(matches!(outcome, Outcome::Now(Reply::Refused { .. })), "{gpa:#x}+{size:#x}: {outcome:?}");
    }
    let request = Request::DmaMap { gpa: Gpa(32 * MIB), size: 0x1000, offset: 0, writable: true };
    assert_eq!(refused(&mut machine, a, request), RefusalKind::Protocol);
    let outcome = machine.request(a, Request::Preempt(GuestChannel(0)), Some(memfd(1)), T0);
    assert!(matches!(outcome, Outcome::Now(Reply::Refused { kind: RefusalKind::Protocol, .. })));
    for (gpa, size) in [(0x800, 0x1000), (0, 0x800), (0, 0)] {
        let odd = Request::DmaUnmap { gpa: Gpa(gpa), size };
        assert_eq!(refused(&mut machine, a, odd), RefusalKind::OutsidePartition);
    }

    assert_eq!(fake.state().dma.len(), 2);
}

/// A descriptor of the same file that may only read.
fn reader_of(file: &OwnedFd) -> OwnedFd {
    use std::os::fd::AsRawFd;
    std::fs::File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap().into()
}

#[test]
fn right_to_write_to_memory_is_each_descriptors_own() {
    let (mut machine, _fake, a, b) = two_tenants();
    let file = memfd(MIB);
    let mut ask = |tenant, gpa, writable, file| {
        let request = Request::DmaMap { gpa: Gpa(gpa), size: MIB, offset: 0, writable };
        machine.request(tenant, request, Some(file), T0)
    };
    let no =
        |outcome| matches!(outcome, Outcome::Now(Reply::Refused { kind: RefusalKind::OutsidePartition, .. }));

    assert!(no(ask(b, 32 * MIB, true, reader_of(&file))));
    assert_eq!(ask(a, 32 * MIB, true, file.try_clone().unwrap()), Outcome::Now(Reply::Done));
    assert!(no(ask(b, 32 * MIB, true, reader_of(&file))), "somebody else's right is not b's");
    assert_eq!(ask(b, 32 * MIB, false, reader_of(&file)), Outcome::Now(Reply::Done));
    let disk = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    assert!(no(ask(b, 64 * MIB, false, disk.into())), "a file of a disk is no memory");
}

/// A guest with an IOMMU: its pages come and go one by one, and count by how many pieces they make.
#[test]
fn pages_that_follow_each_other_count_once_and_go_one_by_one() {
    let (mut machine, fake, a, _) = two_tenants();
    machine.tenants.get_mut(a).unwrap().range_limit = 4;
    let file = memfd(64 * MIB);
    let page = |machine: &mut Machine, number: u64, offset: u64| {
        let request =
            Request::DmaMap { gpa: Gpa(0xf000_0000 + number * 0x1000), size: 0x1000, offset, writable: true };
        machine.request(a, request, Some(file.try_clone().unwrap()), T0)
    };
    for number in (0..500).rev() {
        assert_eq!(page(&mut machine, number, number * 0x1000), Outcome::Now(Reply::Done));
    }
    // Two of main memory and these.
    let pieces = machine.tenants.get(a).unwrap().memory.len();
    assert_eq!(page(&mut machine, 600, 0), Outcome::Now(Reply::Done));
    assert_eq!(page(&mut machine, 700, 0x1000), Outcome::Now(Reply::Done));
    assert!(pieces + 2 >= 4);
    let one_more = page(&mut machine, 800, 0);
    assert!(
        matches!(one_more, Outcome::Now(Reply::Refused { kind: RefusalKind::Quota, .. })),
        "{one_more:?}"
    );
    assert_eq!(page(&mut machine, 500, 500 * 0x1000), Outcome::Now(Reply::Done), "it joins");

    done(&mut machine, a, map(0x5000, system(0xf000_0000 + 7 * 0x1000)));
    for number in (0..501).step_by(2).chain((1..501).step_by(2)) {
        let request = Request::DmaUnmap { gpa: Gpa(0xf000_0000 + number * 0x1000), size: 0x1000 };
        done(&mut machine, a, request);
    }
    assert!(fake.pages().is_empty());
    done(&mut machine, a, Request::DmaUnmap { gpa: Gpa(0xe000_0000), size: 0x1000 });
    machine.request(a, Request::DmaUnmap { gpa: Gpa(0), size: u64::MAX }, None, T0);
    settle(&mut machine, T0);
    assert_eq!(fake.state().dma.len(), 1, "b's");
}

#[test]
fn vm_whose_memory_could_not_be_had_is_in_fail_safe_state_alone() {
    let Some(folder) = small_tmpfs(4) else { return };
    let (mut machine, _fake, a, b) = two_tenants();
    let ram = folder.path().join("ram");
    let file = std::fs::File::options().read(true).write(true).create_new(true).open(ram).unwrap();
    file.set_len(64 << 12).unwrap();
    // What a driver does with memory that it is given, and an engine with what is mapped.
    let owner = machine.tenants.get(a).unwrap().owner.clone();
    let backing = DmaBacking { fd: file.into(), offset: 0 };
    let (memory, _) = owner.memory(&backing, 64 << 12, true).unwrap();
    memory.fill(0, 64 << 12, 1).unwrap();

    machine.step(T0);

    let lost = |output: &Output| {
        let Output::Event(vm, Event::Stopped(stop)) = output else { return false };
        *vm == a && stop.channel == GuestChannel(0) && matches!(stop.cause, StopCause::Fault(_))
    };
    assert!(outputs(&mut machine).iter().any(lost));
    assert_eq!(refused(&mut machine, a, map(0x5000, system(0))), RefusalKind::MemoryLost);
    assert_eq!(machine.tenants.get(a).unwrap().fail_safe.unwrap().reason, FailSafeReason::MemoryLost);
    done(&mut machine, b, map(0x5000, system(0)));

    assert_eq!(machine.request(a, Request::Reset { scrub: false }, None, T0), Outcome::Later);
    settle(&mut machine, T0);
    assert!(machine.tenants.get(a).unwrap().fail_safe.is_none());
    assert_eq!(owner.lost_pages(), 0);
    give_back(&folder);
}
