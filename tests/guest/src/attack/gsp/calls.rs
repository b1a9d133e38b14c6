//! RPCs: random functions, bodies, controls and classes, objects without end, unloading with work under way.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::Rig;
use super::driver::{CHANNEL, CHIP, CLIENT, DEVICE, DOORBELL, Gpu, SPACE, WINDOW_VIEW, words};
use super::rpc;
use crate::attack::random::Random;
use crate::attack::tool::{End, NOWHERE, TO, Target, Tool};
use crate::attack::work::limited;
use crate::attack::{Outcome, Seen, Stage};

/// Everything that may be a handle.
const HANDLES: [u32; 7] = [0, CLIENT, DEVICE, SPACE, CHANNEL + 3, 0xdead_beef, u32::MAX];

/// Random functions with random bodies; most of the words are small or known.
pub fn fuzz(stage: &mut Stage) -> Result<Seen> {
    let (mut rig, time) = Rig::timed(stage)?;
    let (mut random, mut calls, mut refused) = (Random::new(60), 0u64, 0u64);
    while time.goes_on() {
        let known = [rpc::ALLOC_MEMORY, rpc::FREE, rpc::STATIC_INFO, rpc::REGISTRY, rpc::CONTROL, rpc::ALLOC];
        let function = known.get(random.below(12) as usize).copied().unwrap_or_else(|| random.below(256));
        // Those that are not answered, or that end the conversation.
        if matches!(function, 72 | rpc::REGISTRY | rpc::CONTINUATION | rpc::UNLOADING) {
            continue;
        }
        let length = random.below(512) as usize;
        let body: Vec<u32> = (0..length).map(|_| any_word(&mut random)).collect();
        let answer = rig.gpu.call(function, &words(&body))?;
        refused += u64::from(answer.result != 0);
        calls += 1;
        if rig.is_lost() {
            return Ok(Seen::new(Outcome::Quarantined, "the vGPU was taken away"));
        }
    }
    drop(rig);
    still_works(stage, format!("{calls} calls, {refused} of them refused"))
}

/// The vGPU's objects may be gone by its own doing; a fresh boot must work.
pub fn still_works(stage: &mut Stage, text: String) -> Result<Seen> {
    let end = Rig::new(stage)?.copies_honestly(0x60);
    ensure!(end == End::Done, "an honest copy afterwards ended with {end:?}");
    Ok(Seen::new(Outcome::Refused, text))
}

fn any_word(random: &mut Random) -> u32 {
    match random.below(4) {
        0 => HANDLES.get(random.below(7) as usize).copied().unwrap_or(0),
        1 => random.below(64),
        2 => u32::MAX - random.below(8),
        _ => random.word(),
    }
}

/// Every known control, and others, on every object, with parameters of every size.
pub fn controls(stage: &mut Stage) -> Result<Seen> {
    const CONTROLS: [u32; 19] = [
        0x0080_1813,
        0x0080_1814,
        0x2080_012b,
        0x2080_0137,
        0x2080_0138,
        0x2080_01b0,
        0x2080_0301,
        0x2080_0a32,
        0x2080_0a5c,
        0x2080_0ac2,
        0x2080_0ac3,
        0x2080_1112,
        0x2080_1206,
        0x2080_2a08,
        0x90f1_0106,
        0xa06f_0103,
        0xa06f_0104,
        0xc36f_0108,
        0x2080_ffff,
    ];
    let (mut rig, time) = Rig::timed(stage)?;
    let (mut random, mut calls, mut refused) = (Random::new(61), 0u64, 0u64);
    while time.goes_on() {
        let control = CONTROLS.get(random.below(19) as usize).copied().unwrap_or(0);
        let object = HANDLES.get(random.below(7) as usize).copied().unwrap_or(0);
        let sizes = [0, 1, 4, 8, 0x18, 0x20, 0x504, 0x680, 0x814, 0xc8c, 0xf00];
        let size = sizes.get(random.below(11) as usize).copied().unwrap_or(0);
        let parameters: Vec<u8> = (0..size).map(|_| any_word(&mut random).to_le_bytes()[0]).collect();
        refused += u64::from(rig.gpu.control(object, control, &parameters)? != 0);
        calls += 1;
    }
    if rig.is_lost() {
        return Ok(Seen::new(Outcome::Quarantined, "the vGPU was taken away"));
    }
    drop(rig);
    still_works(stage, format!("{calls} controls, {refused} of them refused"))
}

/// Row 24: objects until there may be no more, of every kind that costs something.
pub fn flood(stage: &mut Stage) -> Result<Seen> {
    let (mut rig, time) = Rig::timed(stage)?;
    let (mut made, mut refused) = (0u32, 0u32);
    while time.goes_on() && refused < 256 {
        let handle = 0x4000_0000 + made + refused;
        // Address spaces, devices' events, and memory lists.
        let mut space = words(&[0, 8]);
        space.resize(0x30, 0);
        let statuses = [
            rig.gpu.alloc(DEVICE, handle, 0x90f1, &space)?,
            rig.gpu.alloc(DEVICE, handle | 1 << 31, 0x0005, &[0; 0x18])?,
        ];
        let good = u32::try_from(statuses.iter().filter(|status| **status == 0).count())?;
        made += good;
        refused += 2 - good;
    }
    let text = format!("{made} objects made, then {refused} refused");
    let end = rig.copies_honestly(0x24);
    ensure!(end == End::Done, "an honest copy beside the flood ended with {end:?}");
    ensure!(refused > 0 || made < 100_000, "{made} objects and no end");
    Ok(Seen::new(if refused > 0 { Outcome::Refused } else { Outcome::Limited }, text))
}

/// As many calls as the queues take.
pub fn storm(stage: &mut Stage) -> Result<Seen> {
    let (mut rig, time) = Rig::timed(stage)?;
    let mut calls = 0u64;
    while time.goes_on() {
        rig.gpu.control(DEVICE, 0x2080_ffff, &[0; 64])?;
        calls += 1;
    }
    Ok(limited(&rig, format!("{calls} calls")))
}

/// Row 40: everything that might be worth a line in somebody's log.
pub fn logs(stage: &mut Stage) -> Result<Seen> {
    let (mut rig, time) = Rig::timed(stage)?;
    let (vram, va, mut rounds) = (rig.gpu.vram, rig.channel.va, 0u32);
    let generation = rig.gpu.generation;
    while time.goes_on() {
        for id in 8..24u16 {
            let parameters = Gpu::channel_parameters(id, va, vram + u64::from(id) * 0x1000);
            rig.gpu.alloc(DEVICE, CHANNEL + u32::from(id), generation.channel, &parameters)?;
        }
        rig.gpu.open_space(0x90f1_0077, Target::Vram(vram))?;
        rig.gpu.free(0x90f1_0077)?;
        rig.gpu.control(DEVICE, 0x2080_0000 | rounds & 0xffff, &[0; 8])?;
        rig.gpu.call(200, &[0; 16])?;
        let card = rig.gpu.card;
        card.set(DOORBELL, u32::MAX);
        card.set(generation.window, u32::MAX);
        card.set(WINDOW_VIEW, 0xbad);
        card.set(CHIP, 0xbad);
        card.set(0xbb_0ffc, rounds);
        card.bar1.load32(0x10_0000)?;
        rounds += 1;
        if rounds.is_multiple_of(8) {
            let end = rig.copy_page(TO, NOWHERE);
            ensure!(matches!(end, End::Fault(_) | End::Lost), "a copy from nowhere ended with {end:?}");
            if end == End::Lost {
                break;
            }
            rig.revive()?;
        }
    }
    Ok(limited(&rig, format!("{} refused requests", rounds * 25)))
}

/// Unloads with work under way, and goes on using what is gone.
pub fn unload(stage: &mut Stage) -> Result<Seen> {
    let (time, mut rounds) = (stage.time, 0u64);
    while time.goes_on() {
        let mut rig = Rig::new(stage)?;
        rig.begin_endless();
        // Suspend, and the real end; then calls and doorbells to nobody.
        rig.gpu.call(rpc::UNLOADING, &words(&[rounds.is_multiple_of(2).into(), 3]))?;
        let copy = rig.gpu.generation.copy;
        let raw = rig.gpu.gsp.element(rpc::ALLOC, &words(&[CLIENT, DEVICE, 7, copy, 0, 0, 0, 0]));
        let memory = &*rig.gpu.memory;
        rig.gpu.gsp.push(memory, &raw);
        rpc::Gsp::ring(rig.gpu.card);
        rig.gpu.ring(3, 9);
        let end = rig.end(Duration::from_millis(20));
        ensure!(end != End::Done, "endless work was done");
        rounds += 1;
    }
    Ok(Seen::new(Outcome::Values, format!("{rounds} times unloaded with work under way")))
}
