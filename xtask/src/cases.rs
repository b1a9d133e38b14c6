//! The guest tests, as data: which kernel, whose GPU, what runs, what happens meanwhile.

use gpuvmk_lab::kernel::KernelSeries;
use gpuvmk_lab::rig::Topology;

/// Every program that a guest with a GPU of its own must pass.
pub const EVERYTHING: &[&str] =
    &["probe", "copy", "fence", "channels", "bar1", "badaddr", "badcopy", "evict", "reload"];
/// Enough to know that the GPU works.
const SHORT: &[&str] = &["probe", "copy:largest=65537", "fence"];

/// One guest of a case.
#[derive(Debug, Clone)]
pub struct Guest {
    /// Its name; its vGPUs are called after it.
    pub name: &'static str,
    /// Its kernel.
    pub kernel: KernelSeries,
    /// How many GPUs it has.
    pub gpus: usize,
    /// Its processors.
    pub cpus: u32,
    /// The programs it runs.
    pub programs: &'static [&'static str],
    /// nouveau's options.
    pub nouveau_options: &'static [&'static str],
    /// How often it reboots itself.
    pub reboots: u32,
}

impl Guest {
    /// A guest with one GPU, one processor and no options.
    pub fn new(name: &'static str, kernel: KernelSeries, programs: &'static [&'static str]) -> Self {
        Self { name, kernel, gpus: 1, cpus: 1, programs, nouveau_options: &[], reboots: 0 }
    }
}

/// What is done to a running set-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disturbance {
    /// Nothing: the guests run to their ends.
    None,
    /// QEMU of the first guest is killed at work; a new one connects to the same socket.
    QemuKilled,
    /// The first guest's device process is killed at work; the second guest must not notice.
    BackendKilled,
    /// The aggregator is killed at work and started again.
    AggregatorRestarted,
    /// The device processes are started before the aggregator.
    DevicesFirst,
}

/// One test.
#[derive(Debug, Clone)]
pub struct Case {
    /// Its name, unique.
    pub name: String,
    /// Native or mediated.
    pub topology: Topology,
    /// The guests, all at once.
    pub guests: Vec<Guest>,
    /// What happens meanwhile.
    pub disturbance: Disturbance,
}

/// All cases, quick ones of each kind first.
pub fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for topology in [Topology::Native, Topology::Mediated] {
        for kernel in KernelSeries::ALL {
            let guest = Guest { cpus: 2, ..Guest::new("vm1", kernel, EVERYTHING) };
            cases.push(case(format!("{}-{kernel}", topology.name()), topology, vec![guest]));
        }
    }
    let kernel = KernelSeries::V6_12;
    let one = Guest::new("vm1", kernel, SHORT);
    for topology in [Topology::Native, Topology::Mediated] {
        let intx = Guest { nouveau_options: &["config=NvMSI=0"], ..one.clone() };
        cases.push(case(format!("{}-intx", topology.name()), topology, vec![intx]));
        let reboot = Guest { reboots: 1, ..one.clone() };
        cases.push(case(format!("{}-reboot", topology.name()), topology, vec![reboot]));
    }

    let mediated = Topology::Mediated;
    let two_gpus = Guest { gpus: 2, ..one.clone() };
    cases.push(case("two-vgpus-in-one-guest".into(), mediated, vec![two_gpus]));
    let busy: &[&str] = &["probe", "copy", "fence", "channels", "evict", "load:secs=5"];
    let pair = |first, second| vec![Guest::new("vm1", first, busy), Guest::new("vm2", second, busy)];
    cases.push(case("two-guests".into(), mediated, pair(kernel, kernel)));
    cases.push(case("two-guests-mixed".into(), mediated, pair(KernelSeries::V6_1, KernelSeries::V7_2)));
    let fault: &[&str] = &["probe", "badaddr", "badaddr", "badaddr", "copy:largest=65537"];
    let neighbour: &[&str] = &["probe", "load:secs=15", "copy:largest=65537"];
    let guests = vec![Guest::new("vm1", kernel, fault), Guest::new("vm2", kernel, neighbour)];
    cases.push(case("neighbour-faults".into(), mediated, guests));

    let at_work: &[&str] = &["probe", "load:secs=90"];
    let victim = Guest::new("vm1", kernel, at_work);
    for topology in [Topology::Native, mediated] {
        let name = format!("{}-qemu-killed", topology.name());
        cases.push(Case {
            disturbance: Disturbance::QemuKilled,
            ..case(name, topology, vec![victim.clone()])
        });
    }
    let guests = vec![victim.clone(), Guest::new("vm2", kernel, neighbour)];
    cases.push(Case {
        disturbance: Disturbance::BackendKilled,
        ..case("backend-killed".into(), mediated, guests)
    });
    cases.push(Case {
        disturbance: Disturbance::DevicesFirst,
        ..case("devices-before-aggregator".into(), mediated, vec![one])
    });
    cases.push(Case {
        disturbance: Disturbance::AggregatorRestarted,
        ..case("aggregator-restarted".into(), mediated, vec![victim])
    });
    cases
}

/// What runs on a socket after a disturbance, to show that it works again.
pub fn afterwards(kernel: KernelSeries) -> Guest {
    Guest::new("vm1", kernel, SHORT)
}

fn case(name: String, topology: Topology, guests: Vec<Guest>) -> Case {
    Case { name, topology, guests, disturbance: Disturbance::None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_names_are_unique() {
        let mut names: Vec<_> = all().into_iter().map(|case| case.name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn every_kernel_passes_every_program_on_both_topologies() {
        let cases = all();
        for topology in [Topology::Native, Topology::Mediated] {
            for kernel in KernelSeries::ALL {
                let covered = cases.iter().filter(|case| case.topology == topology).any(|case| {
                    case.guests.iter().any(|guest| guest.kernel == kernel && guest.programs == EVERYTHING)
                });
                assert!(covered, "{} {kernel}", topology.name());
            }
        }
    }
}
