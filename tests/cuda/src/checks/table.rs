//! The papers' table (tests/papers): each program's phases, the GPU's time for its kernels, and its results.

use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use gpuvmk_papers::{Gpu as _, Measured, PROGRAMS, Size, measure, median};
use serde_json::{Value, json};

use super::Figures;
use crate::driver::Context;
use crate::gpu::{Clock, CudaGpu};

/// The variable that names the only program to be run, and its value for none at all.
const ONLY: &str = "GPUVMK_ONLY";
const NONE: &str = "none";

/// How often kernels run.
const TIMES: usize = 5;

/// Small sizes, for a software GPU.
pub fn small(context: &Rc<Context>) -> Result<Figures> {
    all(context, Size::Small, Clock::None, 1)
}

/// Sizes for a card.
pub fn full(context: &Rc<Context>) -> Result<Figures> {
    all(context, Size::Full, Clock::Card, TIMES)
}

fn all(context: &Rc<Context>, size: Size, clock: Clock, times: usize) -> Result<Figures> {
    let start = Instant::now();
    let mut gpu = CudaGpu::new(context, clock)?;
    let loaded = micros(start.elapsed());
    let mut table = Figures::new();
    let only = std::env::var(ONLY).ok();
    let known = |name: &str| name == NONE || PROGRAMS.iter().any(|program| program.name == name);
    ensure!(only.as_deref().is_none_or(known), "{ONLY} is {only:?}, which is no program");
    for program in PROGRAMS.iter().filter(|program| only.as_deref().is_none_or(|name| name == program.name)) {
        let start = Instant::now();
        let measured = measure(&mut gpu, &program.job(size), times).context(program.name)?;
        let mut row = row(&measured, clock);
        if let Value::Object(row) = &mut row {
            row.insert("whole_ms".into(), (start.elapsed().as_secs_f64() * 1e3).round().into());
        }
        table.insert(program.name.into(), row);
    }
    gpu.release()?;
    Ok(Figures::from_iter([("load_us".to_owned(), loaded.into()), ("table".to_owned(), table.into())]))
}

fn row(measured: &Measured, clock: Clock) -> Value {
    let on_gpu = (clock != Clock::None && median(&measured.on_gpu) > Duration::ZERO).then_some(());
    let yard = |yards: &Option<[Duration; 2]>| yards.map(|yards| yards.map(micros));
    json!({
        "init_us": micros(measured.init),
        "to_device_us": micros(measured.to_device),
        "launch_us": micros(measured.launch),
        "from_device_us": micros(measured.from_device),
        "close_us": micros(measured.close),
        "gpu_us": on_gpu.map(|()| micros(median(&measured.on_gpu))),
        "all_gpu_us": on_gpu.map(|()| measured.on_gpu.iter().copied().map(micros).collect::<Vec<_>>()),
        "yards_us": on_gpu.map(|()| measured.yards.iter().map(yard).collect::<Vec<_>>()),
        "left_out": measured.left_out,
        "launches": measured.launches,
        "bytes": [measured.copied.0, measured.copied.1],
    })
}

/// Microseconds, to a tenth.
pub fn micros(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e7).round() / 10.0
}
