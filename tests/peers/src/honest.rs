//! An honest device back end: what others do to the aggregator must not keep it from its work.

use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::Scene;
use crate::findings::Findings;
use crate::tenant::{DATA, RAM_VA, VRAM_VA, pattern};

/// VRAM of a tenant here.
pub const VRAM: u64 = 64 << 20;

/// When all that attackers had and have given up is there again.
const COMES_BACK: Duration = Duration::from_secs(10);

/// How long it may be kept waiting before it is a tenant while others connect and say nothing: less than the
/// time that silent connections have. What it computes and waits for a processor does not count, since it
/// has an attacker's share of them.
const SOON: Duration = Duration::from_secs(4);

/// A tenant gets its work done, and zeroed memory.
pub fn tenant(scene: &mut Scene, findings: &mut Findings) -> Result<()> {
    let (start, began_with) = (Instant::now(), processor_time()?);
    let mut tenant = loop {
        // What attackers had comes back soon, and not at once.
        match crate::aggregator::tenant(scene, "honest") {
            Err(_) if start.elapsed() < COMES_BACK => {
                findings.count("tried again");
                std::thread::sleep(Duration::from_millis(50));
            }
            joined => break joined?,
        }
    };
    let of_processor = processor_time()?.saturating_sub(began_with);
    findings.waited(start.elapsed().saturating_sub(of_processor));
    let mut piece = vec![0xff; 1 << 20];
    for offset in (0..VRAM).step_by(piece.len()) {
        tenant.window.read(offset, &mut piece)?;
        let residue = piece.iter().filter(|byte| **byte != 0).count();
        findings.residue(u64::try_from(residue)?);
        ensure!(residue == 0, "{residue} bytes of its memory from {offset:#x} on are not zero");
    }
    tenant.channel(0, 0);
    tenant.list(&[0]);
    let data = pattern(7, 0x10000);
    tenant.ram.write(0, &data)?;
    let start = Instant::now();
    tenant.copy(0, 0, RAM_VA, VRAM_VA + DATA, 0x10000);
    ensure!(tenant.finishes_within(0, Duration::from_secs(5)), "its copy does not end");
    ensure!(start.elapsed() < Duration::from_secs(3), "its copy took {:?}", start.elapsed());
    let mut found = vec![0; data.len()];
    tenant.window.read(DATA, &mut found)?;
    ensure!(found == data, "its copy is wrong");
    scene.keep(tenant);
    Ok(())
}

/// Another process is served now.
///
/// # Errors
/// The process cannot be started, or does not say what it came to.
pub fn meanwhile(scene: &Scene, findings: &mut Findings) -> Result<()> {
    let start = Instant::now();
    let mut other = scene.child("honest-backend", 0)?.spawn()?;
    let mut line = String::new();
    BufReader::new(other.stdout.take().context("a child's output")?).read_line(&mut line)?;
    let took = start.elapsed();
    let told: Value = serde_json::from_str(&line).context("what an honest back end came to")?;
    let well = told["problems"].as_array().is_some_and(Vec::is_empty);
    let soon = told["waited_ms"].as_u64().is_some_and(|waited| u128::from(waited) < SOON.as_millis());
    findings.check(
        well && soon,
        format!(
            "an honest back end meanwhile, after {took:?} ({SOON:?} of waiting allowed): {}",
            line.trim()
        ),
    );
    findings.count("honest backends served");
    drop(other.stdin.take());
    other.wait()?;
    Ok(())
}

/// What this thread has computed, and how long it was ready to and had no processor (Linux's
/// `/proc/thread-self/schedstat`).
fn processor_time() -> Result<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")
        .context("The kernel does not count waits for processors")?;
    let mut nanos = text.split_whitespace().map(str::parse::<u64>);
    let mut next = || nanos.next().context("a number of schedstat").and_then(|nanos| Ok(nanos?));
    Ok(Duration::from_nanos(next()?.saturating_add(next()?)))
}
