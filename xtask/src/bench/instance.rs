//! `cargo xtask bench instance`: what it saves that a guest under QEMU has instance memory mapped (`bar3 =
//! "direct"`), in guests with Linux 7.2 that load nouveau and power off, in turns with guests whose accesses
//! are trapped, and with guests that load no driver: no way to instance memory makes a power-off shorter than
//! theirs.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use gpuvmk_lab::chip::{Chip, USUAL};
use gpuvmk_lab::firmware::Firmware;
use gpuvmk_lab::kernel::KernelSeries;
use serde_json::{Value, json};

use super::suite::boots::{self, Boot};
use super::suite::table::POWER_OFF;
use super::{Arguments, median, round3};
use crate::workshop::Workshop;

/// How often fewer reads and writes a GF100's guest must make.
const LEAST: f64 = 10.0;
const KERNEL: KernelSeries = KernelSeries::V7_2;
/// What is counted, and what is timed.
const COUNTS: [&str; 3] = ["messages", "reads", "writes"];
const TIMES: [&str; 2] = ["probe_ms", POWER_OFF];

/// Medians of the boots with one setting: counts, then times.
type Medians = Vec<(&'static str, f64)>;

pub(super) fn run(arguments: &Arguments) -> Result<bool> {
    let chips = arguments.chip.map_or_else(|| USUAL.to_vec(), |chip| vec![chip]);
    let kinds = BTreeSet::from([(KERNEL, Firmware::for_kernel(KERNEL))]);
    let workshop = Workshop::open(&kinds, &arguments.logs, arguments.gpuvmk.as_deref())?;
    let (mut result, mut problems) = (serde_json::Map::new(), Vec::new());
    for chip in chips {
        let (mut trapped, mut direct, mut bare) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..arguments.rounds {
            for (bar3, boots) in [("trapped", &mut trapped), ("direct", &mut direct)] {
                let boot = boots::instance_memory(&workshop, chip, KERNEL, bar3, round);
                boots.push(boot.with_context(|| format!("{chip}, {bar3}, round {round}"))?);
            }
            let boot = boots::without_driver(&workshop, chip, KERNEL, round);
            bare.push(boot.with_context(|| format!("{chip}, no driver, round {round}"))?);
        }
        let (trapped, direct) = (medians(&trapped)?, medians(&direct)?);
        let least_off = time(&bare, POWER_OFF)?;
        println!("{chip:14} {:>12} {:>12} {:>8}", "trapped", "direct", "ratio");
        let mut ratios = serde_json::Map::new();
        for ((name, before), (_, after)) in trapped.iter().zip(&direct) {
            let ratio = before / after.max(1.0);
            println!("{name:14} {before:12.0} {after:12.0} {ratio:8.2}");
            ratios.insert((*name).to_owned(), json!(round3(ratio)));
            if chip == Chip::GF100 && ["reads", "writes"].contains(name) && ratio < LEAST {
                problems.push(format!("{chip}: {ratio:.1} times fewer {name}, at least {LEAST} is wanted"));
            }
        }
        println!("{POWER_OFF:14} {least_off:12.0} without a driver");
        let object = |medians: &Medians| -> Value {
            medians.iter().map(|(name, value)| ((*name).to_owned(), json!(round3(*value)))).collect()
        };
        let figures = json!({ "trapped": object(&trapped), "direct": object(&direct), "ratios": ratios,
            "no_driver": { POWER_OFF: round3(least_off) } });
        result.insert(chip.to_string(), figures);
    }
    problems.iter().for_each(|problem| println!("{problem}"));
    if arguments.json {
        result.insert("ok".to_owned(), problems.is_empty().into());
        result.insert("kernel".to_owned(), KERNEL.name().into());
        result.insert("rounds".to_owned(), arguments.rounds.into());
        result.insert("least_ratio".to_owned(), LEAST.into());
        result.insert("problems".to_owned(), problems.clone().into());
        println!("{}", Value::from(result));
    }
    Ok(problems.is_empty())
}

fn medians(boots: &[Boot]) -> Result<Medians> {
    let counts = COUNTS.map(|name| (name, of(boots, name, |boot| boot.totals.get(name).copied())));
    let times = TIMES.map(|name| (name, time(boots, name)));
    counts.into_iter().chain(times).map(|(name, median)| Ok((name, median?))).collect()
}

fn time(boots: &[Boot], name: &str) -> Result<f64> {
    of(boots, name, |boot| boot.figures.get(name).copied())
}

/// The median over the boots, all of which must have said it.
fn of(boots: &[Boot], name: &str, value: impl Fn(&Boot) -> Option<f64>) -> Result<f64> {
    let values: Option<Vec<f64>> = boots.iter().map(value).collect();
    Ok(median(&values.with_context(|| format!("A boot did not say '{name}'"))?))
}
