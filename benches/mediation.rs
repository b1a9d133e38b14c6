//! What mediation costs a driver: the same submissions and page-table changes on the bare software GPU and on
//! a vGPU of it, all in one process.
//!
//! `cargo bench --bench mediation`. A submission is a fence alone, so that the way there and back is what
//! counts; a remapping is a page-table entry and a TLB flush, which for the vGPU is a request to the
//! aggregator.

#![allow(clippy::expect_used, reason = "a bench that cannot go on panics")]

#[path = "../tests/common/tiny_driver/mod.rs"]
mod tiny_driver;

use std::sync::Arc;

use divan::Bencher;
use gpuvmk::aggregator::protocol::{Hello, PROTOCOL_VERSION, TenantLimits};
use gpuvmk::aggregator::{Config, Service, ServiceHandle, connect_in_process};
use gpuvmk::chip::{Chip, Engine};
use gpuvmk::gpu::register::RegisterDriver;
use gpuvmk::pci::PciFunction;
use gpuvmk::scheduler::policy::PolicyKind;
use gpuvmk::scheduler::share::Share;
use gpuvmk::softgpu::{SoftGpu, SoftGpuConfig};
use gpuvmk::vgpu::{Vgpu, VgpuConfig};
use tiny_driver::{Channel, Space, TinyDriver, vram};

fn main() {
    divan::main();
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Native,
    Mediated,
}

const KINDS: [Kind; 2] = [Kind::Native, Kind::Mediated];

struct Bench {
    driver: TinyDriver,
    space: Space,
    channel: Channel,
    _service: Option<ServiceHandle>,
}

fn soft_gpu() -> Arc<SoftGpu> {
    SoftGpu::new(SoftGpuConfig { vram: 128 << 20, ..SoftGpuConfig::default() }).expect("a software GPU")
}

fn set_up(kind: Kind) -> Bench {
    let (function, service): (Arc<dyn PciFunction>, _) = match kind {
        Kind::Native => (soft_gpu(), None),
        Kind::Mediated => {
            let gpu = soft_gpu();
            let ledger = gpu.ledger();
            let driver = RegisterDriver::new(gpu).expect("a GPU that comes up");
            let policy = PolicyKind::Fifo;
            let config = Config::in_process(policy);
            let service = Service::start(Box::new(driver), Some(ledger), &config).expect("a service");
            let hello = Hello {
                version: PROTOCOL_VERSION,
                name: "bench".to_owned(),
                chip: Chip::GF100.into(),
                vram: 32 << 20,
                channels: 8,
                share: Share::default(),
                limits: TenantLimits::default(),
            };
            let (link, grant) = connect_in_process(&service, hello).expect("admission");
            let vgpu = Vgpu::new(link, grant, VgpuConfig::of(Chip::GF100).expect("a face")).expect("a vGPU");
            (Arc::new(vgpu), Some(service))
        }
    };
    let mut driver = TinyDriver::bring_up(function);
    let mut space = driver.new_space();
    let channel = driver.new_channel(&mut space, 1, Engine::COPY0, 0x80_0000);
    Bench { driver, space, channel, _service: service }
}

#[divan::bench(args = KINDS)]
fn submit_and_wait_for_the_fence(bencher: Bencher<'_, '_>, kind: Kind) {
    let mut bench = set_up(kind);
    bencher.bench_local(|| {
        bench.driver.fence(&mut bench.channel);
        while !bench.driver.fence_passed(&bench.channel) {
            std::hint::spin_loop();
        }
    });
}

#[divan::bench(args = KINDS)]
fn remap_a_page_and_flush(bencher: Bencher<'_, '_>, kind: Kind) {
    let mut bench = set_up(kind);
    let mut round = 0;
    bencher.bench_local(|| {
        round += 1;
        bench.driver.map(&mut bench.space, 0x1000_0000, vram((round & 0xff) << 12), 0x1000);
        bench.driver.flush(&bench.space);
    });
}

#[divan::bench(args = KINDS)]
fn flush_without_changes(bencher: Bencher<'_, '_>, kind: Kind) {
    let bench = set_up(kind);
    bencher.bench_local(|| bench.driver.flush(&bench.space));
}
