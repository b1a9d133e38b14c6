//! The steps of a run, as data: how many guests, what each runs, how long it may take.

use std::time::Duration;

use gpuvmk_chip::Face;
use gpuvmk_lab::chip::{Chip, GuestChip as _};
use gpuvmk_lab::rig::Backend;

use crate::options::Options;
use crate::{cuda, vulkan};

/// Submissions of the two guests whose difference tells what one costs.
pub const FEW_SUBMISSIONS: u32 = 100;
pub const MANY_SUBMISSIONS: u32 = 600;
/// Mappings of the guest whose median tells what one costs.
const MAPPINGS: u32 = 400;

/// The memory of the vGPU and of the guest that are measured alone: two buffers of the largest copy, and
/// more.
const SPEED_VRAM_MIB: u32 = 512;
/// The largest vGPU, and its guest's memory.
const LARGE_VRAM_MIB: u32 = 16 << 10;
const LARGE_MEMORY_MIB: u32 = 4096;

/// Names of the steps that figures are taken from.
pub const SPEED: &str = "speed";
pub const COUNTS: &str = "counts";
pub const SHARE: &str = "share";
pub const POLICIES: &str = "policies";

/// One guest of a step.
#[derive(Debug, Clone)]
pub struct Guest {
    /// Its name, which is its vGPU's.
    pub name: String,
    /// What it runs.
    pub programs: Vec<String>,
    /// Its processors.
    pub cpus: u32,
    /// Its memory.
    pub memory_mib: u32,
    /// Its vGPU's memory.
    pub vram_mib: u32,
    /// Words for its kernel.
    pub kernel_words: &'static [&'static str],
}

/// Guests that want the GPU all the time where policies are compared, and what each copies at a time: on a
/// real GPU enough that an emulated guest keeps it busy.
const CROWD: usize = 8;
const SOFT_COPY: &str = "contend";
const REAL_COPY: &str = "contend:copy=16777216";
/// Eleven such buffers, and more.
const CROWD_VRAM_MIB: u32 = 320;

/// Guests that run at once.
#[derive(Debug, Clone)]
pub struct Step {
    /// Its name.
    pub name: String,
    /// The guests.
    pub guests: Vec<Guest>,
    /// How long it may take.
    pub limit: Duration,
    /// Guests are told what to do while they run.
    pub ordered: bool,
}

/// Every step of a run, in order.
pub fn steps(options: &Options) -> Vec<Step> {
    if options.vulkan {
        return vulkan::steps(options);
    }
    if options.cuda {
        return cuda::steps(options);
    }
    let suite = suite(options);
    let mut steps = Vec::new();
    if !options.quick && options.chip == Chip::GH100 {
        steps.push(speed(options));
    }
    for count in [1, 2, 4].into_iter().filter(|count| *count <= options.guests) {
        let guests = (1..=count).map(|number| guest(options, &format!("vm{number}"), &suite)).collect();
        steps.push(step(format!("guests-{count}"), guests, 180));
    }
    if !options.quick && options.chip == Chip::GH100 {
        steps.push(counts(options));
        if options.guests >= 2 {
            steps.push(share(options));
            steps.push(policies(options));
        }
        if options.backend == Backend::Rm {
            steps.push(large(options));
        }
    }
    steps
}

/// What every guest must pass. Programs that provoke a fault run on the software GPU only: a machine with a
/// real one has other users.
fn suite(options: &Options) -> Vec<&'static str> {
    let mut programs = vec!["probe", "copy", "fence", "channels", "bar1"];
    if options.quick {
        programs = vec!["probe", "copy:largest=65537", "fence"];
    }
    match (options.chip.face, options.backend) {
        (Face::Registers, _) => {}
        (Face::Gsp, backend) => {
            programs.extend(["exec", "fill", "i2m"]);
            if options.chip.computes() {
                // The software GPU takes its time.
                let short = "compute:rounds=20:warm=1:repeats=3";
                programs.push(if backend == Backend::Soft { short } else { "compute" });
            }
        }
    }
    if !options.quick {
        programs.extend(["evict", "reload"]);
        if options.backend == Backend::Soft {
            programs.extend(["badaddr", "badcopy"]);
        }
    }
    programs
}

/// One guest alone, for figures that stand beside native ones.
fn speed(options: &Options) -> Step {
    let mut programs = vec!["probe", "bandwidth", "bench:repeats=200"];
    if options.backend == Backend::Rm {
        programs.push("compute");
    }
    let guest = Guest { vram_mib: SPEED_VRAM_MIB, ..guest(options, SPEED, &programs) };
    step(SPEED.into(), vec![guest], 120)
}

/// Much memory on both sides. On the software GPU it would be this machine's own.
fn large(options: &Options) -> Step {
    let guest = Guest {
        vram_mib: LARGE_VRAM_MIB,
        memory_mib: LARGE_MEMORY_MIB,
        ..guest(options, "large", &["probe", "copy:largest=65537", "exec"])
    };
    step("large".into(), vec![guest], 120)
}

/// Guests that differ in one number: the difference of what their vGPUs count is that number's.
fn counts(options: &Options) -> Step {
    let calls = [
        ("few-submissions", format!("bench:repeats={FEW_SUBMISSIONS}")),
        ("many-submissions", format!("bench:repeats={MANY_SUBMISSIONS}")),
        ("mappings", format!("mapping:repeats={MAPPINGS}")),
    ];
    let guests = calls.iter().map(|(name, call)| guest(options, name, &["probe", call])).collect();
    step(COUNTS.into(), guests, 150)
}

/// Two guests that keep the GPU busy.
fn share(options: &Options) -> Step {
    let busy = match options.backend {
        Backend::Soft => "busy:secs=10:work=copy",
        Backend::Rm => "busy:secs=10:work=compute",
    };
    let guests = ["busy1", "busy2"].map(|name| guest(options, name, &["probe", busy])).to_vec();
    step(SHARE.into(), guests, 90)
}

/// Guests that are told what to want, under several policies.
fn policies(options: &Options) -> Step {
    let (count, program, vram_mib) = match options.backend {
        Backend::Soft => (options.guests.min(CROWD), SOFT_COPY, options.vram),
        Backend::Rm => (CROWD, REAL_COPY, CROWD_VRAM_MIB),
    };
    let name = |number: usize| format!("vm{number}");
    let guests = (1..=count).map(|number| Guest { vram_mib, ..guest(options, &name(number), &[program]) });
    Step { ordered: true, ..step(POLICIES.into(), guests.collect(), 240) }
}

fn step(name: String, guests: Vec<Guest>, seconds: u64) -> Step {
    // An emulated guest on a machine with few processors takes its time.
    Step { name, guests, limit: Duration::from_secs(seconds), ordered: false }
}

fn guest(options: &Options, name: &str, programs: &[&str]) -> Guest {
    Guest {
        name: name.to_owned(),
        programs: programs.iter().map(|program| (*program).to_owned()).collect(),
        cpus: 1,
        memory_mib: options.memory,
        vram_mib: options.vram,
        kernel_words: &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn named(words: &[&str]) -> Vec<Step> {
        steps(&Options::parse_from(std::iter::once(&"run.sh").chain(words)))
    }

    fn programs(steps: &[Step]) -> Vec<&str> {
        steps
            .iter()
            .flat_map(|step| &step.guests)
            .flat_map(|guest| &guest.programs)
            .map(String::as_str)
            .collect()
    }

    #[test]
    fn suite_runs_with_one_two_and_four_guests() {
        let counts: Vec<usize> = named(&["--backend", "soft"])
            .iter()
            .filter(|step| step.name.starts_with("guests-"))
            .map(|step| step.guests.len())
            .collect();
        assert_eq!(counts, [1, 2, 4]);
        assert_eq!(named(&["--guests", "2", "--quick"]).len(), 2);
    }

    #[test]
    fn faults_are_provoked_on_the_software_gpu_only() {
        let steps = named(&["--backend", "rm"]);
        assert!(!programs(&steps).iter().any(|program| program.starts_with("bad")));
        assert!(programs(&named(&["--backend", "soft"])).contains(&"badaddr"));
    }

    #[test]
    fn names_of_vgpus_are_unique_in_a_step() {
        for step in named(&[]) {
            let mut names: Vec<_> = step.guests.iter().map(|guest| &guest.name).collect();
            let count = names.len();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), count, "{}", step.name);
        }
    }

    #[test]
    fn a_fermi_gets_none_of_hoppers_programs() {
        let steps = named(&["--chip", "gf100", "--backend", "soft"]);
        assert!(!programs(&steps).iter().any(|program| matches!(*program, "exec" | "i2m" | "compute")));
    }
}
