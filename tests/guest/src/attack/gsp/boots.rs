//! Row 6: boots of GSP with arguments, images and messages that make no sense.

use anyhow::{Result, ensure};

use super::falcons::{
    DMA_FROM, DMEM_DATA, DMEM_PORT, FRTS, Falcons, GSP, IMEM_DATA, IMEM_PORT, INTERFACES, MAPPER, SB, SEC2,
    START, TO_DMEM,
};
use super::generation::{Boot, Generation};
use super::rpc::put;
use super::{Rig, fsp, queues};
use crate::attack::card::Card;
use crate::attack::random::Random;
use crate::attack::{Seen, Stage};
use crate::dma_memory::DmaMemory;

/// Asks for a boot of GSP with arguments at a bus address: an error code.
pub fn ask(card: &Card, memory: &mut DmaMemory, arguments: u64) -> Result<u32> {
    let generation = Generation::of(card)?;
    match generation.boot {
        Boot::Fsp(version) => fsp::ask(card, memory, version, arguments),
        Boot::Falcons(load) => Ok(Falcons::new(card, memory, load, generation.vram(card))?.boot(arguments)),
    }
}

/// Arguments that are not there, point nowhere, or contradict themselves; what boots GSP, abused.
pub fn boots(stage: &mut Stage) -> Result<Seen> {
    let (time, mut refused) = (stage.time, 0u64);
    let mut random = Random::new(6);
    while time.goes_on() {
        stage.card.reset()?;
        stage.memory.start_again();
        let generation = Generation::of(&stage.card)?;
        match generation.boot {
            Boot::Fsp(_) => refused += fsp::abuse(&stage.card, &mut random),
            Boot::Falcons(load) => {
                let vram = generation.vram(&stage.card);
                let mut falcons = Falcons::new(&stage.card, &mut stage.memory, load, vram)?;
                refused += before_a_region(&mut falcons)?;
                refused += transfers(&falcons, &mut random);
                refused += descriptions(&mut falcons, &mut random)?;
            }
        }
        for address in [0, 8, 0x1000 - 8, 1 << 33, (1 << 52) - 0x1000, u64::MAX - 7, 0xfee0_0000] {
            ensure!(ask(&stage.card, &mut stage.memory, address)? != 0, "GSP boots from {address:#x}");
            refused += 1;
        }
        // Regions and arguments of random words, at addresses that exist.
        let page = stage.memory.take(0x1000, 0x1000)?;
        for _ in 0..4 {
            for at in (0..0x1000).step_by(4) {
                stage.memory.store32(page, at, random.word() & random.word());
            }
            ensure!(ask(&stage.card, &mut stage.memory, page.physical)? != 0, "GSP boots from random words");
            refused += 1;
        }
    }
    // And then as it should be.
    let mut rig = Rig::new(stage)?;
    queues::afterwards(&mut rig, format!("{refused} boots and messages"))
}

/// What FWSEC and the booter refuse while there is no protected region: how much.
fn before_a_region(falcons: &mut Falcons<'_>) -> Result<u64> {
    // The booter without FWSEC, the end of secure boot before its beginning, falcons with nothing in them.
    ensure!(falcons.booter(falcons.meta.physical) != 0, "the booter runs without a region");
    falcons.fwsec(SB, &[]);
    ensure!(falcons.sb_error() != 0, "FWSEC ends what it did not begin");
    for unit in [GSP, SEC2] {
        falcons.reset(unit);
        falcons.start(unit, 0);
    }
    ensure!(falcons.frts_error() != 0, "an empty falcon does FWSEC's work");
    let [page, pages, vram] = falcons.region();
    // Regions that end beyond VRAM, are empty, wrap, are in another memory.
    let lies = [[page, pages * 3, vram], [page, 0, vram], [u32::MAX, u32::MAX, vram], [page, pages, 1]];
    for region in lies {
        falcons.fwsec(FRTS, &region);
        ensure!(falcons.frts_error() != 0 && !falcons.has_region(), "a region of {region:x?}");
    }
    // Commands that there are not, interfaces and commands that lie outside of FWSEC's data.
    let mut wrong: Vec<Vec<u8>> =
        [0, 0x77, u32::MAX].iter().map(|command| Falcons::data(*command, &[page, pages, vram])).collect();
    for (at, word) in [
        (INTERFACES, 0),
        (INTERFACES, 0xffff_ff01),
        (INTERFACES + 8, 0xffff_fffc),
        (INTERFACES + 8, 0x2ff),
        (MAPPER, 0),
        (MAPPER + 8, u32::MAX),
        (MAPPER + 8, 0x2f0),
    ] {
        let mut data = Falcons::data(FRTS, &[page, pages, vram]);
        put(&mut data, at, &[word]);
        wrong.push(data);
    }
    for data in &wrong {
        falcons.fwsec_with(data);
        ensure!(falcons.frts_error() != 0 && !falcons.has_region(), "FWSEC with wrong data sets up a region");
    }
    Ok((lies.len() + wrong.len() + 4) as u64)
}

/// Transfers and ports that lead out of the guest's memory and of the falcons': how many.
fn transfers(falcons: &Falcons<'_>, random: &mut Random) -> u64 {
    let there = falcons.image.physical;
    let attempts = [
        (1 << 33, TO_DMEM, 0, 0),
        ((1 << 49) - 0x100, TO_DMEM, u32::MAX, 0),
        (u64::MAX << 8, TO_DMEM, 0, 0),
        (0xfee0_0000, TO_DMEM, 0, 0),
        (there, TO_DMEM, 0, 0xff04),
        (there, TO_DMEM, 0, 0xff_fffc),
        (there, TO_DMEM, 0, 1),
        // Larger ones, out of the falcon, by an index that is not set up, every bit.
        (there, 0x700, 0, 0),
        (there, 0x620, 0, 0),
        (there, 0x7600, 0, 0),
        (there, u32::MAX, 0, 0),
    ];
    for unit in [GSP, SEC2] {
        falcons.reset(unit);
        for (address, command, from, to) in attempts {
            falcons.transfer(unit, address, command, from, to);
        }
        for _ in 0..32 {
            let (from, to) = (random.word(), random.word());
            falcons.transfer(unit, random.word64(), random.word(), from, to);
        }
        // Beyond the end of either memory.
        for (port, data) in [(IMEM_PORT, IMEM_DATA), (DMEM_PORT, DMEM_DATA)] {
            falcons.fill(unit, port, data, 0xfffc, &[1, 2, 3]);
            falcons.fill(unit, port, data, 0x00ff_ffff, &[1, 2, 3]);
        }
    }
    2 * (attempts.len() as u64 + 32 + 4)
}

/// Descriptions of GSP's image that are not there or lie, and starts at a time when nothing may start.
fn descriptions(falcons: &mut Falcons<'_>, random: &mut Random) -> Result<u64> {
    let region = falcons.region();
    ensure!(falcons.fwsec(FRTS, &region) == 0 && falcons.has_region(), "FWSEC does not set up a region");
    falcons.fwsec(FRTS, &region);
    ensure!(falcons.frts_error() != 0, "FWSEC sets up a second region");
    let end = falcons.meta.physical + 0x1000;
    let places = [0, 8, 1 << 33, end + (1 << 40), u64::MAX - 3, u64::MAX - 0xff, 0xfee0_0000];
    for address in places {
        falcons.prepare(0);
        ensure!(falcons.booter(address) != 0, "the booter takes a description at {address:#x}");
        ensure!(!falcons.gsp_runs(), "GSP runs by a description at {address:#x}");
    }
    // Offsets and sizes of VRAM that are anything. The magic word stands, and then it does not. GSP's
    // arguments are nowhere, so that none of these may run.
    let meta = falcons.meta;
    let mut kept = Vec::new();
    for at in (0x10..0x100).step_by(4) {
        kept.push((at, falcons.memory.load32(meta, at)));
        falcons.memory.store32(meta, at, random.word());
    }
    for word in [falcons.memory.load32(meta, 0), random.word(), 0xc6c3_9d93] {
        falcons.memory.store32(meta, 0, word);
        falcons.prepare((1 << 52) - 0x1000);
        ensure!(falcons.booter(meta.physical) != 0, "the booter takes a description of random words");
        // Once more without a reset, and GSP's falcon in between.
        falcons.card.set(SEC2 + START, 2);
        falcons.card.set(GSP + START, 2);
        falcons.card.set(GSP + DMA_FROM, u32::MAX);
        ensure!(!falcons.gsp_runs(), "GSP runs by a description of random words");
    }
    falcons.memory.store64(meta, 0, 0xdc3a_ae21_371a_60b3);
    kept.into_iter().for_each(|(at, word)| falcons.memory.store32(meta, at, word));
    Ok(places.len() as u64 + 3 * 3 + 2)
}
