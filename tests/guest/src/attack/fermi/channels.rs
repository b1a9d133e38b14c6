//! Rows 14 to 16, 18, 19 and 24: channels, rings, runlists and methods that must not be.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::channel::OBJECT;
use super::driver::{CHANNELS, GP_GET};
use super::space::{COVERED, Space, small_table, write_directory};
use super::{Engine, Rig};
use crate::attack::random::Random;
use crate::attack::tool::{End, FROM, HONEST, TO, Target, Tool};
use crate::attack::{Outcome, Seen, Stage, low};
use crate::push::{Commands, Subchannel, split};

/// How long a channel that must not run is waited for.
const SILENCE: Duration = Duration::from_millis(25);

/// Row 14.
pub fn foreign_instances(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let mut rig = Rig::new(stage, Engine::Graphics)?;
    let vram = rig.gpu.vram;
    let mut channel = rig.gpu.unbound_channel(&mut rig.space, 2, Engine::Graphics)?;
    let beyond = [(0x08, low(vram)), (0x08, 0xffff_f000), (0x0c, 0xff), (0x08, 0x10_0002), (0x08, 0x10_0001)];
    let rings =
        [(0x4c, 0xff | 31 << 16), (0x4c, 0xffff_ffff), (0x10, 0xdead_0000), (0x200, 1), (0x204, 0xff)];
    let mut tried = 0u64;
    while time.goes_on() {
        for (offset, word) in beyond.into_iter().chain(rings) {
            rig.gpu.write_block(&channel, &rig.space);
            rig.gpu.memory.store32(channel.block, offset, word);
            rig.gpu.install(&channel)?;
            never_runs(
                &mut rig,
                &mut channel,
                &format!("word {offset:#x} = {word:#x} of an instance block"),
            )?;
            tried += 1;
        }
        rig.gpu.write_block(&channel, &rig.space);
        let places = [
            Target::Vram(vram),
            Target::Vram((1 << 40) - 0x1000),
            Target::Memory(1 << 38),
            Target::Peer(0x1000),
            Target::Vram(vram - 0x1000),
        ];
        for place in places {
            rig.gpu.bind(2, place);
            rig.gpu.start(2);
            rig.gpu.runlist = vec![1, 2];
            rig.gpu.commit()?;
            never_runs(&mut rig, &mut channel, &format!("an instance block at {place:x?}"))?;
            tried += 1;
        }
        // Numbers beyond what this VM was granted, which other VMs' channels may have on hardware.
        for id in [32, 33, 64, 127] {
            let mut other = rig.gpu.unbound_channel(&mut rig.space, id, Engine::Graphics)?;
            rig.gpu.install(&other)?;
            never_runs(&mut rig, &mut other, &format!("channel {id}"))?;
            tried += 1;
        }
        // What was taken for them is of no use any more.
        if tried > 200 {
            break;
        }
    }
    let end = rig.copies_honestly(0x14);
    ensure!(end == End::Done, "the honest channel ended with {end:?}");
    Ok(Seen::new(Outcome::Refused, format!("{tried} channels, none of them ran")))
}

fn never_runs(rig: &mut Rig<'_>, channel: &mut super::Channel, what: &str) -> Result<()> {
    let end = rig.gpu.run(channel, &Commands::new(), SILENCE);
    ensure!(end != End::Done, "a channel ran with {what}");
    ensure!(end != End::Lost, "the vGPU was taken away for {what}");
    rig.gpu.acknowledge();
    rig.gpu.remove(channel.id)?;
    channel.rewind();
    Ok(())
}

/// Row 11: instance block and ring rewritten by another processor while the channel is made and works.
pub fn race(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let mut rig = Rig::new(stage, Engine::Graphics)?;
    let (mut done, mut stopped) = (0u64, 0u64);
    while time.goes_on() {
        let over = AtomicBool::new(false);
        let other = rig.gpu.memory.shared();
        let (block, ring) = (rig.channel.block, rig.channel.memory);
        let (good, bad) = (low(rig.gpu.userd(1)), low(rig.gpu.vram));
        let ends = thread::scope(|scope| {
            let over = &over;
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    // USERD beyond the partition, the page directory at another's, and an entry of nothing's.
                    other.store32(block, 0x08, bad);
                    other.store32(block, 0x204, 0xff);
                    other.store64(ring, 63 * 8, 0x30_0000_0000 | 1 << 42);
                    other.store32(block, 0x08, good);
                    other.store32(block, 0x204, 0);
                }
            });
            let mut ends = Vec::new();
            for _ in 0..16 {
                let end = rig.gpu.run(&mut rig.channel, &Commands::new(), SILENCE);
                ends.push(end);
                if end != End::Done {
                    break;
                }
            }
            over.store(true, Ordering::Relaxed);
            ends
        });
        if ends.contains(&End::Lost) {
            return Ok(Seen::new(Outcome::Quarantined, "the vGPU was taken away"));
        }
        done += ends.iter().filter(|end| **end == End::Done).count() as u64;
        stopped += ends.iter().filter(|end| end.stopped()).count() as u64;
        rig.revive()?;
    }
    let outcome = if stopped > 0 { Outcome::Quarantined } else { Outcome::Values };
    Ok(Seen::new(outcome, format!("{done} submissions by what was checked, {stopped} channels stopped")))
}

/// Row 15.
pub fn runlists(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let mut rig = Rig::new(stage, Engine::Graphics)?;
    let (vram, mut random, mut lists) = (rig.gpu.vram, Random::new(15), 0u64);
    while time.goes_on() {
        let duplicates: Vec<(u32, u32)> = vec![(1, 4); 256];
        let foreign: Vec<(u32, u32)> =
            (0..128).map(|id| (id, 4)).chain([(0xffff_ffff, 4), (0x1_0001, 4)]).collect();
        let mistyped: Vec<(u32, u32)> = (0..64).map(|_| (random.word(), random.word())).collect();
        let gpu = &rig.gpu;
        thread::scope(|scope| {
            // From two processors at once.
            scope.spawn(|| (0..32).for_each(|_| gpu.commit_raw(&foreign)));
            for _ in 0..8 {
                gpu.commit_raw(&duplicates);
                gpu.commit_raw(&mistyped);
            }
        });
        for (place, count) in [
            (Target::Vram(vram), 128),
            (Target::Memory(1 << 38), 0xffff),
            (Target::Peer(0), 1),
            (Target::Vram((1 << 40) - 0x1000), 0xffff),
            (Target::Vram(0), 0xffff),
        ] {
            rig.gpu.commit_at(place, count);
        }
        lists += 53;
        // The honest list is taken, and its channel runs.
        rig.gpu.commit()?;
        match rig.copies_honestly(0x15) {
            End::Done => {}
            end => bail!("the honest channel ended with {end:?} after hostile runlists"),
        }
    }
    Ok(Seen::new(Outcome::Refused, format!("{lists} lists; foreign entries dropped, the honest channel ran")))
}

/// Row 16.
pub fn rings(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let mut rig = Rig::new(stage, Engine::Graphics)?;
    let (mut tried, mut stopped) = (0u64, 0u64);
    while time.goes_on() {
        let push = rig.channel.va + 0x1000;
        // No length, all of the length, an address that is not mapped, one beyond 40 bits, every bit.
        let entries =
            [push, push | 0x1f_ffff << 42, 0x30_0000_0000 | 4 << 42, 0xff_ffff_fffc | 1 << 42, u64::MAX, 0];
        for entry in entries {
            rig.gpu.submit_entry(&mut rig.channel, entry);
            stopped += u64::from(after_abuse(&mut rig)?);
            tried += 1;
        }
        for put in [64, 65, 0xffff, u32::MAX] {
            rig.gpu.ring(1, put);
            stopped += u64::from(after_abuse(&mut rig)?);
            tried += 1;
        }
        for id in 0..CHANNELS {
            // Doorbells without work, and without a channel.
            rig.gpu.ring(id, 0);
        }
    }
    ensure!(stopped > 0, "none of {tried} abused rings stopped the channel");
    Ok(Seen::new(Outcome::Quarantined, format!("{tried} abused rings, {stopped} stopped the channel")))
}

/// Whether the channel was stopped; it is usable afterwards either way.
fn after_abuse(rig: &mut Rig<'_>) -> Result<bool> {
    let end = rig.gpu.run(&mut rig.channel, &Commands::new(), Duration::from_millis(50));
    ensure!(end != End::Lost, "the vGPU was taken away");
    rig.revive()?;
    Ok(matches!(end, End::Fault(_) | End::Error))
}

/// Row 18.
pub fn illegal_methods(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let mut tried = 0u64;
    for engine in [Engine::Graphics, Engine::Copy(1)].into_iter().cycle() {
        if !time.goes_on() {
            break;
        }
        let mut rig = Rig::new(stage, engine)?;
        for (what, commands) in abuses(engine) {
            let end = rig.gpu.run(&mut rig.channel, &commands, Duration::from_secs(2));
            ensure!(end != End::Done, "{what} on {engine:?} was carried out");
            ensure!(end != End::Lost, "the vGPU was taken away for {what}");
            ensure!(end != End::Silent, "{what} on {engine:?} was neither carried out nor refused");
            rig.revive()?;
            tried += 1;
        }
    }
    Ok(Seen::new(Outcome::Quarantined, format!("{tried} illegal commands, each stopped its channel")))
}

fn abuses(engine: Engine) -> Vec<(&'static str, Commands)> {
    let one = |subchannel: u32, method: u32, data: &[u32]| {
        let mut commands = Commands::new();
        commands.methods(Subchannel(subchannel), method, data);
        commands
    };
    let raw = |words: &[u32]| {
        let mut commands = Commands::new();
        commands.raw(words);
        commands
    };
    let mut software = one(3, 0, &[0x506e | 0x1f << 16]);
    software.methods(Subchannel(3), 0x100, &[0]);
    let mut abuses = vec![
        ("a method that no class has", one(0, 0x1ffc, &[0xdead_beef])),
        ("the host's illegal method", one(0, 0x04, &[0])),
        ("a class that does not exist", one(0, 0, &[0x0000_ffff])),
        ("an engine that does not exist", one(0, 0, &[0x9039 | 9 << 16])),
        ("a method of a software class", software),
        ("a semaphore operation that does not exist", one(0, 0x10, &[0, 0, 0, 0xf])),
        ("a header of no known form", raw(&[0x4000_0000 | 6 << 29, 0, 0])),
        ("a checksum that is wrong", one(0, 0x7c, &[0x1234])),
    ];
    if engine != Engine::Graphics {
        // For the graphics engine's copier one of the bits means data in the commands, of which there are
        // none.
        abuses.push(("a copy launched with every bit", one(0, 0x300, &[0xffff_ffff])));
    }
    abuses
}

/// Row 19.
pub fn endless_acquire(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let mut rig = Rig::new(stage, Engine::Graphics)?;
    let mut second = rig.gpu.channel(&mut rig.space, 2, Engine::Graphics)?;
    let acquire = |address: u64| {
        let [high, low] = split(address);
        let mut commands = Commands::new();
        // Held while the engine is the channel's: a copy first, then a wait for a value that never comes.
        commands.extend(&Engine::Graphics.copy(TO, FROM, 0x1000, [0x1000, 1]));
        commands.methods(OBJECT, 0x10, &[high, low, 0xdead, 1]);
        commands
    };
    let (mut waits, mut stopped) = (0u64, 0u64);
    while time.goes_on() {
        // Each waits for what the other would release behind its own wait.
        for (channel, place) in [(&mut rig.channel, TO + 0x800), (&mut second, TO + 0x810)] {
            let commands = rig.gpu.fenced(channel, &acquire(place));
            rig.gpu.submit(channel, &commands);
            waits += 1;
        }
        let limit = Duration::from_millis(500);
        for channel in [&rig.channel, &second] {
            match rig.gpu.end(channel, limit) {
                End::Done => bail!("a wait for a value that nobody writes was over"),
                End::Lost => return Ok(Seen::new(Outcome::Quarantined, "the vGPU was taken away")),
                End::Silent => {}
                _ => stopped += 1,
            }
        }
        rig.revive()?;
        rig.gpu.revive(&mut second, &rig.space)?;
    }
    let outcome = if stopped > 0 { Outcome::Quarantined } else { Outcome::Limited };
    Ok(Seen::new(
        outcome,
        format!("{waits} endless waits, {stopped} stopped by the host unit, all taken away again"),
    ))
}

/// Row 24.
pub fn exhaustion(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let mut rig = Rig::new(stage, Engine::Graphics)?;
    rig.gpu.remove(1)?;
    let mut channels = Vec::new();
    let table = rig.space.table(rig.gpu.memory, rig.channel.va)?;
    let index = rig.channel.va / COVERED;
    for id in 0..CHANNELS {
        // An address space for each, all with the one table; and the one ring, which need not be run to its
        // end.
        let block = rig.gpu.memory.take(0x1000, 0x1000)?;
        let space = Space::new(rig.gpu.memory)?;
        space.set_directory(rig.gpu.memory, index, small_table(Target::Memory(table.physical)));
        let channel = rig.channel.twin(id, block);
        rig.gpu.write_block(&channel, &space);
        write_directory(rig.gpu.memory, block, Target::Memory(space.directory.physical));
        rig.gpu.flush(&space);
        channels.push(channel);
    }
    // An entry without commands: fetched, and nothing done.
    let empty = (rig.channel.va + 0x1000) | 1 << 42;
    rig.gpu.memory.store32(rig.channel.memory, 0x1000, 0);
    rig.gpu.memory.store64(rig.channel.memory, 0, empty);
    let mut most = 0;
    // Once at least, and until some have run: making them all takes long on a busy machine.
    let start = Instant::now();
    while time.goes_on() || (most == 0 && start.elapsed() < HONEST) {
        for channel in &channels {
            rig.gpu.bind(channel.id, Target::Memory(channel.block.physical));
            rig.gpu.start(channel.id);
        }
        rig.gpu.runlist = (0..CHANNELS).collect();
        if rig.gpu.is_lost() {
            return Ok(Seen::new(
                Outcome::Quarantined,
                "the vGPU was taken away when its page tables exceeded its quota",
            ));
        }
        rig.gpu.commit()?;
        (0..CHANNELS).for_each(|id| rig.gpu.ring(id, 1));
        thread::sleep(Duration::from_millis(100));
        let ran = (0..CHANNELS).filter(|id| rig.gpu.get_userd(*id, GP_GET) == 1).count();
        most = most.max(ran);
        for id in 0..CHANNELS {
            rig.gpu.stop(id);
            rig.gpu.unbind(id);
            rig.gpu.set_userd(id, GP_GET, 0);
        }
    }
    ensure!(most > 0, "not even the granted channels ran");
    ensure!(most < usize::from(CHANNELS), "all {CHANNELS} channels of the chip ran");
    Ok(Seen::new(Outcome::Refused, format!("{most} of {CHANNELS} channels ran, the others did not")))
}
