//! Real KVM guests of some hundred bytes at the KVM front end: what any driver may expect of a GPU holds
//! through it, interrupts and doorbells need no exit. What windows show is in `kvm_windows.rs`.

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
use gpuvmk::aggregator::ScrubPolicy;
use gpuvmk::aggregator::{LinkTimeouts, connect};
use gpuvmk::chip::Chip;
use gpuvmk::frontend::kvm::ShortcutCounts;
use gpuvmk::pci::{CoalescableWrite, PciFunction, Region};
use gpuvmk::scheduler::policy::PolicyKind;
use gpuvmk::softgpu::{SoftGpu, SoftGpuConfig};
use gpuvmk::trace::replay::Replay;
use gpuvmk::trace::{Access, Event, Place, Source};
use gpuvmk::vgpu::{State, Vgpu};
use micro::gpus::{config, gpu, hello, vgpu};
use micro::hand::Hand;
use micro::{DATA, MicroGuest, Operation, host_has_kvm};
use soft_host::soft_host;

/// Runs a scenario on a mediated GPU whose driver's accesses a guest makes; how often that was stopped, and
/// what saved it from that.
fn mediated(direct: bool, scenario: fn(Arc<dyn PciFunction>)) -> Option<(u64, ShortcutCounts)> {
    mediated_by(direct, scenario, || {
        soft_host(Chip::GF100, 128 << 20, PolicyKind::Fifo, ScrubPolicy::default())
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
    let vgpu = vgpu(Chip::GF100, &service);
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
    let patience = LinkTimeouts { limit: Some(Duration::from_secs(10)), ..LinkTimeouts::none() };
    let (link, grant) = connect(&socket, hello(Chip::GF100), &patience).unwrap();
    let vgpu = Arc::new(Vgpu::new(link, grant, config(Chip::GF100)).unwrap());

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
    let service = Arc::new(soft_host(Chip::GF100, 128 << 20, PolicyKind::Fifo, ScrubPolicy::default()));
    let vgpu = vgpu(Chip::GF100, &service);
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
    let bell = |value| CoalescableWrite { region: Region::Bar(0), offset: 0x90, value };
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
    // The BARs are elsewhere, which configuration space and its mirror among the registers tell; clocks tell
    // the time.
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
