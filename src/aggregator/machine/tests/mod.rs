//! The machine over a GPU that only records its calls.

#![expect(clippy::needless_pass_by_value, reason = "requests are written where they are sent")]

mod admission;
mod channels;
mod fail_safe;
mod guests;
mod hang;
mod hopper;
mod isolation;
mod memory;
mod real_calls;
mod recovery;
mod renewal;
mod schedule_recorder;
mod scrub;
mod settings;
mod thread_time;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::fake_gpu::{Fake, FakeGpu, MIB};
use crate::protocol::{
    Doorbell, Event, GuestMapping, GuestTarget, Hello, PROTOCOL_VERSION, RefusalKind, Reply, Request,
    SpaceId, TenantLimits,
};
use gpuvmk_chip::addr::{Gpa, GpuVa, GuestChannel, GuestVram, HostChannel, HostVram, Iova, TenantId};
use gpuvmk_chip::{AccessKind, Chip, Engine, EngineSet, FaultReason};
use gpuvmk_gpu::{GpuDriver, GpuEvent, HostTarget, OwnershipLedger};
use gpuvmk_scheduler::Scheduler;
use gpuvmk_scheduler::policy::{PolicyKind, Settings};
use gpuvmk_scheduler::share::Share;

const SECOND: Duration = Duration::from_secs(1);
const T0: Duration = Duration::ZERO;

fn hello(name: &str) -> Hello {
    Hello {
        version: PROTOCOL_VERSION,
        name: name.into(),
        chip: Chip::GF100.into(),
        vram: 64 * MIB,
        channels: 4,
        share: Share::default(),
        limits: TenantLimits::default(),
    }
}

fn machine() -> (Machine, Fake) {
    let (gpu, fake) = FakeGpu::new();
    let ledger: Arc<dyn OwnershipLedger> = Arc::new(fake.clone());
    (Machine::new(Box::new(gpu), Some(ledger), Scheduler::new(PolicyKind::Fifo, Settings::default())), fake)
}

/// Two tenants, each with 16 MiB of memory at 0, address space 0 and channel 0 (enabled and listed).
fn two_tenants() -> (Machine, Fake, TenantId, TenantId) {
    let (mut machine, fake) = machine();
    let a = machine.admit(&hello("a"), T0).unwrap().tenant;
    let b = machine.admit(&hello("b"), T0).unwrap().tenant;
    for tenant in [a, b] {
        furnish(&mut machine, tenant);
    }
    (machine, fake, a, b)
}

fn furnish(machine: &mut Machine, tenant: TenantId) {
    dma_map(machine, tenant, 0, 16 * MIB);
    done(machine, tenant, Request::CreateSpace(SpaceId(0)));
    done(machine, tenant, create_channel(0));
    done(machine, tenant, Request::EnableChannel { channel: GuestChannel(0), enabled: true });
    done(machine, tenant, Request::SetRunlist(vec![GuestChannel(0)]));
}

fn create_channel(id: u16) -> Request {
    Request::CreateChannel {
        context_of: None,
        channel: GuestChannel(id),
        space: SpaceId(0),
        gpfifo: GpuVa(0x10_0000),
        gpfifo_entries_log2: 9,
        userd: GuestVram(0x1000 * u64::from(id)),
        engines: EngineSet::GRAPHICS,
    }
}

fn memfd(size: u64) -> OwnedFd {
    let fd = rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&fd, size).unwrap();
    fd
}

fn dma_map(machine: &mut Machine, tenant: TenantId, gpa: u64, size: u64) {
    let request = Request::DmaMap { gpa: Gpa(gpa), size, offset: 0, writable: true };
    let outcome = machine.request(tenant, request, Some(memfd(size)), T0);
    assert_eq!(outcome, Outcome::Now(Reply::Done));
}

fn done(machine: &mut Machine, tenant: TenantId, request: Request) {
    let outcome = machine.request(tenant, request.clone(), None, T0);
    assert_eq!(outcome, Outcome::Now(Reply::Done), "{request:?}");
}

fn refused(machine: &mut Machine, tenant: TenantId, request: Request) -> RefusalKind {
    match machine.request(tenant, request.clone(), None, T0) {
        Outcome::Now(Reply::Refused { kind, .. }) => kind,
        other => panic!("{request:?} is answered with {other:?}"),
    }
}

fn map(va: u64, target: GuestTarget) -> Request {
    let map = GuestMapping { va: GpuVa(va), pages: 1, page_shift: 12, target, read_only: false, kind: 0 };
    Request::UpdateSpace { space: SpaceId(0), unmap: vec![], map: vec![map] }
}

/// An update of space 0 that is carried out in pieces.
fn map_of_a_gib() -> Request {
    let target = system(0);
    let run =
        GuestMapping { va: GpuVa(0), pages: 1 << 18, page_shift: 12, target, read_only: false, kind: 0 };
    Request::UpdateSpace { space: SpaceId(0), unmap: vec![], map: vec![run] }
}

fn system(gpa: u64) -> GuestTarget {
    GuestTarget::System { address: Gpa(gpa), coherent: true }
}

fn outputs(machine: &mut Machine) -> Vec<Output> {
    let mut all = Vec::new();
    machine.take_outputs(&mut all);
    all
}

fn host_of(fake: &Fake, vram: u64) -> HostChannel {
    let state = fake.state();
    let found = state.channels.iter().find(|(_, spec)| spec.userd == HostVram(vram));
    *found.expect("a channel with this USERD").0
}

fn settle(machine: &mut Machine, now: Duration) {
    for _ in 0..1000 {
        if !machine.step(now) {
            return;
        }
    }
    panic!("the machine does not settle");
}
