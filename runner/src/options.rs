//! What the user asks for.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Parser;
use gpuvmk_lab::chip::Chip;
use gpuvmk_lab::rig::Backend;

/// Runs stock guests on this machine's GPU, compares them with native work, and prints one JSON object last.
#[derive(Debug, Parser)]
#[command(name = "run.sh", version, max_term_width = 100)]
pub struct Options {
    /// The folder of the pack
    #[arg(long, value_name = "DIR", hide = true)]
    pub pack: Option<PathBuf>,
    /// What executes the guests' work: rm is this machine's NVIDIA GPU, soft the software GPU
    #[arg(long, value_name = "NAME", default_value = "rm")]
    pub backend: Backend,
    /// The chip that guests see: GH100, or GF100 on the software GPU
    #[arg(long, value_name = "NAME", default_value = "GH100")]
    pub chip: Chip,
    /// The most guests at once: the suite runs with 1, 2 and 4 of them, up to this number
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub guests: usize,
    /// Only show that guests work: a short suite and no figures that need boots of their own
    #[arg(long)]
    pub quick: bool,
    /// Only Vulkan: Mesa's NVK in one and two guests
    #[arg(long)]
    pub vulkan: bool,
    /// Only CUDA: NVIDIA's own driver in one, two and four guests, all checks and the papers' table, in a
    /// pack that was made with --cuda
    #[arg(long, conflicts_with_all = ["vulkan", "quick"])]
    pub cuda: bool,
    /// With --cuda, only the papers' table: programs beside a native client, launches, copies
    #[arg(long, requires = "cuda")]
    pub table: bool,
    /// Where logs and the result go
    #[arg(long, value_name = "DIR", default_value = "gpuvmk-logs")]
    pub logs: PathBuf,
    /// A folder to unpack into, instead of one in the temporary folder; what is unpacked is removed at the
    /// end
    #[arg(long, value_name = "DIR")]
    pub work: Option<PathBuf>,
    /// Seconds that everything may take; what is not done by then is missing from the result
    #[arg(long, value_name = "SECONDS", default_value_t = 570)]
    pub limit: u64,
    /// The user that everything runs as when this is started by root
    #[arg(long, value_name = "UID", default_value_t = 65534)]
    pub user: u32,
    /// The memory of a vGPU in the suite, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 128)]
    pub vram: u32,
    /// The memory of a guest, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 640)]
    pub memory: u32,
    /// Work in this folder, everything being unpacked
    #[arg(long, value_name = "DIR", hide = true)]
    pub worker: Option<PathBuf>,
}

impl Options {
    /// Refuses what cannot be run, before anything is unpacked.
    pub fn check(&self) -> Result<()> {
        ensure!((1..=16).contains(&self.guests), "{} guests cannot be run: 1 to 16 can", self.guests);
        ensure!(self.limit >= 30, "{} s are too short for a single boot: give at least 30", self.limit);
        ensure!(
            (64..=1 << 20).contains(&self.vram) && self.vram.is_multiple_of(16),
            "A vGPU cannot have {} MiB: give a multiple of 16 from 64 on",
            self.vram
        );
        ensure!(
            self.backend == Backend::Soft || self.chip == Chip::GH100,
            "NVIDIA's driver has no GPUs as old as a {}: give --backend soft",
            self.chip
        );
        ensure!(self.memory >= 256, "{} MiB are too little for a guest: give at least 256", self.memory);
        Ok(())
    }

    /// Steps of their own, without native figures, and none after one that failed.
    pub fn is_special(&self) -> bool {
        self.vulkan || self.cuda
    }

    /// How long everything may take.
    pub fn limit(&self) -> Duration {
        Duration::from_secs(self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Options {
        Options::parse_from(std::iter::once(&"run.sh").chain(words))
    }

    #[test]
    fn hardware_and_its_chip_are_the_defaults() {
        let options = parse(&[]);
        assert_eq!((options.backend, options.chip, options.guests), (Backend::Rm, Chip::GH100, 4));
        assert!(options.check().is_ok());
    }

    #[test]
    fn impossible_sizes_are_refused() {
        for words in
            [["--guests", "0"], ["--limit", "5"], ["--vram", "100"], ["--memory", "8"], ["--chip", "GF100"]]
        {
            assert!(parse(&words).check().is_err(), "{words:?}");
        }
    }
}
