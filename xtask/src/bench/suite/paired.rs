//! One guest that has both GPUs, a native one and a mediated one, and measures them in turns.
//!
//! How the host lays threads on its processors differs from boot to boot, and so short times do, by several
//! percent. The two GPUs of one guest have it alike: a turn measures one right after the other, and its ratio
//! means something by itself.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use gpuvmk_lab::report::ProgramResult;
use gpuvmk_lab::rig::Topology;

use super::boots::{self, Guests};
use super::table::Samples;
use crate::cases::Guest;

/// Room for buffers of 16 MiB: nothing here is larger.
const VRAM_MIB: u32 = 512;
const MEMORY_MIB: u32 = 1024;

/// How often each GPU is measured in a boot.
pub const TURNS: usize = 3;
/// What a turn runs, each on one GPU after the other. Long enough for the host to move threads about.
const PROGRAMS: &[&str] = &[
    "probe",
    "bench:times=6",
    "suite:only=pipelined",
    "suite:only=many",
    "bench:times=6",
    "suite:only=pipelined",
    "suite:only=many",
    "bench:times=6",
    "suite:only=pipelined",
    "suite:only=many",
];

/// The times of each GPU of such guests: equal places of a figure's samples are one turn.
pub type Turns = BTreeMap<Topology, Samples>;

impl Guests<'_> {
    /// The times of both GPUs of one guest, whose first GPU is the first of `topologies`.
    pub fn paired(&self, topologies: [Topology; 2], round: u32) -> Result<Turns> {
        let [first, _] = topologies.map(Topology::name);
        let label = format!("suite-{}-paired-{first}-first-{round}", self.chip).to_lowercase();
        eprintln!("{label}");
        let guest = Guest {
            gpus: vec![self.chip; topologies.len()],
            vram_mib: VRAM_MIB,
            memory_mib: Some(MEMORY_MIB),
            kernel_words: boots::WORDS,
            bar3: self.bar3,
            ..Guest::new("vm1", self.chip, self.kernel, PROGRAMS)
        };
        let mut rig = self.workshop.mixed_rig(&label, &topologies, &guest)?;
        let heard = boots::hear(self.workshop, &label, &rig, &guest)?;
        boots::stop(&mut rig)?;
        turns(&heard.results, topologies)
    }
}

/// Which GPU is the guest's first one: each as often as the other, since which comes first makes a difference
/// of several percent.
pub const ORDERS: [[Topology; 2]; 2] =
    [[Topology::Native, Topology::Mediated], [Topology::Mediated, Topology::Native]];

/// Sorts a guest's results by its GPUs. A figure with more turns on one of them would set off its turns of
/// later boots.
fn turns(results: &[ProgramResult], topologies: [Topology; 2]) -> Result<Turns> {
    let mut turns = Turns::new();
    let mut names = BTreeSet::new();
    for result in results {
        let gpu = usize::try_from(result.gpu)?;
        let topology = topologies.get(gpu).with_context(|| format!("the guest reports of a GPU {gpu}"))?;
        let samples = turns.entry(*topology).or_default();
        let times = result.figures.iter().filter(|(name, _)| boots::is_time(name));
        for (name, time) in times.filter_map(|(name, time)| Some((name, time.as_f64()?))) {
            samples.entry(name.clone()).or_default().push(time);
            names.insert(name);
        }
    }
    for name in names {
        for topology in topologies {
            let times = turns.get(&topology).and_then(|samples| samples.get(name)).map_or(0, Vec::len);
            let which = topology.name();
            ensure!(times == TURNS, "the {which} GPU was measured {times} times, not {TURNS}: {name}");
        }
    }
    Ok(turns)
}

/// Adds the turns of one more boot.
pub fn add(all: &mut Turns, turns: Turns) {
    for (topology, samples) in turns {
        let all = all.entry(topology).or_default();
        for (name, mut times) in samples {
            all.entry(name).or_default().append(&mut times);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NATIVE_FIRST: [Topology; 2] = ORDERS[0];

    fn result(program: &str, gpu: u64, figure: &str, time: f64) -> ProgramResult {
        let figures = json!({ figure: time }).as_object().cloned().unwrap_or_default();
        ProgramResult { program: program.to_owned(), gpu, ok: true, error: None, figures }
    }

    /// A boot whose first GPU takes 1, 2 and 3, and the second 11, 12 and 13.
    fn results() -> Vec<ProgramResult> {
        let turn = |turn: f64| {
            [(0, turn), (1, turn + 10.0)].map(|(gpu, time)| result("bench", gpu, "latency_4k_us_p50", time))
        };
        [1.0, 2.0, 3.0].into_iter().flat_map(turn).collect()
    }

    fn latency(turns: &Turns, topology: Topology) -> Vec<f64> {
        turns.get(&topology).and_then(|samples| samples.get("latency_4k_us_p50")).cloned().unwrap_or_default()
    }

    #[test]
    fn turns_of_all_boots_stay_beside_each_other_whichever_gpu_is_first() {
        let mut all = Turns::new();
        add(&mut all, turns(&results(), ORDERS[0]).unwrap());
        add(&mut all, turns(&results(), ORDERS[1]).unwrap());
        assert_eq!(latency(&all, Topology::Native), [1.0, 2.0, 3.0, 11.0, 12.0, 13.0]);
        assert_eq!(latency(&all, Topology::Mediated), [11.0, 12.0, 13.0, 1.0, 2.0, 3.0]);
    }

    #[test]
    fn time_of_loading_nouveau_for_both_gpus_is_none_of_one() {
        let mut results = results();
        results.extend([0, 1].map(|gpu| result("probe", gpu, "probe_ms", 3000.0)));
        let turns = turns(&results, NATIVE_FIRST).unwrap();
        assert!(turns.values().all(|samples| samples.len() == 1), "{turns:?}");
    }

    #[test]
    fn figure_with_fewer_turns_on_one_gpu_fails_the_boot() {
        let mut results = results();
        results.pop();
        let error = turns(&results, NATIVE_FIRST).unwrap_err().to_string();
        assert_eq!(error, "the mediated GPU was measured 2 times, not 3: latency_4k_us_p50");
        let stray = [result("bench", 2, "latency_4k_us_p50", 1.0)];
        assert_eq!(turns(&stray, NATIVE_FIRST).unwrap_err().to_string(), "the guest reports of a GPU 2");
    }

    #[test]
    fn programs_are_a_probe_and_as_many_equal_turns() {
        let (first, rest) = PROGRAMS.split_first().unwrap();
        assert_eq!(*first, "probe");
        let all: Vec<&[&str]> = rest.chunks(rest.len() / TURNS).collect();
        assert!(all.len() == TURNS && all.iter().all(|turn| *turn == all[0]), "{all:?}");
    }
}
