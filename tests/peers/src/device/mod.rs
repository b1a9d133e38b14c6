//! A hostile QEMU at its device backend's socket.

mod death;
mod dma;
mod interrupts;
mod memory_in_use;
mod slow;
mod stream;
mod wire;

use anyhow::{Context, Result};
use gpuvmk_attacks::Outcome;

use crate::Scene;
use crate::client::Client;
use crate::findings::Findings;

/// Makes the attack of this name, and sees that the device backend serves an honest client afterwards.
pub fn attack(name: &str, scene: &mut Scene, findings: &mut Findings) -> Option<Result<Outcome>> {
    let attack = match name {
        "wire-sizes" => wire::sizes,
        "wire-commands" => wire::commands,
        "wire-descriptors" => wire::descriptors,
        "wire-version" => wire::version_bombs,
        "wire-counts" => wire::counts,
        "wire-fragments" => stream::fragments,
        "wire-connections" => stream::connections,
        "wire-random" => stream::random,
        "dma-lies" => dma::lies,
        "dma-files" => dma::wrong_files,
        "dma-many" => dma::many,
        "dma-truncated" => memory_in_use::truncated,
        "dma-in-use" => memory_in_use::unmapped,
        "irq-descriptors" => interrupts::wrong_descriptors,
        "irq-overflow" => interrupts::overflow,
        "irq-blocking" => interrupts::blocking,
        "slow-reader" => slow::reader,
        "client-kill-loop" => death::loop_of_clients,
        "honest-client" => |_: &mut Scene, _: &mut Findings| Ok(Outcome::Values),
        "killed-client" => return Some(death::client(scene)),
        _ => return None,
    };
    Some(attack(scene, findings).and_then(|outcome| {
        honest(scene).context("afterwards")?;
        Ok(outcome)
    }))
}

/// An honest client finds a GF100.
pub fn honest(scene: &Scene) -> Result<()> {
    let mut client = Client::negotiated(&scene.device)?;
    client.in_step()?;
    let boot = client.load(0, 0)?.context("register 0 cannot be read")?;
    anyhow::ensure!(boot >> 20 & 0x1ff == 0xc0, "register 0 is {boot:#x}, which is no GF100's");
    Ok(())
}
