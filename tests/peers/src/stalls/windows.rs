//! Windows onto VRAM that outlive the process that they were given to.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use gpuvmk::pci::mapping::{Access, FilePiece, Mapping};
use gpuvmk_attacks::Outcome;

use crate::Scene;
use crate::aggregator::tenant;
use crate::findings::Findings;
use crate::raw::Raw;

/// What the next owner writes, and what the holder of the old window writes.
const SECRET: u64 = 0x7365_6372_6574_2d31;
const GRAFFITI: u64 = 0x6772_6166_6669_7469;
/// Every so many bytes.
const STEP: u64 = 0x1_0000;
/// Files of a welcome that are no window.
const CHANNELS: usize = 4;

/// The child: joins, hands its window to whoever reads its standard input, and ends.
pub fn child(scene: &mut Scene) -> Result<()> {
    let raw = Raw::joined(&scene.aggregator, &format!("window-{}", scene.step))?;
    let files: Vec<BorrowedFd<'_>> = raw.files.iter().skip(CHANNELS).map(AsFd::as_fd).collect();
    let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
    let parent = Raw { socket, files: Vec::new() };
    ensure!(parent.send(b"window", &files)? == Some(true), "the window is not taken");
    Ok(())
}

/// A third process keeps the window of one that is gone, while its memory becomes the next tenant's.
pub fn kept_by_others(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    // Once: what this process's tenants had is nobody's before it ends, and the host has the attack made
    // again as long as there is time.
    let window = stolen(scene, 1)?;
    write(&window, GRAFFITI)?;
    // The next tenants get what is free: the stolen memory is among it, if it is anybody's again.
    let tenants = (0..3).map(|n| tenant(scene, &format!("next-{n}"))).collect::<Result<Vec<_>>>()?;
    for tenant in &tenants {
        findings.residue(count(&tenant.window, |found| found != 0)? * 8);
        write(&tenant.window, SECRET)?;
    }
    let seen = count(&window, |found| found == SECRET)?;
    findings.check(seen == 0, format!("{seen} places of the next tenant's memory are seen"));
    write(&window, GRAFFITI)?;
    for tenant in &tenants {
        let changed = count(&tenant.window, |found| found == GRAFFITI)?;
        findings.check(changed == 0, format!("{changed} places of the next tenant's memory are changed"));
    }
    findings.count("windows kept");
    drop(tenants);
    Ok(Outcome::Values)
}

/// The window of a process that is gone.
fn stolen(scene: &Scene, step: u64) -> Result<Mapping> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut command = scene.child("child-window", step)?;
    command.stdin(Stdio::from(OwnedFd::from(theirs)));
    let mut child = command.spawn()?;
    // The command keeps the other end otherwise.
    drop(command);
    child.wait()?;
    let mut raw = Raw { socket: ours.into(), files: Vec::new() };
    let files = raw.take_files()?;
    ensure!(!files.is_empty(), "no window came");
    let size = |fd: &OwnedFd| Ok::<_, anyhow::Error>(u64::try_from(rustix::fs::fstat(fd)?.st_size)?);
    let first = files.first().context("a file of the window")?;
    let piece = FilePiece { fd: first.as_fd(), offset: 0, size: size(first)? };
    Ok(Mapping::contiguous(&[piece], Access::ReadWrite)?)
}

fn places(window: &Mapping) -> impl Iterator<Item = u64> {
    (0..window.size()).step_by(usize::try_from(STEP).unwrap_or(usize::MAX))
}

fn write(window: &Mapping, what: u64) -> Result<()> {
    places(window).try_for_each(|at| window.write_u64(at, what)).context("a window")
}

fn count(window: &Mapping, is: impl Fn(u64) -> bool) -> Result<u64> {
    let mut found = 0;
    for at in places(window) {
        found += u64::from(is(window.read_u64(at)?));
    }
    Ok(found)
}
