//! Channels that a driver marks as its kernel's, abused: work without an end, page tables that change while
//! they are read, as many as there may be, doorbells without a pause.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::Rig;
use super::driver::{CHANNEL, COPY, DEVICE, DOORBELL, HOST, RUNLIST, SPACE, copy, ensure_ok};
use super::nvidia::{
    self, Pushbuffer, invalidation, make, make_here, parameters, ring, semaphore, was_stopped,
};
use super::space::Space;
use crate::attack::memory::has_mark;
use crate::attack::place;
use crate::attack::random::Random;
use crate::attack::tool::{End, FROM, TO, Target, Tool};
use crate::attack::work::{by_two, limited};
use crate::attack::{Outcome, Seen, Stage};
use crate::dma_memory::Piece;
use crate::push::{Commands, split};

/// Where pushbuffers are in their spaces.
const PUSHES: u64 = 0x2_0000_0000;
const MORE_PUSHES: u64 = 0x2_4000_0000;
/// Channel numbers of the kernel's; the user's is below.
const FIRST: u16 = 8;
const SECOND: u16 = 9;
/// All numbers that channels of a runlist can have.
const NUMBERS: u16 = 2048;
/// The longest that a doorbell may keep the processor that rings.
const DOORBELL_LIMIT: Duration = Duration::from_secs(1);
/// How long work may take that goes on by itself.
const PATIENCE: Duration = Duration::from_secs(10);
/// A semaphore's operations: it is written, it is waited for.
const RELEASE: u32 = 1;
const ACQUIRE: u32 = 0;
/// Places in the page that copies go to: what is waited for, what says that work is done.
const AWAITED: u64 = 0x800;
const DONE: u64 = 0x810;
/// A launch of a copy in plain lines, and what a fill of physical memory has beside it.
const LAUNCH: u32 = 0x386;
const ZEROES_PHYSICAL: u32 = 1 << 23 | 1 << 13;
/// Another address space, whose tables are rewritten.
const REWRITTEN: u32 = SPACE + 1;
/// The status of a channel too many.
const NO_FREE_FIFOS: u32 = 0x4f;

/// What channels are told that never end.
fn endless_works() -> Vec<(&'static str, Commands)> {
    let lines = |pitch: u32, length: u32, count: u32| {
        let ([to_high, to_low], [from_high, from_low]) = (split(TO), split(PUSHES));
        let mut commands = Commands::new();
        commands.methods(COPY, 0x400, &[from_high, from_low, to_high, to_low, pitch, 0, length, count]);
        commands.methods(COPY, 0x300, &[LAUNCH]);
        commands
    };
    let mut nothing = Commands::new();
    nothing.methods(HOST, 0x08, &[0]);
    let mut zeroes = Commands::new();
    zeroes.methods(COPY, 0x264, &[0]);
    zeroes.methods(COPY, 0x408, &[0, 0x100_0000, 0, 0, 0x200_0000, 1]);
    zeroes.methods(COPY, 0x300, &[LAUNCH | ZEROES_PHYSICAL]);
    let mut notifications = Commands::new();
    notifications.methods(HOST, 0x20, &[0]);
    vec![
        ("nothing", nothing),
        ("copies of 16 TiB", copy(TO, FROM, 0, u32::MAX)),
        ("lines of a byte", lines(0, 1, u32::MAX)),
        ("lines far apart", lines(0x1_1000, 1, 120)),
        ("zeroes in VRAM", zeroes),
        ("semaphores", semaphore(TO + DONE, 1, RELEASE | 1 << 25)),
        ("notifications", notifications),
        ("invalidations", invalidation()),
    ]
}

/// Rings that are full, of segments as long as can be, and what in them takes longest.
pub fn endless(stage: &mut Stage) -> Result<Seen> {
    let (mut rig, time) = nvidia::timed(stage)?;
    let first = Pushbuffer::endless(rig.gpu.memory, &mut rig.space, PUSHES)?;
    let second = Pushbuffer::endless(rig.gpu.memory, &mut rig.space, MORE_PUSHES)?;
    let (mut begun, mut slowest) = (0u64, (Duration::ZERO, ""));
    let mut note = |took: Duration, what: &'static str| -> Result<()> {
        ensure!(took < DOORBELL_LIMIT, "a doorbell for {what} took {took:?}");
        slowest = slowest.max((took, what));
        Ok(())
    };
    while time.goes_on() || begun == 0 {
        for (what, commands) in endless_works() {
            if !time.goes_on() && begun > 1 {
                break;
            }
            first.fill(rig.gpu.memory, &commands, 0x1f_ffff);
            ensure_ok(make_here(&mut rig.gpu, FIRST, &first)?, "no channel of the kernel's")?;
            for put in [first.last(), first.last(), 1, first.last()] {
                note(ring(&rig.gpu, FIRST, put), what)?;
            }
            // Messages are answered meanwhile, and other channels work.
            let start = Instant::now();
            rig.gpu.control(DEVICE, 0x2080_ffff, &[])?;
            note(start.elapsed(), what)?;
            end_beside(&mut rig, FIRST, what)?;
            begun += 1;
        }
        take_turns(&mut rig, [&first, &second])?;
        begun += 2;
    }
    ends_by_itself(&mut rig, &first)?;
    let text = format!(
        "{begun} pushbuffers without an end, slowest doorbell {} ms ({}), what ends went on by itself",
        slowest.0.as_millis(),
        slowest.1
    );
    Ok(limited(&rig, text))
}

/// Takes a channel of the kernel's away that works, after a copy of a user's beside it.
fn end_beside(rig: &mut Rig<'_>, id: u16, what: &str) -> Result<()> {
    ensure!(!was_stopped(&mut rig.gpu, id), "{what}: the channel was stopped");
    rig.gpu.free(CHANNEL + u32::from(id))?;
    let end = rig.copies_honestly(0x19);
    ensure!(end == End::Done, "an honest copy beside {what} ended with {end:?}");
    Ok(())
}

/// Two channels that wait for each other, again and again, and one that waits for what never comes.
fn take_turns(rig: &mut Rig<'_>, [first, second]: [&Pushbuffer; 2]) -> Result<()> {
    let [_, to] = rig.pages();
    for (id, push, mine) in [(FIRST, first, 0), (SECOND, second, 1)] {
        let mut commands = semaphore(TO + AWAITED, mine, ACQUIRE);
        commands.extend(&semaphore(TO + AWAITED, 1 - mine, RELEASE));
        push.fill(rig.gpu.memory, &commands, 0x400);
        ensure_ok(make_here(&mut rig.gpu, id, push)?, "no channel of the kernel's")?;
    }
    for never in [false, true] {
        rig.gpu.memory.store32(to, place(AWAITED), if never { 2 } else { 0 });
        for (id, push) in [(FIRST, first), (SECOND, second)] {
            let took = ring(&rig.gpu, id, push.last());
            ensure!(took < DOORBELL_LIMIT, "a doorbell for waits took {took:?}");
        }
    }
    for id in [FIRST, SECOND] {
        end_beside(rig, id, "waits")?;
    }
    Ok(())
}

/// Work that takes longer than a doorbell may, and a wait that a processor ends, without another doorbell.
fn ends_by_itself(rig: &mut Rig<'_>, push: &Pushbuffer) -> Result<()> {
    const LINES: u32 = 0x1_0000;
    let [_, to] = rig.pages();
    let mut commands = copy(TO, FROM, 0, LINES);
    commands.extend(&semaphore(TO + AWAITED, 7, ACQUIRE));
    commands.extend(&semaphore(TO + DONE, 9, RELEASE));
    push.write(rig.gpu.memory, &commands);
    rig.gpu.memory.store32(to, place(DONE), 0);
    ensure_ok(make_here(&mut rig.gpu, FIRST, push)?, "no channel of the kernel's")?;
    rig.gpu.ring(FIRST, 1);
    let start = Instant::now();
    while rig.gpu.memory.load32(to, place(DONE)) != 9 {
        ensure!(start.elapsed() < PATIENCE, "work did not go on by itself");
        // The copy writes over it, until it is done.
        rig.gpu.memory.store32(to, place(AWAITED), 7);
        thread::sleep(Duration::from_millis(1));
    }
    end_beside(rig, FIRST, "what went on by itself")
}

/// Page tables that another processor rewrites while a channel's commands, ring and data are found by them.
pub fn tables_change(stage: &mut Stage) -> Result<Seen> {
    let (mut rig, time) = nvidia::timed(stage)?;
    let mut space = Space::new(rig.gpu.memory, rig.gpu.generation.format)?;
    let push = Pushbuffer::new(rig.gpu.memory, &mut space, PUSHES)?;
    let [from, to] = rig.pages();
    for (va, page) in [(FROM, from), (TO, to)] {
        space.map(rig.gpu.memory, va, Target::Memory(page.physical), 0x1000)?;
    }
    let status = rig.gpu.open_space(REWRITTEN, Target::Memory(space.root.physical))?;
    ensure_ok(status, "no second address space")?;
    let outside = outside(&mut rig, &mut space, &push)?;

    let mut commands = copy(TO, FROM, 0x1000, 1);
    commands.extend(&invalidation());
    push.fill(rig.gpu.memory, &commands, 0x100);
    let (mut rings, mut stopped) = (0u64, 0u64);
    while time.goes_on() || rings == 0 {
        let level = usize::try_from(rings % 6)?;
        let entries = entries_of(&rig, &space, level);
        let over = AtomicBool::new(false);
        let other = rig.gpu.memory.shared();
        let vram = rig.gpu.vram;
        let bad = [Target::Vram(vram), Target::Vram(1 << 38), Target::Memory(1 << 38), Target::Peer(0)];
        let format = space.format;
        let root = Target::Memory(space.root.physical);
        let outcome = thread::scope(|scope| {
            let (over, entries) = (&over, &entries);
            scope.spawn(move || {
                let mut random = Random::new(level as u64);
                while !over.load(Ordering::Relaxed) {
                    for (table, at, good) in entries {
                        // Nowhere, the root again, halves of two, anything.
                        for target in bad {
                            other.store64(*table, *at, format.entry(target));
                            other.store64(*table, *at, format.directory_entry(target));
                        }
                        other.store64(*table, *at, format.directory_entry(root));
                        other.store32(*table, *at, random.word());
                        other.store64(*table, *at, random.word64());
                        other.store64(*table, *at, *good);
                    }
                }
                entries.iter().for_each(|(table, at, good)| other.store64(*table, *at, *good));
            });
            let outcome = ring_for_a_while(&mut rig, &push);
            over.store(true, Ordering::Relaxed);
            outcome
        });
        let (more_rings, was_stopped) = outcome?;
        rings += more_rings;
        stopped += u64::from(was_stopped);
        ensure!(!has_mark(&rig), "the victim's mark was copied");
    }
    let end = rig.copies_honestly(0x11);
    ensure!(end == End::Done, "an honest copy afterwards ended with {end:?}");
    let text = format!(
        "{outside} accesses to nowhere stopped their channels; {rings} doorbells, {stopped} stopped theirs"
    );
    Ok(Seen::new(Outcome::Quarantined, text))
}

/// Rings for a fresh channel until it is stopped or has been rung for often: how often, and whether it was
/// stopped.
fn ring_for_a_while(rig: &mut Rig<'_>, push: &Pushbuffer) -> Result<(u64, bool)> {
    const OFTEN: u64 = 61;
    ensure_ok(make(&mut rig.gpu, FIRST, push, REWRITTEN)?, "no channel of the kernel's")?;
    let mut rings = 0;
    let mut stopped = false;
    while rings < OFTEN && !stopped {
        rings += 1;
        let took = ring(&rig.gpu, FIRST, u32::try_from(rings)?);
        ensure!(took < DOORBELL_LIMIT, "a doorbell under rewritten page tables took {took:?}");
        stopped = was_stopped(&mut rig.gpu, FIRST);
    }
    rig.gpu.free(CHANNEL + u32::from(FIRST))?;
    Ok((rings, stopped))
}

/// The entries of a level that a channel's ring, commands and data are found by; where they are, and what
/// they say. Level 5 has the pages.
fn entries_of(rig: &Rig<'_>, space: &Space, level: usize) -> Vec<(Piece, usize, u64)> {
    let place = |va| space.place_of(level, va);
    let word = |table, at| u64::from(rig.gpu.memory.load32(table, at));
    let entry = |(table, at)| (table, at, word(table, at) | word(table, at + 4) << 32);
    [PUSHES, PUSHES + 0x40_0000, FROM, TO].into_iter().filter_map(place).map(entry).collect()
}

/// Copies from and to what is not the guest's, by entries and by physical addresses: how many there were.
/// Each stops its channel.
fn outside(rig: &mut Rig<'_>, space: &mut Space, push: &Pushbuffer) -> Result<u64> {
    const HERE: u64 = 0x20_0000_0000;
    let vram = rig.gpu.vram;
    let nowhere = [
        Target::Vram(vram),
        Target::Vram(vram * 2),
        Target::Vram(1 << 51),
        Target::Memory(1 << 38),
        Target::Memory(0xfee0_0000),
        Target::Peer(0),
    ];
    let mut works = Vec::new();
    for (number, target) in nowhere.into_iter().enumerate() {
        let here = HERE + number as u64 * 0x1000;
        space.map(rig.gpu.memory, here, target, 0x1000)?;
        works.extend([copy(TO, here, 0x1000, 1), copy(here, FROM, 0x1000, 1)]);
        // A page's last bytes, and what is behind them.
        let (mode, address) = match target {
            Target::Vram(address) => (0, address - 4),
            Target::Memory(address) => (1, address),
            Target::Peer(address) => (3, address),
        };
        for (phys_mode, is_physical) in [(0x260, 1 << 12), (0x264, 1 << 13)] {
            let [high, low] = split(address);
            let place = if phys_mode == 0x260 { 0x400 } else { 0x408 };
            let mut commands = Commands::new();
            let ([to_high, to_low], [from_high, from_low]) = (split(TO), split(FROM));
            commands.methods(COPY, 0x400, &[from_high, from_low, to_high, to_low, 0, 0, 8, 1]);
            commands.methods(COPY, place, &[high, low]);
            commands.methods(COPY, phys_mode, &[mode]);
            commands.methods(COPY, 0x300, &[LAUNCH | is_physical]);
            works.push(commands);
        }
    }
    for (number, commands) in works.iter().enumerate() {
        push.write(rig.gpu.memory, commands);
        ensure_ok(make(&mut rig.gpu, FIRST, push, REWRITTEN)?, "no channel of the kernel's")?;
        rig.gpu.ring(FIRST, 1);
        ensure!(is_stopped_soon(rig)?, "access {number} to nowhere did not stop its channel");
        rig.gpu.free(CHANNEL + u32::from(FIRST))?;
        ensure!(!has_mark(rig), "the victim's mark came by access {number}");
    }
    Ok(works.len() as u64)
}

/// Whether the channel is stopped within a moment.
fn is_stopped_soon(rig: &mut Rig<'_>) -> Result<bool> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if was_stopped(&mut rig.gpu, FIRST) {
            return Ok(true);
        }
        if rig.is_lost() {
            bail!("the vGPU was taken away");
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(false)
}

/// All numbers, of two runlists, each with work that waits for ever; freed and made again.
pub fn channels(stage: &mut Stage) -> Result<Seen> {
    const ENGINES: [(u32, u32); 2] = [(1, 0x1_0000), (10, 0)];
    let (mut rig, time) = nvidia::timed(stage)?;
    let class = rig.gpu.generation.channel;
    let push = Pushbuffer::endless(rig.gpu.memory, &mut rig.space, PUSHES)?;
    push.fill(rig.gpu.memory, &semaphore(TO + AWAITED, 2, ACQUIRE), 0x1f_ffff);
    let (mut rounds, mut most, mut refused) = (0u64, 0usize, 0u64);
    while time.goes_on() || rounds == 0 {
        let mut made: Vec<u32> = Vec::new();
        'all: for (engine, names) in ENGINES {
            for id in FIRST..NUMBERS {
                let handle = CHANNEL + names + u32::from(id);
                match rig.gpu.alloc(DEVICE, handle, class, &parameters(id, &push, SPACE, engine))? {
                    0 => {
                        rig.gpu.control(handle, super::driver::SCHEDULE, &[1, 0])?;
                        if engine == super::driver::ENGINE {
                            ring(&rig.gpu, id, push.last());
                        }
                        made.push(handle);
                    }
                    NO_FREE_FIFOS => refused += 1,
                    status => bail!("channel {id} of engine {engine}: status {status:#x}"),
                }
                if !time.goes_on() && refused > 0 {
                    break 'all;
                }
            }
        }
        ensure!(!rig.is_lost(), "the vGPU was taken away");
        most = most.max(made.len());
        let end = rig.copies_honestly(0x24);
        ensure!(end == End::Done, "an honest copy beside {} channels ended with {end:?}", made.len());
        for handle in made {
            rig.gpu.free(handle)?;
        }
        rounds += 1;
    }
    ensure!(refused > 0, "{most} channels were made, and more could be had");
    ensure_ok(make_here(&mut rig.gpu, FIRST, &push)?, "no channel after all were freed")?;
    Ok(Seen::new(Outcome::Refused, format!("{most} channels at once, {refused} refused, in {rounds} rounds")))
}

/// Doorbells from two processors: of channels with work without an end, of one that waits, of one that is
/// stopped, and of none.
pub fn doorbells(stage: &mut Stage) -> Result<Seen> {
    const COUNT: u16 = 8;
    let (mut rig, time) = nvidia::timed(stage)?;
    let push = Pushbuffer::endless(rig.gpu.memory, &mut rig.space, PUSHES)?;
    let waits = Pushbuffer::new(rig.gpu.memory, &mut rig.space, MORE_PUSHES)?;
    push.fill(rig.gpu.memory, &copy(TO, FROM, 0, 64), 0x1f_ffff);
    waits.fill(rig.gpu.memory, &semaphore(TO + AWAITED, 2, ACQUIRE), 0x100);
    for number in 0..COUNT {
        let id = FIRST + number;
        let push = if number % 2 == 0 { &push } else { &waits };
        ensure_ok(make_here(&mut rig.gpu, id, push)?, "no channel of the kernel's")?;
        // The last of them is stopped by it.
        ring(&rig.gpu, id, if number + 1 == COUNT { u32::MAX } else { push.last() });
    }
    let (card, generation) = (rig.gpu.card, rig.gpu.generation);
    let rings = by_two(time, 64, |count| {
        let number = u32::try_from(count % 64).unwrap_or(0);
        let token = match number {
            0..16 => generation.token(RUNLIST, u32::from(FIRST) + number % u32::from(COUNT)),
            16..32 => generation.token(RUNLIST, number * 61),
            32..48 => generation.token(number, u32::from(FIRST)),
            _ => u32::MAX - number,
        };
        card.set(DOORBELL, token);
    });
    for number in 0..COUNT {
        rig.gpu.free(CHANNEL + u32::from(FIRST + number))?;
    }
    let end = rig.copies_honestly(0x17);
    ensure!(end == End::Done, "an honest copy afterwards ended with {end:?}");
    Ok(limited(&rig, format!("{rings} doorbells")))
}
