//! Reads and writes that reach the vfio-user server for one submission and the wait for it.
//!
//! The figure is the difference between a boot with many submissions and one with few; QEMU is killed when
//! they are done, since what a driver does at its end varies. (Writes that the client batches count one by
//! one, so that it does not depend on how busy the machine is.)

use anyhow::{Context, Result, bail, ensure};
use gpuvmk_lab::report::Report;
use gpuvmk_lab::rig::Topology;
use gpuvmk_lab::traffic;

use crate::cases::Guest;
use crate::workshop::Workshop;

/// Programs for few and for many repeats, each with the submissions that it makes. All wait asleep: where
/// each look at a fence is a trapped read, waiting awake has no fixed cost.
const PROGRAMS: [(&[&str], f64); 2] =
    [(&["bench:repeats=100:awake=0"], 100.0), (&["bench:repeats=1100:awake=0"], 1100.0)];

/// What one submission and the wait for it cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// Reads: the guest's processor stands still until each is answered.
    pub reads: f64,
    /// Writes, which are posted.
    pub writes: f64,
}

/// Boots `guest` twice and tells the costs from the difference.
pub fn costs(workshop: &Workshop, topology: Topology, guest: &Guest) -> Result<Costs> {
    let accesses = |what: &str, programs: &'static [&'static str]| -> Result<Costs> {
        let guest = Guest { programs, ..guest.clone() };
        let label = format!("{}-messages-{what}", topology.name());
        let mut rig = workshop.rig(&label, topology, std::slice::from_ref(&guest))?;
        let mut machine = workshop.start(&label, guest.name, &rig, &guest, 0)?;
        let done = machine.wait_for(
            "its submissions were done",
            |report| matches!(report, Report::Result(result) if result.program == "bench"),
        )?;
        let Report::Result(result) = done else { bail!("The guest reports something else") };
        ensure!(result.ok, "the guest failed: {}", result.error.unwrap_or_default());
        machine.kill()?;
        rig.stop()?;
        let log = rig.device(0).context("The set-up has no device")?.log();
        session_accesses(&log).context("The device's log counts no accesses")
    };
    let [(few, few_submissions), (many, many_submissions)] = PROGRAMS;
    let (few, many) = (accesses("few", few)?, accesses("many", many)?);
    let each = |many: f64, few: f64| (many - few) / (many_submissions - few_submissions);
    Ok(Costs { reads: each(many.reads, few.reads), writes: each(many.writes, few.writes) })
}

/// The reads and writes of all sessions that a device's log counts.
fn session_accesses(log: &str) -> Option<Costs> {
    let sum = |name: &str| traffic::counted(log, "Session ends:", &[name]);
    Some(Costs { reads: sum("reads")?, writes: sum("writes")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_of_all_sessions_are_added_up() {
        let log = "x Session ends: messages=9 reads=10 writes=2 write_batches=1\nother\n\
                   x Session ends: messages=5 reads=5 writes=1 write_batches=0\n";
        let costs = session_accesses(log).unwrap();
        assert_eq!(costs, Costs { reads: 15.0, writes: 3.0 });
        assert_eq!(session_accesses("nothing"), None);
    }
}
