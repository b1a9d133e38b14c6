//! Guests with NVIDIA's own driver: Debian's packages of it, its open kernel modules built as a user would,
//! and our CUDA program.
//!
//! The packages are in Debian's `contrib` and `non-free`: nothing of them is part of gpuvmk, and who does not
//! want them sets `GPUVMK_NVIDIA=off`. What a guest has of them:
//!
//! - the kernel modules `nvidia` and `nvidia-uvm`, from the source of `nvidia-open-kernel-dkms`, against the
//!   headers of a kernel for which it builds as it comes ([`module`]);
//! - below `/nvidia`, `nvidia-smi`, the libraries of CUDA and NVML, and Debian's C library ([`packages`]);
//! - below `/lib/firmware`, gpuvmk's stand-ins.
//!
//! The guest programs `smi` and `cuda` use them. See docs/nvidia.md.

mod module;
mod packages;
mod release;

use release::USUAL;
pub use release::{RELEASES, Release};

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::cache::Cache;
use crate::dynamic_build;
use crate::firmware::FirmwareFile;
use crate::initramfs::{self, ImageFile};
use crate::kernel::{GuestKernel, KernelSeries};

/// What turns the packages off.
pub const VARIABLE: &str = "GPUVMK_NVIDIA";
/// The usual version: that of Debian 13.
pub const VERSION: &str = USUAL.version;
/// The series of the kernel that its modules are built for.
pub const SERIES: KernelSeries = USUAL.series;
/// A vGPU's memory: a CUDA context takes some 600 MiB of a GPU with as many multiprocessors as a GH100, for
/// threads' own memory.
pub const VRAM_MIB: u32 = 1024;
/// A guest's own memory, of which its initramfs takes 100 MiB.
pub const MEMORY_MIB: u32 = 1536;
/// Its driver is no nouveau; the modules are loaded all the same. A program has a context for each check.
pub const KERNEL_WORDS: &[&str] = &["gpuvmk.bare=1", "gpuvmk.limit=600"];
/// Where programs and libraries lie in the guest.
const PLACE: &str = "nvidia";
/// Our program, in the guest.
const PROGRAM: &str = "gpuvmk-cuda";

/// Whether the packages may be fetched and used.
pub fn is_wanted() -> bool {
    env::var_os(VARIABLE).is_none_or(|value| value != "off")
}

/// Whether those for a kernel's series are there already.
pub fn is_there(cache: &Cache, series: KernelSeries) -> bool {
    let release = Release::of(series).filter(|_| is_wanted());
    release.is_some_and(|release| packages::built(cache, release).is_some())
}

/// The kernel of a series with the modules, and an initramfs with these guest programs, this firmware, and
/// all that the driver has beside its modules.
///
/// # Errors
/// No version is built for that series; the packages are not wanted, cannot be had, or do not build.
pub fn obtain(
    cache: &Cache,
    series: KernelSeries,
    init: &Path,
    firmware: &[FirmwareFile],
) -> Result<(GuestKernel, PathBuf)> {
    ensure!(is_wanted(), "NVIDIA's driver is not to be fetched: {VARIABLE} is 'off'");
    let release = Release::of(series)
        .with_context(|| format!("No version of NVIDIA's driver is built for Linux {series}"))?;
    let folder = packages::obtain(cache, release)?;
    let damaged = || format!("{} is damaged: remove that folder and try again", folder.display());
    let kernel = packages::kernel(release, &folder).with_context(damaged)?;
    let mut files = Vec::new();
    for (place, program) in [(packages::LIBRARIES, true), (packages::PROGRAMS, true)] {
        for path in listed(&folder.join(place)).with_context(damaged)? {
            files.push(image_file(&format!("{PLACE}/{place}"), &path, program)?);
        }
    }
    let program = dynamic_build::obtain(cache, PROGRAM, "the CUDA program")?;
    files.push(image_file(&format!("{PLACE}/{}", packages::PROGRAMS), &program, true)?);
    files.extend(firmware.iter().map(|file| ImageFile {
        path: Path::new("lib/firmware").join(&file.path),
        contents: file.contents.clone(),
        program: false,
    }));
    let image = initramfs::obtain_with(cache, &kernel, init, &files, "nvidia")?;
    Ok((kernel, image))
}

fn image_file(place: &str, path: &Path, program: bool) -> Result<ImageFile> {
    let name = path.file_name().with_context(|| format!("{} has no name", path.display()))?;
    let contents = fs::read(path).with_context(|| format!("Cannot read {}", path.display()))?;
    Ok(ImageFile { path: Path::new(place).join(name), contents, program })
}

fn listed(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("Cannot list {}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}
