//! The guests of `bench sched`: stock ones in number, on one software GPU.

use anyhow::Result;
use gpuvmk_lab::chip::{Chip, GuestChip as _};
use gpuvmk_lab::crowd::Crowd;
use gpuvmk_lab::rig::{Rig, RigSpec, Topology};
use gpuvmk_lab::verdict;

use crate::cases::Guest;
use crate::workshop::{Workshop, expected};

/// How many.
pub const GUESTS: usize = 8;
/// Channels of each: a GF100 has 126 for all.
const CHANNELS: u16 = 15;
const NAMES: [&str; GUESTS] = ["vm1", "vm2", "vm3", "vm4", "vm5", "vm6", "vm7", "vm8"];

fn guest(chip: Chip) -> Guest {
    Guest {
        kernel_words: &["gpuvmk.limit=3000"],
        vram_mib: 64,
        ..Guest::new("vm", chip, chip.usual_kernel(), &["contend"])
    }
}

/// Boots all; none of them wants anything yet.
pub fn start(workshop: &Workshop, chip: Chip) -> Result<Crowd> {
    let case = format!("sched-{chip}").to_lowercase();
    let guest = guest(chip);
    let guests = NAMES.map(|name| Guest { name, ..guest.clone() });
    workshop.forget_logs(&case)?;
    let spec = workshop.rig_spec(&case, Topology::Mediated, &guests);
    let rig = Rig::start(RigSpec { channels: CHANNELS, ..spec })?;
    let start =
        |(index, guest): (usize, &Guest)| workshop.start_with_orders(&case, guest.name, &rig, guest, index);
    let machines = guests.iter().enumerate().map(start).collect::<Result<_>>()?;
    Crowd::gather(rig, NAMES.map(str::to_owned).to_vec(), machines)
}

/// Ends everything; returns what was wrong.
pub fn end(mut crowd: Crowd, chip: Chip) -> Result<Vec<String>> {
    let tenants = crowd.rig().tenants()?;
    let foreign: u64 = tenants.iter().map(|tenant| tenant.foreign_accesses.unwrap_or(u64::MAX)).sum();
    let expected = expected(&guest(chip));
    let mut problems = Vec::new();
    for outcome in crowd.end()? {
        problems.extend(verdict::judge(&outcome, &expected).problems);
    }
    problems.extend(crowd.rig().stop()?);
    if foreign > 0 {
        problems.push(format!("{foreign} accesses left their VM's memory"));
    }
    Ok(problems)
}
