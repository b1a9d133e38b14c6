//! The shared queues: pointers beyond the ring, elements with wrong sizes, counts, checksums and
//! continuations, and memory that changes while it is read.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Result, ensure};

use super::Rig;
use super::driver::{CLIENT, Gpu, words};
use super::rpc::{self, COMMANDS, ELEMENTS, Gsp, MESSAGES, READ, WRITTEN, put, seal};
use crate::attack::random::Random;
use crate::attack::tool::{End, Tool};
use crate::attack::{Outcome, Seen, Stage};

/// A control that changes nothing: the engines' table.
fn harmless() -> Vec<u8> {
    let mut body = words(&[CLIENT, CLIENT, 0x2080_1112, 0, 0xc8c, 0]);
    body.resize(24 + 0xc8c, 0);
    body
}

/// What is left of the vGPU: an honest copy, or, if its GSP is beyond that, at least registers that answer.
pub fn afterwards(rig: &mut Rig<'_>, text: String) -> Result<Seen> {
    if rig.is_lost() {
        return Ok(Seen::new(Outcome::Quarantined, format!("{text}; the vGPU was taken away")));
    }
    let end = rig.copies_honestly(0x95b);
    ensure!(end == End::Done, "an honest copy afterwards ended with {end:?}");
    Ok(Seen::new(Outcome::Refused, text))
}

/// Pointers of both queues beyond the ring, moving backwards, jumping.
pub fn pointers(stage: &mut Stage) -> Result<Seen> {
    let (mut rig, time) = Rig::timed(stage)?;
    let (mut random, mut tried) = (Random::new(50), 0u64);
    while time.goes_on() {
        for pointer in [ELEMENTS, ELEMENTS + 1, 0x8000_0000, u32::MAX, random.word()] {
            let (memory, shared) = (&*rig.gpu.memory, rig.gpu.gsp.shared);
            rig.gpu.gsp.publish(memory, pointer);
            Gsp::ring(rig.gpu.card);
            memory.store32(shared, COMMANDS + READ, pointer);
            Gsp::ring(rig.gpu.card);
            tried += 2;
        }
        // All of the ring as if it were full of commands.
        let memory = &*rig.gpu.memory;
        let write = rig.gpu.gsp.write;
        rig.gpu.gsp.publish(memory, (write + ELEMENTS - 1) % ELEMENTS);
        Gsp::ring(rig.gpu.card);
        tried += 1;
        recover(&mut rig)?;
    }
    afterwards(&mut rig, format!("{tried} pointers"))
}

/// Puts the driver's half of the queues where GSP has its own.
fn recover(rig: &mut Rig<'_>) -> Result<()> {
    let memory = &*rig.gpu.memory;
    let shared = rig.gpu.gsp.shared;
    rig.gpu.gsp.skip_all(memory);
    rig.gpu.gsp.write = memory.load32(shared, MESSAGES + READ) % ELEMENTS;
    rig.gpu.gsp.publish(memory, rig.gpu.gsp.write);
    ensure!(memory.load32(shared, MESSAGES + WRITTEN) < ELEMENTS, "GSP's own pointer left its ring");
    Ok(())
}

/// Elements with wrong checksums, lengths, counts, signatures and versions.
pub fn elements(stage: &mut Stage) -> Result<Seen> {
    let (mut rig, time) = Rig::timed(stage)?;
    let (mut random, mut tried) = (Random::new(51), 0u64);
    while time.goes_on() {
        // Offset and word: checksum, number, count, version, signature, length.
        let wrong = [
            (32, 0xbad),
            (36, 0xffff_ffff),
            (40, 0),
            (40, 2),
            (40, 63),
            (40, 64),
            (40, u32::MAX),
            (48, 0),
            (52, 0),
            (56, 0),
            (56, 31),
            (56, 0x1000),
            (56, 0x1_0000),
            (56, 0x10_0000),
            (56, u32::MAX),
            (56, random.word()),
            (40, random.word()),
            (60, random.word()),
        ];
        for (at, word) in wrong {
            let mut raw = rig.gpu.gsp.element(rpc::CONTROL, &harmless());
            put(&mut raw, at, &[word]);
            if at != 32 {
                seal(&mut raw);
            }
            let memory = &*rig.gpu.memory;
            rig.gpu.gsp.push(memory, &raw);
            Gsp::ring(rig.gpu.card);
            recover(&mut rig)?;
            tried += 1;
        }
        let raw: Vec<u8> = (0..0x1000).map(|_| random.word().to_le_bytes()[0]).collect();
        let memory = &*rig.gpu.memory;
        rig.gpu.gsp.push(memory, &raw);
        Gsp::ring(rig.gpu.card);
        recover(&mut rig)?;
        tried += 1;
    }
    afterwards(&mut rig, format!("{tried} elements"))
}

/// Row 11: headers, pointers and the page table of the shared memory rewritten by another processor.
pub fn race(stage: &mut Stage) -> Result<Seen> {
    let (mut rig, time) = Rig::timed(stage)?;
    let (other, shared) = (rig.gpu.memory.shared(), rig.gpu.gsp.shared);
    let mut calls = 0u64;
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let over = &over;
        scope.spawn(move || {
            let mut random = Random::new(52);
            while !over.load(Ordering::Relaxed) {
                let element = COMMANDS + 0x1000 + random.below(ELEMENTS) as usize * 0x1000;
                // Length and count of an element, a word of its body, an entry of the page table, a pointer.
                for (place, word) in [
                    (element + 56, random.word()),
                    (element + 40, random.word()),
                    (element + 0x80, random.word()),
                    (8 * random.below(129) as usize, random.word()),
                    (COMMANDS + WRITTEN, random.below(80)),
                ] {
                    let before = other.load32(shared, place);
                    other.store32(shared, place, word);
                    other.store32(shared, place, before);
                }
            }
        });
        while time.goes_on() {
            let raw = rig.gpu.gsp.element(rpc::CONTROL, &harmless());
            let memory = &*rig.gpu.memory;
            rig.gpu.gsp.push(memory, &raw);
            Gsp::ring(rig.gpu.card);
            rig.gpu.gsp.skip_all(memory);
            calls += 1;
        }
        over.store(true, Ordering::Relaxed);
    });
    recover(&mut rig)?;
    afterwards(&mut rig, format!("{calls} calls under rewriting"))
}

/// RPCs of several records: continuations of nothing, without an end, larger than all.
pub fn continuations(stage: &mut Stage) -> Result<Seen> {
    /// The most that a record holds.
    const RECORD: usize = 16 * 0x1000 - 80;
    let (mut rig, time) = Rig::timed(stage)?;
    let mut records = 0u64;
    // A control that says that its parameters are as large as numbers go.
    let mut large = words(&[CLIENT, CLIENT, 0x2080_1112, 0, u32::MAX, 0]);
    large.resize(RECORD, 0x5a);
    while time.goes_on() {
        for (function, body) in
            [(rpc::CONTINUATION, &large[..64]), (rpc::CONTROL, &large[..]), (rpc::CONTROL, &large[..])]
        {
            let raw = rig.gpu.gsp.element(function, body);
            push_slowly(&mut rig, &raw)?;
            records += 1;
        }
        for _ in 0..8 {
            let raw = rig.gpu.gsp.element(rpc::CONTINUATION, &large);
            push_slowly(&mut rig, &raw)?;
            records += 1;
        }
    }
    afterwards(&mut rig, format!("{records} records"))
}

fn push_slowly(rig: &mut Rig<'_>, raw: &[u8]) -> Result<()> {
    let memory = &*rig.gpu.memory;
    rig.gpu.gsp.push(memory, raw);
    Gsp::ring(rig.gpu.card);
    recover(rig)
}

/// Row 30: resets at any point of bring-up.
pub fn resets(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let (mut random, mut resets) = (Random::new(30), 0u64);
    while time.goes_on() {
        match random.below(4) {
            0 => drop(Rig::new(stage)?),
            1 => Rig::new(stage)?.begin_endless(),
            2 => drop(Gpu::bring_up(&stage.card, &mut stage.memory)?),
            _ => {
                let mut rig = Rig::new(stage)?;
                rig.begin_endless();
                let raw = rig.gpu.gsp.element(rpc::FREE, &words(&[CLIENT, 0, CLIENT, 0]));
                let memory = &*rig.gpu.memory;
                rig.gpu.gsp.push(memory, &raw);
                Gsp::ring(rig.gpu.card);
            }
        }
        stage.card.reset()?;
        resets += 1;
    }
    Ok(Seen::new(Outcome::Values, format!("{resets} resets")))
}
