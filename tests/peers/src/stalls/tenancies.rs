//! More places than one process should have, as tenants and as strangers.

use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use gpuvmk::aggregator::protocol::{Hello, Request};
use gpuvmk::scheduler::share::Share;
use gpuvmk_attacks::Outcome;

use crate::Scene;
use crate::findings::Findings;
use crate::raw::{Answer, Raw, hello};

/// Tenants that an aggregator has room for.
const PLACES: u64 = 64;
/// Processes that connect and say nothing.
const SILENT: u64 = 9;
/// How long an honest back end may take meanwhile, from its start to its end: less than the time that silent
/// connections have.
const SOON: Duration = Duration::from_secs(4);

/// One process that wants to be every VM that there can be, with the largest weight.
pub fn of_one_process(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    let mut all = Vec::new();
    for number in 0..PLACES + 8 {
        let mut raw = Raw::connect(&scene.aggregator)?;
        let wish = Hello {
            vram: 16 << 20,
            channels: 1,
            share: Share { weight: 10_000, ..Share::default() },
            ..hello(&format!("squatter-{number}"))
        };
        // Somebody who has to wait is no tenant.
        raw.send(&crate::raw::encoded(&Request::Hello(wish)), &[])?;
        let answer = raw.receive_within(Duration::from_millis(200))?;
        findings.count(answer.name());
        if matches!(answer, Answer::Welcome(_)) {
            all.push(raw);
        }
        if !scene.goes_on() {
            break;
        }
    }
    let places = u64::try_from(all.len())?;
    findings.check(places < PLACES / 2, format!("one process has {places} of {PLACES} places"));
    serve_another(scene, findings)?;
    scene.keep(all);
    Ok(Outcome::Limited)
}

/// The child: as many connections as it gets, silent, again and again.
pub fn silent_child(scene: &mut Scene) -> Result<()> {
    println!("ready");
    let mut all = Vec::new();
    while scene.goes_on() {
        for _ in 0..8 {
            if let Ok(raw) = Raw::connect(&scene.aggregator) {
                all.push(raw);
            }
        }
        // Those that were closed make room for new ones.
        all.retain_mut(|raw: &mut Raw| {
            raw.receive_within(Duration::ZERO).is_ok_and(|answer| answer == Answer::Silence)
        });
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Nine processes that hold every place of those who have not said hello.
pub fn strangers(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    let mut children = Vec::new();
    for _ in 0..SILENT {
        let mut child = scene.child("child-stranger", 0)?.spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("a child's output")?).read_line(&mut line)?;
        children.push(child);
    }
    scene.begin();
    while scene.goes_on() {
        serve_another(scene, findings)?;
        std::thread::sleep(Duration::from_millis(50));
    }
    for mut child in children {
        child.kill()?;
        child.wait()?;
    }
    Ok(Outcome::Limited)
}

/// An honest process is served meanwhile.
fn serve_another(scene: &Scene, findings: &mut Findings) -> Result<()> {
    let start = Instant::now();
    let mut other = scene.child("honest-backend", 0)?.spawn()?;
    let mut line = String::new();
    BufReader::new(other.stdout.take().context("a child's output")?).read_line(&mut line)?;
    let took = start.elapsed();
    findings.check(
        line.contains("\"problems\":[]") && took < SOON,
        format!("an honest backend meanwhile, after {took:?}: {}", line.trim()),
    );
    findings.count("honest backends served");
    drop(other.stdin.take());
    other.wait()?;
    Ok(())
}
