//! More places than one process should have, as tenants and as strangers.

use std::io::{BufRead, BufReader};
use std::time::Duration;

use anyhow::{Context, Result};
use gpuvmk::aggregator::protocol::{Hello, Request};
use gpuvmk::scheduler::share::Share;
use gpuvmk_attacks::Outcome;

use crate::findings::Findings;
use crate::raw::{Answer, Raw, hello};
use crate::{Scene, honest};

/// Tenants that an aggregator has room for.
const PLACES: u64 = 64;
/// Processes that connect and say nothing.
const SILENT: u64 = 9;

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
    honest::meanwhile(scene, findings)?;
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
        honest::meanwhile(scene, findings)?;
        std::thread::sleep(Duration::from_millis(50));
    }
    for mut child in children {
        child.kill()?;
        child.wait()?;
    }
    Ok(Outcome::Limited)
}
