//! Guests that want all they can get, and one that wants little, under several policies.

use std::time::Duration;

use anyhow::Result;
use gpuvmk_lab::crowd::Crowd;
use gpuvmk_lab::crowd::figures::jain;
use serde_json::{Value, json};

use crate::record::round;

/// Under `fifo`, hardware takes turns; the others are ours.
const POLICIES: [&str; 4] = ["fifo", "best-effort", "weighted", "equal-share"];
const SETTLE: Duration = Duration::from_secs(1);
const WATCH: Duration = Duration::from_secs(5);
/// NVIDIA's turn with up to eight vGPUs.
const SLICE_MS: f64 = 2.0;
/// Once in ten milliseconds.
const LIGHT: &str = "light 10000";

/// What one policy did.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyFigures {
    /// Its name.
    pub name: &'static str,
    /// Jain's index of what equal guests had done, by their own count of pieces of equal work.
    pub jain: f64,
    /// The same of the time that was accounted to them.
    pub jain_accounted: f64,
    /// Pieces of work that all of them had done in a second.
    pub submissions_per_second: f64,
    /// The longest of 99 of 100 waits of a light guest beside busy ones, in turns.
    pub light_p99_slices: f64,
}

impl PolicyFigures {
    /// True for policies that promise that equals get the same.
    pub fn is_fair(&self) -> bool {
        self.name != "fifo"
    }

    /// As it is printed.
    pub fn to_json(&self) -> Value {
        json!({
            "policy": self.name,
            "jain": round(self.jain),
            "jain_accounted": round(self.jain_accounted),
            "submissions_per_second": round(self.submissions_per_second),
            "light_p99_slices": round(self.light_p99_slices),
        })
    }
}

/// Compares policies among `guests` guests.
pub fn compare(crowd: &mut Crowd, guests: usize) -> Result<Vec<PolicyFigures>> {
    POLICIES.into_iter().map(|name| figures(crowd, guests, name)).collect()
}

fn figures(crowd: &mut Crowd, guests: usize, name: &'static str) -> Result<PolicyFigures> {
    eprintln!("policy {name}");
    crowd.set(None, &[&format!("policy={name}")])?;
    crowd.order(0..guests, "busy")?;
    crowd.pass(SETTLE)?;
    let equals = crowd.watch(WATCH)?;
    let done: Vec<f64> = equals.vms.iter().map(|vm| vm.submissions).collect();
    let accounted: Vec<f64> = equals.vms.iter().map(|vm| vm.used).collect();

    crowd.order([guests - 1], LIGHT)?;
    crowd.pass(SETTLE)?;
    // Setting the policy begins new statistics of waits.
    crowd.set(None, &[&format!("policy={name}")])?;
    let light = crowd.watch(WATCH)?;
    crowd.order(0..guests, "rest")?;
    crowd.pass(SETTLE)?;
    Ok(PolicyFigures {
        name,
        jain: jain(&done),
        jain_accounted: jain(&accounted),
        submissions_per_second: done.iter().sum::<f64>() / equals.seconds,
        light_p99_slices: light.vms.last().map_or(0.0, |vm| vm.wait_p99_ms / SLICE_MS),
    })
}
