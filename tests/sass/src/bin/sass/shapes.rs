//! Hand-made programs, run on this machine's GPU and compared; and what was recorded of them.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use gpuvmk_sass::record::Gpu;
use gpuvmk_sass::shape::{
    Difference, OfShape, RECORDED_ON, Recording, Shape, record, shapes, unexpected, wary,
};
use serde_json::{Value, json};

/// What a GPU gave for them, and where the software GPU is known to give something else.
const RECORDING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/shapes.tsv.gz");
const KNOWN: &str = include_str!("../../../tests/shape_differences.tsv");

/// The file that is written.
const FILE: &str = "shapes.tsv.gz";

/// The programs, with `too` those of which nobody knows that they end; or those of these names alone.
pub(crate) fn wanted(too: bool, only: &[String]) -> Result<Vec<Shape>> {
    let mut programs = shapes();
    if too || !only.is_empty() {
        programs.extend(wary());
    }
    for name in only {
        let names = || programs.iter().map(|shape| shape.name).collect::<Vec<_>>().join(", ");
        ensure!(programs.iter().any(|shape| shape.name == name), "There is no program {name}: {}", names());
    }
    programs.retain(|shape| only.is_empty() || only.iter().any(|name| name == shape.name));
    Ok(programs)
}

/// Runs the programs. Returns what a report has of it. Adds what went wrong to `problems`, and to `unknown`
/// what differs and is not known to.
pub(crate) fn run(
    gpu: &mut dyn Gpu,
    (on, out): (&str, &Path),
    programs: &[Shape],
    (problems, unknown): (&mut Vec<String>, &mut Vec<String>),
) -> Result<Value> {
    let found = record(gpu, programs);
    for OfShape { shape, slots } in &found {
        if let Err(error) = slots {
            problems.push(format!("{}: {error}", shape.name));
        }
    }
    let recording = Recording::of(on, &found);
    let path = out.join(FILE);
    let file = File::create(&path).with_context(|| format!("Cannot write {}", path.display()))?;
    recording.write(file).with_context(|| format!("Cannot write {}", path.display()))?;
    let differences = recording.verify(programs);
    let unstable: Vec<String> = recording.unstable().collect();
    let slots: usize = programs.iter().map(|shape| shape.slots().len()).sum();
    println!(
        "shapes: {} programs, {slots} slots, {} differ, {} are not the same each time",
        programs.len(),
        differences.len(),
        unstable.len()
    );
    differences.iter().for_each(|difference| println!("differs: {}", difference.line()));
    unstable.iter().for_each(|slot| println!("not the same each time: {slot}"));
    // Before a GPU's results are known, it is not known either what differs.
    if RECORDED_ON.is_some() {
        unknown.extend(lines(&differences));
    }
    Ok(json!({
        "stage": "shapes",
        "programs": programs.len(),
        "slots": slots,
        "differences": differences.iter().map(Difference::line).collect::<Vec<_>>(),
        "unstable": unstable,
    }))
}

/// Compares what was recorded: how many programs there are, and what differs and is not known to.
pub(crate) fn verify() -> Result<(usize, Vec<String>)> {
    if RECORDED_ON.is_none() {
        return Ok((0, Vec::new()));
    }
    let file = File::open(RECORDING).with_context(|| format!("Cannot open {RECORDING}"))?;
    let recording = Recording::read(file).with_context(|| format!("Cannot read {RECORDING}"))?;
    let programs: Vec<Shape> = shapes();
    Ok((programs.len(), lines(&recording.verify(&programs))))
}

/// What is not known to differ.
fn lines(differences: &[Difference]) -> Vec<String> {
    unexpected(differences, KNOWN).into_iter().map(Difference::line).collect()
}
