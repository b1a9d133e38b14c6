//! `sass record`: programs run on this machine's GPU.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use gpuvmk_isa::{Arch, Word};
use gpuvmk_sass::compiled;
use gpuvmk_sass::generate::{Wanted, programs};
use gpuvmk_sass::record::{
    Difference, Gpu, OfKernel, Outcome, Plan, Stopped, record, record_kernels, without_refused,
};
use gpuvmk_sass::recorded::{Counts, Extent, Recorded, merge, table_of_differences};
use gpuvmk_sass::task::Launched;
use gpuvmk_sass::{Program, soft};
use serde_json::{Value, json};

use crate::gpu::Hardware;
use crate::{OF_ALL, shapes, unknown};

/// What to record.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The folder for what is recorded
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Run the programs of a recording again
    #[arg(long, value_name = "FILE")]
    again: Vec<PathBuf>,
    /// Make programs of these words: one of 32 hexadecimal digits a line
    #[arg(long, value_name = "FILE")]
    words: Vec<PathBuf>,
    /// Run the kernels of a cubin, which may be compressed by gzip: each reads 65536 words and stores as many
    #[arg(long, value_name = "FILE")]
    cubin: Vec<PathBuf>,
    /// Leave a kernel out
    #[arg(long, value_name = "KERNEL")]
    without: Vec<String>,
    /// Run hand-made programs of control flow
    #[arg(long)]
    shapes: bool,
    /// Also those of which nobody knows that they end: not on a GPU that others use
    #[arg(long, requires = "shapes")]
    wary: bool,
    /// Of hand-made programs this one alone, wary or not; may be given several times
    #[arg(long, value_name = "NAME", requires = "shapes")]
    only: Vec<String>,
    /// How often each word is in a program
    #[arg(long, default_value_t = 4)]
    times: u32,
    /// Instances of a program
    #[arg(long, default_value_t = 300)]
    instances: usize,
    /// Names the random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// No program begins after so many seconds
    #[arg(long, default_value_t = 150)]
    seconds: u64,
    /// Words of an operation that differ whose results of all threads are kept
    #[arg(long, default_value_t = 8)]
    kept: u64,
    /// The GPU's PCI address; the only one without it
    #[arg(long)]
    gpu: Option<String>,
    /// User to become first
    #[arg(long)]
    uid: Option<u32>,
    /// On the software GPU instead: everything but the GPU can be tried without one
    #[arg(long)]
    soft: bool,
    /// Print one JSON object as the last line
    #[arg(long)]
    json: bool,
}

/// The same of programs that nobody ran before: many may differ.
const FEW: u64 = 6;

/// Bytes of such results in all.
const ROOM: usize = 14 << 20;

/// The software GPU in a GPU's place.
struct Software;

impl Gpu for Software {
    fn run(&mut self, program: &dyn Launched) -> Result<Vec<u32>, Stopped> {
        soft::outputs(program).map_err(|error| Stopped(error.to_string()))
    }
}

/// Programs that are recorded into one file.
struct Stage {
    name: String,
    programs: Vec<Program>,
    /// Words of an operation that differ whose results of all threads are kept.
    kept: u64,
}

fn stages(options: &Options) -> Result<Vec<Stage>> {
    let mut stages = Vec::new();
    for file in &options.again {
        let recorded = File::open(file).with_context(|| format!("Cannot open {}", file.display()))?;
        let recorded = Recorded::read(recorded).with_context(|| format!("Cannot read {}", file.display()))?;
        let name = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let programs =
            (0..recorded.programs.len()).filter_map(|index| recorded.program(index, Extent::All)).collect();
        stages.push(Stage { name, programs, kept: options.kept });
    }
    let mut words = Vec::new();
    for file in &options.words {
        let text = fs::read_to_string(file).with_context(|| format!("Cannot read {}", file.display()))?;
        for line in text.lines() {
            words.push(Word(u128::from_str_radix(line, 16).with_context(|| format!("No word: {line}"))?));
        }
    }
    let wanted =
        Wanted { arch: Arch::Sm90, times: options.times, size: options.instances, seed: options.seed };
    for (name, programs) in programs(&words, wanted) {
        stages.push(Stage { name: name.to_owned(), programs, kept: options.kept.min(FEW) });
    }
    if options.soft {
        for program in stages.iter_mut().flat_map(|stage| &mut stage.programs) {
            *program = without_refused(program);
        }
    }
    Ok(stages)
}

pub(crate) fn run(options: &Options) -> Result<bool> {
    let begin = Instant::now();
    fs::create_dir_all(&options.out)?;
    let stages = stages(options)?;
    for stage in &stages {
        let instances: usize = stage.programs.iter().map(|program| program.instances.len()).sum();
        println!("{}: {} programs, {instances} words", stage.name, stage.programs.len());
    }
    let mut software = Software;
    let mut hardware = None;
    let on = if options.soft {
        "the software GPU".to_owned()
    } else {
        let opened = Hardware::open(options.gpu.as_deref(), options.uid)?;
        let on = format!("{}, driver {}", opened.name, opened.driver);
        hardware = Some(opened);
        on
    };
    println!("on {on}");
    let mut plan = Plan {
        workers: std::thread::available_parallelism().map_or(1, usize::from),
        kept: 0,
        until: begin + Duration::from_secs(options.seconds),
        failures: 2,
    };
    let (mut sum, mut problems, mut found) = (Counts::default(), Vec::new(), Vec::<Value>::new());
    let (mut kept, mut of_recordings) = (Vec::new(), BTreeMap::new());
    for (number, stage) in stages.iter().enumerate() {
        let gpu: &mut dyn Gpu = match &mut hardware {
            Some(hardware) => hardware,
            None => &mut software,
        };
        let start = Instant::now();
        plan.kept = usize::try_from(stage.kept)?;
        let outcome = record(gpu, &stage.programs, plan);
        plan.failures = plan.failures.saturating_sub(outcome.failed.len());
        let counts = tell(&stage.name, &outcome, start.elapsed(), &mut problems);
        sum.add(counts);
        if number < options.again.len() {
            merge(&mut of_recordings, outcome.counts.clone());
        }
        let path = options.out.join(format!("{}.gz", stage.name));
        let file = File::create(&path).with_context(|| format!("Cannot write {}", path.display()))?;
        outcome.recorded.write(file).with_context(|| format!("Cannot write {}", path.display()))?;
        for difference in &outcome.differences {
            if kept.len() + difference.stored.len() * 4 < ROOM {
                put(&mut kept, found.len(), difference)?;
            }
        }
        found.push(json!({
            "stage": stage.name,
            "programs": outcome.recorded.programs.len(),
            "failed": outcome.failed.len(),
            "left": outcome.left,
            "instances": counts.instances,
            "words": counts.words,
            "operations": outcome.counts.len(),
            "differences": counts.different,
            "not_executed": counts.not_executed,
        }));
    }
    for file in &options.cubin {
        let gpu: &mut dyn Gpu = match &mut hardware {
            Some(hardware) => hardware,
            None => &mut software,
        };
        let bytes = read(file).with_context(|| format!("Cannot read {}", file.display()))?;
        let mut kernels = compiled::of_cubin(&bytes)?;
        kernels.retain(|kernel| !options.without.contains(&kernel.name));
        ensure!(!kernels.is_empty(), "{}: all kernels need a linker, or too much stack", file.display());
        let results = record_kernels(gpu, &kernels, plan);
        found.push(of_kernels(&options.out, file, &results, &mut problems)?);
    }
    let mut of_shapes = Vec::new();
    if options.shapes {
        let gpu: &mut dyn Gpu = match &mut hardware {
            Some(hardware) => hardware,
            None => &mut software,
        };
        let places = (on.as_str(), options.out.as_path());
        let programs = shapes::wanted(options.wary, &options.only)?;
        found.push(shapes::run(gpu, places, &programs, (&mut problems, &mut of_shapes))?);
    }
    if let Some(hardware) = hardware
        && let Err(error) = hardware.close()
    {
        problems.push(format!("giving back what the driver gave: {error:#}"));
    }
    let path = options.out.join("differences.gz");
    let file = File::create(&path).with_context(|| format!("Cannot write {}", path.display()))?;
    let mut file = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    file.write_all(&kept)?;
    file.finish()?;
    for problem in &problems {
        println!("problem: {problem}");
    }
    // Of programs that were recorded before: what differs elsewhere is what is looked for.
    let mut unknown = if options.again.is_empty() { Vec::new() } else { unknown(&of_recordings, OF_ALL) };
    unknown.append(&mut of_shapes);
    for line in &unknown {
        println!("not known to differ: {line}");
    }
    let report = json!({
        "ok": problems.is_empty(),
        "on": on,
        "seconds": begin.elapsed().as_secs_f64(),
        "instances": sum.instances,
        "words": sum.words,
        "differences": sum.different,
        "not_executed": sum.not_executed,
        "unknown": unknown,
        "stages": found,
        "problems": problems,
    });
    fs::write(options.out.join("report.json"), format!("{report:#}\n"))?;
    if options.json {
        println!("{report}");
    }
    Ok(problems.is_empty())
}

/// A file's contents, unpacked where they are packed.
fn read(file: &Path) -> std::io::Result<Vec<u8>> {
    const GZIP: [u8; 2] = [0x1f, 0x8b];
    let mut bytes = fs::read(file)?;
    if bytes.starts_with(&GZIP) {
        let packed = std::mem::take(&mut bytes);
        flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

fn tell(name: &str, outcome: &Outcome, took: Duration, problems: &mut Vec<String>) -> Counts {
    let mut sum = Counts::default();
    outcome.counts.values().for_each(|counts| sum.add(*counts));
    println!(
        "{name}: {} programs, {} words of {} operations, {} differ, {} are not executed ({:.1} s)",
        outcome.recorded.programs.len(),
        sum.words,
        outcome.counts.len(),
        sum.different,
        sum.not_executed,
        took.as_secs_f64()
    );
    print!("{}", table_of_differences(&outcome.counts));
    for (index, why) in &outcome.failed {
        problems.push(format!("{name}: program {index}: {why}"));
    }
    if outcome.left > 0 {
        problems.push(format!("{name}: {} programs did not run", outcome.left));
    }
    sum
}

/// Writes sums of what kernels stored, and tells which differ.
fn of_kernels(out: &Path, file: &Path, results: &[OfKernel], problems: &mut Vec<String>) -> Result<Value> {
    let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let (mut table, mut different) = (String::new(), Vec::new());
    for OfKernel { name, stored, same } in results {
        match stored {
            Ok(words) => table += &compiled::line(name, words),
            Err(error) => problems.push(format!("{stem}: {name}: {error}")),
        }
        match same {
            Ok(true) => {}
            Ok(false) if stored.is_ok() => different.push(name.clone()),
            Ok(false) => {}
            Err(error) => different.push(format!("{name}: {error}")),
        }
    }
    let path = out.join(format!("{stem}.tsv"));
    fs::write(&path, table).with_context(|| format!("Cannot write {}", path.display()))?;
    println!("{stem}: {} kernels, {} differ: {different:?}", results.len(), different.len());
    Ok(json!({ "stage": stem, "kernels": results.len(), "different": different }))
}

/// Adds stage, program, instance, number of words stored, the word, and what was stored.
fn put(to: &mut Vec<u8>, stage: usize, difference: &Difference) -> Result<()> {
    for number in [stage, difference.at.0, difference.at.1, difference.stored.len()] {
        to.extend(u32::try_from(number)?.to_le_bytes());
    }
    to.extend(difference.word.0.to_le_bytes());
    to.extend(difference.stored.iter().flat_map(|word| word.to_le_bytes()));
    Ok(())
}
