//! The tiny driver on mediated GPUs: the register face over the mediator, its link to an aggregator, the
//! register driver, and a software GPU that knows the true owner of everything. The same scenarios as on the
//! bare GPU.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::sync::Arc;

use crate::soft_host::soft_host;
use crate::{scenarios, tiny_driver};
use gpuvmk::aggregator::ScrubPolicy;
use gpuvmk::aggregator::protocol::{Hello, PROTOCOL_VERSION};
use gpuvmk::aggregator::{ServiceHandle, connect_in_process};
use gpuvmk::chip::Chip;
use gpuvmk::pci::{PciFunction, Region};
use gpuvmk::scheduler::policy::PolicyKind;
use gpuvmk::scheduler::share::Share;
use gpuvmk::vgpu::{LinkFactory, MediatorConfig, State, Vgpu, VgpuConfig};
use gpuvmk_control_client::TenantStatus;

const VRAM: u64 = 48 << 20;

/// A physical GPU and its aggregator.
struct Host {
    service: Arc<ServiceHandle>,
}

fn hello(name: &str) -> Hello {
    Hello {
        version: PROTOCOL_VERSION,
        name: name.to_owned(),
        chip: Chip::GF100.into(),
        vram: VRAM,
        channels: 16,
        share: Share::default(),
        limits: gpuvmk::aggregator::protocol::TenantLimits::default(),
    }
}

impl Host {
    fn new(policy: PolicyKind) -> Self {
        Self { service: Arc::new(soft_host(Chip::GF100, 256 << 20, policy, ScrubPolicy::default())) }
    }

    fn vgpu(&self, name: &str) -> Arc<Vgpu> {
        let (link, grant) = connect_in_process(&self.service, hello(name)).unwrap();
        Arc::new(Vgpu::new(link, grant, VgpuConfig::of(Chip::GF100).unwrap()).unwrap())
    }

    fn tenant(&self, name: &str) -> TenantStatus {
        let status = self.service.status().unwrap();
        status.tenants.into_iter().find(|tenant| tenant.name == name).unwrap()
    }
}

/// Runs a scenario on a vGPU and asserts what must hold of every one.
fn mediated(scenario: fn(Arc<dyn PciFunction>)) {
    let host = Host::new(PolicyKind::Fifo);
    let vgpu = host.vgpu("one");

    scenario(vgpu.clone());

    let status = vgpu.status();
    assert_eq!(status.state, State::Running);
    assert!(status.counts.doorbells > 0 && status.counts.pages_mapped > 0, "{status:?}");
    assert_eq!(host.tenant("one").foreign_accesses, Some(0));
}

#[test]
fn copies_on_every_engine_move_the_bytes() {
    mediated(scenarios::copies_on_every_engine);
}

#[test]
fn end_of_each_copy_is_one_message() {
    mediated(|vgpu| scenarios::copies_that_end_with_a_message(vgpu, 20));
}

#[test]
fn copied_bytes_are_counted_for_the_engine_that_copied_them() {
    let host = Host::new(PolicyKind::Fifo);
    let vgpu = host.vgpu("one");

    for times in 1..3 {
        // The bytes are compared there: two copies on each engine.
        scenarios::copies_on_every_engine(vgpu.clone());
        vgpu.dma_unmap_all();

        let tenant = host.tenant("one");
        let copied: Vec<_> =
            tenant.engines.iter().map(|account| (account.engine.as_str(), account.copied_bytes)).collect();
        let bytes = times * 2 * scenarios::SIZE;
        assert_eq!(copied, [("graphics", bytes), ("copy0", bytes), ("copy1", bytes)]);
        assert_eq!((tenant.copied_bytes, tenant.unread_entries), (3 * bytes, 0));
    }
}

#[test]
fn fault_stops_its_channel_and_no_other() {
    mediated(scenarios::fault_stops_its_channel_only);
}

#[test]
fn stale_translation_lives_until_the_flush() {
    mediated(scenarios::flush_changes_what_engines_reach);
}

#[test]
fn channel_number_can_be_used_again() {
    mediated(scenarios::channel_number_is_used_again);
}

#[test]
fn context_pointer_may_be_written_while_the_channel_runs() {
    mediated(scenarios::context_pointer_is_written_while_the_channel_runs);
}

#[test]
fn reset_and_a_second_bring_up_work() {
    mediated(scenarios::reset_and_again);
}

#[test]
fn two_vgpus_work_at_once_and_never_meet() {
    for policy in [PolicyKind::Fifo, PolicyKind::BestEffort] {
        let host = Host::new(policy);
        let vgpus = ["one", "two"].map(|name| host.vgpu(name));
        scenarios::work_at_once(&vgpus);
        for (vgpu, name) in vgpus.iter().zip(["one", "two"]) {
            assert_eq!(vgpu.status().state, State::Running);
            assert_eq!(host.tenant(name).foreign_accesses, Some(0));
        }
    }
}

#[test]
fn dead_aggregator_is_a_dead_gpu_until_a_reset_finds_a_new_one() {
    let first = Host::new(PolicyKind::Fifo);
    let second = Host::new(PolicyKind::Fifo);
    let service = second.service.clone();
    let reconnect: LinkFactory = Box::new(move || connect_in_process(&service, hello("one")));
    let (link, grant) = connect_in_process(&first.service, hello("one")).unwrap();
    let mediator = MediatorConfig { reconnect: Some(reconnect), ..MediatorConfig::default() };
    let vgpu = Arc::new(
        Vgpu::new(link, grant, VgpuConfig { mediator, ..VgpuConfig::of(Chip::GF100).unwrap() }).unwrap(),
    );
    scenarios::copies_on_every_engine(vgpu.clone());

    first.service.stop();
    tiny_driver::wait_until("the loss", || vgpu.status().state != State::Running);
    let mut boot = [0; 4];
    vgpu.read(Region::Bar(0), 0, &mut boot).unwrap();
    assert_eq!(boot, [0xff; 4], "a dead device answers with ones");

    vgpu.dma_unmap_all();
    scenarios::copies_on_every_engine(vgpu.clone());
    assert_eq!(vgpu.status().counts.reconnects, 1);
    assert_eq!(second.tenant("one").foreign_accesses, Some(0));
}

#[test]
fn fault_of_one_vgpu_is_nobody_elses() {
    let host = Host::new(PolicyKind::Fifo);
    let (bad, good) = (host.vgpu("bad"), host.vgpu("good"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..5 {
                scenarios::fault_stops_its_channel_only(bad.clone());
                bad.dma_unmap_all();
            }
        });
        scope.spawn(|| {
            for _ in 0..5 {
                scenarios::copies_on_every_engine(good.clone());
                good.dma_unmap_all();
            }
        });
    });
    let counts = good.status().counts;
    assert_eq!((counts.events_fault, counts.events_host_error, counts.events_graphics_error), (0, 0, 0));
    assert_eq!(bad.status().counts.events_fault, 5);
    assert_eq!(host.tenant("bad").foreign_accesses, Some(0));
}
