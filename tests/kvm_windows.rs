//! What a GPU's windows show is mapped into real KVM guests of some hundred bytes, and follows page tables,
//! PRAMIN's window and resets.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test that cannot go on panics")]

#[path = "common/micro/mod.rs"]
mod micro;
#[path = "common/soft_host.rs"]
mod soft_host;
#[path = "common/tiny_driver/mod.rs"]
mod tiny_driver;

use std::sync::Arc;

use gpuvmk::aggregator::ScrubPolicy;
use gpuvmk::chip::Chip;
use gpuvmk::chip::gf100::regs::pbus::NV_PBUS_BAR0_WINDOW;
use gpuvmk::chip::gf100::regs::pmc;
use gpuvmk::chip::gsp::regs::xal::NV_XAL_EP_BAR0_WINDOW;
use gpuvmk::chip::registers::Reg;
use gpuvmk::pci::{PciFunction, Region};
use gpuvmk::scheduler::policy::PolicyKind;
use micro::gpus::{VRAM, gpu, vgpu};
use micro::hand::Hand;
use micro::{MicroGuest, Operation, host_has_kvm};
use soft_host::soft_host;
use tiny_driver::{TinyDriver, vram};

#[test]
fn what_pramin_shows_is_memory_and_follows_its_window() {
    if !host_has_kvm() {
        return;
    }
    let gf100: Arc<dyn PciFunction> = gpu();
    pramin_is_memory(&gf100, 64 << 20, NV_PBUS_BAR0_WINDOW);
    let service = Arc::new(soft_host(Chip::GH100, 128 << 20, PolicyKind::Fifo, ScrubPolicy::default()));
    let gh100: Arc<dyn PciFunction> = vgpu(Chip::GH100, &service);
    pramin_is_memory(&gh100, VRAM, NV_XAL_EP_BAR0_WINDOW);
}

fn pramin_is_memory(function: &Arc<dyn PciFunction>, vram: u64, Reg(window): Reg) {
    const PRAMIN: u64 = 0x70_0000;
    const ELSEWHERE: u64 = PRAMIN + 0xf_f008;
    let mut guest = MicroGuest::new(Arc::clone(function), true);
    let (base, window) = (guest.bar(0), u64::from(window));
    let trapped = |offset| {
        let mut word = [0; 4];
        function.read(Region::Bar(0), offset, &mut word).unwrap();
        u64::from(u32::from_le_bytes(word))
    };
    let read = |offset| Operation::Read { address: base + offset, size: 4 };
    let write = |offset, value| Operation::Write { address: base + offset, size: 4, value };
    // Exits of a script beside the one that ends it.
    let mut run = |script: &[Operation]| {
        let before = guest.exits();
        let given = guest.run(script);
        (given, guest.exits() - before - 1, guest.attached.shortcuts().windows)
    };

    // The first access is an exit, and maps all of it.
    let (given, exits, counts) = run(&[write(window, 0x10), read(PRAMIN + 8), write(ELSEWHERE, 0xa1)]);
    assert_eq!((given, exits, counts.bytes), (vec![0], 2, 1 << 20));
    assert_eq!((trapped(ELSEWHERE), trapped(PRAMIN)), (0xa1, 0));
    // It moves below its slot: the write that moves it is the exit.
    let (given, exits, counts) = run(&[write(window, 0x20), read(ELSEWHERE), write(ELSEWHERE, 0xa2)]);
    assert_eq!((given, exits, counts.moved), (vec![0], 1, 256));
    let (given, exits, _) =
        run(&[write(window, 0x10), read(ELSEWHERE), write(window, 0x1f), read(ELSEWHERE)]);
    assert_eq!((given, exits), (vec![0xa1, trapped(ELSEWHERE)], 2));
    // Half of it ends where VRAM does; what is behind it stays trapped, and the function says what it reads.
    let end = vram / 0x1_0000;
    let (given, _, _) = run(&[write(window, end - 8), write(PRAMIN, 0xa3), read(PRAMIN), read(ELSEWHERE)]);
    assert_eq!(given, [trapped(PRAMIN), trapped(ELSEWHERE)]);
    function.reset();
    assert_eq!(guest.attached.shortcuts().windows.bytes, 0);
}

/// A word of each of three pages of BAR1, as the guest reads them.
fn look(hand: &Hand) -> [u32; 3] {
    let mut hands = hand.hands();
    let base = hands.guest.bar(1) + WINDOW;
    let reads: Vec<_> =
        (0..3).map(|page| Operation::Read { address: base + 0x1000 * page, size: 4 }).collect();
    let words = hands.guest.run(&reads);
    [words[0] as u32, words[1] as u32, words[2] as u32]
}

/// Where in BAR1 the test maps pages: behind the driver's USERD pages.
const WINDOW: u64 = 0x40_0000;

#[test]
fn what_bar1_shows_follows_page_tables_at_their_flush() {
    if !host_has_kvm() {
        return;
    }
    let gpu = gpu();
    let hand = Hand::new(gpu.clone(), true);
    let mut driver = TinyDriver::bring_up(hand.clone());
    let pages: Vec<u64> = (0..3).map(|_| driver.alloc(0x1000, 0x1000)).collect();
    for (page, word) in pages.iter().zip([0x11u32, 0x22, 0x33]) {
        driver.write_vram_u32(*page, word);
    }
    let mut bar1 = driver.bar1_space();
    for (at, page) in (WINDOW..).step_by(0x1000).zip(&pages) {
        driver.map(&mut bar1, at, vram(*page), 0x1000);
    }
    driver.flush(&bar1);
    assert_eq!(look(&hand), [0x11, 0x22, 0x33]);
    // The second look needs no exit but the one that ends it.
    let before = hand.hands().guest.exits();
    assert_eq!(look(&hand), [0x11, 0x22, 0x33]);
    assert_eq!(hand.hands().guest.exits() - before, 1);
    // A store reaches the memory.
    let base = hand.hands().guest.bar(1) + WINDOW;
    let store = [Operation::Write { address: base + 8, size: 4, value: 0xabcd }];
    hand.hands().guest.run(&store);
    assert_eq!(driver.read_vram_u32(pages[0] + 8), 0xabcd);

    // Pages change places: nothing happens before the flush, and everything by it.
    let moved = hand.shortcuts().windows.moved;
    driver.map(&mut bar1, WINDOW, vram(pages[2]), 0x1000);
    driver.map(&mut bar1, WINDOW + 0x2000, vram(pages[0]), 0x1000);
    let stale = look(&hand);
    assert_eq!(stale, [0x11, 0x22, 0x33]);
    driver.flush(&bar1);
    assert_eq!(look(&hand), [0x33, 0x22, 0x11]);
    assert_eq!(hand.shortcuts().windows.moved - moved, 2);

    // A page that goes is trapped: it reads as ones, and the others stay.
    let unmapped = hand.shortcuts().windows.unmapped;
    driver.write_pte(&mut bar1, WINDOW + 0x1000, 0);
    driver.flush(&bar1);
    assert_eq!(look(&hand), [0x33, u32::MAX, 0x11]);
    assert_eq!(hand.shortcuts().windows.unmapped - unmapped, 1);
    assert!(gpu.counters().window_faults > 0, "the access to nothing was a fault");

    // It comes back, and the guest is stopped once for it.
    driver.map(&mut bar1, WINDOW + 0x1000, vram(pages[1]), 0x1000);
    driver.flush(&bar1);
    assert_eq!(look(&hand), [0x33, 0x22, 0x11]);
    let before = hand.hands().guest.exits();
    look(&hand);
    assert_eq!(hand.hands().guest.exits() - before, 1);

    // A reset takes everything away.
    hand.reset();
    assert_eq!(hand.shortcuts().windows.bytes, 0);
}

#[test]
fn userd_is_read_without_an_exit_and_its_stores_are_doorbells() {
    if !host_has_kvm() {
        return;
    }
    let hand = Hand::new(gpu(), true);
    let driver = TinyDriver::bring_up(hand.clone());
    let mut hands = hand.hands();
    // The driver shows USERD from the beginning of BAR1.
    let userd = hands.guest.bar(1) + 5 * 0x1000;
    hands.guest.run(&[Operation::Read { address: userd, size: 4 }]);
    let before = hands.guest.exits();
    hands.guest.run(&[Operation::Reads { address: userd, count: 100 }]);
    assert_eq!(hands.guest.exits() - before, 1, "reads are of memory");
    let before = hands.guest.exits();
    hands.guest.run(&[Operation::Writes { address: userd + 0x8c, value: 0, count: 100 }]);
    assert_eq!(hands.guest.exits() - before, 101, "each store stops the guest");
    drop(hands);
    drop(driver);
}

#[test]
fn windows_that_are_made_of_too_many_pieces_stay_trapped() {
    if !host_has_kvm() {
        return;
    }
    let hand = Hand::new(gpu(), true);
    let mut driver = TinyDriver::bring_up(hand.clone());
    let base = driver.alloc(256 << 12, 0x1000);
    let mut bar1 = driver.bar1_space();
    // Every other page of VRAM: no two make a piece.
    for page in 0..128 {
        driver.map(&mut bar1, WINDOW + 0x1000 * page, vram(base + 0x2000 * page), 0x1000);
    }
    driver.flush(&bar1);
    driver.write_vram_u32(base + 0x2000 * 127, 0x77);
    let mut hands = hand.hands();
    let last = hands.guest.bar(1) + WINDOW + 0x1000 * 127;
    let mapped = hands.guest.attached.shortcuts().windows.bytes;
    let script = [Operation::Read { address: last, size: 4 }];
    assert_eq!(hands.guest.run(&script), [0x77]);
    assert_eq!(hands.guest.run(&script), [0x77]);
    let counts = hands.guest.attached.shortcuts().windows;
    assert_eq!(counts.bytes, mapped);
    assert!(counts.too_many > 0);
}

#[test]
fn identity_of_a_gh100_is_read_without_an_exit() {
    if !host_has_kvm() {
        return;
    }
    let service = Arc::new(soft_host(Chip::GH100, 128 << 20, PolicyKind::Fifo, ScrubPolicy::default()));
    let mut guest = MicroGuest::new(vgpu(Chip::GH100, &service), true);
    let boot = guest.bar(0) + u64::from(pmc::NV_PMC_BOOT_0.0);
    let before = guest.exits();
    assert_eq!(guest.run(&[Operation::Reads { address: boot, count: 100 }])[0] >> 20 & 0x1ff, 0x180);
    assert_eq!(guest.exits() - before, 1);
}
