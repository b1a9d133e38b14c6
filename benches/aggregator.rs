//! What the aggregator adds: from a tenant's doorbell to the fence in its memory, a request there and back,
//! and the check of what a tenant wants mapped.
//!
//! `cargo bench --bench aggregator`. The tenant speaks the protocol itself; `mediation` measures the same
//! through a whole vGPU.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark that cannot be set up ends")]

#[path = "aggregator/long_work.rs"]
mod long_work;
#[path = "../tests/common/tenant.rs"]
mod tenant;
#[path = "flush/validation.rs"]
mod validation;

use divan::Bencher;
use divan::counter::ItemsCount;
use gpuvmk::aggregator::protocol::{Request, SpaceId};
use gpuvmk::aggregator::{Config, Service, ServiceHandle, connect_in_process};
use gpuvmk::gpu::register::RegisterDriver;
use gpuvmk::scheduler::policy::PolicyKind;
use gpuvmk::softgpu::{SoftGpu, SoftGpuConfig};
use tenant::{DATA, RAM_VA, Tenant, VRAM_VA, hello};

fn main() {
    // Only when all is measured, and not when it is listed or tried.
    if std::env::args().len() < 3 && std::env::args().any(|argument| argument == "--bench") {
        long_work::print();
    }
    divan::main();
}

const POLICIES: [PolicyKind; 2] = [PolicyKind::Fifo, PolicyKind::BestEffort];

fn set_up(policy: PolicyKind) -> (ServiceHandle, Tenant) {
    let gpu = SoftGpu::new(SoftGpuConfig { vram: 128 << 20, ..SoftGpuConfig::default() }).unwrap();
    let ledger = gpu.ledger();
    let driver = RegisterDriver::new(gpu).unwrap();
    let config = Config::in_process(policy);
    let service = Service::start(Box::new(driver), Some(ledger), &config).unwrap();
    let (link, grant) = connect_in_process(&service, hello("bench", 32 << 20)).unwrap();
    let mut tenant = Tenant::new(link, &grant);
    tenant.channel(0, 0);
    tenant.list(&[0]);
    (service, tenant)
}

#[divan::bench(args = POLICIES, sample_count = 1000)]
fn copy_4k_and_fence(bencher: Bencher<'_, '_>, policy: PolicyKind) {
    let (_service, mut tenant) = set_up(policy);
    bencher.bench_local(|| {
        tenant.copy(0, 0, RAM_VA, VRAM_VA + DATA, 4096);
        while !tenant.done(0) {
            std::hint::spin_loop();
        }
    });
}

#[divan::bench(args = POLICIES, sample_count = 1000)]
fn copy_4k_and_notification(bencher: Bencher<'_, '_>, policy: PolicyKind) {
    let (_service, mut tenant) = set_up(policy);
    bencher.bench_local(|| {
        tenant.copy(0, 0, RAM_VA, VRAM_VA + DATA, 4096);
        tenant.next_event();
    });
}

#[divan::bench(sample_count = 1000)]
fn request_there_and_back(bencher: Bencher<'_, '_>) {
    let (_service, tenant) = set_up(PolicyKind::Fifo);
    let nothing = Request::UpdateSpace { space: SpaceId(0), unmap: Vec::new(), map: Vec::new() };
    bencher.bench_local(|| tenant.link.request(&nothing, None).unwrap());
}

/// Items are page-table entries.
#[divan::bench(args = validation::Update::ALL)]
fn check_of_an_update(bencher: Bencher<'_, '_>, update: validation::Update) {
    let tenant = validation::Tenant::new(update);
    bencher.counter(ItemsCount::new(tenant.pages())).bench_local(|| tenant.check());
}
