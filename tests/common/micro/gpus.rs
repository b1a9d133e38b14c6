//! GPUs for micro guests: a bare one, and those of an aggregator's tenants.

use std::sync::Arc;

use gpuvmk::aggregator::protocol::{Hello, PROTOCOL_VERSION, TenantLimits};
use gpuvmk::aggregator::{ServiceHandle, connect_in_process};
use gpuvmk::chip::Chip;
use gpuvmk::scheduler::share::Share;
use gpuvmk::softgpu::{SoftGpu, SoftGpuConfig};
use gpuvmk::vgpu::{Bar3, Vgpu, VgpuConfig};

/// A vGPU's VRAM.
pub const VRAM: u64 = 48 << 20;

/// A bare GPU with 64 MiB of VRAM.
pub fn gpu() -> Arc<SoftGpu> {
    SoftGpu::new(SoftGpuConfig { vram: 64 << 20, ..SoftGpuConfig::default() }).unwrap()
}

/// What a micro guest's VM asks an aggregator for.
pub fn hello(chip: Chip) -> Hello {
    Hello {
        version: PROTOCOL_VERSION,
        name: "micro".to_owned(),
        chip: chip.into(),
        vram: VRAM,
        channels: 16,
        share: Share::default(),
        limits: TenantLimits::default(),
    }
}

/// A vGPU of a tenant of an aggregator in this process.
pub fn vgpu(chip: Chip, service: &Arc<ServiceHandle>) -> Arc<Vgpu> {
    let (link, grant) = connect_in_process(service, hello(chip)).unwrap();
    Arc::new(Vgpu::new(link, grant, config(chip)).unwrap())
}

/// Windows that are mapped wherever what they show is, as under `gpuvmk vmm`.
pub fn config(chip: Chip) -> VgpuConfig {
    let mut config = VgpuConfig::of(chip).unwrap();
    config.mediator.bar3 = Bar3::Trapped;
    config
}
