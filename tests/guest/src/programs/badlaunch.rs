//! `badlaunch`: kernels that cannot go on. Each must kill its own channel, be named in the kernel's log, and
//! leave everybody else alone.
//!
//! One stores where nothing is mapped; the words of another are no instructions. A chip for which there are
//! no kernels gets another's: whether its GPU executes shaders or not, it cannot run those.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use gpuvmk_kernels::launch::{Parameters, Size3};
use gpuvmk_kernels::{SM90, spin};

use super::session::Session;
use super::{Figures, Options};
use crate::chip::Chip;
use crate::compute::Compute;
use crate::drm::Device;
use crate::kmsg::Log;

/// Inside the 40 bits of an address, where nouveau maps nothing.
const UNMAPPED: u64 = 0x3f_0000_0000;
/// How the kernel's log has it, whichever thread is the first.
const UNMAPPED_PREFIX: &str = "3f0000";
/// How long the driver may take to notice.
const NOTICE: Duration = Duration::from_secs(10);
const LARGEST: usize = 4096;
/// What the other channel copies.
const LENGTH: usize = 64 << 10;

pub fn run(options: &Options) -> Result<Figures> {
    let gpu = options.gpu()?;
    let chip = Chip::of(&Device::open(gpu)?)?;
    let mut bystander = Session::open(gpu, 1 << 20)?;
    let mut figures = Figures::new();
    let mut note = |name: &str, line: String| figures.insert(name.to_owned(), line.into());
    if chip.kernels().is_ok() {
        note("address", dies(gpu, chip, false, &chip.fault_words(UNMAPPED_PREFIX)?)?);
        bystander.there_and_back(1, [0, 4096, 0], LENGTH).context("after a fault of a shader")?;
    }
    note("words", dies(gpu, chip, true, &["rc engn:", "type:13"])?);
    bystander.there_and_back(2, [0, 4096, 0], LENGTH).context("after words that are no instructions")?;
    Ok(figures)
}

/// Launches what must kill its channel, with words that are no instructions or with a kernel that stores
/// where nothing is mapped; gives the line of the kernel's log, which has `words`.
fn dies(gpu: usize, chip: &Chip, illegal: bool, words: &[&str]) -> Result<String> {
    let kernels = chip.kernels().unwrap_or(&SM90);
    let mut log = Log::from_now()?;
    let mut compute = Compute::open(gpu, kernels, LARGEST)?;
    let out = compute.buffer(LARGEST)?;
    let mut target = UNMAPPED;
    if illegal {
        compute.spoil(&kernels.spin)?;
        target = out.1;
    }
    let parameters = Parameters::default().pointer(target).word(1).word(0);
    // Whether the fence of a killed channel is signalled in time is the driver's affair.
    let launched = compute.run(&kernels.spin, Size3(4, 1, 1), spin::BLOCK, &parameters);
    let line = log.wait_for(words, NOTICE)?;
    let line =
        line.with_context(|| format!("no {words:?} within {NOTICE:?}: the launch gave {launched:?}"))?;
    let killed = log.wait_for(&["nouveau", "killed"], NOTICE)?;
    ensure!(killed.is_some(), "the channel was not killed within {NOTICE:?}");
    if compute.read(&out, LARGEST).is_ok() {
        bail!("the channel still takes work");
    }
    Ok(line)
}
