//! `papers`: the programs of the papers' table (tests/papers) as a native client of the NVIDIA driver, which
//! launches the machine code that guests launch through CUDA; and what single operations take.

mod code;
mod costs;
mod native;
mod sharing;

use std::time::Duration;

use anyhow::{Context as _, Result};
use gpuvmk_gpu::rm::{HostPaths, Timeslice};
use gpuvmk_papers::{Gpu, Measured, PROGRAMS, Size, SoftGpu, measure, median};
use serde_json::{Map, Value, json};

use native::NativeGpu;

/// What to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// PCI address of the GPU; without it, the only one
    #[arg(long)]
    gpu: Option<String>,
    /// User to become before the GPU is opened; root must name one
    #[arg(long)]
    uid: Option<u32>,
    /// Small sizes
    #[arg(long)]
    small: bool,
    /// On a software GPU in this process instead, in small sizes
    #[arg(long)]
    soft: bool,
    /// How often each program's kernels run
    #[arg(long, default_value_t = 9)]
    times: usize,
    /// Instead of the table: what so many clients get done at once beside one, such as 1,2,4
    #[arg(long, value_delimiter = ',', value_name = "CLIENTS", conflicts_with_all = ["small", "soft"])]
    sharing: Vec<usize>,
    /// With `--sharing`: how long each client has the GPU while others wait, in microseconds
    #[arg(long, value_name = "MICROS", value_parser = timeslice, requires = "sharing")]
    timeslice: Option<Timeslice>,
    /// Print one JSON object as the last line
    #[arg(long)]
    json: bool,
}

fn timeslice(text: &str) -> Result<Timeslice, String> {
    let (shortest, longest) = Timeslice::RANGE;
    let slice = text.parse().ok().and_then(Timeslice::new);
    slice.ok_or_else(|| format!("a whole number of microseconds from {shortest} to {longest} is allowed"))
}

/// Runs the table. What is printed, and whether all was right.
pub(crate) fn run(options: &Options) -> Result<(String, bool)> {
    let mut report = Map::new();
    let mut failed = Vec::new();
    if !options.sharing.is_empty() {
        let timeslice = options.timeslice.unwrap_or_default();
        report.insert("timeslice_us".into(), timeslice.micros().into());
        match sharing::measure(options.gpu.as_deref(), options.uid, timeslice, &options.sharing) {
            Ok(found) => drop(report.insert("sharing".into(), found)),
            Err(error) => failed.push(format!("{error:#}")),
        }
    } else if options.soft {
        report.insert("gpu".into(), "software".into());
        let table = table(&mut SoftGpu::new()?, Size::Small, options.times, &mut failed);
        report.insert("table".into(), table);
    } else {
        let size = if options.small { Size::Small } else { Size::Full };
        let mut gpu = NativeGpu::open(
            &HostPaths::of_host(),
            options.gpu.as_deref(),
            options.uid,
            Timeslice::default(),
        )?;
        report.insert("gpu".into(), gpu.name.clone().into());
        report.insert("driver".into(), gpu.driver.clone().into());
        let table = table(&mut gpu, size, options.times, &mut failed);
        report.insert("table".into(), table);
        if failed.is_empty() {
            for (name, cost) in costs::ALL {
                match cost(&mut gpu).with_context(|| name.to_owned()) {
                    Ok(found) => drop(report.insert(name.into(), found)),
                    Err(error) => failed.push(format!("{error:#}")),
                }
            }
        }
        if let Err(error) = gpu.close() {
            failed.push(format!("giving back what the driver gave: {error:#}"));
        }
    }
    let ok = failed.is_empty();
    report.insert("ok".into(), ok.into());
    report.insert("failed".into(), failed.clone().into());
    let mut text = if options.json { String::new() } else { describe(&report) };
    failed.iter().for_each(|failure| text.push_str(&format!("failed: {failure}\n")));
    if options.json {
        text.push_str(&format!("{}\n", Value::Object(report)));
    }
    Ok((text, ok))
}

/// All programs; after one that failed none is run.
fn table(gpu: &mut dyn Gpu, size: Size, times: usize, failed: &mut Vec<String>) -> Value {
    let mut rows = Map::new();
    for program in &PROGRAMS {
        match measure(gpu, &program.job(size), times) {
            Ok(measured) => drop(rows.insert(program.name.into(), row(&measured))),
            Err(error) => {
                failed.push(format!("{}: {error:#}", program.name));
                break;
            }
        }
    }
    rows.into()
}

fn row(measured: &Measured) -> Value {
    let middle = median(&measured.on_gpu);
    let yard = |yards: &Option<[Duration; 2]>| yards.map(|yards| yards.map(micros));
    json!({
        "init_us": micros(measured.init),
        "to_device_us": micros(measured.to_device),
        "launch_us": micros(measured.launch),
        "from_device_us": micros(measured.from_device),
        "close_us": micros(measured.close),
        "gpu_us": (middle > Duration::ZERO).then(|| micros(middle)),
        "all_gpu_us": measured.on_gpu.iter().copied().map(micros).collect::<Vec<_>>(),
        "yards_us": measured.yards.iter().map(yard).collect::<Vec<_>>(),
        "left_out": measured.left_out,
        "launches": measured.launches,
    })
}

/// Microseconds, to a tenth.
fn micros(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e7).round() / 10.0
}

fn describe(report: &Map<String, Value>) -> String {
    let rows = report.get("table").and_then(Value::as_object);
    let line = |(name, row): (&String, &Value)| {
        let number = |key: &str| row.get(key).and_then(Value::as_f64).unwrap_or(0.0);
        format!("{name:8} {:12.1} us on the GPU, {} launches\n", number("gpu_us"), number("launches"))
    };
    rows.into_iter().flatten().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_table_runs_without_a_card() {
        let options = Options {
            gpu: None,
            uid: None,
            small: true,
            soft: true,
            times: 1,
            sharing: vec![],
            timeslice: None,
            json: true,
        };
        let (text, ok) = run(&options).unwrap();
        let report: Value = serde_json::from_str(text.trim()).unwrap();
        assert!(ok && report["failed"] == json!([]), "{text}");
        assert_eq!(report["table"].as_object().unwrap().len(), PROGRAMS.len());
        assert!(report["table"]["LUD"]["launches"].as_u64().unwrap() > 3);
    }

    #[test]
    fn numbers_of_clients_are_checked_before_a_gpu_is_opened() {
        for numbers in [vec![0, 1], vec![2, 9]] {
            let error = sharing::measure(None, None, Timeslice::default(), &numbers).unwrap_err();
            assert!(error.to_string().contains("1 to 8 at once"), "{error:#}");
        }
    }

    #[test]
    fn failure_ends_the_table_and_is_named() {
        struct Broken;
        impl Gpu for Broken {
            fn allocate(&mut self, bytes: usize) -> Result<gpuvmk_papers::Area> {
                anyhow::ensure!(bytes == 0, "no memory");
                Ok(gpuvmk_papers::Area { address: 0, bytes })
            }
            fn write(&mut self, _: gpuvmk_papers::Area, _: &[u8]) -> Result<()> {
                Ok(())
            }
            fn read(&mut self, _: gpuvmk_papers::Area) -> Result<Vec<u8>> {
                Ok(vec![])
            }
            fn run(&mut self, _: &[gpuvmk_papers::Launch]) -> Result<(Duration, Duration)> {
                Ok((Duration::from_micros(3), Duration::ZERO))
            }
            fn transfer(
                &mut self,
                _: gpuvmk_papers::Area,
                _: gpuvmk_papers::Direction,
            ) -> Result<(Duration, Duration)> {
                anyhow::bail!("no copies")
            }
            fn release(&mut self) -> Result<()> {
                Ok(())
            }
        }
        let mut failed = Vec::new();
        let rows = table(&mut Broken, Size::Small, 1, &mut failed);
        assert_eq!(rows.as_object().unwrap().len(), 1, "NOP needs no memory");
        assert!(failed.len() == 1 && failed[0].contains("LOOP") && failed[0].contains("no memory"));
    }
}
