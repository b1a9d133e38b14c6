//! What single operations take a native client: launches, copies, memory that is allocated and touched.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use gpuvmk_chip::Engine;
use gpuvmk_gpu::rm::abi::classes::NV01_MEMORY_LOCAL_USER;
use gpuvmk_gpu::rm::abi::flags::{attr, map};
use gpuvmk_gpu::rm::raw::{Commands, GRANULE, VIDEO_VA, Work, Worker, vram_params};
use gpuvmk_papers::{Launch, median};
use serde_json::{Value, json};

use super::micros;
use super::native::{DATA, NativeGpu, PINNED};

const MIB: u64 = 1 << 20;

/// A measurement, which may use the GPU as it likes.
type Cost = fn(&mut NativeGpu) -> Result<Value>;

/// All, by the key of the report that they give.
pub(super) const ALL: [(&str, Cost); 3] = [("launches", launches), ("copies", copies), ("touch", touch)];

/// Launches that are timed one by one, and in a row.
const SINGLE: u32 = 200;
const ROW: usize = 400;

fn launches(gpu: &mut NativeGpu) -> Result<Value> {
    let mut seen = Vec::new();
    for seed in 0..SINGLE {
        seen.push(gpu.write_word(seed)?);
    }
    let nop = Launch { kernel: "nop", grid: [1; 3], block: [32, 1, 1], arguments: vec![] };
    let mut row = Vec::new();
    for _ in 0..TIMES {
        row.push(gpu.execute(&vec![nop.clone(); ROW])?.gpu / u32::try_from(ROW)?);
    }
    Ok(json!({ "until_written_us": micros(median(&seen)), "row_gpu_us": micros(median(&row)) }))
}

/// Sizes of copies; pinned ones go up to what there is of such memory.
const SIZES: [u64; 6] = [4 << 10, 64 << 10, MIB, 16 * MIB, 64 * MIB, 256 * MIB];
const COPIES: u32 = 4;
const TIMES: usize = 5;

/// On each of the first copy engines.
fn copies(gpu: &mut NativeGpu) -> Result<Value> {
    let mut found = Vec::new();
    let (video, size) = gpu.video();
    for (number, engine) in [Engine::COPY0, Engine::COPY1, Engine::COPY2].into_iter().enumerate() {
        let Some(engine) = gpu.table.engine_type(engine) else { continue };
        let (chip, doorbell) = (gpu.chip, gpu.doorbell.clone());
        let mut worker = Worker::new(&mut gpu.device, chip, doorbell, Work::Copy(engine), MIB + PINNED)?;
        worker.map_video(&gpu.device, video, 0, size, map::PAGE_2M)?;
        let outcome = on_engine(&mut worker, number, &mut found);
        worker.unmap_video(&gpu.device, 0, size)?;
        worker.destroy(&mut gpu.device)?;
        outcome?;
    }
    Ok(found.into())
}

fn on_engine(worker: &mut Worker, number: usize, found: &mut Vec<Value>) -> Result<()> {
    let (pinned, near) = (worker.system_va(DATA), VIDEO_VA + 8 * MIB);
    let far = near + 256 * MIB;
    for size in SIZES {
        let mut routes = vec![("inside", near, far)];
        if size <= PINNED {
            routes.extend([("to_device", pinned, near), ("from_device", near, pinned)]);
        }
        for (route, from, to) in routes {
            let (mut times, mut alone) = (Vec::new(), Vec::new());
            for _ in 0..TIMES {
                times.push(NativeGpu::copies(worker, (from, to), u32::try_from(size)?, COPIES)?.0);
                alone.push(NativeGpu::copies(worker, (from, to), u32::try_from(size)?, 1)?.1);
            }
            let (gpu, wall) = (micros(median(&times)), micros(median(&alone)));
            found.push(json!({
                "route": route, "bytes": size, "engine": number, "gpu_us": gpu, "wall_us": wall,
            }));
        }
    }
    Ok(())
}

/// Memory that is allocated and mapped, filled and given back.
fn touch(gpu: &mut NativeGpu) -> Result<Value> {
    let engine = gpu.table.engine_type(Engine::COPY1).context("The GPU has no copy engine")?;
    let (chip, doorbell) = (gpu.chip, gpu.doorbell.clone());
    let mut worker = Worker::new(&mut gpu.device, chip, doorbell, Work::Copy(engine), MIB)?;
    let mut times = [const { Vec::new() }; 3];
    let outcome = (0..TIMES).try_for_each(|_| touched(gpu, &mut worker, &mut times));
    worker.destroy(&mut gpu.device)?;
    outcome?;
    let [allocate, touch, free] = times.map(|times| micros(median(&times)));
    Ok(json!({ "bytes": TOUCHED, "allocate_us": allocate, "touch_us": touch, "free_us": free }))
}

/// Bytes of it.
const TOUCHED: u64 = 64 * MIB;

fn touched(gpu: &mut NativeGpu, worker: &mut Worker, times: &mut [Vec<Duration>; 3]) -> Result<()> {
    let [allocated, filled, freed] = times;
    let start = Instant::now();
    let mut params = vram_params(TOUCHED, attr::PAGE_HUGE, GRANULE);
    let memory = gpu.device.client.alloc(gpu.device.device, NV01_MEMORY_LOCAL_USER, &mut params)?;
    worker.map_video(&gpu.device, memory, 0, TOUCHED, map::PAGE_2M)?;
    allocated.push(start.elapsed());
    let start = Instant::now();
    worker.run(Commands::default().zero(VIDEO_VA, u32::try_from(TOUCHED / 16)?))?;
    filled.push(start.elapsed());
    let start = Instant::now();
    worker.unmap_video(&gpu.device, 0, TOUCHED)?;
    gpu.device.client.free(memory)?;
    freed.push(start.elapsed());
    Ok(())
}
