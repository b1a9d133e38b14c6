//! More of everything than anybody needs.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gpuvmk::addr::GuestChannel;
use gpuvmk::aggregator::protocol::{Doorbell, Request, SpaceId};
use gpuvmk_attacks::Outcome;

use super::tenant;
use crate::Scene;
use crate::findings::Findings;
use crate::raw::{Answer, Raw, encoded};

/// Requests without a pause, each of which is work: address spaces made and dropped.
pub fn requests(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    let mut raw = Raw::joined(&scene.aggregator, "requests")?;
    while scene.goes_on() {
        for request in [
            Request::CreateSpace(SpaceId(1)),
            Request::DestroySpace(SpaceId(1)),
            Request::Reset { scrub: false },
        ] {
            let answer = raw.ask(&request)?;
            ensure!(matches!(answer, Answer::Done | Answer::Refused(_)), "{request:?}: {}", answer.name());
            findings.count(answer.name());
        }
    }
    scene.keep(raw);
    Ok(Outcome::Limited)
}

/// Doorbells of channels that are there and of those that are not.
pub fn doorbells(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    let mut tenant = tenant(scene, "doorbells")?;
    for id in 0..8 {
        tenant.channel(id, 0);
    }
    tenant.list(&[0, 1, 2, 3, 4, 5, 6, 7]);
    let link = &tenant.link;
    let (time, start) = (scene.time, Instant::now());
    // One thread: the victim's speed is compared with that beside one that spins.
    let mut rung = 0;
    while start.elapsed() < time {
        for channel in 0..512 {
            link.doorbell(Doorbell { channel: GuestChannel(channel), gp_put: u32::from(channel % 64) });
        }
        rung += 512;
    }
    findings.add("doorbells", rung);
    scene.keep(tenant);
    Ok(Outcome::Limited)
}

/// Connections that say nothing: the aggregator keeps so many, and closes them in time.
pub fn connections(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    /// How long it waits for hello, and some more.
    const SILENCE: Duration = Duration::from_secs(7);
    let mut all = Vec::new();
    while scene.goes_on() {
        for _ in 0..100 {
            match Raw::connect(&scene.aggregator) {
                Ok(raw) => all.push(raw),
                Err(_) => findings.count("turned away"),
            }
        }
        let mut open = Vec::new();
        for mut raw in all {
            match raw.receive_within(Duration::ZERO)? {
                Answer::Closed => findings.count("closed at once"),
                _ => open.push(raw),
            }
        }
        all = open;
        // Another process gets in all the same.
        crate::honest::meanwhile(scene, findings)?;
        ensure!(all.len() < 600, "{} silent connections are kept", all.len());
        std::thread::sleep(Duration::from_millis(100));
    }
    findings.add("kept", u64::try_from(all.len())?);
    let start = Instant::now();
    for raw in &mut all {
        let left = SILENCE.saturating_sub(start.elapsed());
        ensure!(raw.receive_within(left)? == Answer::Closed, "a silent connection is kept for ever");
    }
    Ok(Outcome::Limited)
}

/// Answers that are never read, and events that are never taken.
pub fn deaf(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    let mut tenant = tenant(scene, "deaf")?;
    // Its events are in the ring; this raw one shows that nobody needs to take them.
    tenant.channel(0, 0);
    let raw = Raw::joined(&scene.aggregator, "deaf-raw")?;
    let request = encoded(&Request::Preempt(GuestChannel(0)));
    let start = Instant::now();
    let mut sent = 0u64;
    let dropped = loop {
        match raw.send(&request, &[])? {
            Some(true) => sent += 1,
            Some(false) => break true,
            None => std::thread::sleep(Duration::from_millis(1)),
        }
        if start.elapsed() > Duration::from_secs(10) {
            break false;
        }
    };
    findings.add("requests until it was dropped", sent);
    ensure!(dropped, "a tenant that reads no answers is kept");
    // Preemptions are told by events that nobody takes: the ring is full soon, and the requests are still
    // answered.
    let mut deaf = Raw::joined(&scene.aggregator, "deaf-events")?;
    for request in super::datagrams::every_kind().into_iter().skip(1).take(7) {
        deaf.ask(&request)?;
    }
    let mut told = 0u64;
    while scene.goes_on() || told < 600 {
        match deaf.ask(&Request::Preempt(GuestChannel(0)))? {
            Answer::Done | Answer::Refused(_) => told += 1,
            other => anyhow::bail!("a preemption was answered with '{}'", other.name()),
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    findings.add("events that nobody took", told);
    drop(deaf);
    tenant.link.request(&Request::DestroyChannel(GuestChannel(0)), None).context("the other tenant")?;
    scene.keep(tenant);
    Ok(Outcome::Refused)
}
