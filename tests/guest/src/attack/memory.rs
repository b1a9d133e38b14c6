//! Rows 8, 9, 11, 12, 25, 37 and 38: pages that are not the guest's, by entries of page tables.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use gpuvmk_attacks::VICTIM_MARK;

use super::random::Random;
use super::tool::{End, FROM, HERE, HONEST, Lines, TO, Target, Tool};
use super::{Outcome, Seen, Time, low, place};
use crate::dma_memory::{DmaMemory, Piece};

/// Bytes of VRAM that are searched at a time.
const PIECE: u64 = 1 << 20;

/// Row 8: `bits` is the width of an address in VRAM.
pub fn foreign_vram(tool: &mut dyn Tool, time: Time, bits: u32) -> Result<Seen> {
    let (vram, last) = (tool.vram(), (1 << bits) - 0x1000);
    let targets =
        [vram, vram + 0x1000, vram + (1 << 20), vram * 2, 1 << 32, 1 << (bits - 1), last - 0x1000, last];
    refused(tool, time, &targets.map(Target::Vram))
}

/// Row 9.
pub fn foreign_memory(tool: &mut dyn Tool, time: Time, bits: u32) -> Result<Seen> {
    let end = end_of_memory()?;
    let last = (1 << bits) - 0x1000;
    let mut targets: Vec<Target> =
        [end, end + 0x1000, end * 2, 1 << 33, 1 << (bits - 2), last].map(Target::Memory).to_vec();
    targets.extend([0, 1 << 20, 1 << (bits - 1)].map(Target::Peer));
    refused(tool, time, &targets)
}

/// Row 38: interrupt controllers, timer, the bus's own window, and what the GPU itself shows.
pub fn mmio(tool: &mut dyn Tool, time: Time, bits: u32) -> Result<Seen> {
    let mut targets = [0xfec0_0000, 0xfed0_0000, 0xfee0_0000, 0xb000_0000].map(Target::Memory).to_vec();
    for bar in [0, 1, 3] {
        targets.push(Target::Memory(tool.card().bar_address(bar)? & ((1 << bits) - 1)));
    }
    refused(tool, time, &targets)
}

/// Copies from and to each target until the time is over. Each must stop the channel with a fault at the
/// address.
fn refused(tool: &mut dyn Tool, time: Time, targets: &[Target]) -> Result<Seen> {
    let mut faults = 0u64;
    while time.goes_on() {
        for target in targets {
            for (to, from) in [(TO, HERE), (HERE, FROM)] {
                let raw = tool.entry(*target);
                tool.set(HERE, raw)?;
                tool.flush();
                match tool.copy_page(to, from) {
                    End::Fault(address) => {
                        ensure!(address & !0xfff == HERE, "the fault of {target:x?} names {address:#x}");
                    }
                    End::Lost => {
                        return Ok(Seen::new(
                            Outcome::Quarantined,
                            format!("the vGPU was taken away at {target:x?}"),
                        ));
                    }
                    end => bail!(
                        "a copy {} {target:x?} ended with {end:?}",
                        if from == HERE { "from" } else { "to" }
                    ),
                }
                ensure!(!has_mark(tool), "the victim's mark came from {target:x?}");
                tool.revive()?;
                faults += 1;
            }
        }
    }
    Ok(Seen::new(Outcome::Quarantined, format!("{faults} copies, each stopped its channel with a fault")))
}

/// Whether the victim's mark is where honest copies go.
pub fn has_mark(tool: &dyn Tool) -> bool {
    let [_, to] = tool.pages();
    let word = |at| tool.memory().load32(to, at);
    (0..0xff8).step_by(8).any(|at| [word(at), word(at + 4)] == VICTIM_MARK)
}

/// Row 11: an entry is rewritten by another processor while the space is flushed and used.
pub fn race(tool: &mut dyn Tool, time: Time) -> Result<Seen> {
    let (table, at) = tool.place(HERE)?;
    let [from, _] = tool.pages();
    let good = tool.entry(Target::Memory(from.physical));
    let vram = tool.vram();
    let bad =
        [Target::Vram(vram), Target::Memory(1 << 38), Target::Vram(1 << 38)].map(|target| tool.entry(target));
    tool.memory().fill(from, 0x0dd);
    let (mut done, mut stopped) = (0u64, 0u64);
    while time.goes_on() {
        // The other processor works on a copy of the handle: both see the one memory.
        let over = AtomicBool::new(false);
        let other = tool.memory().shared();
        let end = thread::scope(|scope| {
            let (over, bad) = (&over, &bad);
            scope.spawn(move || {
                let mut round = 0usize;
                while !over.load(Ordering::Relaxed) {
                    round += 1;
                    other.store64(table, at, bad.get(round % 3).copied().unwrap_or(0));
                    // Half of one, over half of the other.
                    other.store32(table, at, low(good));
                    other.store64(table, at, good);
                }
            });
            let mut end = End::Done;
            while time.goes_on() && end == End::Done {
                tool.flush();
                end = tool.copy_page(TO, HERE);
                done += u64::from(end == End::Done);
            }
            over.store(true, Ordering::Relaxed);
            end
        });
        ensure!(!has_mark(tool), "the victim's mark was copied");
        match end {
            End::Lost => return Ok(Seen::new(Outcome::Quarantined, "the vGPU was taken away")),
            End::Silent => bail!("a copy neither ended nor failed"),
            end => stopped += u64::from(end.stopped()),
        }
        tool.revive()?;
    }
    let outcome = if stopped > 0 { Outcome::Quarantined } else { Outcome::Values };
    Ok(Seen::new(outcome, format!("{done} copies of the page that was checked, {stopped} stopped")))
}

/// Row 12. Only reads: an entry that happens to name the guest's own memory is none of anybody's business.
pub fn garbage(tool: &mut dyn Tool, time: Time) -> Result<Seen> {
    let (table, at) = tool.place(HERE)?;
    let [from, _] = tool.pages();
    let good = tool.entry(Target::Memory(from.physical));
    let (memory, mut random) = (end_of_memory()?, Random::new(12));
    let (mut rounds, mut stopped) = (0u64, 0u64);
    while time.goes_on() {
        let raw = random.word64();
        if random.below(2) == 0 {
            tool.memory().store64(table, at, raw);
        } else {
            // Half of an entry, over half of a good one.
            tool.memory().store64(table, at, good);
            tool.memory().store32(table, at, low(raw));
        }
        tool.flush();
        let word = |at| u64::from(tool.memory().load32(table, at));
        let now = word(at) | word(at + 4) << 32;
        match tool.copy_page(TO, HERE) {
            End::Done => ensure!(tool.names_own(now, memory), "a copy through the entry {now:#x} was done"),
            End::Lost => return Ok(Seen::new(Outcome::Quarantined, "the vGPU was taken away")),
            End::Silent => bail!("a copy through the entry {now:#x} neither ended nor failed"),
            End::Fault(_) | End::Error => {
                stopped += 1;
                tool.revive()?;
            }
        }
        ensure!(!has_mark(tool), "the victim's mark came through {now:#x}");
        rounds += 1;
    }
    ensure!(stopped > 0, "none of {rounds} random entries stopped the channel");
    Ok(Seen::new(Outcome::Quarantined, format!("{rounds} entries, {stopped} stopped the channel")))
}

/// Row 37: the chipset's shadow registers give a range to memory, and take it away again.
pub fn taken(tool: &mut dyn Tool, time: Time) -> Result<Seen> {
    /// QEMU's q35: one register for 0xd0000 to 0xd7fff, 3 for each half gives it to memory.
    const BRIDGE: &str = "/sys/bus/pci/devices/0000:00:00.0/config";
    const REGISTER: u64 = 0x93;
    const RANGE: u64 = 0xd_0000;
    let bridge = File::options().read(true).write(true).open(BRIDGE).context("no host bridge")?;
    let (mut done, mut stopped) = (0u64, 0u64);
    while time.goes_on() {
        let over = AtomicBool::new(false);
        let end = thread::scope(|scope| {
            let (over, bridge) = (&over, &bridge);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    for value in [0x33, 0x00] {
                        let _ = bridge.write_all_at(&[value], REGISTER);
                        thread::sleep(Duration::from_millis(2));
                    }
                }
            });
            let mut end = Ok(End::Done);
            while time.goes_on() && matches!(end, Ok(End::Done)) {
                let raw = tool.entry(Target::Memory(RANGE));
                end = tool.set(HERE, raw).map(|()| {
                    tool.flush();
                    tool.copy_page(HERE, FROM)
                });
                done += u64::from(matches!(end, Ok(End::Done)));
            }
            over.store(true, Ordering::Relaxed);
            end
        })?;
        match end {
            End::Done => {}
            End::Fault(_) => stopped += 1,
            End::Lost => return Ok(Seen::new(Outcome::Quarantined, "the vGPU was taken away")),
            other => bail!("a copy into memory that comes and goes ended with {other:?}"),
        }
        tool.revive()?;
    }
    let _ = bridge.write_all_at(&[0x33], REGISTER);
    let outcome = if stopped > 0 { Outcome::Quarantined } else { Outcome::Values };
    Ok(Seen::new(
        outcome,
        format!("{done} copies while the range was there, {stopped} faults while it was not"),
    ))
}

/// Row 25: all VRAM by the copy engine, into memory, where the victim's mark is looked for.
pub fn residue(tool: &mut dyn Tool) -> Result<Seen> {
    /// Where VRAM and the buffer are mapped for it.
    const VRAM: u64 = 0x6000_0000;
    const BUFFER: u64 = 0x7000_0000;
    let buffer = tool.take(place(PIECE))?;
    tool.map(BUFFER, Target::Memory(buffer.physical), PIECE)?;
    let (mut marks, mut used, mut at) = (0u64, 0u64, 0);
    while at < tool.vram() {
        tool.map(VRAM, Target::Vram(at), PIECE)?;
        tool.flush();
        let end = tool.copy(BUFFER, VRAM, Lines { count: low(PIECE >> 12), pitch: 0x1000 }, HONEST);
        ensure!(end == End::Done, "copying the attacker's own VRAM ended with {end:?}");
        let (found, not_zero) = search(tool.memory(), buffer);
        marks += found;
        used += not_zero;
        at += PIECE;
    }
    ensure!(marks == 0, "{marks} marks of the victim in the attacker's VRAM");
    let text = format!("{} MiB searched, 0 marks of the victim, {used} words not zero", tool.vram() >> 20);
    Ok(Seen::new(Outcome::Values, text))
}

/// How often the victim's mark is in `piece`, and how many words are not zero.
fn search(memory: &DmaMemory, piece: Piece) -> (u64, u64) {
    let (mut marks, mut used, mut last) = (0, 0, 0);
    for at in (0..piece.size).step_by(4) {
        let word = memory.load32(piece, at);
        marks += u64::from([last, word] == VICTIM_MARK);
        used += u64::from(word != 0);
        last = word;
    }
    (marks, used)
}

/// Where the guest's memory ends.
fn end_of_memory() -> Result<u64> {
    let map = fs::read_to_string("/proc/iomem").context("cannot read the memory map")?;
    let ends = map
        .lines()
        .filter(|line| line.contains("System RAM"))
        .filter_map(|line| u64::from_str_radix(line.trim().split(['-', ' ']).nth(1)?, 16).ok());
    let last = ends.max().context("the memory map names no memory")?;
    // The firmware's tables lie behind it, in memory too.
    Ok((last + 1).next_multiple_of(64 << 20))
}
