//! Guest memory that goes while the GPU uses it.

use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use gpuvmk::addr::{Gpa, GuestChannel};
use gpuvmk::aggregator::protocol::{GuestTarget, Request};
use gpuvmk::pci::mapping::{Access, Mapping};
use gpuvmk_attacks::Outcome;
use rustix::fs::FallocateFlags;

use super::tenant;
use crate::Scene;
use crate::files;
use crate::findings::Findings;
use crate::tenant::{DATA, Tenant, VRAM_VA};

/// Where this memory lies for the guest and for the GPU.
const GPA: u64 = 1 << 32;
const VA: u64 = 0x30_0000_0000;
const SIZE: u64 = 4 << 20;

fn announce(tenant: &Tenant, file: std::os::fd::OwnedFd) -> Result<()> {
    let map = Request::DmaMap { gpa: Gpa(GPA), size: SIZE, offset: 0, writable: true };
    tenant.link.request(&map, Some(file))?;
    tenant.map(VA, GuestTarget::System { address: Gpa(GPA), coherent: true }, SIZE)?;
    Ok(())
}

fn channel(tenant: &mut Tenant) {
    tenant.channel(0, 0);
    tenant.list(&[0]);
}

/// Truncates the file at random moments of copies from and to it.
pub fn truncated(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    let mut tenant = tenant(scene, "truncated")?;
    let file = files::memory(SIZE)?;
    // Pages that nobody has made are none for the GPU: a VM has them made before, each time.
    let fill = || rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, SIZE);
    fill()?;
    announce(&tenant, file.try_clone()?)?;
    channel(&mut tenant);
    while scene.goes_on() {
        for (from, to) in [(VA, VRAM_VA + DATA), (VRAM_VA + DATA, VA)] {
            for delay in [0, 100, 500] {
                tenant.copy(0, 0, from, to, SIZE);
                std::thread::sleep(Duration::from_micros(delay));
                rustix::fs::ftruncate(&file, if delay == 100 { 0x1000 } else { 0 })?;
                // Its next copy finds no page at all.
                tenant.copy(0, 0, from, to, SIZE);
                let done = tenant.finishes_within(0, Duration::from_millis(500));
                findings.count(if done { "copies that ended" } else { "copies that were stopped" });
                if !done {
                    // May be stopped: harms nobody else either.
                    scene.keep(tenant);
                    return Ok(Outcome::Quarantined);
                }
                rustix::fs::ftruncate(&file, SIZE)?;
                fill()?;
                tenant.list(&[]);
                tenant.link.request(&Request::DestroyChannel(GuestChannel(0)), None)?;
                channel(&mut tenant);
            }
        }
    }
    tenant.copy(0, 0, VA, VRAM_VA + DATA, SIZE);
    ensure!(
        tenant.finishes_within(0, Duration::from_secs(5)),
        "a copy of memory that is there again does not end"
    );
    rustix::fs::ftruncate(&file, 0)?;
    tenant.link.request(&Request::DmaUnmap { gpa: Gpa(GPA), size: SIZE }, None)?;
    scene.keep(tenant);
    // A copy of what is not there gives nothing, and harms nobody else.
    Ok(Outcome::Values)
}

/// Unmaps memory in the middle of copies to it: when the answer is there, nothing is written any more.
pub fn unmapped(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    let mut tenant = tenant(scene, "in-use")?;
    tenant.window.fill(DATA, SIZE, 0x5a)?;
    while scene.goes_on() {
        let file = files::memory(SIZE)?;
        let seen = Mapping::of_file(file.as_fd(), 0, SIZE, Access::ReadWrite)?;
        // Pages that nobody has made are none for the GPU.
        seen.populate(0, SIZE)?;
        announce(&tenant, file)?;
        channel(&mut tenant);
        for _ in 0..8 {
            tenant.copy(0, 0, VRAM_VA + DATA, VA, SIZE);
        }
        std::thread::sleep(Duration::from_micros(300));
        tenant.link.request(&Request::DmaUnmap { gpa: Gpa(GPA), size: SIZE }, None)?;
        // The answer is there: what is cleared now stays clear.
        seen.fill(0, SIZE, 0)?;
        std::thread::sleep(Duration::from_millis(20));
        let mut bytes = vec![0; usize::try_from(SIZE)?];
        seen.read(0, &mut bytes)?;
        let written = bytes.iter().filter(|byte| **byte != 0).count();
        findings.check(written == 0, format!("{written} bytes were written after memory was unmapped"));
        findings.count("unmapped in use");
        tenant.list(&[]);
        tenant.link.request(&Request::DestroyChannel(GuestChannel(0)), None).context("a channel")?;
    }
    scene.keep(tenant);
    Ok(Outcome::Values)
}
