//! The figures: copies, latencies, mappings.

use std::thread;
use std::time::{Duration, Instant};

use crate::bench::Bench;
use crate::report::{Figure, Report, Stop};
use crate::step_error::StepError;
use gpuvmk_chip::Engine;
use gpuvmk_gpu::rm::abi::Handle;
use gpuvmk_gpu::rm::abi::classes::NV01_MEMORY_LOCAL_USER;
use gpuvmk_gpu::rm::abi::flags::{attr, map};
use gpuvmk_gpu::rm::raw::{Commands, GRANULE, STAGING, VIDEO_VA, Work, Worker, vram_params};

const MIB: u64 = 1 << 20;

/// Bytes of system memory for data: two buffers of the largest copy.
const DATA: u64 = 128 * MIB;

/// Video memory for data.
const VIDEO: u64 = 256 * MIB;

/// Copies in one measurement, and measurements.
const COPIES: u32 = 8;
const ROUNDS: usize = 7;

pub(crate) fn measure(bench: &mut Bench, report: &mut Report) -> Result<(), Stop> {
    let mut params = vram_params(VIDEO, attr::PAGE_HUGE, GRANULE);
    let video = match bench.device.client.alloc(bench.device.device, NV01_MEMORY_LOCAL_USER, &mut params) {
        Ok(video) => video,
        Err(error) => return report.note("video memory for measurements", Err(error.into())),
    };
    for engine in [Engine::COPY1, Engine::COPY2, Engine::COPY0] {
        let outcome = on_copy_engine(bench, report, engine, video);
        report.note(&format!("measurements on {engine:?}"), outcome)?;
    }
    let outcome = inline(bench, report);
    report.note("measurements on the graphics engine", outcome)?;
    let outcome = crate::compute::measure(bench, report);
    report.note("a compute kernel", outcome)?;
    let freed = bench.device.client.free(video).map_err(StepError::from);
    report.note("freeing video memory", freed)
}

fn on_copy_engine(
    bench: &mut Bench,
    report: &mut Report,
    engine: Engine,
    video: Handle,
) -> Result<(), StepError> {
    let number = bench
        .table
        .engine_type(engine)
        .ok_or_else(|| StepError::Wrong(format!("{engine:?} has no real engine")))?;
    let mut worker =
        Worker::new(&mut bench.device, bench.chip, bench.doorbell.clone(), Work::Copy(number), DATA)?;
    let outcome = with_worker(bench, report, engine, video, &mut worker);
    // Left behind only when the driver refuses.
    worker.destroy(&mut bench.device)?;
    outcome
}

fn with_worker(
    bench: &Bench,
    report: &mut Report,
    engine: Engine,
    video: Handle,
    worker: &mut Worker,
) -> Result<(), StepError> {
    for (pages, flag) in [("2M", map::PAGE_2M), ("64K", map::PAGE_64K), ("4K", map::PAGE_4K)] {
        // Only the engine that guests copy on most is measured with every page size.
        if engine != Engine::COPY1 && flag != map::PAGE_2M {
            continue;
        }
        worker.map_video(&bench.device, video, 0, VIDEO, flag)?;
        let outcome = copies(report, engine, pages, worker);
        worker.unmap_video(&bench.device, 0, VIDEO)?;
        outcome?;
    }
    latencies(report, engine, worker)?;
    if engine == Engine::COPY1 {
        mappings(bench, report, video, worker)?;
    }
    report.passed.push(format!(
        "{engine:?}: GP_GET in USERD reads {} of {}",
        worker.fetched(),
        worker.queued()
    ));
    Ok(())
}

fn copies(report: &mut Report, engine: Engine, pages: &str, worker: &mut Worker) -> Result<(), StepError> {
    let system = worker.system_va(STAGING);
    let system_back = system.saturating_add(64 * MIB);
    let far = VIDEO_VA.saturating_add(128 * MIB);
    check_copy(worker, system, system_back)?;
    for size in [16 * MIB, 64 * MIB] {
        let routes = [
            ("system to video", system, VIDEO_VA),
            ("video to video", VIDEO_VA, far),
            ("video to system", VIDEO_VA, system_back),
        ];
        for (route, from, to) in routes {
            let bytes = u32::try_from(size).map_err(|_| StepError::Wrong("a copy is too large".into()))?;
            let mut times = Vec::new();
            for _ in 0..ROUNDS {
                let mut commands = Commands::default();
                for _ in 0..COPIES {
                    commands.copy(from, to, bytes);
                }
                times.push(worker.run(&mut commands)?);
            }
            let name = format!("{engine:?} {route} {} MiB, {pages} pages", size / MIB);
            report.figures.push(Figure::rates(name, size.saturating_mul(u64::from(COPIES)), &times));
        }
        // As kernel drivers write it: lines of 4 KiB.
        let lines = u32::try_from(size / 4096).map_err(|_| StepError::Wrong("a copy is too large".into()))?;
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let mut commands = Commands::default();
            for _ in 0..COPIES {
                commands.copy_pages(system, VIDEO_VA, lines);
            }
            times.push(worker.run(&mut commands)?);
        }
        let name = format!("{engine:?} system to video {} MiB in lines, {pages} pages", size / MIB);
        report.figures.push(Figure::rates(name, size.saturating_mul(u64::from(COPIES)), &times));
    }
    Ok(())
}

/// A copy there and back, every word compared.
fn check_copy(worker: &mut Worker, from: u64, back: u64) -> Result<(), StepError> {
    let wrong = |what: &str| StepError::Wrong(what.to_owned());
    let pattern = |index: u64| (index.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes();
    let bytes: Vec<u8> = (0..MIB / 8).flat_map(pattern).collect();
    let memory = worker.system();
    memory.write(STAGING, &bytes).map_err(|_| wrong("the pattern does not fit"))?;
    memory.fill(STAGING + 64 * MIB, MIB, 0).map_err(|_| wrong("the pattern does not fit"))?;
    let size = 1 << 20;
    worker.run(Commands::default().copy(from, VIDEO_VA, size))?;
    worker.run(Commands::default().copy(VIDEO_VA, back, size))?;
    let mut read = vec![0; bytes.len()];
    worker.system().read(STAGING + 64 * MIB, &mut read).map_err(|_| wrong("the pattern cannot be read"))?;
    if read == bytes { Ok(()) } else { Err(wrong("a copy to video memory and back is not what it was")) }
}

fn latencies(report: &mut Report, engine: Engine, worker: &mut Worker) -> Result<(), StepError> {
    let at = worker.spare_semaphore();
    let va = worker.system_va(at);
    let mut times = Vec::new();
    for value in 1..=2000 {
        let mut commands = Commands::default();
        commands.release(va, value, false);
        worker.enqueue(&commands)?;
        let start = Instant::now();
        worker.kick();
        worker.wait(at, value)?;
        times.push(start.elapsed());
    }
    report.figures.push(Figure::times(format!("{engine:?} doorbell to host semaphore"), times));
    let mut times = Vec::new();
    for value in 3001..=4000 {
        let mut commands = Commands::default();
        commands.copy_semaphore(va, value);
        worker.enqueue(&commands)?;
        let start = Instant::now();
        worker.kick();
        worker.wait(at, value)?;
        times.push(start.elapsed());
    }
    report.figures.push(Figure::times(format!("{engine:?} doorbell to copy semaphore"), times));
    Ok(())
}

/// Between two calls of a guest's driver: what a guest's own part of a map or an unmap took (0.65 ms).
const PAUSE: Duration = Duration::from_micros(600);

/// The bare calls, for 4 MiB.
fn mappings(bench: &Bench, report: &mut Report, video: Handle, worker: &Worker) -> Result<(), StepError> {
    let size = 4 * MIB;
    let pages = [("4K", map::PAGE_4K), ("64K", map::PAGE_64K), ("2M", map::PAGE_2M)];
    for (name, flag) in pages {
        for (defer, suffix) in [(0, ""), (map::DEFER_FLUSH, ", flush deferred")] {
            let (mut mapped, mut unmapped) = (Vec::new(), Vec::new());
            for _ in 0..200 {
                mapped.push(timed(|| worker.map_video(&bench.device, video, 0, size, flag | defer))?);
                unmapped.push(timed(|| worker.unmap_video(&bench.device, 0, size))?);
            }
            report
                .figures
                .push(Figure::times(format!("map 4 MiB of video memory, {name} pages{suffix}"), mapped));
            if defer == 0 {
                report
                    .figures
                    .push(Figure::times(format!("unmap 4 MiB of video memory, {name} pages"), unmapped));
            }
        }
    }
    // As a guest does, which has other things to do between two calls: caches and processors have, too.
    let (mut mapped, mut unmapped) = (Vec::new(), Vec::new());
    for _ in 0..200 {
        thread::sleep(PAUSE);
        mapped.push(timed(|| worker.map_video(&bench.device, video, 0, size, map::PAGE_2M))?);
        thread::sleep(PAUSE);
        unmapped.push(timed(|| worker.unmap_video(&bench.device, 0, size))?);
    }
    report.figures.push(Figure::times("map 4 MiB of video memory, 2M pages, after a pause", mapped));
    report.figures.push(Figure::times("unmap 4 MiB of video memory, 2M pages, after a pause", unmapped));
    let (mut mapped, mut unmapped) = (Vec::new(), Vec::new());
    for _ in 0..200 {
        mapped.push(timed(|| worker.map_system_again(&bench.device, size))?);
        unmapped.push(timed(|| worker.unmap_video(&bench.device, 0, size))?);
    }
    report.figures.push(Figure::times("map 4 MiB of system memory", mapped));
    report.figures.push(Figure::times("unmap 4 MiB of system memory", unmapped));
    // Holes: the driver unmaps parts of a mapping, and what is left stays.
    worker.map_video(&bench.device, video, 0, size, map::PAGE_4K)?;
    worker.unmap_video(&bench.device, MIB, 0x1000)?;
    worker.unmap_video(&bench.device, 2 * MIB, MIB)?;
    worker.map_video_at(&bench.device, video, 2 * MIB, MIB, map::PAGE_4K)?;
    worker.unmap_video(&bench.device, 0, size)?;
    report.passed.push("unmapping parts of a mapping".to_owned());
    Ok(())
}

fn timed<E>(call: impl FnOnce() -> Result<(), E>) -> Result<Duration, E> {
    let start = Instant::now();
    call()?;
    Ok(start.elapsed())
}

fn inline(bench: &mut Bench, report: &mut Report) -> Result<(), StepError> {
    let mut worker =
        Worker::new(&mut bench.device, bench.chip, bench.doorbell.clone(), Work::Compute, 4 * MIB)?;
    let at = worker.spare_semaphore();
    let data = STAGING;
    let mut times = Vec::new();
    let mut outcome = Ok(());
    for value in 1..=1000_u32 {
        let mut commands = Commands::default();
        let words = [value, !value, 0x1234_5678, value.rotate_left(7)];
        commands.inline_words(worker.system_va(data), &words, worker.system_va(at), value);
        worker.enqueue(&commands)?;
        let start = Instant::now();
        worker.kick();
        worker.wait(at, value)?;
        times.push(start.elapsed());
        let found = worker.system().read_u32(data).unwrap_or(0);
        if found != value {
            outcome = Err(StepError::Wrong(format!("inline data {value:#x} reads back as {found:#x}")));
            break;
        }
    }
    report.figures.push(Figure::times("inline-to-memory of 16 bytes and report, from doorbell", times));
    worker.destroy(&mut bench.device)?;
    outcome
}
