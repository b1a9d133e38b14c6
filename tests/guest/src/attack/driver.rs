//! Attacks through the stock driver: what a program without any right to the GPU's registers can ask for.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::{Outcome, Seen};
use crate::drm::abi::Parameter;
use crate::drm::{Buffer, Device, Place, render_nodes};
use crate::init;
use crate::programs::session::Session;
use crate::programs::{Options, badaddr, suspend};

/// Bytes of a buffer of those that use memory up.
const BUFFER: usize = 4 << 20;

/// How an attack is carried out, given the GPU's number and the time.
pub type Means = fn(usize, Duration) -> Result<Seen>;

/// The attack of a name.
pub fn means(name: &str) -> Option<Means> {
    match name {
        "driver-exhaustion" => Some(exhaustion),
        "driver-bad-addresses" => Some(bad_addresses),
        "driver-suspend" => Some(suspend),
        _ => None,
    }
}

/// Makes an attack; the driver is loaded first if it is not there.
pub fn make(means: Means, gpu: usize, time: Duration) -> Result<Seen> {
    if render_nodes().is_empty() {
        init::load_nouveau()?;
    }
    means(gpu, time)
}

/// A fresh process's view: copies through the driver are still right.
pub fn works(gpu: usize) -> Result<()> {
    Session::open(gpu, 1 << 20)?.there_and_back(3, [0, 0, 0], 1 << 20)
}

/// Buffers for twice the VRAM, each filled by the processor: the driver must refuse, or move older ones out
/// of VRAM.
fn exhaustion(gpu: usize, _time: Duration) -> Result<Seen> {
    let device = Device::open(gpu)?;
    let vram = device.parameter(Parameter::VramSize)?;
    let wanted = usize::try_from(vram)? / BUFFER * 2;
    let mut buffers = Vec::new();
    for number in 0..wanted {
        match Buffer::new(&device, Place::Vram, BUFFER) {
            Ok(mut buffer) => {
                buffer.write(0, &u32::try_from(number)?.to_le_bytes())?;
                buffers.push(buffer);
            }
            Err(error) => {
                return Ok(Seen::new(
                    Outcome::Refused,
                    format!("{number} buffers of 4 MiB, then: {error:#}"),
                ));
            }
        }
    }
    for (number, buffer) in (0u32..).zip(&mut buffers) {
        let mut found = [0; 4];
        buffer.read(0, &mut found)?;
        ensure!(u32::from_le_bytes(found) == number, "buffer {number} has {found:x?}");
    }
    let text = format!("{wanted} buffers of 4 MiB in {} MiB of VRAM: older ones were moved out", vram >> 20);
    Ok(Seen::new(Outcome::Limited, text))
}

/// Row 39: all devices suspended and woken, with something in VRAM that must be there afterwards.
fn suspend(gpu: usize, _time: Duration) -> Result<Seen> {
    let figures = suspend::run(&Options::for_gpu(gpu))?;
    let took = figures.get("suspend_resume_ms").and_then(serde_json::Value::as_f64).unwrap_or(0.0);
    Ok(Seen::new(Outcome::Values, format!("suspended and woken in {took:.0} ms, VRAM as before")))
}

/// Unmapped addresses for the host unit and the engine, again and again; a bystander's copies must stay
/// right.
fn bad_addresses(gpu: usize, time: Duration) -> Result<Seen> {
    let options = Options::for_gpu(gpu);
    let start = Instant::now();
    let mut killed = 0u32;
    while start.elapsed() < time {
        badaddr::by_host(&options)?;
        badaddr::by_engine(&options)?;
        killed += 2;
    }
    Ok(Seen::new(Outcome::Quarantined, format!("{killed} channels killed, bystanders unharmed")))
}
