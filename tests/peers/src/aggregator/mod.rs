//! A hostile device backend at the aggregator's socket: the right user, with nothing but lies.

mod datagrams;
mod death;
mod floods;
mod forged;
mod memory;
mod messages;
mod rings;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gpuvmk::aggregator::{LinkTimeouts, connect};
use gpuvmk_attacks::Outcome;

use crate::Scene;
use crate::findings::Findings;
pub use datagrams::every_kind;

use crate::tenant::{DATA, RAM_VA, Tenant, VRAM_VA, pattern};

/// VRAM of a tenant here.
const VRAM: u64 = 64 << 20;

/// When all that attackers had and have given up is there again.
const COMES_BACK: Duration = Duration::from_secs(10);

/// Makes the attack of this name, and sees that an honest backend is served afterwards.
pub fn attack(name: &str, scene: &mut Scene, findings: &mut Findings) -> Option<Result<Outcome>> {
    let attack = match name {
        "backend-garbage" => datagrams::garbage,
        "backend-names" => datagrams::names,
        "backend-descriptors" => datagrams::descriptors,
        "backend-replays" => datagrams::replays,
        "backend-ids" => forged::ids,
        "backend-ranges" => forged::ranges,
        "backend-rings" => rings::overwritten,
        "backend-messages" => messages::descriptors,
        "backend-truncated" => memory::truncated,
        "backend-in-use" => memory::unmapped,
        "backend-requests" => floods::requests,
        "backend-doorbells" => floods::doorbells,
        "backend-connections" => floods::connections,
        "backend-deaf" => floods::deaf,
        "backend-deaths" => death::in_each_request,
        "honest-backend" => |_: &mut Scene, _: &mut Findings| Ok(Outcome::Values),
        "killed-backend" => return Some(death::backend(scene)),
        _ => crate::stalls::attack(name)?,
    };
    Some(attack(scene, findings).and_then(|outcome| {
        // A process that is as many VMs as one may be is no honest one more; that another one is served was
        // seen meanwhile.
        if name != "stall-tenancies" {
            honest(scene, findings).context("afterwards")?;
        }
        Ok(outcome)
    }))
}

/// A tenant that may say anything.
pub fn tenant(scene: &Scene, name: &str) -> Result<Tenant> {
    let (link, grant) = connect(&scene.aggregator, crate::raw::hello(name), &LinkTimeouts::none())?;
    Ok(Tenant::new(link, &grant))
}

/// An honest tenant gets its work done, and zeroed memory.
fn honest(scene: &mut Scene, findings: &mut Findings) -> Result<()> {
    let start = Instant::now();
    let mut tenant = loop {
        // What attackers had comes back soon, and not at once.
        match tenant(scene, "honest") {
            Err(_) if start.elapsed() < COMES_BACK => std::thread::sleep(Duration::from_millis(50)),
            joined => break joined?,
        }
    };
    let mut piece = vec![0xff; 1 << 20];
    for offset in (0..VRAM).step_by(piece.len()) {
        tenant.window.read(offset, &mut piece)?;
        let residue = piece.iter().filter(|byte| **byte != 0).count();
        findings.residue(u64::try_from(residue)?);
        ensure!(residue == 0, "{residue} bytes of its memory from {offset:#x} on are not zero");
    }
    tenant.channel(0, 0);
    tenant.list(&[0]);
    let data = pattern(7, 0x10000);
    tenant.ram.write(0, &data)?;
    let start = Instant::now();
    tenant.copy(0, 0, RAM_VA, VRAM_VA + DATA, 0x10000);
    ensure!(tenant.finishes_within(0, Duration::from_secs(5)), "its copy does not end");
    ensure!(start.elapsed() < Duration::from_secs(3), "its copy took {:?}", start.elapsed());
    let mut found = vec![0; data.len()];
    tenant.window.read(DATA, &mut found)?;
    ensure!(found == data, "its copy is wrong");
    scene.keep(tenant);
    Ok(())
}
