//! The timed boots of the suite, in turns: what else the machine does then hits both set-ups alike.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use gpuvmk_lab::chip::GuestChip as _;
use gpuvmk_lab::rig::Topology;

use super::boots::Guests;
use super::paired::{self, Turns};
use super::table::{POWER_OFF, Samples};
use super::{POWER_OFF_KERNEL, fail, topologies};

/// What they gave.
#[derive(Debug, Default)]
pub struct Rounds {
    /// Every time, by set-up.
    pub samples: BTreeMap<Topology, Samples>,
    /// The figures among them that guests with both GPUs measured: equal places are one turn.
    pub paired: BTreeSet<String>,
    /// What a boot cost the device's process, by set-up: the last of each.
    pub totals: BTreeMap<&'static str, BTreeMap<&'static str, f64>>,
    pub left_out: BTreeSet<String>,
}

impl Rounds {
    /// Boots each set-up `rounds` times. What fails costs its own figures only: a run is long.
    pub fn run(guests: &Guests<'_>, rounds: u32, failed: &mut Vec<String>) -> Result<Self> {
        let (mut found, mut turns) = (Self::default(), Turns::new());
        for round in 0..rounds {
            for &topology in topologies(guests.chip) {
                found.boot(guests, topology, round, failed)?;
            }
            if guests.chip.has_native_form() {
                for order in paired::ORDERS {
                    match guests.paired(order, round) {
                        Ok(more) => paired::add(&mut turns, more),
                        Err(error) => fail(failed, &format!("both in one guest, round {round}"), &error)?,
                    }
                }
            }
        }
        found.put(turns);
        Ok(found)
    }

    fn boot(
        &mut self,
        guests: &Guests<'_>,
        topology: Topology,
        round: u32,
        failed: &mut Vec<String>,
    ) -> Result<()> {
        let place = || format!("{}, round {round}", topology.name());
        let samples = self.samples.entry(topology).or_default();
        match guests.timed(topology, round) {
            Ok(boot) => {
                boot.add_to(samples);
                self.totals.insert(topology.name(), boot.totals);
                self.left_out.extend(boot.left_out);
            }
            Err(error) => fail(failed, &place(), &error)?,
        }
        match guests.power_off(topology, POWER_OFF_KERNEL, round) {
            Ok(off) => samples.entry(POWER_OFF.to_owned()).or_default().push(off),
            Err(error) => fail(failed, &format!("{}, power-off", place()), &error)?,
        }
        Ok(())
    }

    /// Takes the turns of guests with both GPUs, in place of what separate guests measured of the same.
    fn put(&mut self, turns: Turns) {
        for (topology, turns) in turns {
            self.paired.extend(turns.keys().cloned());
            self.samples.entry(topology).or_default().extend(turns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_stand_in_place_of_what_separate_guests_measured() {
        let samples = |name: &str, times: &[f64]| Samples::from([(name.to_owned(), times.to_vec())]);
        let mut rounds = Rounds::default();
        let mut separate = samples("pipelined_4k_us_p50", &[50.0]);
        separate.extend(samples("channel_open_us_p50", &[7000.0]));
        rounds.samples.insert(Topology::Native, separate);

        rounds.put(Turns::from([(Topology::Native, samples("pipelined_4k_us_p50", &[40.0, 41.0, 42.0]))]));

        let native = rounds.samples.get(&Topology::Native).unwrap();
        assert_eq!(native.get("pipelined_4k_us_p50"), Some(&vec![40.0, 41.0, 42.0]));
        assert_eq!(native.get("channel_open_us_p50"), Some(&vec![7000.0]));
        assert!(rounds.paired.contains("pipelined_4k_us_p50") && rounds.paired.len() == 1);
    }
}
