//! Queues of a virtio device under KVM: a micro guest's notifications stop nobody, and each queue's messages
//! come by themselves, wait while they are masked, and go where their table says.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "common/micro/mod.rs"]
mod micro;

use std::sync::Arc;
use std::time::{Duration, Instant};

use gpuvmk::pci::header;
use gpuvmk::vmm::virtio::{Disk, disk_function};
use micro::{DATA, MicroGuest, Operation, VECTOR, host_has_kvm};

/// Structures in the device's BAR, and registers of the first.
const NOTIFY: u64 = 0x3000;
const TABLE: u64 = 0x4000;
const PENDING: u64 = 0x5000;
const STATUS: u64 = 20;
/// The second queue, its entries, and where the parts of its ring are.
const QUEUE: u64 = 1;
const ENTRIES: u16 = 8;
const AVAILABLE: u64 = DATA + 0x1000;
const USED: u64 = DATA + 0x2000;
const HEADER: u64 = DATA + 0x3000;
const READ: u64 = DATA + 0x4000;
/// The queue's message, and one for something else.
const MESSAGE: u64 = 2;
const ADDRESS: u64 = 0xfee0_0000;

fn write(address: u64, size: usize, value: u64) -> Operation {
    Operation::Write { address, size, value }
}

/// What a driver does with a disk's second queue.
fn set_up(guest: &mut MicroGuest) {
    let bar = guest.bar(0);
    let entry = bar + TABLE + 16 * MESSAGE;
    let mut script = vec![write(bar + STATUS, 1, 1), write(bar + STATUS, 1, 3)];
    for (half, features) in [(0, 0), (1, 1)] {
        script.extend([write(bar + 8, 4, half), write(bar + 12, 4, features)]);
    }
    script.extend([
        write(bar + STATUS, 1, 11),
        write(bar + 22, 2, QUEUE),
        write(bar + 24, 2, ENTRIES.into()),
        write(bar + 26, 2, MESSAGE),
        write(bar + 32, 8, DATA),
        write(bar + 40, 8, AVAILABLE),
        write(bar + 48, 8, USED),
        write(bar + 28, 2, 1),
        // By words, as drivers do.
        write(entry, 4, ADDRESS),
        write(entry + 4, 4, 0),
        write(entry + 8, 4, VECTOR.into()),
        write(entry + 12, 4, 0),
        write(bar + STATUS, 1, 15),
    ]);
    guest.run(&script);
    let function = Arc::clone(guest.attached.function());
    let at = header::capability(&*function, header::MSIX).unwrap();
    guest.attached.write_config(at + 2, &0x8000u16.to_le_bytes());
    let memory = guest.machine.ram().memory();
    // A header, a sector, an outcome: descriptors 0 to 2.
    for (number, address, size, flags, next) in
        [(0, HEADER, 16u64, 1u64, 1u64), (1, READ, 512, 3, 2), (2, HEADER + 16, 1, 2, 0)]
    {
        memory.write_u64(DATA + 16 * number, address).unwrap();
        memory.write_u64(DATA + 16 * number + 8, size | flags << 32 | next << 48).unwrap();
    }
    memory.write_u64(HEADER, 0).unwrap();
}

/// Asks for a sector; exits for which that stopped the guest.
fn ask(guest: &mut MicroGuest, number: u16, sector: u64) -> u64 {
    let memory = guest.machine.ram().memory();
    memory.write_u64(HEADER + 8, sector).unwrap();
    let before = guest.exits();
    let notify = guest.bar(0) + NOTIFY + 4 * QUEUE;
    let slot = AVAILABLE + 4 + 2 * u64::from((number - 1) % ENTRIES);
    guest.run(&[write(slot, 2, 0), write(AVAILABLE + 2, 2, number.into()), write(notify, 2, QUEUE)]);
    guest.exits() - before
}

fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "it does not come: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn used(guest: &MicroGuest) -> u16 {
    let [_, _, low, high, ..] = guest.machine.ram().memory().read_u64(USED).unwrap().to_le_bytes();
    u16::from_le_bytes([low, high])
}

#[test]
fn requests_and_messages_of_a_queue_need_no_exit() {
    if !host_has_kvm() {
        return;
    }
    let image = tempfile::NamedTempFile::new().unwrap();
    let contents: Vec<u8> = (0..16).flat_map(|sector| [sector; 512]).collect();
    std::fs::write(image.path(), contents).unwrap();
    let disk = disk_function(Disk::open(image.path(), true).unwrap(), 2).unwrap();
    let mut guest = MicroGuest::new(Arc::new(disk), true);
    set_up(&mut guest);
    let sector = |guest: &MicroGuest| guest.machine.ram().memory().read_u64(READ).unwrap();
    for number in 1..=4u16 {
        assert_eq!(ask(&mut guest, number, number.into()), 1, "only the script's end stopped the guest");
        wait("a message", || guest.take_message());
        assert_eq!((used(&guest), sector(&guest)), (number, 0x0101_0101_0101_0101 * u64::from(number)));
        assert!(!guest.take_message(), "one request, one message");
    }
    // Masked, it waits in the table's bits, and comes when it is not any more.
    let entry = guest.bar(0) + TABLE + 16 * MESSAGE;
    let pending = Operation::Read { address: guest.bar(0) + PENDING, size: 8 };
    guest.run(&[write(entry + 12, 4, 1)]);
    ask(&mut guest, 5, 5);
    wait("an answer", || used(&guest) == 5);
    wait("a bit", || guest.run(&[pending]) == [1 << MESSAGE]);
    assert!(!guest.take_message());
    guest.run(&[write(entry + 12, 4, 0)]);
    wait("a message", || guest.take_message());
    assert_eq!(guest.run(&[pending]), [0]);
    // All masked by the capability; then to another place, and not to the old one.
    let function = Arc::clone(guest.attached.function());
    let at = header::capability(&*function, header::MSIX).unwrap();
    guest.attached.write_config(at + 2, &0xc000u16.to_le_bytes());
    ask(&mut guest, 6, 6);
    wait("a bit", || guest.run(&[pending]) == [1 << MESSAGE]);
    guest.attached.write_config(at + 2, &0x8000u16.to_le_bytes());
    wait("a message", || guest.take_message());
    guest.run(&[
        write(entry + 12, 4, 1),
        write(entry + 8, 4, u64::from(VECTOR) + 1),
        write(entry + 12, 4, 0),
    ]);
    ask(&mut guest, 7, 7);
    wait("an answer", || used(&guest) == 7);
    assert!(!guest.take_message());
    // What is disabled is lost, and a notification by another width or value stops the guest and is heard.
    guest.attached.write_config(at + 2, &0u16.to_le_bytes());
    let notify = guest.bar(0) + NOTIFY + 4 * QUEUE;
    guest.machine.ram().memory().write_u64(HEADER + 8, 8).unwrap();
    let before = guest.exits();
    guest.run(&[write(AVAILABLE + 4 + 14, 2, 0), write(AVAILABLE + 2, 2, 8), write(notify, 4, 77)]);
    assert_eq!(guest.exits() - before, 2);
    wait("an answer", || used(&guest) == 8);
}
