//! The checks, by name and in groups.
//!
//! - `transfer`: what a device that only moves data can do;
//! - `code`: what the driver makes of the shaders, looked at without running it;
//! - `compute`: shaders whose results are compared word by word;
//! - `wide`: shaders that use more of the instruction set, and launches whose size is in memory; not part of
//!   `all`, since not every GPU is known to take what Mesa's compiler makes of them;
//! - `rates`: the same on larger work, with figures.
//!
//! Nothing is run after a failure, so what asks least of the GPU comes first: [`ALL`] has shaders without a
//! loop before those with one, and those before what has barriers and conditions as well.

mod code;
mod compare;
mod compute;
mod rates;
mod sass;
mod transfer;
mod wide;

use std::rc::Rc;
use std::time::Instant;

use anyhow::{Context, Result};
use gpuvmk_isa::Arch;
use gpuvmk_report::{Figures, Outcome};

use crate::options::Options;
use crate::vulkan::{Device, Instance};

/// How much of their work checks do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Launches of a shader of `compute`; the quickest counts.
    pub times: u32,
    /// Rounds of a shader of multiply-adds, if not the usual number.
    pub rounds: Option<u32>,
}

impl Default for Extent {
    fn default() -> Self {
        Self { times: 1, rounds: None }
    }
}

/// A check, by what it must know.
#[derive(Clone, Copy)]
enum Check {
    /// The device.
    Of(fn(&Rc<Device>) -> Result<Figures>),
    /// The version of its machine code as well.
    OfCode(fn(&Rc<Device>, Arch) -> Result<Figures>),
    /// How much it does as well.
    OfExtent(fn(&Rc<Device>, Extent) -> Result<Figures>),
}
use Check::{Of, OfCode, OfExtent};

/// Groups of checks.
const GROUPS: [(&str, &[(&str, Check)]); 6] = [
    (
        "transfer",
        &[("fill", Of(transfer::fill)), ("copy", Of(transfer::copy)), ("empty", Of(transfer::empty))],
    ),
    ("code", &[("branches", OfCode(code::branches))]),
    (
        "compute",
        &[
            ("constant", OfExtent(compute::constant)),
            ("vector_add", OfExtent(compute::vector_add)),
            ("saxpy", OfExtent(compute::saxpy)),
            ("matrix_product", OfExtent(compute::matrix_product)),
            ("reduction", OfExtent(compute::reduction)),
        ],
    ),
    (
        "wide",
        &[
            ("wide_branches", OfCode(code::wide)),
            ("integers", Of(wide::integers)),
            ("floats", Of(wide::floats)),
            ("subgroups", Of(wide::subgroups)),
            ("control", Of(wide::control)),
            ("atomics", Of(wide::atomics)),
            ("indirect", Of(wide::indirect)),
        ],
    ),
    (
        "rates",
        &[
            ("launches", Of(rates::launches)),
            ("stream", Of(rates::stream)),
            ("peak_fp32", OfExtent(rates::peak_fp32)),
            ("peak_int32", OfExtent(rates::peak_int32)),
        ],
    ),
    ("doubles", &[("peak_fp64", OfExtent(rates::peak_fp64))]),
];

/// What `all` stands for. Mesa's compiler cannot pass `doubles` on Hopper yet (docs/nvk.md).
const ALL: [&str; 11] = [
    "transfer",
    "code",
    "constant",
    "vector_add",
    "saxpy",
    "launches",
    "stream",
    "peak_fp32",
    "peak_int32",
    "matrix_product",
    "reduction",
];

/// The checks that `name` stands for: `all`, a group, or one check.
pub fn group(name: &str) -> Result<Vec<&'static str>> {
    if name == "all" {
        return Ok(ALL.iter().map(|name| group(name)).collect::<Result<Vec<_>>>()?.concat());
    }
    if let Some((_, members)) = GROUPS.iter().find(|(group, _)| *group == name) {
        return Ok(members.iter().map(|(name, _)| *name).collect());
    }
    let (found, _) = find(name).with_context(|| {
        let names: Vec<&str> = GROUPS.iter().map(|(group, _)| *group).collect();
        format!("There is no check '{name}': there are all, {} and their members", names.join(", "))
    })?;
    Ok(vec![found])
}

fn find(name: &str) -> Option<(&'static str, Check)> {
    GROUPS.iter().flat_map(|(_, members)| members.iter()).copied().find(|(known, _)| *known == name)
}

/// Runs what the options ask for, up to the first check that fails: what has gone wrong on the GPU once would
/// go wrong again, and a GPU may have other users, whom each error of ours costs time.
pub fn run(options: &Options) -> Outcome {
    let mut outcome = Outcome::default();
    outcome.about.insert("driver".into(), options.driver.as_str().into());
    if let Err(error) = run_into(options, &mut outcome) {
        outcome.trouble = Some(format!("{error:#}"));
    }
    outcome
}

fn run_into(options: &Options, outcome: &mut Outcome) -> Result<()> {
    let start = Instant::now();
    let instance = Instance::create()?;
    let gpus = instance.gpus()?;
    outcome.about.insert("list_ms".into(), millis(start).into());
    outcome.about.insert("devices".into(), gpus.len().into());
    let gpu = gpus.get(options.gpu).with_context(|| {
        format!("The driver lists {} devices, number {} is none of them", gpus.len(), options.gpu)
    })?;
    for (name, value) in
        [("device", &gpu.name), ("version", &gpu.driver), ("pci", &gpu.pci), ("vulkan", &gpu.vulkan)]
    {
        outcome.about.insert(name.into(), value.as_str().into());
    }

    let start = Instant::now();
    let device = Device::open(&instance, gpu)?;
    outcome.about.insert("open_ms".into(), millis(start).into());
    let mut names = options.checks.iter();
    for name in names.by_ref() {
        let (_, check) = find(name).with_context(|| format!("There is no check '{name}'"))?;
        let result = match check {
            Of(check) => check(&device),
            OfExtent(check) => check(&device, options.extent),
            OfCode(check) => options
                .arch
                .context("the version of the GPU's machine code was not given (sm=N)")
                .and_then(|arch| check(&device, arch)),
        };
        let failed = result.is_err();
        outcome.checks.push((name, result));
        if failed {
            break;
        }
    }
    outcome.skipped.extend(names);
    Ok(())
}

fn millis(start: Instant) -> f64 {
    rounded(start.elapsed().as_secs_f64() * 1e3)
}

/// Three digits behind the point are enough for every figure here.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_checks_are_those_that_a_gpu_with_shaders_passes() {
        let mut all = group("all").unwrap();
        let mut groups = ["transfer", "code", "compute", "rates"].map(|name| group(name).unwrap()).concat();
        all.sort_unstable();
        groups.sort_unstable();
        assert_eq!(all, groups);
    }

    #[test]
    fn names_of_checks_are_unique() {
        let mut names: Vec<&str> =
            GROUPS.iter().flat_map(|(_, members)| members.iter()).map(|(name, _)| *name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
