//! Memory that takes long to go, when its last holder is the aggregator; and memory that is not there until
//! the GPU touches it.

use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use gpuvmk::addr::Gpa;
use gpuvmk::aggregator::protocol::{GuestTarget, Request};
use gpuvmk::pci::mapping::{Access, Mapping};
use gpuvmk_attacks::Outcome;

use crate::Scene;
use crate::aggregator::tenant;
use crate::files;
use crate::findings::Findings;
use crate::raw::{Answer, Raw, encoded};
use crate::tenant::{DATA, VRAM_VA};

/// A file whose pages take a while to free.
const LARGE: u64 = 1 << 30;
/// The same of each VM of a scope that ends.
const OF_A_VM: u64 = 256 << 20;
/// VMs of that scope.
const VMS: u64 = 6;
/// Memory that is announced and not there.
const SPARSE: u64 = 1 << 30;
const PIECE: u64 = 8 << 20;
const GPA: u64 = 1 << 33;
const VA: u64 = 0x40_0000_0000;

/// A file of which every page is there.
fn filled(size: u64) -> Result<OwnedFd> {
    let file = files::memory(size)?;
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, size)?;
    Ok(file)
}

fn dma_map(size: u64) -> Vec<u8> {
    encoded(&Request::DmaMap { gpa: Gpa(GPA), size, offset: 0, writable: true })
}

/// The child: takes memory of `step` bytes, announces it to the aggregator if that is not a stranger's
/// affair, and says so.
pub fn child(scene: &mut Scene) -> Result<()> {
    let size = scene.step & !1;
    let stranger = scene.step & 1 == 1;
    let file = filled(size)?;
    let mut raw = if stranger {
        Raw::connect(&scene.aggregator)?
    } else {
        Raw::joined(&scene.aggregator, &format!("large-{}", std::process::id()))?
    };
    if stranger {
        raw.send(&dma_map(size), &[file.as_fd()])?;
    } else {
        let answer = raw.ask_bytes(&dma_map(size), &[file.as_fd()])?;
        ensure!(answer == Answer::Done, "memory is answered with '{}'", answer.name());
    }
    println!("ready");
    std::thread::sleep(Duration::from_secs(60));
    Ok(())
}

fn start(scene: &Scene, step: u64) -> Result<Child> {
    let mut child = scene.child("child-with-memory", step)?.spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("a child's output")?).read_line(&mut line)?;
    ensure!(line.trim() == "ready", "a child with memory said '{line}'");
    Ok(child)
}

/// A process that ends and leaves the aggregator as the last holder of its memory, as a stranger and as a
/// tenant.
pub fn large_file(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    let mut all = vec![start(scene, LARGE | 1)?, start(scene, LARGE)?];
    scene.begin();
    for child in &mut all {
        child.kill()?;
        child.wait()?;
        findings.count("left behind");
    }
    while scene.goes_on() {
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(Outcome::Values)
}

/// All processes of several VMs killed at once, as the end of a service or the host's memory killer does.
pub fn scope_killed(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    let mut all = (0..VMS).map(|_| start(scene, OF_A_VM)).collect::<Result<Vec<_>>>()?;
    scene.begin();
    all.iter_mut().try_for_each(Child::kill)?;
    for mut child in all {
        child.wait()?;
        findings.count("killed");
    }
    while scene.goes_on() {
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(Outcome::Values)
}

/// A file without pages as guest memory, which the GPU is to fill in the aggregator's name.
pub fn sparse(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    let file = files::memory(SPARSE)?;
    let mut tenant = tenant(scene, "sparse")?;
    let map = Request::DmaMap { gpa: Gpa(GPA), size: SPARSE, offset: 0, writable: true };
    if let Err(error) = tenant.link.request(&map, Some(file.try_clone()?)) {
        findings.count(format!("not taken: {error}"));
        scene.keep(tenant);
        return Ok(Outcome::Refused);
    }
    tenant.map(VA, GuestTarget::System { address: Gpa(GPA), coherent: true }, SPARSE)?;
    tenant.channel(0, 0);
    tenant.list(&[0]);
    let mut at = 0;
    while scene.goes_on() && at < SPARSE {
        tenant.copy(0, 0, VRAM_VA + DATA, VA + at, PIECE);
        if !tenant.finishes_within(0, Duration::from_secs(5)) {
            break;
        }
        at += PIECE;
    }
    // What of it is there was had by the GPU's writes.
    let had = u64::try_from(rustix::fs::fstat(&file)?.st_blocks)? * 512;
    findings.add("bytes had in the aggregator's name", had);
    let seen = Mapping::of_file(file.as_fd(), 0, 0x1000, Access::ReadOnly)?;
    scene.keep(seen);
    scene.keep(tenant);
    ensure!(had <= 128 << 20, "{had} bytes of memory were had in the aggregator's name");
    Ok(Outcome::Limited)
}
