//! A hostile device backend at the aggregator's socket: the right user, with nothing but lies.

mod datagrams;
mod death;
mod floods;
mod forged;
mod memory;
mod messages;
mod rings;

use anyhow::{Context, Result};
use gpuvmk::aggregator::{LinkTimeouts, connect};
use gpuvmk_attacks::Outcome;

use crate::findings::Findings;
use crate::tenant::Tenant;
use crate::{Scene, honest};
pub use datagrams::every_kind;

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
            honest::tenant(scene, findings).context("afterwards")?;
        }
        Ok(outcome)
    }))
}

/// A tenant that may say anything.
pub fn tenant(scene: &Scene, name: &str) -> Result<Tenant> {
    let (link, grant) = connect(&scene.aggregator, crate::raw::hello(name), &LinkTimeouts::none())?;
    Ok(Tenant::new(link, &grant))
}
