//! Real KVM guests of some hundred bytes at the KVM front end: what any driver may expect of a GPU holds through it, what windows show is
//! mapped and follows the guest's page tables, interrupts and doorbells need no exit.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test that cannot go on panics")]

#[path = "common/card.rs"]
mod card;
#[path = "common/function.rs"]
#[allow(dead_code, clippy::expect_used, reason = "a helper that other tests use more of")]
mod function;
#[path = "common/micro/mod.rs"]
mod micro;
#[path = "common/scenarios.rs"]
mod scenarios;
#[path = "common/soft_host.rs"]
mod soft_host;
#[path = "common/tiny_driver/mod.rs"]
mod tiny_driver;

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use function::TestFunction;
use gpuvmk::aggregator::protocol::{Hello, PROTOCOL_VERSION, TenantLimits};
use gpuvmk::aggregator::{Patience, connect, connect_in_process};
use gpuvmk::chip::Chip;
use gpuvmk::chip::gf100::regs::pbus::NV_PBUS_BAR0_WINDOW;
use gpuvmk::chip::gf100::regs::pmc;
use gpuvmk::chip::gh100::regs::host::NV_XAL_EP_BAR0_WINDOW;
use gpuvmk::chip::registers::Reg;
use gpuvmk::config::share::Share;
use gpuvmk::config::{PolicyKind, ScrubPolicy};
use gpuvmk::frontend::kvm::ShortcutCounts;
use gpuvmk::pci::{LateWrite, PciFunction, Region};
use gpuvmk::softgpu::{SoftGpu, SoftGpuConfig};
use gpuvmk::trace::replay::Replay;
use gpuvmk::trace::{Access, Event, Place, Source};
use gpuvmk::vgpu::{Bar3, State, Vgpu, VgpuConfig};
use micro::hand::Hand;
use micro::{DATA, MicroGuest, Operation, host_has_kvm};
use soft_host::soft_host;
use tiny_driver::{TinyDriver, vram};

const VRAM: u64 = 48 << 20;

fn gpu() -> Arc<SoftGpu> {
    SoftGpu::new(SoftGpuConfig { vram: 64 << 20, ..SoftGpuConfig::default() }).unwrap()
}

/// What a micro guest's VM asks an aggregator for.
fn hello(chip: Chip) -> Hello {
    Hello {
        version: PROTOCOL_VERSION,
        name: "micro".to_owned(),
        chip: chip.name().to_owned(),
        vram: VRAM,
        channels: 16,
        share: Share::default(),
        limits: TenantLimits::default(),
    }
}

/// A vGPU of a tenant of an aggregator in this process.
fn vgpu(chip: Chip, service: &Arc<gpuvmk::aggregator::ServiceHandle>) -> Arc<Vgpu> {
    let (link, grant) = connect_in_process(service, hello(chip)).unwrap();
    Arc::new(Vgpu::new(link, grant, config(chip)).unwrap())
}

/// Windows that are mapped wherever what they show is, as under `gpuvmk vmm`.
fn config(chip: Chip) -> VgpuConfig {
    let mut config = VgpuConfig::of(chip);
    config.mediator.bar3 = Bar3::Trapped;
    config
}

/// Runs a scenario on a mediated GPU whose driver's accesses a guest makes; how often that was stopped, and what saved it from that.
fn mediated(direct: bool, scenario: fn(Arc<dyn PciFunction>)) -> Option<(u64, ShortcutCounts)> {
    mediated_by(direct, scenario, || {
        soft_host(Chip::Gf100, 128 << 20, PolicyKind::Fifo, ScrubPolicy::default())
    })
}

/// The same, by the aggregator of some GPU.
fn mediated_by(
    direct: bool,
    scenario: fn(Arc<dyn PciFunction>),
    host: impl FnOnce() -> gpuvmk::aggregator::ServiceHandle,
) -> Option<(u64, ShortcutCounts)> {
    if !host_has_kvm() {
        return None;
    }
    let service = Arc::new(host());
    // A tenant until the end.
    let vgpu = vgpu(Chip::Gf100, &service);
    let cost = played(direct, scenario, &vgpu);
    let tenants = service.status().unwrap().tenants;
    assert_eq!(tenants.first().and_then(|tenant| tenant.foreign_accesses), Some(0));
    Some(cost)
}

/// Has a guest play a scenario on a vGPU.
fn played(direct: bool, scenario: fn(Arc<dyn PciFunction>), vgpu: &Arc<Vgpu>) -> (u64, ShortcutCounts) {
    let hand = Hand::new(vgpu.clone(), direct);
    scenario(hand.clone());
    let status = vgpu.status();
    assert_eq!(status.state, State::Running);
    assert!(status.counts.doorbells > 0 && status.counts.pages_mapped > 0, "{status:?}");
    let counts = hand.shortcuts();
    let exits = hand.hands().guest.exits();
    (exits, counts)
}

#[test]
fn copies_work_when_every_access_is_an_exit() {
    if let Some((exits, counts)) = mediated(false, scenarios::copies_on_every_engine) {
        assert_eq!(counts, ShortcutCounts::default());
        assert!(exits > 50_000, "{exits} exits");
    }
}

#[test]
fn copies_work_with_windows_mapped_and_few_exits() {
    if let Some((exits, counts)) = mediated(true, scenarios::copies_on_every_engine) {
        assert!(counts.windows.bytes > 1 << 20 && counts.windows.too_many == 0, "{counts:?}");
        assert!(exits < 2_000, "{exits} exits with {counts:?}");
    }
}

#[test]
fn faults_flushes_and_resets_are_what_they_are() {
    mediated(true, scenarios::fault_stops_its_channel_only);
    mediated(true, scenarios::flush_changes_what_engines_reach);
    mediated(true, scenarios::channel_number_is_used_again);
    mediated(true, scenarios::reset_and_again);
}

#[test]
fn copies_work_on_a_card_with_few_exits() {
    let card = || card::card_host(128 << 20, PolicyKind::Fifo).1;
    if let Some((exits, counts)) = mediated_by(true, scenarios::copies_on_every_engine, card) {
        assert!(counts.windows.bytes > 1 << 20 && counts.windows.too_many == 0, "{counts:?}");
        assert!(exits < 2_000, "{exits} exits with {counts:?}");
    }
}

#[test]
#[ignore = "needs an aggregator, whose socket GPUVMK_AGGREGATOR names: cargo xtask test nested starts both"]
fn copies_work_on_the_aggregator_that_is_named() {
    assert!(host_has_kvm(), "no KVM");
    let socket = PathBuf::from(std::env::var_os("GPUVMK_AGGREGATOR").unwrap());
    let patience = Patience { limit: Some(Duration::from_secs(10)), ..Patience::none() };
    let (link, grant) = connect(&socket, hello(Chip::Gf100), &patience).unwrap();
    let vgpu = Arc::new(Vgpu::new(link, grant, config(Chip::Gf100)).unwrap());

    let start = Instant::now();
    let (exits, counts) = played(true, scenarios::copies_on_every_engine, &vgpu);

    assert!(counts.windows.bytes > 1 << 20 && counts.windows.too_many == 0, "{counts:?}");
    assert!(exits < 2_000, "{exits} exits with {counts:?}");
    println!(r#"{{"exits":{exits},"took_ms":{}}}"#, start.elapsed().as_millis());
}

#[test]
fn bare_gpu_is_driven_through_kvm_as_well() {
    if host_has_kvm() {
        scenarios::copies_on_every_engine(Hand::new(gpu(), true));
    }
}

#[test]
fn what_pramin_shows_is_memory_and_follows_its_window() {
    if !host_has_kvm() {
        return;
    }
    let gf100: Arc<dyn PciFunction> = gpu();
    pramin_is_memory(gf100, 64 << 20, NV_PBUS_BAR0_WINDOW);
    let service = Arc::new(soft_host(Chip::Gh100, 128 << 20, PolicyKind::Fifo, ScrubPolicy::default()));
    pramin_is_memory(vgpu(Chip::Gh100, &service), VRAM, NV_XAL_EP_BAR0_WINDOW);
}

fn pramin_is_memory(function: Arc<dyn PciFunction>, vram: u64, Reg(window): Reg) {
    const PRAMIN: u64 = 0x70_0000;
    const ELSEWHERE: u64 = PRAMIN + 0xf_f008;
    let mut guest = MicroGuest::new(Arc::clone(&function), true);
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

/// Copies of all widths, and the guest's own memory: the micro guest's instructions are what they are called.
#[test]
fn guest_reads_and_writes_what_it_is_told() {
    if !host_has_kvm() {
        return;
    }
    let function = Arc::new(TestFunction::new());
    let mut guest = MicroGuest::new(function.clone(), false);
    let bar0 = guest.bar(0);
    function.take_events();
    let mut script = Vec::new();
    for size in [1, 2, 4, 8] {
        let address = bar0 + 0x10 * size as u64;
        script.push(Operation::Write { address, size, value: 0x8877_6655_4433_2211 });
        script.push(Operation::Read { address, size });
    }
    assert_eq!(guest.run(&script), [0x11, 0x2211, 0x4433_2211, 0x8877_6655_4433_2211]);
    let sizes: Vec<_> = function
        .take_bar_events()
        .iter()
        .map(|event| match event {
            function::Event::Read(_, offset, size) => (*offset, *size),
            function::Event::Write(_, offset, data) => (*offset, data.len()),
            _ => (0, 0),
        })
        .collect();
    assert_eq!(
        sizes,
        [(0x10, 1), (0x10, 1), (0x20, 2), (0x20, 2), (0x40, 4), (0x40, 4), (0x80, 8), (0x80, 8)]
    );
    let memory = guest.machine.ram().memory().clone();
    memory.write(DATA, b"sixteen letters.").unwrap();
    guest.run(&[Operation::Copy { from: DATA, to: DATA + 0x1000, size: 16 }]);
    let mut copied = [0; 16];
    memory.read(DATA + 0x1000, &mut copied).unwrap();
    assert_eq!(&copied, b"sixteen letters.");
    // Where nothing is, the bus reads ones.
    assert_eq!(guest.run(&[Operation::Read { address: micro::NOTHING, size: 4 }]), [0xffff_ffff]);
}

#[test]
fn messages_reach_the_local_apic_and_no_exit_is_needed() {
    if !host_has_kvm() {
        return;
    }
    let function = Arc::new(TestFunction::new());
    let mut guest = MicroGuest::new(function.clone(), false);
    assert!(!guest.take_message());
    // Messages are not enabled yet: nothing arrives.
    function.fire_msi();
    std::thread::sleep(Duration::from_millis(20));
    assert!(!guest.take_message());
    enable_messages(&guest);
    for _ in 0..3 {
        function.fire_msi();
        let start = Instant::now();
        while !guest.take_message() {
            assert!(start.elapsed() < Duration::from_secs(5), "no message came");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!guest.take_message(), "one message, one interrupt");
    }
    assert_eq!(guest.exits(), 0);
}

#[test]
fn end_of_work_is_an_interrupt_that_the_aggregator_sends() {
    if !host_has_kvm() {
        return;
    }
    const COPIES: u32 = 10;
    let service = Arc::new(soft_host(Chip::Gf100, 128 << 20, PolicyKind::Fifo, ScrubPolicy::default()));
    let vgpu = vgpu(Chip::Gf100, &service);
    let hand = Hand::new(vgpu.clone(), true);

    scenarios::copies_that_end_with_a_message(hand.clone(), COPIES);

    let posted = vgpu.status().counts.messages_posted;
    let sent = hand.hands().guest.attached.messages_sent();
    assert!(posted >= u64::from(COPIES) && sent >= posted, "{posted} of {sent} messages");
}

fn enable_messages(guest: &MicroGuest) {
    let function = guest.attached.function();
    let at = gpuvmk::pci::header::capability(&**function, gpuvmk::pci::header::MSI).unwrap();
    let control = gpuvmk::pci::header::word(&**function, at + 2);
    guest.attached.write_config(at + 2, &(control | 1).to_le_bytes());
}

#[test]
fn bars_move_vanish_and_do_not_leave_their_room() {
    if !host_has_kvm() {
        return;
    }
    let function = Arc::new(TestFunction::new());
    let mut guest = MicroGuest::new(function.clone(), true);
    let old = guest.bar(0);
    let read = |guest: &mut MicroGuest, address| guest.run(&[Operation::Read { address, size: 4 }])[0] as u32;
    guest.run(&[Operation::Write { address: old + 0x20, size: 4, value: 0x5a }]);
    assert_eq!(read(&mut guest, old + 0x20), 0x5a);
    // It moves.
    let new = 0xd000_0000u32;
    guest.attached.write_config(0x10, &new.to_le_bytes());
    assert_eq!(read(&mut guest, old + 0x20), u32::MAX);
    assert_eq!(read(&mut guest, u64::from(new) + 0x20), 0x5a);
    // Sizing with decoding on, as careless firmware does: all ones is no place.
    guest.attached.write_config(0x10, &u32::MAX.to_le_bytes());
    assert_eq!(read(&mut guest, u64::from(new) + 0x20), u32::MAX);
    // Places outside of what the machine gives do not decode: page tables, local APIC, memory.
    for place in [0x1000u32, 0xfee0_0000, 0xffff_f000] {
        guest.attached.write_config(0x10, &place.to_le_bytes());
    }
    assert_eq!(guest.run(&[Operation::Read { address: 0x1000, size: 4 }])[0] & 0xfff, 0x027 & 0xfff);
    // Over another BAR: it does not decode, the other one does.
    let bar1 = guest.bar(1);
    guest.attached.write_config(0x10, &(bar1 as u32).to_le_bytes());
    guest.run(&[Operation::Write { address: bar1 + 0x40, size: 4, value: 0x77 }]);
    function.take_events();
    assert_eq!(read(&mut guest, bar1 + 0x40), 0x77);
    assert_eq!(function.take_bar_events(), [function::Event::Read(Region::Bar(1), 0x40, 4)]);
    // Back again; then decoding is turned off.
    guest.attached.write_config(0x10, &(old as u32).to_le_bytes());
    assert_eq!(read(&mut guest, old + 0x20), 0x5a);
    guest.attached.write_config(4, &0u16.to_le_bytes());
    assert_eq!(read(&mut guest, old + 0x20), u32::MAX);
    assert_eq!(read(&mut guest, bar1 + 0x40), u32::MAX);
}

#[test]
fn doorbells_are_signalled_and_others_trapped() {
    if !host_has_kvm() {
        return;
    }
    let function = Arc::new(TestFunction::new());
    let bell = |value| LateWrite { region: Region::Bar(0), offset: 0x90, value };
    *function.late.lock().unwrap() = vec![bell(7), bell(8)];
    let mut guest = MicroGuest::new(function.clone(), true);
    let address = guest.bar(0) + 0x90;
    function.take_events();
    let before = guest.exits();
    guest.run(&[Operation::Write { address, size: 4, value: 7 }]);
    let rung = |expected: u32| {
        let start = Instant::now();
        loop {
            let events = function.take_bar_events();
            if let Some(event) = events.first() {
                assert_eq!(
                    *event,
                    function::Event::Write(Region::Bar(0), 0x90, expected.to_le_bytes().to_vec())
                );
                return;
            }
            assert!(start.elapsed() < Duration::from_secs(5), "the doorbell was not heard");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    rung(7);
    assert_eq!(guest.exits() - before, 1, "only the script's end stopped the guest");
    assert_eq!(guest.attached.shortcuts().doorbells, 1);
    // A value that is no doorbell, and another width: trapped.
    guest.run(&[Operation::Write { address, size: 4, value: 9 }]);
    rung(9);
    assert_eq!(guest.attached.shortcuts().doorbells, 1);
    // The function takes one back and names another.
    *function.late.lock().unwrap() = vec![bell(9)];
    function.say_late_writes_changed();
    let before = guest.exits();
    guest.run(&[Operation::Write { address, size: 4, value: 7 }]);
    rung(7);
    guest.run(&[Operation::Write { address, size: 4, value: 9 }]);
    rung(9);
    assert_eq!(guest.exits() - before, 3);
    assert_eq!(guest.attached.shortcuts().doorbells, 2);
}

/// The registers that stock nouveau reads first, through KVM, as they were through the socket.
#[test]
fn golden_probe_reads_the_same_through_kvm() {
    const MOST: usize = 20_000;
    if !host_has_kvm() {
        return;
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/gf100-linux-6.12.trace.xz");
    let source = Source::open(File::open(file).unwrap()).unwrap();
    let vram = source.header().vram.unwrap();
    let hand = Hand::new(SoftGpu::new(SoftGpuConfig { vram, ..SoftGpuConfig::default() }).unwrap(), false);
    // The BARs are elsewhere, which configuration space and its mirror among the registers tell; clocks tell the time.
    let left_out = |access: &Access| matches!(access.offset, 0x8_8000..0x8_9000 | 0x9400 | 0x9410);
    let mut replay = Replay::new(&*hand, &left_out, 1);
    let is_bar = |event: &Event| matches!(event, Event::Access(access) if matches!(access.place, Place::Region(Region::Bar(_))));
    source
        .map(Result::unwrap)
        .filter(|entry| is_bar(&entry.event))
        .take(MOST)
        .for_each(|entry| replay.step(&entry));
    let outcome = replay.finish();
    assert!(outcome.reads > 1_000, "{outcome:?}");
    assert_eq!((outcome.differing, outcome.refused), (0, 0), "{outcome:?}");
}

#[test]
fn identity_of_a_gh100_is_read_without_an_exit() {
    if !host_has_kvm() {
        return;
    }
    let service = Arc::new(soft_host(Chip::Gh100, 128 << 20, PolicyKind::Fifo, ScrubPolicy::default()));
    let mut guest = MicroGuest::new(vgpu(Chip::Gh100, &service), true);
    let boot = guest.bar(0) + u64::from(pmc::NV_PMC_BOOT_0.0);
    let before = guest.exits();
    assert_eq!(guest.run(&[Operation::Reads { address: boot, count: 100 }])[0] >> 20 & 0x1ff, 0x180);
    assert_eq!(guest.exits() - before, 1);
}
