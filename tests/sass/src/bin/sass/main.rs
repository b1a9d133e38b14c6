//! Recorded machine code, run in the software GPU again: `cargo xtask sass`.

mod gpu;
mod recording;
mod shapes;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use gpuvmk_sass::random::Random;
use gpuvmk_sass::recorded::{Counts, Extent, Recorded, merge, table_of_differences};
use serde_json::json;

/// What an H200 and an H100 gave, of generic addresses an H200, and what is known to differ, of the first
/// warp and of all threads.
const VECTORS: [&str; 3] = [
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/h200.gz"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/h100.gz"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/generic.gz"),
];
const OF_WARP: &str = include_str!("../../../tests/differences.tsv");
const OF_ALL: &str = include_str!("../../../tests/differences_all.tsv");

#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run programs on this machine's GPU, and write what it gave.
    Record(recording::Options),
    /// Print CUDA C of random control flow.
    Source {
        /// Names the random numbers
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// How many kernels
        #[arg(long, default_value_t = 40)]
        kernels: u32,
    },
    /// Run what a GPU ran, and compare.
    Verify {
        /// The recording.
        #[arg(long, value_name = "FILE", default_values = VECTORS)]
        file: Vec<PathBuf>,
        /// The first warp alone, in a second, instead of all threads
        #[arg(long)]
        warp: bool,
        /// Print one JSON object as the last line.
        #[arg(long)]
        json: bool,
    },
}

fn main() -> Result<ExitCode> {
    env_logger::init();
    let right = match Arguments::parse().command {
        Command::Record(options) => recording::run(&options)?,
        Command::Source { seed, kernels } => {
            print!("{}", gpuvmk_sass::flow::source(kernels, &mut Random::new(seed)));
            true
        }
        Command::Verify { file, warp, json } => verify(&file, warp, json)?,
    };
    Ok(if right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Lines of the table of differences that are not in `known`.
fn unknown(counts: &BTreeMap<String, Counts>, known: &str) -> Vec<String> {
    let table = table_of_differences(counts);
    let differs = |line: &&str| !known.lines().any(|one| one == *line);
    table.lines().filter(differs).map(str::to_owned).collect()
}

fn verify(files: &[PathBuf], warp: bool, json: bool) -> Result<bool> {
    let begin = Instant::now();
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let extent = if warp { Extent::Warp } else { Extent::All };
    let mut counts = BTreeMap::new();
    for file in files {
        let recorded = File::open(file).with_context(|| format!("Cannot open {}", file.display()))?;
        let recorded = Recorded::read(recorded).with_context(|| format!("Cannot read {}", file.display()))?;
        merge(&mut counts, recorded.verify_all(extent, workers)?);
    }
    let mut unknown = unknown(&counts, if warp { OF_WARP } else { OF_ALL });
    let (shapes, differ) = shapes::verify()?;
    unknown.extend(differ);
    let mut sum = Counts::default();
    counts.values().for_each(|counts| sum.add(*counts));
    println!(
        "{} instances of {} operations, {} words; {} words differ, {} are not executed ({:.1} s)",
        sum.instances,
        counts.len(),
        sum.words,
        sum.different,
        sum.not_executed,
        begin.elapsed().as_secs_f64()
    );
    println!("{shapes} hand-made programs");
    for line in &unknown {
        println!("not known to differ: {line}");
    }
    let ok = unknown.is_empty();
    if json {
        let figures = json!({
            "ok": ok,
            "instances": sum.instances,
            "operations": counts.len(),
            "words": sum.words,
            "differences": sum.different,
            "not_executed": sum.not_executed,
            "shapes": shapes,
            "unknown": unknown,
        });
        println!("{figures}");
    }
    Ok(ok)
}
