//! Guest memory and address spaces.

use super::*;

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
    let half = Request::DmaUnmap { gpa: Gpa(0), size: 8 * MIB };
    assert_eq!(refused(&mut machine, a, half), RefusalKind::OutsidePartition);

    assert_eq!(fake.state().dma.len(), 2);
}
