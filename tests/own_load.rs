//! What a guest reads of its GPU does not depend on what its neighbour does: every register of an idle vGPU is the same
//! while another one keeps all engines busy, no interrupt comes, and time goes by as outside.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

#[path = "common/scenarios.rs"]
mod scenarios;
#[path = "common/tiny_driver/mod.rs"]
mod tiny_driver;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gpuvmk::aggregator::protocol::{Hello, PROTOCOL_VERSION, TenantLimits};
use gpuvmk::aggregator::{Config, Service, ServiceHandle, connect_in_process};
use gpuvmk::chip::Chip;
use gpuvmk::chip::gf100::regs::pmc::NV_PMC_ENABLE;
use gpuvmk::chip::gf100::regs::ptimer::{NV_PTIMER_TIME_0, NV_PTIMER_TIME_1};
use gpuvmk::config::{PolicyKind, ScrubPolicy};
use gpuvmk::gpu::register::RegisterDriver;
use gpuvmk::pci::{InterruptSink, PciFunction, Region};
use gpuvmk::softgpu::{SoftGpu, SoftGpuConfig};
use gpuvmk::vgpu::{Vgpu, VgpuConfig};

/// PRAMIN shows VRAM.
const PRAMIN: std::ops::Range<u64> = 0x70_0000..0x80_0000;

fn service(policy: PolicyKind) -> ServiceHandle {
    let gpu = SoftGpu::new(SoftGpuConfig { vram: 256 << 20, ..SoftGpuConfig::default() }).unwrap();
    let ledger = gpu.ledger();
    let config = Config {
        socket: None,
        control: None,
        policy,
        backend: "soft".to_owned(),
        poll: Duration::ZERO,
        scrub: ScrubPolicy::default(),
    };
    Service::start(Box::new(RegisterDriver::new(gpu).unwrap()), Some(ledger), &config).unwrap()
}

fn vgpu(service: &ServiceHandle, name: &str) -> Arc<Vgpu> {
    let hello = Hello {
        version: PROTOCOL_VERSION,
        name: name.to_owned(),
        chip: "GF100".to_owned(),
        vram: 48 << 20,
        channels: 16,
        weight: 100,
        limits: TenantLimits::default(),
    };
    let (link, grant) = connect_in_process(service, hello).unwrap();
    Arc::new(Vgpu::new(link, grant, VgpuConfig::of(Chip::Gf100)).unwrap())
}

fn register(vgpu: &Vgpu, at: u64) -> u32 {
    let mut word = [0; 4];
    vgpu.read(Region::Bar(0), at, &mut word).unwrap();
    u32::from_le_bytes(word)
}

/// All registers but the time.
fn registers(vgpu: &Vgpu) -> Vec<u32> {
    let time = [NV_PTIMER_TIME_0, NV_PTIMER_TIME_1].map(|reg| u64::from(reg.0));
    let read = |at: u64| if PRAMIN.contains(&at) || time.contains(&at) { 0 } else { register(vgpu, at) };
    (0..16 << 20).step_by(4).map(read).collect()
}

fn gpu_time(vgpu: &Vgpu) -> Duration {
    loop {
        let high = register(vgpu, NV_PTIMER_TIME_1.0.into());
        let low = register(vgpu, NV_PTIMER_TIME_0.0.into());
        if register(vgpu, NV_PTIMER_TIME_1.0.into()) == high {
            return Duration::from_nanos(u64::from(high) << 32 | u64::from(low));
        }
    }
}

#[derive(Default)]
struct Interrupts(AtomicU64);

impl InterruptSink for Interrupts {
    fn set_intx(&self, asserted: bool) {
        self.0.fetch_add(asserted.into(), Ordering::Relaxed);
    }

    fn fire_msi(&self, _vector: u16) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn watch_a_busy_neighbour(policy: PolicyKind) {
    let service = service(policy);
    let (watcher, neighbour) = (vgpu(&service, "watcher"), vgpu(&service, "neighbour"));
    let interrupts = Arc::new(Interrupts::default());
    watcher.connect_interrupts(Some(interrupts.clone()));
    // Units in reset answer nothing at all.
    watcher.write(Region::Bar(0), NV_PMC_ENABLE.0.into(), &u32::MAX.to_le_bytes()).unwrap();
    let idle = registers(&watcher);
    assert!(registers(&watcher) == idle, "registers stand still by themselves");

    let stop = AtomicBool::new(false);
    let rounds = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                scenarios::copies_on_every_engine(neighbour.clone());
                neighbour.dma_unmap_all();
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        });
        let (began, ticks) = (Instant::now(), gpu_time(&watcher));
        let mut different = Vec::new();
        for _ in 0..2 {
            let busy = registers(&watcher);
            different.extend((0_u64..).step_by(4).zip(idle.iter().zip(busy)).filter(|(_, (a, b))| *a != b));
        }
        let (took, ticked) = (began.elapsed(), gpu_time(&watcher).saturating_sub(ticks));
        stop.store(true, Ordering::Relaxed);
        assert!(different.is_empty(), "the neighbour shows in {different:x?}");
        let off = took.abs_diff(ticked);
        assert!(off < took / 50 + Duration::from_millis(20), "{took:?} outside are {ticked:?} inside");
    });
    assert!(rounds.load(Ordering::Relaxed) > 0, "the neighbour worked");
    assert_eq!(interrupts.0.load(Ordering::Relaxed), 0);
}

#[test]
fn registers_time_and_interrupts_of_a_vgpu_do_not_show_a_busy_neighbour() {
    watch_a_busy_neighbour(PolicyKind::Fifo);
    watch_a_busy_neighbour(PolicyKind::RoundRobin);
}
