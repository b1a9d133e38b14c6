//! What it costs to stop a guest, and what is saved by not stopping it: micro guests on the KVM front end, in
//! one run, beside what the host's KVM and its sockets cost by themselves.
//!
//! `cargo bench --bench traps [-- --json]`, or `cargo xtask bench traps`. Figures are medians of rounds, in
//! each of which everything is measured that is compared.

#![allow(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    reason = "a benchmark that cannot start has nothing to tell"
)]

#[path = "../tests/common/mod.rs"]
mod common;
#[path = "../tests/common/micro/mod.rs"]
mod micro;
#[path = "traps/socket.rs"]
mod socket;
#[path = "../tests/common/soft_host.rs"]
mod soft_host;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use common::function::TestFunction;
use gpuvmk::aggregator::ScrubPolicy;
use gpuvmk::aggregator::connect_in_process;
use gpuvmk::aggregator::protocol::{Hello, PROTOCOL_VERSION, TenantLimits};
use gpuvmk::chip::Chip;
use gpuvmk::chip::gf100::regs::{pfifo, ptimer};
use gpuvmk::pci::{CoalescableWrite, Region};
use gpuvmk::scheduler::policy::PolicyKind;
use gpuvmk::scheduler::share::Share;
use gpuvmk::vgpu::{Vgpu, VgpuConfig};
use micro::{DATA, MicroGuest, Operation};
use serde_json::json;
use soft_host::soft_host;

const ROUNDS: usize = 25;
/// Accesses of a round.
const ACCESSES: u64 = 400;
/// Calls of a round that measure a handler by itself.
const CALLS: u64 = 20_000;
/// A register of a GF100 that is storage and nothing else: a word of PGRAPH's state that no table lists.
const SCRATCH: u64 = 0x40_5800;
/// Bytes of a copy.
const COPY: u64 = 8 << 20;
/// Bytes of a copy of which every word is an exit.
const TRAPPED_COPY: u64 = 16 << 10;
/// What is shown of BAR1 at once.
const FIRST: u64 = 256 << 20;

/// Limits: see the figures of the same names.
const MOST_SCRATCH_RATIO: f64 = 4.0;
const MOST_HANDLED_RATIO: f64 = 12.0;
const MOST_EXIT_RATIO: f64 = 1.1;
const MOST_IOEVENTFD_RATIO: f64 = 0.4;
const MOST_SHARE_RATIO: f64 = 1.3;
const MOST_ECHO_RATIO: f64 = 1.0;
const LEAST_DIRECT: f64 = 0.5;

fn vgpu(chip: Chip, vram: u64) -> (Arc<gpuvmk::aggregator::ServiceHandle>, Arc<Vgpu>) {
    let host = soft_host(chip, vram + (128 << 20), PolicyKind::Fifo, ScrubPolicy::default());
    let service = Arc::new(host);
    let hello = Hello {
        version: PROTOCOL_VERSION,
        name: "traps".to_owned(),
        chip: chip.into(),
        vram,
        channels: 16,
        share: Share::default(),
        limits: TenantLimits::default(),
    };
    let (link, grant) = connect_in_process(&service, hello).unwrap();
    let vgpu = Arc::new(Vgpu::new(link, grant, VgpuConfig::of(chip).unwrap()).unwrap());
    (service, vgpu)
}

/// The middle one.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// What the processor is measured by: FNV-1a over 64 bytes, each step of which needs the last one's result.
fn yardstick() {
    let bytes = std::hint::black_box([7_u8; 64]);
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    std::hint::black_box(hash);
}

/// Nanoseconds of what `work` does, by `count`.
fn nanos(count: u64, work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64 / count as f64
}

/// What exits cost, in nanoseconds, and handlers, in nanoseconds and by the yardstick; of registers with a
/// handler, the dearest counts.
struct Exits {
    bare: f64,
    scratch_handler: f64,
    handled_handler: f64,
    scratch_ratio: f64,
    handled_ratio: f64,
    ratio: f64,
}

fn exits() -> Exits {
    let (_service, function) = vgpu(Chip::GF100, 64 << 20);
    let mut guest = MicroGuest::new(function, true);
    let scratch = guest.bar(0) + SCRATCH;
    // What an engine does is asked of the back; the time is computed; pending interrupts are put together.
    let handled = [pfifo::NV_PFIFO_ENGINE_STATUS.at(0), ptimer::NV_PTIMER_TIME_0, pfifo::NV_PFIFO_INTR_0];
    let handled = handled.map(|register| guest.bar(0) + u64::from(register.0));
    let reads = |address| [Operation::Reads { address, count: ACCESSES }];
    let buses = guest.machine.buses().clone();
    let by_hand = |address| {
        nanos(CALLS, || {
            let mut data = [0; 4];
            (0..CALLS).for_each(|_| buses.read_memory(std::hint::black_box(address), &mut data));
            std::hint::black_box(data);
        })
    };
    let (mut bare, mut ratio) = (Vec::new(), Vec::new());
    let (mut scratch_handler, mut handled_handler) = (Vec::new(), Vec::new());
    let (mut scratch_ratio, mut handled_ratio) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let nothing = nanos(ACCESSES, || guest.run_bare(&reads(micro::NOTHING)));
        let with_scratch = nanos(ACCESSES, || drop(guest.run(&reads(scratch))));
        let with_handler = handled.map(|address| nanos(ACCESSES, || drop(guest.run(&reads(address)))));
        let with_handler = with_handler.into_iter().fold(0.0, f64::max);
        let again = nanos(ACCESSES, || guest.run_bare(&reads(micro::NOTHING)));
        let (first, second) = (by_hand(scratch), handled.map(by_hand).into_iter().fold(0.0, f64::max));
        let measure = nanos(CALLS, || (0..CALLS).for_each(|_| yardstick()));
        // The first round meets everything for the first time.
        if round > 0 {
            let both = f64::midpoint(nothing, again);
            bare.push(both);
            ratio.push(f64::midpoint(with_scratch, with_handler) / both);
            scratch_handler.push(first);
            handled_handler.push(second);
            scratch_ratio.push(first / measure);
            handled_ratio.push(second / measure);
        }
    }
    Exits {
        bare: median(bare),
        scratch_handler: median(scratch_handler),
        handled_handler: median(handled_handler),
        scratch_ratio: median(scratch_ratio),
        handled_ratio: median(handled_ratio),
        ratio: median(ratio),
    }
}

/// A doorbell that KVM signals, by one that stops the guest.
fn ioeventfd_ratio() -> f64 {
    let function = Arc::new(TestFunction::silent());
    let late = CoalescableWrite { region: Region::Bar(0), offset: 0x90, value: 7 };
    *function.late.lock().unwrap() = vec![late];
    let mut guest = MicroGuest::new(function, true);
    let address = guest.bar(0) + late.offset;
    let writes = |value| [Operation::Writes { address, value, count: ACCESSES }];
    let mut ratios = Vec::new();
    for round in 0..=ROUNDS {
        let signalled = nanos(ACCESSES, || drop(guest.run(&writes(7))));
        let trapped = nanos(ACCESSES, || drop(guest.run(&writes(8))));
        if round > 0 {
            ratios.push(signalled / trapped);
        }
    }
    median(ratios)
}

/// Copies through BAR1, and the first sight of all of it.
struct Windows {
    direct_over_memcpy: f64,
    direct_over_trapped: f64,
    first_ms: f64,
    first_exits: u64,
}

fn windows() -> Windows {
    // Before a driver sets it up, BAR1 of a GH100 shows VRAM as it is.
    let (_service, function) = vgpu(Chip::GH100, FIRST);
    let mut guest = MicroGuest::new(function.clone(), true);
    let bar1 = guest.bar(1);
    let before = guest.exits();
    let start = Instant::now();
    guest.run(&[Operation::Touch { address: bar1, pages: FIRST >> 12 }]);
    let first_ms = start.elapsed().as_secs_f64() * 1e3;
    let first_exits = guest.exits() - before;
    let copy = |from, to, size| [Operation::Copy { from, to, size }];
    let mut trapped_guest = {
        drop(guest);
        MicroGuest::new(function.clone(), false)
    };
    let trapped = nanos(TRAPPED_COPY, || drop(trapped_guest.run(&copy(DATA, bar1, TRAPPED_COPY))));
    drop(trapped_guest);
    let mut guest = MicroGuest::new(function, true);
    let (mut direct_over_memcpy, mut direct_over_trapped) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let memory = nanos(COPY, || drop(guest.run(&copy(DATA, DATA + COPY, COPY))));
        let window = nanos(COPY, || drop(guest.run(&copy(DATA, bar1, COPY))));
        if round > 0 {
            direct_over_memcpy.push(memory / window);
            direct_over_trapped.push(trapped / window);
        }
    }
    Windows {
        direct_over_memcpy: median(direct_over_memcpy),
        direct_over_trapped: median(direct_over_trapped),
        first_ms,
        first_exits,
    }
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

fn main() -> ExitCode {
    if !micro::host_has_kvm() {
        eprintln!("traps: this benchmark needs /dev/kvm");
        return ExitCode::from(2);
    }
    let exits = exits();
    let ioeventfd = ioeventfd_ratio();
    let windows = windows();
    let socket = socket::measure(ROUNDS);
    let rows = [
        ("scratch_by_yardstick", exits.scratch_ratio, exits.scratch_ratio <= MOST_SCRATCH_RATIO),
        ("handled_by_yardstick", exits.handled_ratio, exits.handled_ratio <= MOST_HANDLED_RATIO),
        ("exit_ratio", exits.ratio, exits.ratio <= MOST_EXIT_RATIO),
        ("ioeventfd_ratio", ioeventfd, ioeventfd <= MOST_IOEVENTFD_RATIO),
        ("vfio_user_share_over_echo", socket.share_ratio, socket.share_ratio <= MOST_SHARE_RATIO),
        ("vfio_user_over_echo", socket.over_echo, socket.over_echo <= MOST_ECHO_RATIO),
        ("bar1_direct_over_memcpy", windows.direct_over_memcpy, windows.direct_over_memcpy >= LEAST_DIRECT),
    ];
    let ok = rows.iter().all(|(_, _, ok)| *ok);
    for (name, value) in [
        ("bare_exit_ns", exits.bare),
        ("scratch_register_ns", exits.scratch_handler),
        ("handled_register_ns", exits.handled_handler),
        ("vfio_user_share_us", socket.share_us),
    ] {
        println!("{name:28} {value:>12.3}");
    }
    for (name, value, ok) in rows {
        println!("{name:28} {value:12.3}{}", if ok { "" } else { "  missed" });
    }
    println!("{:28} {:>12.1}", "bar1_direct_over_trapped", windows.direct_over_trapped);
    println!(
        "256 MiB of BAR1 seen for the first time: {} exits, {:.1} ms",
        windows.first_exits, windows.first_ms
    );
    if std::env::args().any(|argument| argument == "--json") {
        let mut all = json!({
            "ok": ok,
            "rounds": ROUNDS,
            "bare_exit_ns": rounded(exits.bare),
            "scratch_register_ns": rounded(exits.scratch_handler),
            "handled_register_ns": rounded(exits.handled_handler),
            "vfio_user_share_us": rounded(socket.share_us),
            "vfio_user_round_trip_us": rounded(socket.round_trip_us),
            "bar1_direct_over_trapped": rounded(windows.direct_over_trapped),
            "bar1_first_256m_exits": windows.first_exits,
            "bar1_first_256m_ms": rounded(windows.first_ms),
        });
        for (name, value, _) in rows {
            all[name] = json!(rounded(value));
        }
        println!("{all}");
    }
    if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
