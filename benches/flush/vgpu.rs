//! A flush through a whole vGPU: from the driver's write of the register to the answer.

use std::sync::Arc;

use gpuvmk::aggregator::ScrubPolicy;
use gpuvmk::aggregator::connect_in_process;
use gpuvmk::aggregator::protocol::{Hello, PROTOCOL_VERSION, TenantLimits};
use gpuvmk::chip::{Chip, Engine};
use gpuvmk::pci::PciFunction;
use gpuvmk::scheduler::policy::PolicyKind;
use gpuvmk::scheduler::share::Share;
use gpuvmk::vgpu::{Vgpu, VgpuConfig};

use crate::soft_host::soft_host;
use crate::tiny_driver::{TinyDriver, vram};
use crate::{Unchanged, micros};

/// Pages that the driver maps besides its own: 128 MiB.
const MAPPED: u64 = 1 << 15;

pub fn unchanged(rounds: usize) -> Unchanged {
    let service = soft_host(Chip::GF100, 256 << 20, PolicyKind::Fifo, ScrubPolicy::default());
    let hello = Hello {
        version: PROTOCOL_VERSION,
        name: "flush".to_owned(),
        chip: Chip::GF100.into(),
        vram: 64 << 20,
        channels: 8,
        share: Share::default(),
        limits: TenantLimits::default(),
    };
    let (link, grant) = connect_in_process(&service, hello).expect("admission");
    let vgpu =
        Arc::new(Vgpu::new(link, grant, VgpuConfig::of(Chip::GF100).expect("a face")).expect("a vGPU"));
    let mut driver = TinyDriver::bring_up(Arc::clone(&vgpu) as Arc<dyn PciFunction>);
    let mut space = driver.new_space();
    let _channel = driver.new_channel(&mut space, 1, Engine::COPY0, 0x80_0000);
    for page in 0..MAPPED {
        let target = vram((page << 12) % (32 << 20));
        driver.map(&mut space, 0x1000_0000 + (page << 12), target, 0x1000);
    }
    let flush = |driver: &mut TinyDriver| driver.flush(&space);
    flush(&mut driver);
    let before = vgpu.status().counts;
    let us = micros(rounds, &mut driver, |_, _| (), flush);
    let after = vgpu.status().counts;
    let table_pages = (after.table_pages - before.table_pages) / (after.walks - before.walks).max(1);
    Unchanged { mapped: MAPPED, us, table_pages }
}
