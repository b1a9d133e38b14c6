//! Valid requests that are made to cost as much as they can.

use std::os::fd::AsFd;

use anyhow::{Context, Result, ensure};
use gpuvmk::addr::{Gpa, GpuVa};
use gpuvmk::aggregator::protocol::{GuestMapping, GuestRange, GuestTarget, Request, SpaceId};
use gpuvmk_attacks::Outcome;

use crate::Scene;
use crate::files;
use crate::findings::Findings;
use crate::raw::{Answer, Raw, encoded};

/// Ranges of guest memory, a page each.
const RANGES: u64 = 512;
/// Tenants that one process is, one after the other.
const MOST_TENANTS: u32 = 6;
/// Runs of a request, and pages of a run, each in a range of its own.
const RUNS: u64 = 1020;
const PAGES: u32 = 64;
const PAGE: u64 = 0x1000;
const VA: u64 = 0x40_0000_0000;

/// A tenant with as many ranges as it may have, no two of which can be one.
fn in_pieces(scene: &Scene, name: &str) -> Result<(Raw, u64)> {
    let mut raw = Raw::joined(&scene.aggregator, name)?;
    let file = files::memory(2 * RANGES * PAGE)?;
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 2 * RANGES * PAGE)?;
    let mut ranges = 0;
    for number in 0..RANGES {
        let offset = (2 * RANGES - 1 - 2 * number) * PAGE;
        let map = Request::DmaMap { gpa: Gpa(number * PAGE), size: PAGE, offset, writable: true };
        match raw.ask_bytes(&encoded(&map), &[file.as_fd()])? {
            Answer::Done => ranges += 1,
            _ => break,
        }
    }
    ensure!(ranges >= u64::from(PAGES), "only {ranges} ranges of memory are taken");
    ensure!(raw.ask(&Request::CreateSpace(SpaceId(0)))? == Answer::Done, "no address space");
    Ok((raw, ranges))
}

fn runs(first: u64, ranges: u64) -> Request {
    let map = (0..RUNS)
        .map(|run| GuestMapping {
            va: GpuVa(VA + (first + run) * u64::from(PAGES) * PAGE),
            pages: PAGES,
            page_shift: 12,
            target: GuestTarget::System {
                address: Gpa((run * 7 % (ranges - u64::from(PAGES) + 1)) * PAGE),
                coherent: true,
            },
            read_only: false,
            kind: 0,
        })
        .collect();
    Request::UpdateSpace { space: SpaceId(0), unmap: vec![], map }
}

fn cleared(first: u64) -> Request {
    let range = |run| GuestRange {
        va: GpuVa(VA + (first + run) * u64::from(PAGES) * PAGE),
        pages: PAGES,
        page_shift: 12,
    };
    Request::UpdateSpace { space: SpaceId(0), unmap: (0..RUNS).map(range).collect(), map: vec![] }
}

/// 65,280 pages mapped one by one in a request of 24 KiB, and taken away again.
pub fn pieces(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    let (mut raw, ranges) = in_pieces(scene, "pieces")?;
    scene.begin();
    while scene.goes_on() {
        for request in [runs(0, ranges), cleared(0)] {
            let answer = raw.ask(&request)?;
            findings.count(answer.name());
            ensure!(answer != Answer::Closed, "the tenant was dropped");
        }
    }
    scene.keep(raw);
    Ok(Outcome::Limited)
}

/// A space filled up to its quota with pages that do not join, and the function reset.
pub fn resets(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    let (mut raw, ranges) = in_pieces(scene, "resets")?;
    scene.begin();
    while scene.goes_on() {
        let mut first = 0;
        while raw.ask(&runs(first, ranges)).context("filling a space")? == Answer::Done && scene.goes_on() {
            first += RUNS;
            findings.add("pages", RUNS * u64::from(PAGES));
        }
        findings.count(raw.ask(&Request::Reset { scrub: false })?.name());
        raw.ask(&Request::CreateSpace(SpaceId(0)))?;
    }
    scene.keep(raw);
    Ok(Outcome::Limited)
}

/// All ranges of guest memory, mapped thousands of times each, taken away in one request.
pub fn ranges(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    // What this process's tenants had is nobody's before it ends: the host has the attack made again as long
    // as there is time.
    let mut number = 0;
    while scene.goes_on() && number < MOST_TENANTS {
        let (mut raw, ranges) = in_pieces(scene, &format!("ranges-{number}"))?;
        number += 1;
        for first in [0, RUNS] {
            findings.count(raw.ask(&runs(first, ranges))?.name());
        }
        scene.begin_once();
        let answer = raw.ask(&Request::DmaUnmap { gpa: Gpa(0), size: RANGES * PAGE })?;
        findings.count(format!("unmapped: {}", answer.name()));
    }
    Ok(Outcome::Limited)
}
