//! Loads nouveau and what it needs, in the order that the initramfs names, and times nouveau's own part.

use std::fs::{self, File};
use std::time::Instant;

use anyhow::{Context, Result};

use crate::stats;
use crate::sys;

const ORDER: &str = "/modules/order";
const NOUVEAU: &str = "nouveau.ko";
/// Where the options of the first load are kept for a reload, and the time that it took.
const OPTIONS: &str = "/run/nouveau.options";
const PROBE_MS: &str = "/run/nouveau.probe_ms";

/// Loads every module but nouveau.
pub fn load_needed() -> Result<()> {
    let order = fs::read_to_string(ORDER).with_context(|| format!("cannot read {ORDER}"))?;
    order.lines().filter(|name| *name != NOUVEAU).try_for_each(|name| load(name, ""))
}

/// Loads nouveau at boot, unless the guest is a bare one; returns how long it took, in milliseconds.
pub fn load_at_boot(options: &[String], bare: bool) -> Result<Option<f64>> {
    fs::write(OPTIONS, options.join(" ")).context("cannot keep nouveau's options")?;
    if bare {
        return Ok(None);
    }
    let probe_ms = load_nouveau()?;
    fs::write(PROBE_MS, probe_ms.to_string()).context("cannot keep the probe time")?;
    Ok(Some(probe_ms))
}

/// Loads nouveau with the options of this boot; returns how long it took, in milliseconds. The driver probes
/// its devices before the call returns.
pub fn load_nouveau() -> Result<f64> {
    let options = fs::read_to_string(OPTIONS).unwrap_or_default();
    let start = Instant::now();
    load(NOUVEAU, &options)?;
    Ok(stats::round(start.elapsed().as_secs_f64() * 1e3))
}

/// How long nouveau took to load at boot, in milliseconds.
pub fn probe_ms() -> Option<f64> {
    fs::read_to_string(PROBE_MS).ok()?.trim().parse().ok()
}

fn load(name: &str, options: &str) -> Result<()> {
    let path = format!("/modules/{name}");
    let file = File::open(&path).with_context(|| format!("cannot open {path}"))?;
    sys::load_module(&file, options).with_context(|| format!("cannot load {name}"))
}
