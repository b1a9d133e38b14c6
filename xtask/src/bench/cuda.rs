//! `cargo xtask bench cuda`: what CUDA's operations cost below NVIDIA's own driver, in messages from QEMU to
//! the GPU's process, among them reads, which stop a processor of the guest, and doorbells, and in requests
//! of that process to the aggregator; and how long the first and the second program take to open the device,
//! for which the driver boots the GPU.
//!
//! Four boots: a program that makes a context is followed by another such, by one that allocates memory
//! often, by one that launches often, and by one that launches a graph of many kernels. What a boot has more
//! than the first is what that cost. A fifth runs the papers' table in small sizes ([`table`]).

mod table;

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use gpuvmk_lab::firmware::Firmware;
use gpuvmk_lab::nvidia;
use gpuvmk_lab::report::ProgramResult;
use serde_json::{Value, json};

use super::suite::boots::{self, Boot};
use super::{Arguments, round3};
use crate::cases;
use crate::workshop::Workshop;

const NOTHING: &[&str] = &["cuda:checks=context", "cuda:checks=context"];
const ALLOCATIONS: &[&str] = &["cuda:checks=context", "cuda:checks=allocations"];
const LAUNCHES: &[&str] = &["cuda:checks=context", "cuda:checks=launches"];
const GRAPHS: &[&str] = &["cuda:checks=context", "cuda:checks=graph-launches"];

/// Requests to the aggregator that an allocation of 2 MiB may cost, given back.
const MOST_OF_ALLOCATION: f64 = 20.0;
/// Doorbells of a launch. What programs and polls differ in, boot by boot, is in it.
const MOST_DOORBELLS: f64 = 1.1;
/// Reads of a launch.
const MOST_READS: f64 = 0.1;

pub(super) fn run(arguments: &Arguments) -> Result<bool> {
    ensure!(nvidia::is_wanted(), "{} turns NVIDIA's packages off", nvidia::VARIABLE);
    let kinds = BTreeSet::from([(nvidia::SERIES, Firmware::NvidiaDriver)]);
    let workshop = Workshop::open(&kinds, &arguments.logs, arguments.gpuvmk.as_deref())?;
    let boot = |label, programs| boots::told(&workshop, label, &cases::nvidia::with("vm1", programs));
    let (nothing, opened) = boot("cuda-nothing", NOTHING)?;
    let (allocations, allocated) = boot("cuda-allocations", ALLOCATIONS)?;
    let (launches, launched) = boot("cuda-launches", LAUNCHES)?;
    let (graphs, graph_launched) = boot("cuda-graphs", GRAPHS)?;
    let table = table::run(&workshop)?;

    let of = |boot: &Boot, count: f64, name: &str| -> Result<f64> {
        let total =
            |boot: &Boot| boot.totals.get(name).copied().context("a count that the process does not tell");
        Ok((total(boot)? - total(&nothing)?) / count)
    };
    let names = ["messages", "reads", "doorbells", "requests"];
    let times = count(&allocated, "allocations")?;
    let allocation = names.map(|name| of(&allocations, times, name));
    let times = count(&launched, "launches")?;
    let launch = names.map(|name| of(&launches, times, name));
    let times = count(&graph_launched, "graph-launches")?;
    let graph = names.map(|name| of(&graphs, times, name));
    let all = |values: [Result<f64>; 4]| values.into_iter().collect::<Result<Vec<f64>>>();
    let (allocation, launch, graph) = (all(allocation)?, all(launch)?, all(graph)?);
    let opens: Vec<f64> = opened.iter().filter_map(|result| figure(result, "init_ms")).collect();
    let limits = [
        ("requests for an allocation", allocation[3], MOST_OF_ALLOCATION),
        ("doorbells for a launch", launch[2], MOST_DOORBELLS),
        ("reads for a launch", launch[1], MOST_READS),
    ];
    let problems: Vec<String> = limits
        .iter()
        .filter(|(_, value, most)| value > most)
        .map(|(what, value, most)| format!("{value:.2} {what}, {most} are allowed"))
        .collect();
    println!("{:36} {}", "", names.map(|name| format!("{name:>10}")).concat());
    for (what, values) in [
        ("allocation of 2 MiB, given back", &allocation),
        ("launch", &launch),
        ("launch of a graph of 200 kernels", &graph),
    ] {
        let values: String = values.iter().map(|value| format!("{value:10.2}")).collect();
        println!("{what:36} {values}");
    }
    println!("milliseconds to open the device, for each program: {opens:?}");
    problems.iter().for_each(|problem| println!("{problem}"));
    let ok = problems.is_empty();
    if arguments.json {
        println!(
            "{}",
            json!({
                "ok": ok, "allocation": named(&names, &allocation), "launch": named(&names, &launch),
                "graph_launch": named(&names, &graph), "open_ms": opens, "table": table, "problems": problems,
            })
        );
    }
    Ok(ok)
}

fn named(names: &[&str], values: &[f64]) -> Value {
    let pairs = names.iter().zip(values);
    pairs.map(|(name, value)| ((*name).to_owned(), json!(round3(*value)))).collect()
}

/// How often a check did what it is named after.
fn count(results: &[ProgramResult], check: &str) -> Result<f64> {
    let of = |result: &ProgramResult| {
        result.figures.get("checks")?.get(check)?.get("count").and_then(Value::as_f64)
    };
    results.iter().find_map(of).with_context(|| format!("'{check}' did not say how often"))
}

fn figure(result: &ProgramResult, name: &str) -> Option<f64> {
    result.figures.get(name).and_then(Value::as_f64)
}
