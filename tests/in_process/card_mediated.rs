//! The tiny driver on vGPUs whose physical GPU is a card: what a driver may expect of a GPU holds there too,
//! no access leaves its tenant's memory, and what changes nothing costs the card nothing.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::sync::Arc;
use std::time::Duration;

use crate::card::{Card, card_host};
use crate::tiny_driver::{TinyDriver, vram};
use crate::{scenarios, tiny_driver};
use gpuvmk::aggregator::protocol::{Hello, PROTOCOL_VERSION, TenantLimits};
use gpuvmk::aggregator::{ServiceHandle, connect_in_process};
use gpuvmk::chip::{Chip, Engine};
use gpuvmk::pci::PciFunction;
use gpuvmk::scheduler::policy::PolicyKind;
use gpuvmk::scheduler::share::Share;
use gpuvmk::vgpu::{State, Vgpu, VgpuConfig};

struct Host {
    card: Arc<Card>,
    service: Arc<ServiceHandle>,
}

impl Host {
    fn new(policy: PolicyKind) -> Self {
        let (card, service) = card_host(256 << 20, policy);
        Self { card, service: Arc::new(service) }
    }

    fn vgpu(&self, name: &str) -> Arc<Vgpu> {
        let hello = Hello {
            version: PROTOCOL_VERSION,
            name: name.to_owned(),
            chip: Chip::GF100.into(),
            vram: 48 << 20,
            channels: 16,
            share: Share::default(),
            limits: TenantLimits::default(),
        };
        let (link, grant) = connect_in_process(&self.service, hello).unwrap();
        Arc::new(Vgpu::new(link, grant, VgpuConfig::of(Chip::GF100).unwrap()).unwrap())
    }

    /// Asserts that each VM is served, worked, and stayed with what it has.
    fn assert_apart(&self) {
        let status = self.service.status().unwrap();
        for tenant in &status.tenants {
            assert_eq!((tenant.foreign_accesses, tenant.counters.refusals), (Some(0), 0), "{tenant:?}");
            assert!(tenant.submissions > 0 && tenant.fail_safe.is_none(), "{tenant:?}");
        }
        assert!(status.gpu.card.is_some_and(|card| card.reached > 0), "{:?}", status.gpu);
    }
}

/// Runs a scenario on a vGPU and asserts what must hold of every one.
fn mediated(scenario: fn(Arc<dyn PciFunction>)) {
    let host = Host::new(PolicyKind::Fifo);
    let vgpu = host.vgpu("one");

    scenario(vgpu.clone());

    assert_eq!(vgpu.status().state, State::Running);
    host.assert_apart();
}

#[test]
fn copies_faults_flushes_and_resets_are_what_they_are() {
    mediated(scenarios::copies_on_every_engine);
    mediated(scenarios::fault_stops_its_channel_only);
    mediated(scenarios::flush_changes_what_engines_reach);
    mediated(scenarios::channel_number_is_used_again);
    mediated(scenarios::context_pointer_is_written_while_the_channel_runs);
    mediated(scenarios::reset_and_again);
}

#[test]
fn two_vgpus_work_at_once_and_never_meet() {
    for policy in [PolicyKind::Fifo, PolicyKind::BestEffort] {
        let host = Host::new(policy);
        let vgpus = ["one", "two"].map(|name| host.vgpu(name));
        scenarios::work_at_once(&vgpus);
        host.assert_apart();
    }
}

/// A VM's place in VRAM is another one's later: what the first left is not there.
#[test]
fn memory_of_a_vm_that_left_is_out_of_the_cards_reach() {
    let host = Host::new(PolicyKind::Fifo);
    let reached = || host.service.status().unwrap().gpu.card.unwrap().reached;
    let before = reached();
    let vgpu = host.vgpu("one");
    scenarios::copies_on_every_engine(vgpu.clone());
    assert!(reached() > before);

    drop(vgpu);

    tiny_driver::wait_until("its end", || host.service.status().unwrap().tenants.is_empty());
    // The driver's own pages were never the VM's; they stay within reach for the next one.
    let own = 4 << 20;
    assert!(reached() <= before + own, "{} bytes more than before", reached() - before);
}

#[test]
fn flush_of_unchanged_tables_costs_the_card_nothing() {
    let host = Host::new(PolicyKind::Fifo);
    let vgpu = host.vgpu("one");
    let mut driver = TinyDriver::bring_up(vgpu.clone());
    let mut space = driver.new_space();
    let page = driver.alloc(0x4_0000, 0x1000);
    driver.map(&mut space, 0x1000_0000, vram(page), 0x4_0000);
    driver.flush(&space);
    let mut channel = driver.new_channel(&mut space, 1, Engine::COPY0, 0x80_0000);
    driver.set_object(&mut channel);
    driver.copy(&mut channel, 0x1000_0000, 0x1002_0000, 0x2_0000);
    driver.finish(&channel);
    // Looks at the engines end a while after the work does.
    let mut last = host.card.accesses();
    tiny_driver::wait_until("the card to be left alone", || {
        std::thread::sleep(Duration::from_millis(100));
        let now = host.card.accesses();
        std::mem::replace(&mut last, now) == now
    });
    let flushes = |vgpu: &Vgpu| vgpu.status().counts.flushes;
    let before = flushes(&vgpu);

    for _ in 0..100 {
        driver.flush(&space);
    }

    assert_eq!(flushes(&vgpu) - before, 100);
    assert_eq!(host.card.accesses(), last, "reads and writes");
    // One that changes a page does cost something.
    let other = driver.alloc(0x1000, 0x1000);
    driver.map(&mut space, 0x1000_0000, vram(other), 0x1000);
    driver.flush(&space);
    let (reads, writes) = host.card.accesses();
    assert!(reads > last.0 && writes > last.1, "a changed page was not told");
    assert!(
        reads - last.0 < 10 && writes - last.1 < 10,
        "{} reads, {} writes",
        reads - last.0,
        writes - last.1
    );
}
