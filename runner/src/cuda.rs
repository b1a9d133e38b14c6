//! CUDA in guests with NVIDIA's own driver: steps of their own, run by `--cuda` alone, of a pack that was
//! made for it.
//!
//! No step is run after one that failed: what provoked a fault would provoke it again, on a GPU that may have
//! other users. The check that provokes one on purpose is for the software GPU.

use std::time::Duration;

use anyhow::{Result, ensure};
use gpuvmk_lab::nvidia;
use gpuvmk_lab::pack::Manifest;
use gpuvmk_lab::rig::Backend;

use crate::options::Options;
use crate::papers;
use crate::suite::{Guest, Step};

/// What each guest runs: `nvidia-smi`, and all checks of our CUDA program that are not named apart.
const PROGRAMS: &[&str] = &["smi", "cuda"];

/// The papers' table in a guest alone, with what single operations take, and in several at once; on a card,
/// and in small sizes on the software GPU.
const ALONE: &str = "cuda:checks=table-full,latencies,copies,touch,crowd";
const SMALL_ALONE: &str = "cuda:checks=table,latencies-small,touch";
const CROWD: &str = "cuda:checks=crowd";
const SMALL_CROWD: &str = "cuda:checks=crowd-small";

/// Memory of a vGPU for the table: two buffers of 256 MiB, and more.
const TABLE_VRAM_MIB: u32 = 2 * nvidia::VRAM_MIB;

/// The steps: all checks, then the table, each in 1, 2 and 4 guests at once, up to the number that is wanted.
pub fn steps(options: &Options) -> Vec<Step> {
    let counts = || [1, 2, 4].into_iter().filter(|count| *count <= options.guests);
    let programs = PROGRAMS.iter().map(|program| (*program).to_owned()).collect::<Vec<_>>();
    let checks = counts().filter(|_| !options.table).map(|count| {
        step(format!("cuda-{count}"), count, |name| Guest { programs: programs.clone(), ..guest(name) })
    });
    let (alone, crowd) = match options.backend {
        Backend::Rm => (ALONE, CROWD),
        Backend::Soft => (SMALL_ALONE, SMALL_CROWD),
    };
    let table = counts().map(|count| {
        let program = if count == 1 { alone } else { crowd };
        step(format!("{}{count}", papers::CROWD), count, |name| Guest {
            programs: vec![program.to_owned()],
            vram_mib: TABLE_VRAM_MIB,
            ..guest(name)
        })
    });
    checks.chain(table).collect()
}

fn step(name: String, count: usize, guest: impl Fn(&str) -> Guest) -> Step {
    let guests = (1..=count).map(|number| guest(&format!("cuda{number}"))).collect();
    Step { name, guests, limit: Duration::from_secs(240), ordered: false }
}

/// Whether this pack has what is asked for.
///
/// # Errors
/// It has other guests.
pub fn check(options: &Options, manifest: &Manifest) -> Result<()> {
    ensure!(
        manifest.nvidia.is_some() || !options.cuda,
        "This pack's guests have nouveau: make another one with 'cargo xtask pack --cuda' for --cuda"
    );
    ensure!(
        manifest.nvidia.is_none() || options.cuda,
        "This pack's guests have NVIDIA's driver alone: give --cuda"
    );
    Ok(())
}

fn guest(name: &str) -> Guest {
    Guest {
        name: name.to_owned(),
        programs: Vec::new(),
        cpus: 2,
        memory_mib: nvidia::MEMORY_MIB,
        vram_mib: nvidia::VRAM_MIB,
        kernel_words: nvidia::KERNEL_WORDS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn options(words: &[&str]) -> Options {
        Options::parse_from(std::iter::once(&"run.sh").chain(words))
    }

    fn manifest(nvidia: Option<&str>) -> Manifest {
        let text = |text: &str| text.to_owned();
        Manifest {
            gpuvmk: text("0.1.0"),
            commit: None,
            qemu: text("11.1"),
            series: text("6.12"),
            kernel: text("6.12.95"),
            nvidia: nvidia.map(text),
        }
    }

    #[test]
    fn no_fault_is_provoked_and_guests_are_as_many_as_wanted() {
        let counts: Vec<_> =
            steps(&options(&["--cuda", "--guests", "2"])).iter().map(|s| s.guests.len()).collect();
        assert_eq!(counts, [1, 2, 1, 2]);
        assert!(!PROGRAMS.iter().any(|program| program.contains("fault")));
    }

    #[test]
    fn table_alone_is_in_small_sizes_on_the_software_gpu() {
        let steps = steps(&options(&["--cuda", "--table", "--backend", "soft"]));
        let names: Vec<_> = steps.iter().map(|step| step.name.as_str()).collect();
        assert_eq!(names, ["table-1", "table-2", "table-4"]);
        assert_eq!(names[0], papers::ALONE);
        assert_eq!(steps[0].guests[0].programs, [SMALL_ALONE]);
        assert!(steps[2].guests.iter().all(|guest| guest.programs == [SMALL_CROWD]));
    }

    #[test]
    fn pack_of_the_other_kind_is_refused() {
        let told =
            |words: &[&str], nvidia| check(&options(words), &manifest(nvidia)).map_err(|e| e.to_string());
        assert!(told(&["--cuda"], None).unwrap_err().contains("pack --cuda"));
        assert!(told(&[], Some("550.163.01")).unwrap_err().contains("give --cuda"));
        assert_eq!((told(&[], None), told(&["--cuda"], Some("550.163.01"))), (Ok(()), Ok(())));
    }
}
