//! A software GPU of a chip and the aggregator that owns it, in the test's own process.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

use std::sync::Arc;

use gpuvmk::aggregator::ScrubPolicy;
use gpuvmk::aggregator::{Config, Service, ServiceHandle};
use gpuvmk::chip::{Chip, Face};
use gpuvmk::gpu::register::RegisterDriver;
use gpuvmk::gpu::{GpuDriver, OwnershipLedger};
use gpuvmk::scheduler::policy::PolicyKind;
use gpuvmk::softgpu::executor::{Executor, ExecutorConfig};
use gpuvmk::softgpu::{SoftGpu, SoftGpuConfig};

/// A GPU with `vram` bytes, and who it knows to own what.
pub fn soft_gpu(chip: Chip, vram: u64) -> (Box<dyn GpuDriver>, Arc<dyn OwnershipLedger>) {
    match chip.face {
        Face::Registers => {
            let gpu = SoftGpu::new(SoftGpuConfig { vram, ..SoftGpuConfig::default() }).unwrap();
            let ledger = gpu.ledger();
            (Box::new(RegisterDriver::new(gpu).unwrap()), ledger)
        }
        Face::Gsp => {
            let gpu = Executor::new(ExecutorConfig { vram, ..ExecutorConfig::default() }).unwrap();
            let ledger = gpu.ledger();
            (Box::new(gpu), ledger)
        }
    }
}

/// An aggregator without sockets that schedules as `policy` and zeroes VRAM as `scrub` says.
pub fn config(policy: PolicyKind, scrub: ScrubPolicy) -> Config {
    Config { scrub, ..Config::in_process(policy) }
}

/// The aggregator of such a GPU.
pub fn soft_host(chip: Chip, vram: u64, policy: PolicyKind, scrub: ScrubPolicy) -> ServiceHandle {
    let (driver, ledger) = soft_gpu(chip, vram);
    Service::start(driver, Some(ledger), &config(policy, scrub)).unwrap()
}
