//! Reads and writes that reach the vfio-user server for one submission and the wait for it.
//!
//! Half of the waits are asleep and half awake; the figure is the difference between a boot with many submissions
//! and one with few. (Writes that the client batches count one by one, so that it does not depend on how busy the
//! machine is.)

use anyhow::{Context, Result, ensure};
use gpuvmk_lab::rig::Topology;
use gpuvmk_lab::{traffic, verdict};

use crate::cases::Guest;
use crate::workshop::{self, Workshop};

const FEW: (&[&str], f64) = (&["probe", "bench:repeats=100"], 100.0);
const MANY: (&[&str], f64) = (&["probe", "bench:repeats=600"], 600.0);

/// What one submission and the wait for it cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// Reads: the guest's processor stands still until each is answered.
    pub reads: f64,
    /// Writes, which are posted.
    pub writes: f64,
}

impl Costs {
    /// Everything that reaches the server.
    pub fn messages(self) -> f64 {
        self.reads + self.writes
    }
}

/// Boots `guest` twice and tells the costs from the difference.
pub fn costs(workshop: &Workshop, topology: Topology, guest: &Guest) -> Result<Costs> {
    let accesses = |what: &str, programs: &'static [&'static str]| -> Result<Costs> {
        let guest = Guest { programs, ..guest.clone() };
        let label = format!("{}-messages-{what}", topology.name());
        let mut rig = workshop.rig(&label, topology, std::slice::from_ref(&guest))?;
        let outcome = workshop.start(&label, guest.name, &rig, &guest, 0)?.wait(&mut |_| {})?;
        let verdict = verdict::judge(&outcome, &workshop::expected(&guest));
        ensure!(verdict.ok(), "the guest failed: {}", verdict.problems.join("; "));
        rig.stop()?;
        let log = rig.device(0).context("The set-up has no device")?.log();
        session_accesses(&log).context("The device's log counts no accesses")
    };
    let (many, few) = (accesses("many", MANY.0)?, accesses("few", FEW.0)?);
    let submissions = 2.0 * (MANY.1 - FEW.1);
    let each = |many: f64, few: f64| (many - few) / submissions;
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
        assert!((costs.messages() - 18.0).abs() < 1e-9);
        assert_eq!(session_accesses("nothing"), None);
    }
}
