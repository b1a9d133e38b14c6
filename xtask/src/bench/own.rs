//! Benchmarks of the library itself, in `benches/`, that hold their figures against limits.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// What a benchmark found.
#[derive(Debug)]
pub(super) struct Measured {
    /// Its tables.
    pub(super) text: String,
    /// Its figures.
    pub(super) figures: Value,
    /// Whether all are within their limits.
    pub(super) ok: bool,
}

/// Runs a benchmark.
///
/// # Errors
/// It does not come to an end, or does not judge itself.
pub(super) fn measure(name: &str) -> Result<Measured> {
    measure_of("gpuvmk", name)
}

/// The same of a package.
fn measure_of(package: &str, name: &str) -> Result<Measured> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["bench", "--quiet", "--package", package, "--bench", name, "--", "--json"]);
    let output = command.stderr(Stdio::inherit()).output().context("Cannot run cargo")?;
    let text = String::from_utf8(output.stdout).context("The benchmark prints no text")?;
    let (text, last) = text.trim_end().rsplit_once('\n').context("The benchmark prints nothing")?;
    let figures: Value = serde_json::from_str(last).context("The benchmark's last line is not JSON")?;
    let ok = figures.get("ok").and_then(Value::as_bool).context("The benchmark does not judge itself")?;
    ensure!(ok == output.status.success(), "The benchmark ends otherwise than it judges");
    Ok(Measured { text: text.to_owned(), figures, ok })
}

/// Whether all figures of a benchmark are within their limits; its JSON comes last, if that is wanted.
pub(super) fn run(name: &str, json: bool) -> Result<bool> {
    let Measured { text, figures, ok } = measure(name)?;
    println!("{text}");
    if json {
        println!("{figures}");
    }
    Ok(ok)
}

/// Runs benchmarks of packages one after the other. Their figures are one object: `ok` if all are, and below
/// what is wanted is what any of them names. `more` adds figures to them.
pub(super) fn run_all(
    benchmarks: &[(&str, &str)],
    json: bool,
    more: impl FnOnce(&mut serde_json::Map<String, Value>),
) -> Result<bool> {
    let (mut all, mut below, mut all_ok) = (serde_json::Map::new(), Vec::new(), true);
    for (package, name) in benchmarks {
        let Measured { text, figures, ok } = measure_of(package, name)?;
        println!("{text}");
        let Value::Object(figures) = figures else { bail!("The benchmark's figures are no object") };
        below.extend(figures.get("below").and_then(Value::as_array).into_iter().flatten().cloned());
        all_ok &= ok;
        all.extend(figures);
    }
    more(&mut all);
    all.insert("ok".to_owned(), all_ok.into());
    all.insert("below".to_owned(), below.into());
    if json {
        println!("{}", Value::Object(all));
    }
    Ok(all_ok)
}
