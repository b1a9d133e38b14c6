//! Vulkan in guests: steps of their own, run by `--vulkan` alone.
//!
//! Mesa's NVK and our Vulkan program are an initramfs part in the pack, put behind the guests' initramfs only
//! here: other guests need not unpack 44 MiB at each boot. Of the two drivers (docs/nvk.md) the one as Debian
//! builds it moves data; the edited one runs shaders as well. No step is run after one that
//! failed: a shader that provokes a fault would provoke it again, on a GPU that may have other users.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use gpuvmk_lab::nvk;
use gpuvmk_lab::pack::Pack;
use gpuvmk_lab::rig::Backend;

use crate::options::Options;
use crate::suite::{Guest, Step};

/// What a guest needs with the part unpacked in its memory, and buffers of the checks.
const LEAST_MEMORY_MIB: u32 = 1024;
/// Two buffers of 48 MiB and what the driver itself allocates. A vGPU with more than BAR1 has room for is not
/// in VRAM (docs/rm.md), so this is not more than what is needed.
const VRAM_MIB: u32 = 192;
/// The same without the check of the bandwidth, for two guests at once.
const SHARED_VRAM_MIB: u32 = 96;

/// The steps.
pub fn steps(options: &Options) -> Vec<Step> {
    let (all, some) = match options.backend {
        Backend::Rm => ("nvk:driver=edited", "nvk:driver=edited:checks=transfer,compute"),
        // Rates are for hardware.
        Backend::Soft => {
            ("nvk:driver=edited:checks=transfer,code,compute", "nvk:driver=edited:checks=transfer,compute")
        }
    };
    let mut steps = vec![
        step("vulkan-stock", vec![guest(options, "stock", "nvk:driver=stock:checks=transfer", VRAM_MIB)]),
        step("vulkan", vec![guest(options, "vulkan", all, VRAM_MIB)]),
    ];
    if options.guests >= 2 {
        let guests = ["vulkan1", "vulkan2"].map(|name| guest(options, name, some, SHARED_VRAM_MIB));
        steps.push(step("vulkan-2", guests.to_vec()));
    }
    steps
}

/// The guests' initramfs with the part behind it, written to the temporary folder.
pub fn initramfs(pack: &Pack) -> Result<PathBuf> {
    let path = std::env::temp_dir().join("initramfs-nvk.cpio");
    nvk::join(&pack.initramfs(), &pack.vulkan(), &path)?;
    Ok(path)
}

fn step(name: &str, guests: Vec<Guest>) -> Step {
    Step { name: name.into(), guests, limit: Duration::from_secs(120), ordered: false }
}

fn guest(options: &Options, name: &str, call: &str, vram_mib: u32) -> Guest {
    Guest {
        name: name.to_owned(),
        programs: vec!["probe".into(), call.to_owned(), "copy:largest=65537".into()],
        cpus: 1,
        memory_mib: options.memory.max(LEAST_MEMORY_MIB),
        vram_mib,
        kernel_words: &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn calls(words: &[&str]) -> Vec<String> {
        let options = Options::parse_from(std::iter::once(&"run.sh").chain(words));
        steps(&options).into_iter().flat_map(|step| step.guests).flat_map(|guest| guest.programs).collect()
    }

    #[test]
    fn rates_are_for_hardware() {
        assert!(calls(&["--vulkan"]).contains(&"nvk:driver=edited".to_owned()));
        let soft = calls(&["--vulkan", "--backend", "soft"]);
        let begins = |call: &str| soft.iter().any(|program| program.starts_with(call));
        assert!(
            begins("nvk:driver=edited:checks=transfer") && !soft.contains(&"nvk:driver=edited".to_owned())
        );
    }
}
