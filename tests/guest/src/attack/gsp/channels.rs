//! Rows 14, 16 to 19 and 24: channels, tokens, rings and methods that must not be.

use std::time::Duration;

use anyhow::{Result, bail, ensure};

use super::Rig;
use super::driver::{
    BIND, CHANNEL, CLIENT, COPY, DEVICE, DOORBELL, ENGINE, Gpu, HOST, RUNLIST, SCHEDULE, SPACE, userd, words,
};
use super::rpc::put;
use crate::attack::tool::{End, FROM, TO, Target, Tool};
use crate::attack::work::{by_two, limited};
use crate::attack::{Outcome, Seen, Stage};
use crate::push::{Commands, Subchannel, split};

/// Row 14.
pub fn foreign(stage: &mut Stage) -> Result<Seen> {
    let (mut rig, time) = Rig::timed(stage)?;
    let class = rig.gpu.generation.channel;
    let (vram, va) = (rig.gpu.vram, rig.channel.va);
    let good = Gpu::channel_parameters(9, va, userd(9));
    let changed = |at: usize, words: &[u32]| {
        let mut parameters = good.clone();
        put(&mut parameters, at, words);
        parameters
    };
    let [end_high, end_low] = split(vram);
    let wrong = [
        // USERD: beyond VRAM, unaligned, in system memory, at the end of all addresses.
        changed(0xa8, &[end_low, end_high]),
        changed(0xa8, &[end_low - 0x100, end_high]),
        changed(0xa8, &[0x20_0010, 0]),
        changed(0xa8, &[0xffff_fe00, u32::MAX]),
        changed(0xb8, &[1]),
        // The ring: at the end of all addresses, unaligned; entries: none, no power of two, too many.
        changed(0x08, &[0xffff_ff00, u32::MAX]),
        changed(0x08, &[0x1000_0004, 0]),
        changed(0x10, &[0]),
        changed(0x10, &[63]),
        changed(0x10, &[1 << 20]),
        // The number: beyond the runlist's; a space, an engine that do not exist; the first bytes only.
        changed(0x14, &[0x1ff << 12 | 7 << 8 | 1 << 21]),
        changed(0x1c, &[0xdead]),
        changed(0x80, &[77]),
        good.get(..0x40).unwrap_or_default().to_vec(),
    ];
    let mut refused = 0u64;
    while time.goes_on() {
        for (number, parameters) in wrong.iter().enumerate() {
            let status = rig.gpu.alloc(DEVICE, CHANNEL + 9, class, parameters)?;
            if status == 0 {
                // A number is a wish: a channel that was made all the same must at least be the guest's own.
                ensure!(number == 10, "a channel was made of wrong parameters ({number})");
                rig.gpu.free(CHANNEL + 9)?;
            }
            refused += u64::from(status != 0);
        }
        for directory in [Target::Vram(vram), Target::Vram(0x1001), Target::Peer(0), Target::Vram(1 << 51)] {
            let status = rig.gpu.open_space(0x90f1_0077, directory)?;
            ensure!(status != 0, "an address space was made of {directory:x?}");
            rig.gpu.free(0x90f1_0077)?;
            refused += 1;
        }
    }
    let end = rig.copies_honestly(0x14);
    ensure!(end == End::Done, "the honest channel ended with {end:?}");
    Ok(Seen::new(Outcome::Refused, format!("{refused} requests refused")))
}

/// Row 14: the doorbells of everybody, with every number in either half.
pub fn tokens(stage: &mut Stage) -> Result<Seen> {
    let (mut rig, time) = Rig::timed(stage)?;
    let mut rings = 0u64;
    while time.goes_on() {
        for runlist in [0, 1, 2, 3, 7, 63, 0xffff] {
            for id in 0..256 {
                if (runlist, id) != (RUNLIST, u32::from(rig.channel.id)) {
                    // By its numbers alone, and as this chip has it.
                    for token in [runlist << 16 | id, rig.gpu.generation.token(runlist, id)] {
                        rig.gpu.card.set(DOORBELL, token);
                        rings += 1;
                    }
                }
            }
        }
        let end = rig.copies_honestly(0x15);
        ensure!(end == End::Done, "the honest channel ended with {end:?}");
    }
    Ok(Seen::new(Outcome::Values, format!("{rings} doorbells of others, none of them did anything here")))
}

/// Row 15: runlists are the firmware's here; what a guest has of them is binding and scheduling.
pub fn schedules(stage: &mut Stage) -> Result<Seen> {
    const OTHER: u16 = 9;
    let (mut rig, time) = Rig::timed(stage)?;
    let (handle, class) = (CHANNEL + u32::from(OTHER), rig.gpu.generation.channel);
    let parameters = Gpu::channel_parameters(OTHER, rig.channel.va, userd(OTHER));
    let mut refused = 0u64;
    while time.goes_on() {
        ensure!(rig.gpu.alloc(DEVICE, handle, class, &parameters)? == 0, "no channel beside the first");
        for engine in (0..96).chain([u32::MAX, 1 << 31]).filter(|engine| *engine != ENGINE) {
            let status = rig.gpu.control(handle, BIND, &words(&[engine]))?;
            ensure!(status != 0, "a channel of engine {ENGINE} was bound to {engine:#x}");
            refused += 1;
        }
        // Twice, and with flags that mean nothing.
        for _ in 0..2 {
            rig.gpu.control(handle, BIND, &words(&[ENGINE]))?;
            rig.gpu.control(handle, SCHEDULE, &[0xff, 0xff])?;
        }
        // By what is no channel, and by one that is gone.
        rig.gpu.free(handle)?;
        for object in [0, CLIENT, DEVICE, SPACE, handle, u32::MAX] {
            for (control, parameters) in
                [(BIND, words(&[ENGINE])), (SCHEDULE, vec![1, 0]), (SCHEDULE, Vec::new())]
            {
                let status = rig.gpu.control(object, control, &parameters)?;
                ensure!(status != 0, "{control:#x} of {object:#x}, which is no channel, was done");
                refused += 1;
            }
        }
    }
    let end = rig.copies_honestly(0x15);
    ensure!(end == End::Done, "the honest channel ended with {end:?}");
    Ok(Seen::new(Outcome::Refused, format!("{refused} requests refused")))
}

/// Row 24.
pub fn exhaustion(stage: &mut Stage) -> Result<Seen> {
    let (mut rig, time) = Rig::timed(stage)?;
    let class = rig.gpu.generation.channel;
    let (mut made, mut refused) = (0, 0u64);
    while time.goes_on() {
        made = 0;
        for id in 8..512u16 {
            let parameters = Gpu::channel_parameters(id, rig.channel.va, userd(id));
            match rig.gpu.alloc(DEVICE, CHANNEL + u32::from(id), class, &parameters)? {
                0 => made += 1,
                _ => {
                    refused += 1;
                    break;
                }
            }
        }
        ensure!(!rig.is_lost(), "the vGPU was taken away");
        for id in 8..8 + made {
            rig.gpu.free(CHANNEL + id)?;
        }
    }
    ensure!(refused > 0, "{made} channels were made, and more could be had");
    let end = rig.copies_honestly(0x24);
    ensure!(end == End::Done, "the honest channel ended with {end:?}");
    Ok(Seen::new(Outcome::Refused, format!("{made} channels beside the first, then a refusal")))
}

/// Row 16.
pub fn rings(stage: &mut Stage) -> Result<Seen> {
    let (mut rig, time) = Rig::timed(stage)?;
    let (mut tried, mut stopped) = (0u64, 0u64);
    while time.goes_on() {
        let push = rig.channel.va + 0x1000;
        // No length, all of the length, an address that is not mapped, one at the end of all, every bit.
        for entry in
            [push, push | 0x1f_ffff << 42, 0x30_0000_0000 | 4 << 42, 0xff_ffff_fffc | 1 << 42, u64::MAX, 0]
        {
            rig.gpu.submit_entry(&mut rig.channel, entry);
            stopped += u64::from(after_abuse(&mut rig)?);
            tried += 1;
        }
        for put in [64, 65, 0xffff, u32::MAX] {
            rig.gpu.ring(rig.channel.id, put);
            stopped += u64::from(after_abuse(&mut rig)?);
            tried += 1;
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
    Ok(end.stopped())
}

/// Row 18.
pub fn illegal_methods(stage: &mut Stage) -> Result<Seen> {
    let (mut rig, time) = Rig::timed(stage)?;
    let one = |subchannel: Subchannel, method: u32, data: &[u32]| {
        let mut commands = Commands::new();
        commands.methods(subchannel, method, data);
        commands
    };
    let mut header = Commands::new();
    header.raw(&[6 << 29, 0, 0]);
    let abuses = [
        ("a method that no class has", one(COPY, 0x1ffc, &[0xdead_beef])),
        ("the host's illegal method", one(HOST, 0x04, &[0])),
        ("a class that does not exist", one(COPY, 0, &[0x0000_ffff])),
        ("a class of another engine", one(COPY, 0, &[0xcbc0])),
        ("a header of no known form", header),
        ("a copy launched with every bit", one(COPY, 0x300, &[0xffff_ffff])),
    ];
    let mut tried = 0u64;
    while time.goes_on() {
        for (what, commands) in &abuses {
            match rig.gpu.run(&mut rig.channel, commands, Duration::from_secs(2)) {
                End::Done => bail!("{what} was carried out"),
                End::Lost => bail!("the vGPU was taken away for {what}"),
                End::Silent => bail!("{what} was neither carried out nor refused"),
                End::Fault(_) | End::Error => {}
            }
            rig.revive()?;
            tried += 1;
        }
    }
    Ok(Seen::new(Outcome::Quarantined, format!("{tried} illegal commands, each stopped its channel")))
}

/// Row 19.
pub fn endless_acquire(stage: &mut Stage) -> Result<Seen> {
    let (mut rig, time) = Rig::timed(stage)?;
    let mut second = rig.gpu.channel(&mut rig.space, 4)?;
    let acquire = |address: u64| {
        let [high, low] = split(address);
        let mut commands = super::driver::copy(TO, FROM, 0x1000, 1);
        // Waits for equality with a value that never comes.
        commands.methods(HOST, 0x5c, &[low, high, 0xdead, 0, 0]);
        commands
    };
    let (mut waits, mut stopped) = (0u64, 0u64);
    while time.goes_on() {
        for (channel, place) in [(&mut rig.channel, TO + 0x800), (&mut second, TO + 0x810)] {
            let commands = Gpu::fenced(channel, &acquire(place));
            rig.gpu.submit(channel, &commands);
            waits += 1;
        }
        for channel in [&rig.channel, &second] {
            match rig.gpu.end(channel, Duration::from_millis(500)) {
                End::Done => bail!("a wait for a value that nobody writes was over"),
                End::Lost => return Ok(Seen::new(Outcome::Quarantined, "the vGPU was taken away")),
                End::Silent => {}
                End::Fault(_) | End::Error => stopped += 1,
            }
        }
        rig.revive()?;
        rig.gpu.revive(&mut second)?;
    }
    let outcome = if stopped > 0 { Outcome::Quarantined } else { Outcome::Limited };
    Ok(Seen::new(
        outcome,
        format!("{waits} endless waits, {stopped} stopped by the host unit, all taken away again"),
    ))
}

/// Row 17.
pub fn doorbells(stage: &mut Stage) -> Result<Seen> {
    let (mut rig, time) = Rig::timed(stage)?;
    for id in 8..16 {
        rig.gpu.channel(&mut rig.space, id)?;
    }
    let (card, generation) = (rig.gpu.card, rig.gpu.generation);
    let token = |count: u64| generation.token(RUNLIST, 8 + u32::try_from(count % 8).unwrap_or(0));
    let rings = by_two(time, 64, |count| card.set(DOORBELL, token(count)));
    Ok(limited(&rig, format!("{rings} doorbells")))
}
