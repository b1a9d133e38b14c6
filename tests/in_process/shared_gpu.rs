//! The whole of the aggregator on the software GPU: tenants that share one GPU, some of them hostile, and a
//! ledger inside the hardware that knows the true owner of every page.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "helpers of tests may fail as tests do"
)]

use std::sync::Arc;
use std::time::Duration;

use crate::soft_host::soft_host;
use crate::tenant::{DATA, RAM_VA, Tenant, VRAM_VA, hello, pattern, wait_until};
use crate::{soft_host, tenant};
use gpuvmk::addr::{GpuVa, GuestChannel, GuestVram, HostVram, TenantId};
use gpuvmk::aggregator::ScrubPolicy;
use gpuvmk::aggregator::link::LinkError;
use gpuvmk::aggregator::protocol::{Doorbell, Event, GuestTarget, RefusalKind, Request, SpaceId};
use gpuvmk::aggregator::{Config, LinkTimeouts, Service, ServiceHandle, connect, connect_in_process};
use gpuvmk::chip::channel_event::{ChannelStop, StopCause};
use gpuvmk::chip::gf100::methods::host::SEMAPHORE_D;
use gpuvmk::chip::gf100::ramin::USERD_GP_PUT;
use gpuvmk::chip::{Chip, Engine, EngineSet};
use gpuvmk::gpu::register::RegisterDriver;
use gpuvmk::gpu::{ChannelSpec, GpuDriver, GpuDriverExt as _, HostMapping, HostTarget, OwnershipLedger};
use gpuvmk::host::socket_path::SocketSpec;
use gpuvmk::scheduler::policy::PolicyKind;
use gpuvmk::softgpu::{SoftGpu, SoftGpuConfig};

const MIB: u64 = 1 << 20;
const PARTITION: u64 = 32 * MIB;

fn config(policy: PolicyKind, socket: Option<SocketSpec>) -> Config {
    Config { socket, ..soft_host::config(policy, ScrubPolicy::default()) }
}

fn soft_gpu() -> Arc<SoftGpu> {
    SoftGpu::new(SoftGpuConfig { vram: 128 * MIB, ..SoftGpuConfig::default() }).unwrap()
}

fn service(policy: PolicyKind) -> ServiceHandle {
    soft_host(Chip::GF100, 128 * MIB, policy, ScrubPolicy::default())
}

fn join(service: &ServiceHandle, name: &str) -> Tenant {
    let (link, grant) = connect_in_process(service, hello(name, PARTITION)).unwrap();
    Tenant::new(link, &grant)
}

fn foreign(service: &ServiceHandle) -> u64 {
    service.status().unwrap().tenants.iter().filter_map(|tenant| tenant.foreign_accesses).sum()
}

/// RAM to VRAM to RAM, compared.
fn round_trip(tenant: &mut Tenant, channel: u16, engine: u8, seed: u8, size: u64) {
    let data = pattern(seed, size);
    let at = DATA + u64::from(channel) * MIB;
    let half = MIB * u64::from(channel % 4);
    tenant.ram.write(half, &data).unwrap();
    tenant.ram.fill(4 * MIB + half, size, 0).unwrap();
    tenant.copy(channel, engine, RAM_VA + half, VRAM_VA + at, size);
    tenant.copy(channel, engine, VRAM_VA + at, RAM_VA + 4 * MIB + half, size);
    tenant.finish(channel);
    let mut back = vec![0; size as usize];
    tenant.ram.read(4 * MIB + half, &mut back).unwrap();
    assert!(back == data, "channel {channel}: the bytes came back changed");
}

fn two_tenants_copy_at_once(policy: PolicyKind) {
    let service = service(policy);
    let run = |name: &str, seed: u8| {
        let mut tenant = join(&service, name);
        for id in 0..4 {
            tenant.channel(id, (id % 2) as u8);
        }
        tenant.list(&[0, 1, 2, 3]);
        for round in 0..10 {
            for id in 0..4 {
                round_trip(&mut tenant, id, (id % 2) as u8, seed ^ round, 256 << 10);
            }
        }
        tenant
    };

    let (a, b) = std::thread::scope(|scope| {
        let a = scope.spawn(|| run("a", 0x11));
        let b = scope.spawn(|| run("b", 0xee));
        (a.join().unwrap(), b.join().unwrap())
    });

    let status = service.status().unwrap();
    assert_eq!(foreign(&service), 0);
    for tenant in &status.tenants {
        assert!(tenant.submissions >= 80 / 4, "{tenant:?}");
        assert_eq!(
            (tenant.counters.faults, tenant.counters.refusals, tenant.channels),
            (0, 0, 4),
            "{tenant:?}"
        );
    }
    drop((a, b));
}

#[test]
fn tenants_under_fifo_copy_at_once_and_stay_apart() {
    two_tenants_copy_at_once(PolicyKind::Fifo);
}

#[test]
fn tenants_under_round_robin_copy_at_once_and_stay_apart() {
    two_tenants_copy_at_once(PolicyKind::BestEffort);
}

/// A doorbell waits for its VM's turn, or for the aggregator's thread. Hardware may have seen a newer GP_PUT
/// in USERD by then; told to go back to the older one, it would go round the whole ring.
#[test]
fn doorbell_that_comes_late_repeats_nothing() {
    let service = service(PolicyKind::BestEffort);
    let mut a = join(&service, "a");
    a.channel(0, 1);
    a.list(&[0]);
    for round in 0..=1_u8 << tenant::RING_LOG2 {
        round_trip(&mut a, 0, 1, round, 4096);
    }
    // Every entry of the ring copies something that is gone by now.
    let marks = vec![0xee; 8192];
    a.window.write(DATA, &marks).unwrap();

    a.link.doorbell(Doorbell { channel: GuestChannel(0), gp_put: 1 });
    std::thread::sleep(Duration::from_millis(50));

    let mut seen = vec![0; marks.len()];
    a.window.read(DATA, &mut seen).unwrap();
    assert!(seen == marks, "old work was done again");
    assert_eq!(service.status().unwrap().tenants[0].counters.faults, 0);
    round_trip(&mut a, 0, 1, 7, 4096);
}

#[test]
fn finished_work_is_announced() {
    let service = service(PolicyKind::Fifo);
    let mut a = join(&service, "a");
    a.channel(0, 1);
    a.list(&[0]);

    round_trip(&mut a, 0, 1, 3, 4096);

    assert_eq!(a.next_event(), Event::NonStall(Engine::COPY1));
}

/// No doorbell says that a channel goes on which waited on a semaphore: what it announces must arrive,
/// whatever was told in between (docs/threat-model.md says what hangs on that).
#[test]
fn notification_arrives_of_a_channel_that_waited_while_others_were_announced() {
    for policy in [PolicyKind::Fifo, PolicyKind::BestEffort] {
        let service = service(policy);
        let mut waiter = join(&service, "waiter");
        let mut neighbour = join(&service, "neighbour");
        for tenant in [&mut waiter, &mut neighbour] {
            tenant.channel(0, 1);
            tenant.list(&[0]);
        }
        waiter.acquire_and_notify(0, 1);

        for round in 0..20 {
            round_trip(&mut neighbour, 0, 1, round, 4096);
        }
        while waiter.events.recv_timeout(Duration::from_millis(50)).is_ok() {}
        waiter.release(0);

        assert_eq!(waiter.next_event(), Event::NonStall(Engine::COPY1), "{policy:?}");
    }
}

#[test]
fn reach_for_other_tenants_memory_faults_and_only_the_culprit_suffers() {
    let service = service(PolicyKind::Fifo);
    let mut a = join(&service, "a");
    let mut b = join(&service, "b");
    for tenant in [&mut a, &mut b] {
        tenant.channel(0, 0);
        tenant.list(&[0]);
    }
    let secret = pattern(0x77, 4096);
    b.window.write(DATA, &secret).unwrap();

    // Just behind its own partition lies the other one.
    let behind = a.map(0x30_0000_0000, GuestTarget::Vram(GuestVram(PARTITION)), 4096);
    assert!(matches!(behind, Err(LinkError::Refused { kind: RefusalKind::OutsidePartition, .. })));
    let wrap = GuestVram(0_u64.wrapping_sub(PARTITION) & !0xfff);
    assert!(a.map(0x30_0000_0000, GuestTarget::Vram(wrap), 4096).is_err());
    a.copy(0, 0, 0x30_0000_0000, RAM_VA, 4096);
    let Event::Stopped(ChannelStop { channel, cause: StopCause::Fault(fault) }) = a.next_event() else {
        panic!("no fault")
    };

    assert_eq!((channel, fault.address), (GuestChannel(0), GpuVa(0x30_0000_0000)));
    assert!(!a.finishes_within(0, Duration::from_millis(20)));
    round_trip(&mut b, 0, 0, 0x42, 64 << 10);
    assert!(matches!(b.next_event(), Event::NonStall(_)), "a neighbour's fault is not told");
    assert_eq!(foreign(&service), 0);
    // The culprit's next channel works again.
    a.link.request(&Request::DestroyChannel(GuestChannel(0)), None).unwrap();
    a.channel(0, 0);
    a.list(&[0]);
    round_trip(&mut a, 0, 0, 0x24, 4096);
}

#[test]
fn wrong_mapping_past_the_checks_is_seen_by_the_ledger() {
    let gpu = soft_gpu();
    let ledger = gpu.ledger();
    let mut driver = RegisterDriver::new(gpu).unwrap();
    let base = driver.info().tenant_vram.0;
    let (a, b) = (TenantId(1), TenantId(2));
    ledger.own_vram(HostVram(base), 16 * MIB, Some(a));
    ledger.own_vram(HostVram(base + 16 * MIB), 16 * MIB, Some(b));
    let space = driver.create_space().unwrap();
    // Nobody checks here: the space of A maps A's partition and then B's.
    let run = HostMapping {
        va: GpuVa(VRAM_VA),
        pages: (32 * MIB / 4096) as u32,
        page_shift: 12,
        target: HostTarget::Vram(HostVram(base)),
        read_only: false,
        kind: 0,
    };
    driver.update_space(space, &[], &[run], u64::MAX).unwrap();
    let spec = ChannelSpec {
        context_of: None,
        space,
        gpfifo: GpuVa(VRAM_VA + 0x1000),
        gpfifo_entries_log2: 6,
        userd: HostVram(base),
        engines: EngineSet::COPY0,
    };
    let channel = driver.create_channel(spec).unwrap();
    ledger.own_channel(channel, Some(a));
    let shared = driver.share_vram(HostVram(base), 16 * MIB).unwrap();
    let pieces: Vec<_> = shared
        .iter()
        .map(|piece| gpuvmk::pci::mapping::FilePiece {
            fd: std::os::fd::AsFd::as_fd(&piece.fd),
            offset: piece.offset,
            size: piece.size,
        })
        .collect();
    let window =
        gpuvmk::pci::mapping::Mapping::contiguous(&pieces, gpuvmk::pci::mapping::Access::ReadWrite).unwrap();
    // A release of a semaphore into B's partition.
    let victim = VRAM_VA + 20 * MIB;
    let words = [
        tenant::method(gpuvmk::chip::gf100::methods::host::SEMAPHORE_A, 4),
        (victim >> 32) as u32,
        victim as u32,
        0x1234,
        SEMAPHORE_D::OPERATION::RELEASE | SEMAPHORE_D::RELEASE_SIZE.mask(),
    ];
    for (at, word) in (0x3000_u64..).step_by(4).zip(words) {
        window.write_u32(at, word).unwrap();
    }
    let entry = (VRAM_VA + 0x3000) & 0xffff_fffc | VRAM_VA >> 32 << 32 | (words.len() as u64) << 42;
    window.write_u64(0x1000, entry).unwrap();
    driver.enable_channel(channel, true).unwrap();
    driver.commit_runlist(&[channel]).unwrap();

    window.write_u32(USERD_GP_PUT, 1).unwrap();
    driver.doorbell(channel).unwrap();

    wait_until("the ledger to fire", || ledger.foreign_accesses(a) > 0);
    assert_eq!(ledger.foreign_accesses(b), 0);
}

#[test]
fn next_tenant_finds_zeros_where_the_last_one_was() {
    let service = service(PolicyKind::Fifo);
    for round in 0..5_u8 {
        let a = join(&service, "a");
        let mut seen = vec![0xff; PARTITION as usize];
        a.window.read(0, &mut seen).unwrap();
        assert!(seen.iter().all(|byte| *byte == 0), "round {round}: something was left behind");
        a.window.fill(0, PARTITION, 0xa5 ^ round).unwrap();
        drop(a);
        wait_until("the tenant to be gone", || service.status().unwrap().tenants.is_empty());
    }
}

#[test]
fn tenant_that_leaves_in_mid_work_disturbs_nobody() {
    let service = service(PolicyKind::Fifo);
    let mut b = join(&service, "b");
    b.channel(0, 0);
    b.list(&[0]);
    for round in 0..8 {
        let mut a = join(&service, "a");
        a.channel(0, 0);
        a.channel(1, 1);
        a.list(&[0, 1]);
        for _ in 0..8 {
            a.copy(0, 0, VRAM_VA + DATA, VRAM_VA + 2 * DATA, 4 * MIB);
        }
        a.acquire_for_ever(1);
        drop(a);

        round_trip(&mut b, 0, 0, round, 64 << 10);
    }

    wait_until("the leavers to be gone", || service.status().unwrap().tenants.len() == 1);
    assert_eq!(foreign(&service), 0);
}

#[test]
fn reset_stops_work_and_the_tenant_starts_over() {
    let service = service(PolicyKind::BestEffort);
    let mut a = join(&service, "a");
    for round in 0..5 {
        a.channel(0, 0);
        a.channel(1, 1);
        a.list(&[0, 1]);
        round_trip(&mut a, 0, 0, round, 64 << 10);
        for _ in 0..8 {
            a.copy(0, 0, VRAM_VA + DATA, VRAM_VA + 2 * DATA, 4 * MIB);
        }
        a.acquire_for_ever(1);

        a.link.request(&Request::Reset { scrub: true }, None).unwrap();

        let mut seen = vec![0xff; PARTITION as usize];
        a.window.read(0, &mut seen).unwrap();
        assert!(seen.iter().all(|byte| *byte == 0), "a write landed after the reset");
        let status = service.status().unwrap().tenants.remove(0);
        assert_eq!((status.channels, status.mapped_pages), (0, 0));
        a.make_space();
    }
    assert_eq!(foreign(&service), 0);
}

#[test]
fn endless_wait_of_one_tenant_does_not_hold_the_engine() {
    for policy in [PolicyKind::Fifo, PolicyKind::BestEffort] {
        let service = service(policy);
        let mut a = join(&service, "a");
        let mut b = join(&service, "b");
        for tenant in [&mut a, &mut b] {
            for id in 0..4 {
                tenant.channel(id, 0);
            }
            tenant.list(&[0, 1, 2, 3]);
        }
        for id in 0..4 {
            a.acquire_for_ever(id);
        }

        for round in 0..20 {
            round_trip(&mut b, 0, 0, round, 16 << 10);
        }
    }
}

#[test]
fn memory_taken_away_faults_and_is_not_reached_any_more() {
    let service = service(PolicyKind::Fifo);
    let mut a = join(&service, "a");
    a.channel(0, 0);
    a.list(&[0]);
    let unmap = Request::DmaUnmap { gpa: gpuvmk::addr::Gpa(0), size: tenant::RAM };

    a.link.request(&unmap, None).unwrap();
    a.copy(0, 0, VRAM_VA + DATA, RAM_VA, 4096);

    let Event::Stopped(ChannelStop { cause: StopCause::Fault(fault), .. }) = a.next_event() else {
        panic!("the channel is not stopped by a fault");
    };
    assert_eq!(fault.address, GpuVa(RAM_VA));
    assert_eq!(service.status().unwrap().tenants[0].mapped_pages, PARTITION / 4096);
}

#[test]
fn tenants_over_a_socket_are_served_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gpu0.sock");
    let socket = SocketSpec::private(path.clone());
    let gpu = soft_gpu();
    let ledger = gpu.ledger();
    let driver = RegisterDriver::new(gpu).unwrap();
    let service =
        Service::start(Box::new(driver), Some(ledger), &config(PolicyKind::Fifo, Some(socket))).unwrap();
    let (link, grant) = connect(&path, hello("a", PARTITION), &LinkTimeouts::none()).unwrap();
    let mut a = Tenant::new(link, &grant);
    a.channel(0, 0);
    a.list(&[0]);

    round_trip(&mut a, 0, 0, 9, 256 << 10);
    drop(service);

    assert!(std::iter::from_fn(|| Some(a.next_event())).take(8).any(|event| event == Event::Lost));
    let error = a.link.request(&Request::CreateSpace(SpaceId(1)), None).unwrap_err();
    assert!(matches!(error, LinkError::Lost(_)));
}
