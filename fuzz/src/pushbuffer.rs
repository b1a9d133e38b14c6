//! The software GPU's engines: command streams of one channel, for both chips. Whatever is in them, engines
//! reach only what the channel's address space maps (the ledger is the judge), and the channel can be taken
//! off within a second.

pub(crate) mod stream;

use gpuvmk::chip::{Chip, EngineSet, Face};
use gpuvmk::fifo_virt::{CopiedBytes, CopyMeter};
use gpuvmk::gpu::register::RegisterDriver;
use gpuvmk::gpu::{GpuDriver, OwnershipLedger};
use gpuvmk::softgpu::executor::{Executor, ExecutorConfig};
use gpuvmk::softgpu::{SoftGpu, SoftGpuConfig};

use crate::bench::{Bench, SEGMENTS};
use crate::input::Input;
use crate::log_sink;

/// Runs command streams.
pub fn run(data: &[u8]) {
    log_sink::install();
    let mut input = Input::new(data);
    if input.flag() {
        let gpu = Executor::new(ExecutorConfig { vram: 32 << 20, ..ExecutorConfig::default() })
            .expect("a software GPU");
        let ledger = gpu.ledger();
        work(&mut input, Box::new(gpu), &*ledger, Chip::GH100);
    } else {
        let config = SoftGpuConfig { vram: 32 << 20, ..SoftGpuConfig::default() };
        let gpu = SoftGpu::new(config).expect("a software GPU");
        let ledger = gpu.ledger();
        let driver = RegisterDriver::new(gpu).expect("a GPU that comes up");
        work(&mut input, Box::new(driver), &*ledger, Chip::GF100);
    }
}

fn work(input: &mut Input<'_>, gpu: Box<dyn GpuDriver>, ledger: &dyn OwnershipLedger, chip: Chip) {
    let engines = match (chip.face, input.below(3)) {
        (Face::Gsp, 0) => EngineSet::GRAPHICS | EngineSet::COPY0,
        (Face::Registers, 0) => EngineSet::GRAPHICS,
        (Face::Registers, 1) => EngineSet::COPY0,
        _ => EngineSet::COPY1,
    };
    let mut bench = Bench::new(gpu, ledger, engines);
    // What a device back end counts of the same commands is its own matter: it must not fail.
    let mut meter = CopyMeter::new(chip.subchannels, engines);
    let mut copied = CopiedBytes::default();
    while input.more() && bench.segments() < SEGMENTS {
        let words = stream::words(input, chip);
        let bytes: Vec<_> = words.iter().map(|word| word.to_le_bytes()).collect();
        meter.read(&bytes, &mut copied);
        let entry = stream::ring_entry(input, bench.segment_va(), words.len());
        let told = (input.below(32) == 31).then(|| input.u32());
        bench.submit(&words, entry, told);
    }
    bench.leave();
}
