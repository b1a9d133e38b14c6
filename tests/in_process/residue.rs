//! Nothing of a tenant is left for the next one: a victim fills its VRAM, its channels' contexts and its
//! registers with a pattern and leaves in each way that there is; whoever comes next looks everywhere for it.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "helpers of tests may fail as tests do"
)]

use std::time::{Duration, Instant};

use crate::bar0;
use crate::soft_host::soft_host;
use crate::tenant::{DATA, RAM_VA, Tenant, VRAM_VA, hello, wait_until};
use gpuvmk::aggregator::ScrubPolicy;
use gpuvmk::aggregator::protocol::{Hello, Request};
use gpuvmk::aggregator::{ServiceHandle, connect_in_process};
use gpuvmk::chip::{Chip, Face};
use gpuvmk::pci::mapping::Mapping;
use gpuvmk::pci::{PciFunction, Region};
use gpuvmk::scheduler::policy::PolicyKind;
use gpuvmk::vgpu::{MediatorConfig, Vgpu, VgpuConfig};

const MIB: u64 = 1 << 20;
const PARTITION: u64 = 64 * MIB;
/// A word that no driver writes.
const PATTERN: u32 = 0x5ec2_e7a5;

/// All that the GPU has for tenants is less than two partitions: the next tenant gets the victim's.
fn service(chip: Chip, scrub: ScrubPolicy) -> ServiceHandle {
    soft_host(chip, 128 * MIB, PolicyKind::Fifo, scrub)
}

fn wish(name: &str, chip: Chip) -> Hello {
    Hello { chip: chip.into(), ..hello(name, PARTITION) }
}

fn pattern_bytes(size: u64) -> Vec<u8> {
    PATTERN.to_le_bytes().repeat(usize::try_from(size / 4).unwrap())
}

/// Words of the pattern in a memory, and bytes that are not zero.
fn scan(memory: &Mapping) -> (usize, usize) {
    let mut found = (0, 0);
    let (mut piece, zeros) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    for at in (0..memory.size()).step_by(piece.len()) {
        memory.read(at, &mut piece).unwrap();
        if piece == zeros {
            continue;
        }
        found.0 +=
            piece.as_chunks::<4>().0.iter().filter(|word| u32::from_le_bytes(**word) == PATTERN).count();
        found.1 += piece.iter().filter(|byte| **byte != 0).count();
    }
    found
}

/// How a victim goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Everything is stopped, then the connection ends.
    Detach,
    /// The connection ends while its channels work and one hangs.
    Crash,
    /// Function reset; the same tenant looks afterwards.
    Reset,
}

/// A tenant whose VRAM is full of the pattern, written by processor and by engines.
fn victim(service: &ServiceHandle) -> Tenant {
    let (link, grant) = connect_in_process(service, wish("victim", Chip::GF100)).unwrap();
    let mut tenant = Tenant::new(link, &grant);
    let bytes = pattern_bytes(MIB);
    for at in (0..PARTITION).step_by(bytes.len()) {
        tenant.window.write(at, &bytes).unwrap();
    }
    tenant.ram.write(0, &bytes).unwrap();
    tenant.channel(0, 0);
    tenant.channel(1, 1);
    tenant.list(&[0, 1]);
    for at in 0..8 {
        tenant.copy(0, 0, RAM_VA, VRAM_VA + DATA + at * MIB, MIB);
        tenant.copy(1, 1, RAM_VA, VRAM_VA + DATA + (8 + at) * MIB, MIB);
    }
    tenant
}

fn leave_and_look(scrub: ScrubPolicy, way: Way) {
    let service = service(Chip::GF100, scrub);
    let mut tenant = victim(&service);
    if way == Way::Crash {
        tenant.acquire_for_ever(0);
    } else {
        tenant.finish(0);
        tenant.finish(1);
    }
    assert!(scan(&tenant.window).0 > (40 << 20) / 4, "the victim's VRAM is full of the pattern");
    let next = if way == Way::Reset {
        tenant.link.request(&Request::Reset { scrub: true }, None).unwrap();
        tenant
    } else {
        drop(tenant);
        let (link, grant) = connect_in_process(&service, wish("next", Chip::GF100)).unwrap();
        Tenant::new(link, &grant)
    };
    assert_eq!(scan(&next.window), (0, 0), "{scrub:?}, {way:?}");
    let leaver = service.status().unwrap().tenants;
    assert_eq!(leaver.iter().filter_map(|tenant| tenant.foreign_accesses).sum::<u64>(), 0);
}

#[test]
fn next_tenant_finds_nothing_after_a_detach() {
    for scrub in [ScrubPolicy::Release, ScrubPolicy::Attach, ScrubPolicy::Both] {
        leave_and_look(scrub, Way::Detach);
    }
}

#[test]
fn next_tenant_finds_nothing_after_a_crash_at_work() {
    for scrub in [ScrubPolicy::Release, ScrubPolicy::Attach, ScrubPolicy::Both] {
        leave_and_look(scrub, Way::Crash);
    }
}

#[test]
fn next_guest_finds_nothing_after_a_reset() {
    for scrub in [ScrubPolicy::Release, ScrubPolicy::Attach, ScrubPolicy::Both] {
        leave_and_look(scrub, Way::Reset);
    }
}

/// A vGPU with 64 MiB.
fn vgpu(service: &ServiceHandle, name: &str, chip: Chip) -> Vgpu {
    let (link, grant) = connect_in_process(service, wish(name, chip)).unwrap();
    let mediator = MediatorConfig { scrub_on_reset: true, ..MediatorConfig::default() };
    Vgpu::new(link, grant, VgpuConfig { mediator, ..VgpuConfig::of(chip).unwrap() }).unwrap()
}

/// Registers that tell the time.
fn is_clock(offset: u64) -> bool {
    (0x9400..0x9420).contains(&offset) || (0xbb_0080..0xbb_0088).contains(&offset)
}

fn register(vgpu: &Vgpu, offset: u64) -> u32 {
    let mut word = [0; 4];
    vgpu.read(Region::Bar(0), offset, &mut word).unwrap();
    u32::from_le_bytes(word)
}

/// PRAMIN, and where its window is chosen.
const PRAMIN: std::ops::Range<u64> = 0x70_0000..0x80_0000;
fn window_register(chip: Chip) -> u64 {
    match chip.face {
        Face::Registers => 0x1700,
        Face::Gsp => 0x10_fd40,
    }
}

fn show(vgpu: &Vgpu, chip: Chip, base: u64) {
    let value = u32::try_from(base >> 16).unwrap();
    vgpu.write(Region::Bar(0), window_register(chip), &value.to_le_bytes()).unwrap();
}

/// Every register that a driver could have left something in: BAR0 without PRAMIN, each fourth byte.
fn registers(vgpu: &Vgpu) -> Vec<u32> {
    bar0::registers(vgpu, is_clock)
}

/// Fills VRAM through PRAMIN (instance memory).
fn fill_by_pramin(vgpu: &Vgpu, chip: Chip) {
    let word = PATTERN.to_le_bytes();
    for base in (0..PARTITION).step_by(MIB as usize) {
        show(vgpu, chip, base);
        for at in PRAMIN.step_by(0x1000) {
            vgpu.write(Region::Bar(0), at, &word).unwrap();
        }
    }
    assert_eq!(pramin_hits(vgpu, chip), usize::try_from(PARTITION / 0x1000).unwrap());
}

/// Fills registers. Privileged and trigger registers included: a hostile driver writes everything. What
/// resets the function by itself would only make the test easier.
fn fill_registers(vgpu: &Vgpu) {
    let word = PATTERN.to_le_bytes();
    for at in (0..16 * MIB).step_by(4).filter(|at| !PRAMIN.contains(at)) {
        vgpu.write(Region::Bar(0), at, &word).unwrap();
    }
}

fn pramin_hits(vgpu: &Vgpu, chip: Chip) -> usize {
    let mut hits = 0;
    for base in (0..PARTITION).step_by(MIB as usize) {
        show(vgpu, chip, base);
        hits += PRAMIN.step_by(0x1000).filter(|at| register(vgpu, *at) == PATTERN).count();
    }
    hits
}

fn reset_leaves_nothing(chip: Chip) {
    let service = service(chip, ScrubPolicy::Release);
    let vgpu = vgpu(&service, "victim", chip);
    vgpu.reset();
    let fresh = registers(&vgpu);
    fill_by_pramin(&vgpu, chip);
    fill_registers(&vgpu);
    assert!(registers(&vgpu).iter().filter(|value| **value == PATTERN).count() > 1000);

    vgpu.reset();

    let after = registers(&vgpu);
    let changed: Vec<_> = (0_u64..)
        .step_by(4)
        .zip(fresh.iter().zip(&after))
        .filter(|(_, (fresh, after))| fresh != after)
        .collect();
    assert!(
        changed.is_empty(),
        "{} registers differ: {:x?}",
        changed.len(),
        &changed[..changed.len().min(8)]
    );
    assert_eq!(pramin_hits(&vgpu, chip), 0);
    let status = vgpu.status();
    assert_eq!((status.channels_bound, status.channels_placed, status.spaces, status.tables), (0, 0, 0, 0));
    assert_eq!(status.fail_safe.now, None);
}

#[test]
fn registers_of_a_gf100_are_as_after_power_on_after_a_reset() {
    reset_leaves_nothing(Chip::GF100);
}

#[test]
fn registers_of_a_gh100_are_as_after_power_on_after_a_reset() {
    reset_leaves_nothing(Chip::GH100);
}

/// Registers are the device process' own: when memory is zeroed is the same to them.
fn next_vgpu_finds_nothing(chip: Chip) {
    for scrub in [ScrubPolicy::Release, ScrubPolicy::Attach, ScrubPolicy::Both] {
        let registers_too = scrub == ScrubPolicy::Both;
        let service = service(chip, scrub);
        let fresh = {
            let first = vgpu(&service, "victim", chip);
            let fresh = registers_too.then(|| registers(&first));
            fill_by_pramin(&first, chip);
            if registers_too {
                fill_registers(&first);
            }
            fresh
        };
        let next = vgpu(&service, "next", chip);
        if let Some(fresh) = fresh {
            assert!(registers(&next) == fresh, "{chip}, {scrub:?}");
        }
        assert_eq!(pramin_hits(&next, chip), 0, "{chip}, {scrub:?}");
    }
}

#[test]
fn next_vgpu_finds_neither_memory_nor_registers_of_the_last_gf100() {
    next_vgpu_finds_nothing(Chip::GF100);
}

#[test]
fn next_vgpu_finds_neither_memory_nor_registers_of_the_last_gh100() {
    next_vgpu_finds_nothing(Chip::GH100);
}

/// What an operator waits for: a gibibyte, full, is free again. `cargo xtask soak` measures that it takes
/// less than a second; here other tests take the processors, and only something that is stuck is told from
/// what is slow.
#[test]
fn gibibyte_of_a_vm_that_leaves_is_free_again_soon() {
    const GIB: u64 = 1 << 30;
    let service = soft_host(Chip::GF100, GIB + 128 * MIB, PolicyKind::Fifo, ScrubPolicy::Release);
    let (link, grant) = connect_in_process(&service, hello("large", GIB)).unwrap();
    let tenant = Tenant::new(link, &grant);
    let bytes = pattern_bytes(MIB);
    for at in (0..GIB).step_by(bytes.len()) {
        tenant.window.write(at, &bytes).unwrap();
    }
    drop(grant);

    let start = Instant::now();
    drop(tenant);
    wait_until("the tenant to be gone", || service.status().unwrap().tenants.is_empty());
    let took = start.elapsed();

    assert!(took < Duration::from_secs(10), "{took:?}");
    println!("1 GiB is clean after {took:?}");
}
