//! Queues of a disk by what needs no exit: notifications and messages by eventfds, each queue for itself.

use std::sync::atomic::Ordering;

use vm_memory::{Bytes, GuestAddress};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use super::tests::{BAR, FEATURES, HEADER, IN, OUTCOME, Rig, TABLE, USED, wait};
use gpuvmk_pci::{PciFunction, QueueEvents, Region, header};

const MSIX_TABLE: u64 = 0x4000;
const PENDING: u64 = 0x5000;

fn connected(rig: &Rig) -> Vec<EventFd> {
    let events: Vec<_> = (0..3).map(|_| EventFd::new(EFD_NONBLOCK).unwrap()).collect();
    rig.disk.connect_messages(events.iter().map(|event| event.try_clone().unwrap()).collect());
    let at = header::capability(&rig.disk, header::MSIX).unwrap();
    rig.disk.write(Region::Config, at + 2, &0x8000u16.to_le_bytes()).unwrap();
    events
}

#[test]
fn queues_send_their_own_messages_and_are_notified_without_an_access() {
    let mut rig = Rig::new(false);
    let events = connected(&rig);
    assert_eq!(rig.start(FEATURES, TABLE), 0b1111);
    // Queue 0 has message 1.
    rig.write(22, &0u16.to_le_bytes());
    rig.write(26, &1u16.to_le_bytes());
    let kicks = rig.disk.signalled_writes().unwrap();
    let places: Vec<_> = kicks.iter().map(|kick| (kick.region, kick.offset, kick.value)).collect();
    assert_eq!(places, [(BAR, 0x3000, 0), (BAR, 0x3004, 1)]);
    // The thread has looked once since the start.
    std::thread::sleep(std::time::Duration::from_millis(20));
    rig.quiet = true;
    rig.memory.write_obj(u64::from(IN), GuestAddress(HEADER)).unwrap();
    rig.memory.write_obj(5u64, GuestAddress(HEADER + 8)).unwrap();
    rig.make_available(&[(HEADER, 16, false), (0x1_0000, 512, true), (OUTCOME, 1, true)]);
    let used = |rig: &Rig| rig.memory.load::<u16>(GuestAddress(USED + 2), Ordering::Acquire).unwrap();
    kicks[1].event.write(1).unwrap();
    kicks[0].event.write(1).unwrap();
    wait(|| used(&rig) == 1);
    let mut pending = [0; 8];
    wait(|| {
        rig.disk.read(BAR, PENDING, &mut [0; 8]).unwrap();
        let mut bits = [0; 8];
        rig.disk.read(BAR, PENDING, &mut bits).unwrap();
        bits[0] == 2
    });
    assert_eq!((events[0].read().ok(), events[1].read().ok(), events[2].read().ok()), (None, Some(1), None));
    rig.disk.read(BAR, PENDING, &mut pending).unwrap();
    assert_eq!(pending, [0; 8]);
    assert!(!rig.line.0.load(Ordering::SeqCst), "no line beside messages");
}

#[test]
fn table_is_what_a_front_end_reads() {
    let rig = Rig::new(false);
    connected(&rig);
    let table = header::msix(&rig.disk).unwrap();
    assert_eq!((table.vectors, table.region, table.table), (3, BAR, MSIX_TABLE));
    assert!(table.enabled && !table.all_masked);
    assert_eq!(header::msix_message(&rig.disk, &table, 1), None, "masked at first");
    rig.write(MSIX_TABLE + 16, &0xfee0_0000_u64.to_le_bytes());
    rig.write(MSIX_TABLE + 24, &0x41u64.to_le_bytes());
    let message = header::Message { address: 0xfee0_0000, data: 0x41 };
    assert_eq!(header::msix_message(&rig.disk, &table, 1), Some(message));
    rig.disk.reset();
    assert_eq!(header::msix_message(&rig.disk, &table, 1), None);
    assert!(!header::msix(&rig.disk).unwrap().enabled);
}
