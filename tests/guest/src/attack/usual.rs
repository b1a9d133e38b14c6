//! Attacks that are made in the same way on each chip, by that chip's driver.

use std::time::Instant;

use anyhow::Result;

use super::card::Card;
use super::tool::Tool;
use super::{Means, Outcome, Seen, Stage, Time, machine, memory, registers, work};

/// What these attacks need of a chip.
pub trait Chip {
    /// Bits of an address in memory.
    const BITS: u32;
    /// Bits of an address in VRAM.
    const VRAM_BITS: u32;
    /// Addresses that are not those of a register's first byte.
    const ODD: &'static [usize];
    /// Ranges of registers that do something.
    const HOT: &'static [(u32, u32)];
    /// Registers that belong to the host.
    const PRIVILEGED: &'static [u32];
    /// Registers of displays and buses.
    const OUTPUTS: &'static [u32];
    /// Registers of other GPUs' memory.
    const PEERS: &'static [u32];
    /// Where BAR0 shows configuration space.
    const MIRROR: u32;

    /// The VBIOS and the fuses.
    fn constants(card: &Card) -> Result<Vec<u32>>;

    /// Registers that count what the whole GPU does.
    fn counters() -> Vec<u32>;

    /// A card that was brought up, with a channel on the engine that the victim uses.
    fn rig(stage: &mut Stage) -> Result<impl Tool>;
}

/// The attack of a name, unless the chip has one of its own.
pub fn means<C: Chip>(name: &str) -> Option<Means> {
    Some(match name {
        "widths" => |stage| on_card::<C>(stage, |card, time| registers::widths(card, time, C::ODD)),
        "bar0-fuzz" => |stage| on_card::<C>(stage, |card, time| Ok(registers::fuzz(card, time, C::HOT))),
        "privileged-registers" => {
            |stage| on_card::<C>(stage, |card, time| registers::overwrite(card, time, C::PRIVILEGED))
        }
        "rom-and-fuses" => {
            |stage| on_card::<C>(stage, |card, time| registers::constants(card, time, &C::constants(card)?))
        }
        "display-and-buses" => {
            |stage| on_card::<C>(stage, |card, time| registers::overwrite(card, time, C::OUTPUTS))
        }
        "peer-registers" => {
            |stage| on_card::<C>(stage, |card, time| registers::overwrite(card, time, C::PEERS))
        }
        "config-mirror" => |stage| on_card::<C>(stage, |card, time| registers::mirror(card, time, C::MIRROR)),
        "global-counters" => {
            |stage| on_card::<C>(stage, |card, time| registers::watch(card, time, &C::counters()))
        }
        "residue-scan" => |stage| on_rig::<C>(stage, |rig, _| memory::residue(rig)),
        "foreign-vram" => {
            |stage| on_rig::<C>(stage, |rig, time| memory::foreign_vram(rig, time, C::VRAM_BITS))
        }
        "foreign-memory" => {
            |stage| on_rig::<C>(stage, |rig, time| memory::foreign_memory(rig, time, C::BITS))
        }
        "dma-to-mmio" => |stage| on_rig::<C>(stage, |rig, time| memory::mmio(rig, time, C::BITS)),
        "rewrite-race" => |stage| on_rig::<C>(stage, |rig, time| memory::race(rig, time)),
        "garbage-entries" => |stage| on_rig::<C>(stage, |rig, time| memory::garbage(rig, time)),
        "memory-taken" => |stage| on_rig::<C>(stage, |rig, time| memory::taken(rig, time)),
        "endless-copy" => |stage| on_rig::<C>(stage, |rig, time| work::endless_copy(rig, time)),
        "fault-storm" => |stage| on_rig::<C>(stage, |rig, time| work::faults(rig, time)),
        "flush-storm" => |stage| on_rig::<C>(stage, |rig, time| work::flushes(rig, time)),
        "reset-in-dma" => reset_in_dma::<C>,
        "machine-stopped" => |stage| on_rig::<C>(stage, |rig, time| machine::stopped(rig, time)),
        _ => return None,
    })
}

/// An attack on the registers of a card that was brought up.
fn on_card<C: Chip>(stage: &mut Stage, attack: impl FnOnce(&Card, Time) -> Result<Seen>) -> Result<Seen> {
    let began = Instant::now();
    drop(C::rig(stage)?);
    attack(&stage.card, stage.time.after_bring_up(began))
}

/// An attack by a channel.
pub fn on_rig<C: Chip>(
    stage: &mut Stage,
    attack: impl FnOnce(&mut dyn Tool, Time) -> Result<Seen>,
) -> Result<Seen> {
    let (time, began) = (stage.time, Instant::now());
    let mut rig = C::rig(stage)?;
    attack(&mut rig, time.after_bring_up(began))
}

fn reset_in_dma<C: Chip>(stage: &mut Stage) -> Result<Seen> {
    let (time, mut resets) = (stage.time, 0u64);
    while time.goes_on() {
        work::reset_under_way(C::rig(stage)?, resets)?;
        resets += 1;
    }
    Ok(Seen::new(Outcome::Values, format!("{resets} resets while a copy wrote, no write landed afterwards")))
}
