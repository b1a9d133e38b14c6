//! Guest memory that is none, or not where it is said to be.

use std::os::fd::AsFd;
use std::time::Instant;

use anyhow::{Result, ensure};
use gpuvmk::frontend::vfio_user::wire::{self, command, dma_unmap};
use gpuvmk_attacks::Outcome;
use zerocopy::IntoBytes;

use crate::Scene;
use crate::client::{Answer, Client, map_body};
use crate::files;
use crate::findings::Findings;

const PAGE: u64 = 4096;

/// Ranges that overlap, wrap, are too large, or are not whole pages.
pub fn lies(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    let mut client = Client::negotiated(&scene.device)?;
    let file = files::memory(16 * PAGE)?;
    ensure!(!client.map(&file, 0, 0x10_0000, 8 * PAGE)?.refused(), "an honest mapping is refused");
    let lies = [
        ("the same range", 3, 0, 0x10_0000, 8 * PAGE),
        ("a part of it", 3, 0, 0x10_1000, PAGE),
        ("a range around it", 3, 0, 0xf_f000, 16 * PAGE),
        ("a file smaller than claimed", 3, 0, 0x20_0000, 17 * PAGE),
        ("an offset behind its end", 3, 16 * PAGE, 0x20_0000, PAGE),
        ("an offset that wraps", 3, u64::MAX - PAGE + 1, 0x20_0000, PAGE),
        ("an address that wraps", 3, 0, u64::MAX - PAGE + 1, 2 * PAGE),
        ("all addresses", 3, 0, 0, !0xfff),
        ("no bytes", 3, 0, 0x20_0000, 0),
        ("half a page", 3, 0, 0x20_0000, 0x800),
        ("an odd address", 3, 0, 0x20_0001, PAGE),
        ("an odd offset", 3, 1, 0x20_0000, PAGE),
        ("neither read nor write", 0, 0, 0x20_0000, PAGE),
        ("unknown flags", u32::MAX, 0, 0x20_0000, PAGE),
    ];
    for (what, flags, offset, address, size) in lies {
        let body = map_body(flags, offset, address, size);
        let answer = client.ask_with(command::DMA_MAP, body.as_bytes(), &[file.as_fd()])?;
        findings.count(answer.name());
        findings.check(answer.refused(), format!("{what} is mapped"));
    }
    let unmaps = [
        ("a range that wraps", 0, u64::MAX - PAGE + 1, 2 * PAGE),
        ("all, and a range", dma_unmap::ALL, 0, PAGE),
        ("dirty pages", dma_unmap::GET_DIRTY_BITMAP, 0x10_0000, 8 * PAGE),
        ("unknown flags", !3, 0x10_0000, 8 * PAGE),
    ];
    for (what, flags, address, size) in unmaps {
        let body = wire::DmaUnmap { argsz: 24, flags, address, size };
        let answer = client.ask(command::DMA_UNMAP, body.as_bytes())?;
        findings.count(answer.name());
        findings.check(answer.refused(), format!("unmapping {what} is done"));
    }
    client.in_step()?;
    for (what, address, size) in
        [("a part", 0x10_0000, PAGE), ("nothing", 0x80_0000, PAGE), ("the rest", 0x10_0000, 8 * PAGE)]
    {
        ensure!(!client.unmap(address, size)?.refused(), "{what} of an honest mapping cannot be unmapped");
    }
    Ok(Outcome::Refused)
}

/// Descriptors that are no memory, or not writable.
pub fn wrong_files(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    let mut client = Client::negotiated(&scene.device)?;
    let mut all = files::wrong()?;
    all.push(("an eventfd", files::event(0)?));
    all.push(("a sealed file, to be written", files::sealed(PAGE)?));
    all.push(("a file opened to be read only", std::fs::File::open("/proc/self/exe")?.into()));
    for (what, file) in &all {
        let answer = client.map(file, 0, 0, PAGE)?;
        findings.count(answer.name());
        findings.check(answer.refused(), format!("{what} is taken for guest memory"));
        if answer == Answer::Closed {
            client = Client::negotiated(&scene.device)?;
        }
    }
    // A sealed file may be read.
    let sealed = files::sealed(PAGE)?;
    let body = map_body(1, 0, 0x10_0000, PAGE);
    let answer = client.ask_with(command::DMA_MAP, body.as_bytes(), &[sealed.as_fd()])?;
    findings.count(format!("sealed, to be read: {}", answer.name()));
    client.in_step()?;
    Ok(Outcome::Refused)
}

/// As many mappings as are taken.
pub fn many(scene: &mut Scene, findings: &mut Findings) -> Result<Outcome> {
    const MOST: u64 = 65_536;
    let mut client = Client::negotiated(&scene.device)?;
    let file = files::memory(MOST * PAGE)?;
    let (mut made, mut refused) = (0, 0);
    let start = Instant::now();
    for number in 0..MOST {
        // Every second page, so that none adjoins another.
        match client.map(&file, number * PAGE, 0x10_0000 + 2 * number * PAGE, PAGE)? {
            Answer::Done(_) => made += 1,
            _ => refused += 1,
        }
        if refused > 1000 {
            break;
        }
    }
    findings.add("mapped", made);
    findings.add("refused", refused);
    findings.add("mapping took ms", u64::try_from(start.elapsed().as_millis())?);
    ensure!(refused > 0, "there is no limit to the number of mappings");
    client.in_step()?;
    let start = Instant::now();
    let body = wire::DmaUnmap { argsz: 24, flags: dma_unmap::ALL, address: 0, size: 0 };
    let answer = client.ask(command::DMA_UNMAP, body.as_bytes())?;
    findings.add("unmapping took ms", u64::try_from(start.elapsed().as_millis())?);
    ensure!(!answer.refused(), "unmapping all is refused: {}", answer.name());
    Ok(Outcome::Limited)
}
