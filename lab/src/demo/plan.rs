//! What guests of a demonstration are and run, by their driver and chip.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use gpuvmk_chip::Face;
use gpuvmk_companion::GuestDriver;

use super::{Options, SPARE_VRAM_MIB};
use crate::cache::Cache;
use crate::chip::{Chip, GuestChip as _};
use crate::firmware::Firmware;
use crate::kernel::{GuestKernel, KernelSeries};
use crate::nvidia::{RELEASES, Release};
use crate::{guest_build, initramfs, nvidia, nvk};

/// What Vulkan does: list, open, fill, copy and compute.
pub(super) const VULKAN: &str = "nvk:checks=transfer,code,compute";
/// The same where Mesa's shaders do not run.
const VULKAN_WITHOUT_SHADERS: &str = "nvk:checks=transfer";
/// What NVIDIA's driver does: `nvidia-smi`, and a CUDA program.
const NVIDIA: [&str; 2] = ["smi", "cuda"];

/// The mode that monitors prefer: each word of a picture that a guest's processor writes is an access that
/// traps.
pub(super) const DISPLAY: &str = "640x480";
/// The kernel's console is drawn by its processor, which waits for each word: on a busy machine so long that
/// the kernel would take it for hung.
const PATIENT: &[&str] = &["watchdog_thresh=60"];
/// What a head shows: pictures below a cursor, and the kernel's log on its console.
const SHOWN: [&str; 2] = ["patterns:what=cursor", "console:log=20"];

/// Memory of a guest, and with Mesa, a part of which lies in it.
const MEMORY_MIB: [u32; 2] = [512, 768];
/// A vGPU's memory.
const VRAM_MIB: u32 = 128;

/// All of it.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) chip: Chip,
    pub(super) programs: Vec<&'static str>,
    pub(super) memory_mib: u32,
    pub(super) vram_mib: u32,
    pub(super) cpus: u32,
    pub(super) kernel_words: &'static [&'static str],
    driver: GuestDriver,
    kernel: KernelSeries,
    vulkan: bool,
}

impl Plan {
    /// # Errors
    /// The driver, chip, kernel and Vulkan do not go together.
    pub(super) fn new(options: &Options) -> Result<Self> {
        match options.driver {
            GuestDriver::Nouveau => Self::nouveau(options),
            GuestDriver::Nvidia => Self::nvidia(options),
        }
    }

    fn nouveau(options: &Options) -> Result<Self> {
        let chip = options.chip.unwrap_or(Chip::GF100);
        let kernel = options.kernel.unwrap_or(chip.usual_kernel());
        let vulkan = options.vulkan;
        chip.check_kernel(kernel)?;
        ensure!(
            !vulkan || chip.face == Face::Gsp,
            "Mesa has no Vulkan for a {chip}: choose a chip with a GSP, such as AD104"
        );
        ensure!(
            !options.display || chip.classes.heads.is_some(),
            "A {chip} has no head here: choose a chip that has one, such as AD104"
        );
        let mut programs = programs(chip, vulkan);
        programs.extend(SHOWN.iter().filter(|_| options.display));
        Ok(Self {
            chip,
            programs,
            memory_mib: MEMORY_MIB[usize::from(vulkan)],
            vram_mib: VRAM_MIB,
            cpus: 1,
            kernel_words: if options.display { PATIENT } else { &[] },
            driver: options.driver,
            kernel,
            vulkan,
        })
    }

    fn nvidia(options: &Options) -> Result<Self> {
        let chip = options.chip.unwrap_or(Chip::GH100);
        let kernel = options.kernel.unwrap_or(nvidia::SERIES);
        ensure!(chip == Chip::GH100, "NVIDIA's driver was tried on a GH100 alone: not on a {chip}");
        if Release::of(kernel).is_none() {
            let built = RELEASES.map(|release| format!("{} for Linux {}", release.version, release.series));
            bail!(
                "NVIDIA's driver is built as {}, not for {kernel}: leave --kernel out",
                built.join(", and ")
            );
        }
        ensure!(!options.display, "NVIDIA's driver has no head here: leave --display or --driver out");
        ensure!(!options.vulkan, "Mesa's Vulkan needs nouveau: leave --vulkan or --driver out");
        Ok(Self {
            chip,
            programs: NVIDIA.to_vec(),
            memory_mib: nvidia::MEMORY_MIB,
            vram_mib: nvidia::VRAM_MIB,
            cpus: 2,
            kernel_words: nvidia::KERNEL_WORDS,
            driver: options.driver,
            kernel,
            vulkan: false,
        })
    }

    /// The kernel and the initramfs; fetched and built where they are not there.
    pub(super) fn obtain(&self, cache: &Cache, gpuvmk: &Path) -> Result<(GuestKernel, PathBuf)> {
        eprintln!("gpuvmk: building the guest programs");
        let init = guest_build::obtain(cache)?;
        if self.driver == GuestDriver::Nvidia {
            let files = Firmware::NvidiaDriver.files(cache, gpuvmk, self.kernel)?;
            return nvidia::obtain(cache, self.kernel, &init, &files);
        }
        let kernel = GuestKernel::obtain(cache, self.kernel)?;
        let firmware = Firmware::for_kernel(self.kernel);
        let files = firmware.files(cache, gpuvmk, self.kernel)?;
        let mut image = initramfs::obtain(cache, &kernel, &init, &files, &firmware.label())?;
        if self.vulkan {
            image = nvk::behind(cache, &image, self.kernel)?;
        }
        Ok((kernel, image))
    }

    /// Refuses to start what would only be killed for memory.
    pub(super) fn enough_memory(&self, vms: u32) -> Result<()> {
        let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let available = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")).and_then(|rest| {
            let kib: u64 = rest.trim().strip_suffix(" kB")?.parse().ok()?;
            Some(kib >> 10)
        });
        let needed = u64::from(vms * (self.memory_mib + self.vram_mib) + SPARE_VRAM_MIB);
        match available {
            Some(available) if available < needed => bail!(
                "{vms} VMs need {needed} MiB of memory, but only {available} MiB are free: try fewer --vms"
            ),
            _ => Ok(()),
        }
    }
}

/// What each guest with nouveau runs.
fn programs(chip: Chip, vulkan: bool) -> Vec<&'static str> {
    let mut programs = match chip.face {
        Face::Registers => vec!["probe", "copy", "fence", "channels", "bar1", "evict", "badaddr"],
        Face::Gsp => {
            vec!["probe", "copy", "exec", "fence", "channels", "fill", "i2m", "bar1", "evict", "badaddr"]
        }
    };
    if vulkan {
        programs.push(if chip.computes_by_mesa() { VULKAN } else { VULKAN_WITHOUT_SHADERS });
    }
    programs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(driver: GuestDriver, chip: Option<Chip>) -> Options {
        let gpuvmk = "/bin/false".into();
        Options { gpuvmk, vms: 2, driver, chip, kernel: None, vulkan: false, display: false, keep: false }
    }

    fn refusal(options: &Options) -> String {
        Plan::new(options).unwrap_err().to_string()
    }

    #[test]
    fn usual_chip_and_kernel_are_those_of_the_driver() {
        let nouveau = Plan::new(&options(GuestDriver::Nouveau, None)).unwrap();
        assert_eq!((nouveau.chip, nouveau.kernel), (Chip::GF100, Chip::GF100.usual_kernel()));
        let nvidia = Plan::new(&options(GuestDriver::Nvidia, None)).unwrap();
        assert_eq!((nvidia.chip, nvidia.kernel), (Chip::GH100, nvidia::SERIES));
        let old = Options { kernel: Some(KernelSeries::V6_1), ..options(GuestDriver::Nvidia, None) };
        assert_eq!(Plan::new(&old).unwrap().kernel, KernelSeries::V6_1);
    }

    #[test]
    fn kernel_without_a_driver_for_the_chip_is_refused_before_anything_is_fetched() {
        let old =
            Options { kernel: Some(KernelSeries::V6_12), ..options(GuestDriver::Nouveau, Some(Chip::GH100)) };
        let message = refusal(&old);
        assert!(message.contains("6.12") && message.contains("--kernel 7.2"), "{message}");
    }

    #[test]
    fn what_the_drivers_do_not_have_is_refused() {
        let message = refusal(&Options { vulkan: true, ..options(GuestDriver::Nouveau, None) });
        assert!(message.contains("no Vulkan for a GF100"), "{message}");
        let message = refusal(&options(GuestDriver::Nvidia, Some(Chip::GF100)));
        assert!(message.contains("GH100 alone: not on a GF100"), "{message}");
        let newest = Options { kernel: Some(KernelSeries::V7_2), ..options(GuestDriver::Nvidia, None) };
        assert!(refusal(&newest).contains("535.261.03 for Linux 6.1, not for 7.2"));
        let message = refusal(&Options { display: true, ..options(GuestDriver::Nouveau, Some(Chip::GH100)) });
        assert!(message.contains("such as AD104"), "{message}");
        let message = refusal(&Options { display: true, ..options(GuestDriver::Nvidia, None) });
        assert!(message.contains("leave --display or --driver out"), "{message}");
        let message = refusal(&Options { vulkan: true, ..options(GuestDriver::Nvidia, None) });
        assert!(message.contains("leave --vulkan or --driver out"), "{message}");
    }
}
