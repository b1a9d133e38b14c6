//! Rows 8 to 13, 37 and 38: page tables that name what is not the guest's, or that no walk gets to the end of.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use gpuvmk_attacks::VICTIM_MARK;

use super::channel::End;
use super::driver::Target;
use super::space::{COVERED, DIRECTORY, TABLE, entry, slot, small_table};
use super::{Engine, FROM, HONEST, Rig, TO};
use crate::attack::random::Random;
use crate::attack::{Outcome, Seen, Stage, low, place};

/// Where forbidden entries are put.
const HERE: u64 = 0x20_0000_0000;
/// The longest that the flush of a hostile space may stop the processor that asks for it.
const FLUSH_LIMIT: Duration = Duration::from_secs(3);

/// Row 8.
pub fn foreign_vram(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let mut rig = Rig::new(stage, Engine::Graphics)?;
    let vram = rig.gpu.vram;
    let last = (1 << 40) - 0x1000;
    let targets = [vram, vram + 0x1000, vram + (1 << 20), vram * 2, 1 << 32, 1 << 39, last - 0x1000, last]
        .map(Target::Vram);
    refused(&mut rig, time, &targets)
}

/// Row 9.
pub fn foreign_memory(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let own = [0usize, 1].map(|bar| stage.card.bar_address(bar));
    let mut rig = Rig::new(stage, Engine::Graphics)?;
    let end = end_of_memory()?;
    let mut targets: Vec<Target> =
        [end, end + 0x1000, end * 2, 1 << 33, 1 << 38, (1 << 40) - 0x1000].map(Target::Memory).to_vec();
    for bar in own {
        targets.push(Target::Memory(bar? & ((1 << 40) - 1)));
    }
    targets.extend([0, 1 << 20, 1 << 39].map(Target::Peer));
    refused(&mut rig, time, &targets)
}

/// Row 38.
pub fn mmio(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let bars = [0usize, 1, 3].map(|bar| stage.card.bar_address(bar));
    let mut rig = Rig::new(stage, Engine::Graphics)?;
    // Interrupt controllers, timer, and what the GPU itself shows.
    let mut targets = [0xfec0_0000, 0xfed0_0000, 0xfee0_0000, 0xb000_0000].map(Target::Memory).to_vec();
    for bar in bars {
        targets.push(Target::Memory(bar? & ((1 << 40) - 1)));
    }
    refused(&mut rig, time, &targets)
}

/// Copies from and to each target until the time is over. Each must stop the channel with a fault at the address.
fn refused(rig: &mut Rig<'_>, time: crate::attack::Time, targets: &[Target]) -> Result<Seen> {
    let mut faults = 0u64;
    while time.goes_on() {
        for target in targets {
            for (to, from) in [(TO, HERE), (HERE, FROM)] {
                rig.space.set(rig.gpu.memory, HERE, entry(*target))?;
                rig.gpu.flush(&rig.space);
                match rig.copies(to, from, HONEST) {
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
                ensure!(!has_mark(rig), "the victim's mark came from {target:x?}");
                rig.revive()?;
                faults += 1;
            }
        }
    }
    Ok(Seen::new(Outcome::Quarantined, format!("{faults} copies, each stopped its channel with a fault")))
}

fn has_mark(rig: &Rig<'_>) -> bool {
    let word = |at| rig.gpu.memory.load32(rig.to, at);
    (0..0xff8).step_by(8).any(|at| [word(at), word(at + 4)] == VICTIM_MARK)
}

/// Row 10.
pub fn loops(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let mut rig = Rig::new(stage, Engine::Graphics)?;
    let (mut rounds, mut stopped, mut slowest) = (0u64, 0u64, Duration::ZERO);
    while time.goes_on() {
        let directory = rig.space.directory.physical;
        let own = rig.space.table(rig.gpu.memory, TO)?.physical;
        // What a directory entry at HERE may say: the directory as a table, by small and by large pages; a table as the
        // directory's table; VRAM beyond the partition; a table that begins at the end of memory.
        let large = |target: u64, address: u64| target | address >> 8 & 0xffff_fff0;
        let entries = [
            small_table(Target::Memory(directory)),
            large(3, directory),
            large(2, own) | small_table(Target::Memory(directory)),
            small_table(Target::Vram(rig.gpu.vram - 0x1000)),
            small_table(Target::Vram(rig.gpu.vram)),
            small_table(Target::Memory((1 << 40) - 0x1000)),
            u64::MAX,
        ];
        for raw in entries {
            rig.space.set_directory(rig.gpu.memory, HERE / COVERED, raw);
            slowest = slowest.max(timed_flush(&rig)?);
            match rig.copies(TO, HERE, HONEST) {
                End::Done => {}
                End::Lost => return Ok(Seen::new(Outcome::Quarantined, "the vGPU was taken away")),
                End::Silent => bail!("a copy through {raw:#x} neither ended nor failed"),
                _ => {
                    stopped += 1;
                    rig.space.set_directory(rig.gpu.memory, HERE / COVERED, 0);
                    rig.revive()?;
                }
            }
            rounds += 1;
        }
    }
    ensure!(stopped > 0, "none of {rounds} hostile directories stopped the channel");
    let text = format!(
        "{rounds} directories, {stopped} stopped the channel; slowest flush {} ms",
        slowest.as_millis()
    );
    Ok(Seen::new(Outcome::Quarantined, text))
}

fn timed_flush(rig: &Rig<'_>) -> Result<Duration> {
    let start = Instant::now();
    rig.gpu.flush(&rig.space);
    // A read comes back when what was written before has taken effect.
    rig.gpu.card.reg(super::regs::PFB_MMU_CTRL);
    let took = start.elapsed();
    ensure!(took < FLUSH_LIMIT, "a flush took {took:?}");
    Ok(took)
}

/// Row 11.
pub fn race(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let mut rig = Rig::new(stage, Engine::Graphics)?;
    let table = rig.space.table(rig.gpu.memory, HERE)?;
    let good = entry(Target::Memory(rig.from.physical));
    let bad =
        [entry(Target::Vram(rig.gpu.vram)), entry(Target::Memory(1 << 38)), entry(Target::Vram(1 << 38))];
    let vram = rig.gpu.vram;
    rig.gpu.memory.fill(rig.from, 0x0dd);
    let (mut done, mut stopped) = (0u64, 0u64);
    while time.goes_on() {
        let over = AtomicBool::new(false);
        let end = thread::scope(|scope| {
            let (memory, block, ring) = (&*rig.gpu.memory, rig.channel.block, rig.channel.memory);
            let (over, bad) = (&over, &bad);
            scope.spawn(move || {
                let mut round = 0usize;
                while !over.load(Ordering::Relaxed) {
                    round += 1;
                    memory.store64(table, slot(HERE), bad.get(round % 3).copied().unwrap_or(0));
                    memory.store32(block, 0x08, 0xffff_f000);
                    // The ring's first entry, which is fetched next time round, and one that is fetched now.
                    memory.store64(ring, 63 * 8, vram << 2 | 1 << 42);
                    memory.store64(table, slot(HERE), good);
                    memory.store32(block, 0x08, 0);
                }
            });
            let work = Engine::Graphics.copy(TO, HERE, 0x1000, [0x1000, 1]);
            let mut end = End::Done;
            while time.goes_on() && end == End::Done {
                rig.gpu.flush(&rig.space);
                end = rig.gpu.run(&mut rig.channel, &work, HONEST);
                done += u64::from(end == End::Done);
            }
            over.store(true, Ordering::Relaxed);
            end
        });
        ensure!(!has_mark(&rig), "the victim's mark was copied");
        if end == End::Lost {
            return Ok(Seen::new(Outcome::Quarantined, "the vGPU was taken away"));
        }
        stopped += u64::from(end != End::Done);
        rig.revive()?;
    }
    let outcome = if stopped > 0 { Outcome::Quarantined } else { Outcome::Values };
    Ok(Seen::new(outcome, format!("{done} copies of the page that was checked, {stopped} stopped")))
}

/// Row 12. Only reads: an entry that happens to name the guest's own memory is none of anybody's business.
pub fn garbage(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let mut rig = Rig::new(stage, Engine::Graphics)?;
    let table = rig.space.table(rig.gpu.memory, HERE)?;
    let (vram, memory, mut random) = (rig.gpu.vram, end_of_memory()?, Random::new(12));
    let (mut rounds, mut stopped) = (0u64, 0u64);
    while time.goes_on() {
        let raw = random.word64();
        if random.below(2) == 0 {
            rig.gpu.memory.store64(table, slot(HERE), raw);
        } else {
            // Half of an entry, over half of a good one.
            rig.gpu.memory.store64(table, slot(HERE), entry(Target::Memory(rig.from.physical)));
            rig.gpu.memory.store32(table, slot(HERE), low(raw));
        }
        rig.gpu.flush(&rig.space);
        let now = u64::from(rig.gpu.memory.load32(table, slot(HERE)))
            | u64::from(rig.gpu.memory.load32(table, slot(HERE) + 4)) << 32;
        let address = (now & 0xffff_fff0) << 8;
        let own = now & 1 != 0 && if now >> 33 & 3 == 0 { address < vram } else { address < memory };
        match rig.copies(TO, HERE, HONEST) {
            End::Done => ensure!(own, "a copy through the entry {now:#x} was done"),
            End::Lost => return Ok(Seen::new(Outcome::Quarantined, "the vGPU was taken away")),
            End::Silent => bail!("a copy through the entry {now:#x} neither ended nor failed"),
            _ => {
                stopped += 1;
                rig.revive()?;
            }
        }
        ensure!(!has_mark(&rig), "the victim's mark came through {now:#x}");
        rounds += 1;
    }
    ensure!(stopped > 0, "none of {rounds} random entries stopped the channel");
    Ok(Seen::new(Outcome::Quarantined, format!("{rounds} entries, {stopped} stopped the channel")))
}

/// Row 13: the whole address range, by as many tables as there is memory for, each named over and over.
pub fn flood(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let mut rig = Rig::new(stage, Engine::Graphics)?;
    let mut tables = Vec::new();
    for _ in 0..32 {
        let table = rig.gpu.memory.take(TABLE, 0x1000)?;
        for at in (0..TABLE).step_by(8) {
            rig.gpu.memory.store64(table, at, entry(Target::Memory(rig.from.physical)));
        }
        tables.push(small_table(Target::Memory(table.physical)));
    }
    let (mut named, mut slowest) = (0u64, Duration::ZERO);
    for index in (HERE / COVERED..DIRECTORY as u64 / 8).step_by(256) {
        for entry in index..index + 256 {
            let table = tables.get(place(entry % 32)).copied().unwrap_or(0);
            rig.space.set_directory(rig.gpu.memory, entry, table);
        }
        named += 256;
        slowest = slowest.max(timed_flush(&rig)?);
        if rig.gpu.is_lost() {
            let text = format!(
                "the vGPU was taken away after {named} tables; slowest flush {} ms",
                slowest.as_millis()
            );
            return Ok(Seen::new(Outcome::Quarantined, text));
        }
        if !time.goes_on() {
            break;
        }
    }
    let end = rig.copies_page(1);
    let text =
        format!("{named} tables, then a copy ended with {end:?}; slowest flush {} ms", slowest.as_millis());
    Ok(Seen::new(if end == End::Done { Outcome::Limited } else { end.outcome() }, text))
}

/// Row 37: the chipset's shadow registers give a range to memory, and take it away again.
pub fn memory_taken(stage: &mut Stage) -> Result<Seen> {
    /// QEMU's q35: one register for 0xd0000 to 0xd7fff, 3 for each half gives it to memory.
    const BRIDGE: &str = "/sys/bus/pci/devices/0000:00:00.0/config";
    const REGISTER: u64 = 0x93;
    const RANGE: u64 = 0xd_0000;
    let time = stage.time;
    let bridge = File::options().read(true).write(true).open(BRIDGE).context("no host bridge")?;
    let mut rig = Rig::new(stage, Engine::Graphics)?;
    let (mut done, mut stopped) = (0u64, 0u64);
    while time.goes_on() {
        let over = AtomicBool::new(false);
        let end = thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    for value in [0x33, 0x00] {
                        let _ = bridge.write_all_at(&[value], REGISTER);
                        thread::sleep(Duration::from_millis(2));
                    }
                }
            });
            let mut end = End::Done;
            while time.goes_on() && end == End::Done {
                rig.space.set(rig.gpu.memory, HERE, entry(Target::Memory(RANGE))).ok();
                rig.gpu.flush(&rig.space);
                end = rig.copies(HERE, FROM, HONEST);
                done += u64::from(end == End::Done);
            }
            over.store(true, Ordering::Relaxed);
            end
        });
        match end {
            End::Done => {}
            End::Fault(_) => stopped += 1,
            End::Lost => return Ok(Seen::new(Outcome::Quarantined, "the vGPU was taken away")),
            other => bail!("a copy into memory that comes and goes ended with {other:?}"),
        }
        rig.revive()?;
    }
    let _ = bridge.write_all_at(&[0x33], REGISTER);
    let outcome = if stopped > 0 { Outcome::Quarantined } else { Outcome::Values };
    Ok(Seen::new(
        outcome,
        format!("{done} copies while the range was there, {stopped} faults while it was not"),
    ))
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
