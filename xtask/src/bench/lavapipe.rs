//! The software GPU beside lavapipe, Mesa's Vulkan driver for processors, on our Vulkan shaders: lavapipe
//! takes their SPIR-V, the software GPU machine code that computes the same
//! (`src/softgpu/sm/benches/vulkan.rs`).

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use gpuvmk_lab::cache::Cache;
use gpuvmk_lab::nvk::lavapipe::Lavapipe;
use serde_json::{Map, Value, json};

use super::round3;

/// Launches of each shader; the quickest counts.
const TIMES: u32 = 15;
/// Rounds of multiply-adds, as the software GPU's launches have them.
const ROUNDS: u32 = 8;
/// What the report's line begins with.
const MARKER: &str = "GPUVMK-JSON ";

/// Adds to the figures what lavapipe needs for the shaders in `shaders_us`, and how fast the software GPU
/// is beside it; where lavapipe is not to be had, why.
pub(super) fn compare(figures: &mut Map<String, Value>) {
    match found(figures) {
        Ok(found) => figures.extend(found),
        Err(error) => {
            println!("No comparison with lavapipe: {error:#}");
            figures.insert("lavapipe_ratio".to_owned(), Value::Null);
            figures.insert("lavapipe_missing".to_owned(), format!("{error:#}").into());
        }
    }
}

fn found(figures: &Map<String, Value>) -> Result<Map<String, Value>> {
    let own = figures.get("shaders_us").and_then(Value::as_object).context("no shader was measured")?;
    let names: Vec<&str> = own.keys().map(String::as_str).collect();
    let lavapipe = Lavapipe::obtain(&Cache::open()?)?;
    let theirs = measure(&lavapipe, &names)?;
    let (mut times, mut ratios, mut logarithms) = (Map::new(), Map::new(), 0.0);
    for (name, time) in own {
        let time = time.as_f64().context("a time is no number")?;
        let checked = theirs.get(name).and_then(|check| check.get("cpu_us")).and_then(Value::as_f64);
        let checked = checked.with_context(|| format!("lavapipe did not run {name}"))?;
        let ratio = checked / time;
        println!("{name:14} lavapipe {checked:9.1} us; the software GPU is {ratio:.2} times as fast");
        logarithms += ratio.ln();
        times.insert(name.clone(), round3(checked).into());
        ratios.insert(name.clone(), round3(ratio).into());
    }
    // CAST: a handful.
    #[expect(clippy::cast_precision_loss, reason = "a handful")]
    let mean = (logarithms / ratios.len().max(1) as f64).exp();
    println!("beside lavapipe ({}), a core of each: {mean:.3}", lavapipe.version()?);
    let all = json!({
        "lavapipe_ratio": round3(mean),
        "lavapipe_ratios": ratios,
        "lavapipe_us": times,
        "lavapipe_version": lavapipe.version()?,
    });
    Ok(all.as_object().cloned().unwrap_or_default())
}

/// The checks of our Vulkan program on lavapipe with one thread for shaders, by name.
fn measure(lavapipe: &Lavapipe, names: &[&str]) -> Result<Map<String, Value>> {
    let output = lavapipe
        .command()?
        .args(["driver=lavapipe".to_owned(), format!("times={TIMES}"), format!("rounds={ROUNDS}")])
        .arg(format!("checks={}", names.join(",")))
        .env("LP_NUM_THREADS", "1")
        .stderr(Stdio::inherit())
        .output()
        .context("Cannot start our Vulkan program")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.strip_prefix(MARKER)).context("it reports nothing")?;
    let report: Value = serde_json::from_str(line).context("its report is no JSON")?;
    ensure!(output.status.success(), "a check fails on lavapipe: {}", report["error"]);
    report["checks"].as_object().cloned().context("its report has no checks")
}
