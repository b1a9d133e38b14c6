//! What a guest reads of its GPU does not depend on what its neighbour does: every register of an idle vGPU
//! is the same while another one keeps all engines busy, no interrupt comes, time goes by as outside, and a
//! GH100's firmware answers every call in the same way.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "helpers of tests may fail as tests do"
)]

mod calls;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::gsp_driver::{DATA, GspDriver, RAM_VA, VRAM_VA};
use crate::soft_host::soft_host;
use crate::{bar0, scenarios, tiny_driver};
use gpuvmk::aggregator::ScrubPolicy;
use gpuvmk::aggregator::link::{AggregatorLink, Grant};
use gpuvmk::aggregator::protocol::{Hello, PROTOCOL_VERSION, TenantLimits};
use gpuvmk::aggregator::{ServiceHandle, connect_in_process};
use gpuvmk::chip::gf100::regs::pmc::NV_PMC_ENABLE;
use gpuvmk::chip::gf100::regs::ptimer::{NV_PTIMER_TIME_0, NV_PTIMER_TIME_1};
use gpuvmk::chip::gh100::regs::vfn::{NV_VIRTUAL_FUNCTION_TIME_0, NV_VIRTUAL_FUNCTION_TIME_1};
use gpuvmk::chip::gmmu::Gmmu;
use gpuvmk::chip::{Chip, EngineSet, Face};
use gpuvmk::pci::{InterruptSink, PciFunction, Region};
use gpuvmk::scheduler::policy::PolicyKind;
use gpuvmk::scheduler::share::Share;
use gpuvmk::vgpu::{GspChannels, Mediator, MediatorConfig, Vgpu, VgpuConfig};

const POLICIES: [PolicyKind; 2] = [PolicyKind::Fifo, PolicyKind::BestEffort];
/// Registers that show the time, on one chip or the other.
const TIME: [u32; 4] =
    [NV_PTIMER_TIME_0.0, NV_PTIMER_TIME_1.0, NV_VIRTUAL_FUNCTION_TIME_0.0, NV_VIRTUAL_FUNCTION_TIME_1.0];

/// A physical GPU and its aggregator.
struct Host {
    chip: Chip,
    service: ServiceHandle,
}

impl Host {
    fn new(chip: Chip, policy: PolicyKind) -> Self {
        Self { chip, service: soft_host(chip, 256 << 20, policy, ScrubPolicy::default()) }
    }

    fn link(&self, name: &str) -> (Arc<dyn AggregatorLink>, Grant) {
        let hello = Hello {
            version: PROTOCOL_VERSION,
            name: name.to_owned(),
            chip: self.chip.into(),
            vram: 64 << 20,
            channels: 16,
            share: Share::default(),
            limits: TenantLimits::default(),
        };
        connect_in_process(&self.service, hello).unwrap()
    }

    fn vgpu(&self, name: &str) -> Arc<Vgpu> {
        let (link, grant) = self.link(name);
        Arc::new(Vgpu::new(link, grant, VgpuConfig::of(self.chip).unwrap()).unwrap())
    }

    /// A driver of a GH100, below its register face.
    fn gsp_driver(&self, name: &str) -> GspDriver<Mediator<GspChannels>> {
        let (link, grant) = self.link(name);
        GspDriver::new(Arc::new(Mediator::new(link, grant, Gmmu::V3, MediatorConfig::default()).unwrap()))
    }

    /// Calls `look` while a neighbour keeps all engines busy.
    fn beside_a_busy_neighbour(&self, look: impl FnOnce()) {
        let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
        let work = |round: &mut dyn FnMut()| {
            while !stop.load(Ordering::Relaxed) {
                round();
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| match self.chip.face {
                Face::Registers => {
                    let vgpu = self.vgpu("neighbour");
                    work(&mut || {
                        scenarios::copies_on_every_engine(vgpu.clone());
                        vgpu.dma_unmap_all();
                    });
                }
                Face::Gsp => {
                    let mut driver = self.gsp_driver("neighbour");
                    let engines =
                        [EngineSet::GRAPHICS | EngineSet::COPY0, EngineSet::COPY1, EngineSet::COPY2];
                    for (slot, engines) in (0..).zip(engines) {
                        driver.channel(slot, engines);
                    }
                    work(&mut || {
                        (0..3).for_each(|slot| driver.copy(slot, RAM_VA, VRAM_VA + DATA, 0x10_0000));
                        (0..3).for_each(|slot| driver.finish(slot));
                    });
                }
            });
            let before = rounds.load(Ordering::Relaxed);
            tiny_driver::wait_until("work", || rounds.load(Ordering::Relaxed) > before);
            look();
            let last = rounds.load(Ordering::Relaxed);
            tiny_driver::wait_until("more work", || rounds.load(Ordering::Relaxed) > last);
            stop.store(true, Ordering::Relaxed);
        });
    }
}

fn register(vgpu: &Vgpu, at: u64) -> u32 {
    let mut word = [0; 4];
    vgpu.read(Region::Bar(0), at, &mut word).unwrap();
    u32::from_le_bytes(word)
}

/// All registers but the time.
fn registers(vgpu: &Vgpu) -> Vec<u32> {
    bar0::registers(vgpu, |at| TIME.map(u64::from).contains(&at))
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

    fn message_sent(&self, _vector: u16) {}
}

fn watch_a_busy_neighbour(chip: Chip, policy: PolicyKind) {
    let host = Host::new(chip, policy);
    let watcher = host.vgpu("watcher");
    let interrupts = Arc::new(Interrupts::default());
    watcher.connect_interrupts(Some(interrupts.clone()));
    if chip == Chip::GF100 {
        // Units in reset answer nothing at all.
        watcher.write(Region::Bar(0), NV_PMC_ENABLE.0.into(), &u32::MAX.to_le_bytes()).unwrap();
    }
    let idle = registers(&watcher);

    host.beside_a_busy_neighbour(|| {
        let (began, ticks) = (Instant::now(), gpu_time(&watcher));
        let busy = registers(&watcher);
        let different: Vec<_> =
            (0_u64..).step_by(4).zip(idle.iter().zip(busy)).filter(|(_, (a, b))| *a != b).collect();
        let (took, ticked) = (began.elapsed(), gpu_time(&watcher).saturating_sub(ticks));
        assert!(different.is_empty(), "the neighbour shows in {different:x?}");
        let off = took.abs_diff(ticked);
        assert!(off < took / 50 + Duration::from_millis(20), "{took:?} outside are {ticked:?} inside");
    });
    assert_eq!(interrupts.0.load(Ordering::Relaxed), 0);
}

#[test]
fn registers_time_and_interrupts_of_a_gf100_do_not_show_a_busy_neighbour() {
    POLICIES.into_iter().for_each(|policy| watch_a_busy_neighbour(Chip::GF100, policy));
}

#[test]
fn registers_time_and_interrupts_of_a_gh100_do_not_show_a_busy_neighbour() {
    POLICIES.into_iter().for_each(|policy| watch_a_busy_neighbour(Chip::GH100, policy));
}
