//! Firmware files for guests: what stock drivers, nouveau, nova-core and NVIDIA's own, ask `/lib/firmware`
//! for before they start a GSP.
//!
//! On hardware these files hold NVIDIA's GSP firmware. The driver copies them into memory, describes them to
//! the chip, and never looks inside; a virtual GPU plays the firmware itself and reads none of them. So small
//! stand-ins of the right shape serve as well as 63 MiB of the real thing, and hold nothing of NVIDIA's:
//!
//! * `gsp`: GSP-RM itself; an ELF64 file of which two sections are used;
//! * `gsp_tu10x`, `gsp_ga10x`: the same for NVIDIA's own driver, which also reads the version in it;
//! * `bootloader`: a header, a descriptor and an image;
//! * `fmc`, from Hopper on: the image that FSP would verify and start; an ELF32 file whose header nouveau
//!   compares byte for byte;
//! * `booter_load` and `booter_unload`, up to Ada: firmware for SEC2, with headers and a signature;
//! * `acr/bl`, on Turing: the bootloader of falcons; `gen_bootloader`, the same for nova-core;
//! * `scrubber`, on Ada: firmware for SEC2 of the booter's form, which nova-core asks for.
//!
//! A guest with Debian's `firmware-nvidia-graphics` needs none of this. Of each chip those versions are made
//! that kernels ask for.

// They panic where the output takes no more.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod chips;
mod elf;
mod images;

#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use chips::{CHIPS, Chip, DRIVER_FILES, Start};
pub use chips::{DRIVERS, VERSIONS};

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirmwareFile {
    /// Its path below `/lib/firmware`.
    pub path: String,
    /// Its bytes.
    pub contents: Vec<u8>,
}

/// Why the files could not be written.
#[derive(Debug, thiserror::Error)]
#[error("Cannot write {path}")]
pub struct WriteError {
    /// The file or folder.
    pub path: PathBuf,
    /// The system's error.
    #[source]
    pub source: io::Error,
}

/// The files that drivers request for all chips.
pub fn all() -> Vec<FirmwareFile> {
    CHIPS.iter().flat_map(files).chain(DRIVERS.iter().flat_map(|version| of_driver(version))).collect()
}

/// The files that NVIDIA's own driver of this version requests, for all chips.
pub fn of_driver(version: &str) -> Vec<FirmwareFile> {
    let file = |(name, signatures): &(&str, &[&'static str])| FirmwareFile {
        path: format!("nvidia/{version}/{name}"),
        contents: images::driver_gsp(version, signatures),
    };
    DRIVER_FILES.iter().map(file).collect()
}

/// The files that drivers request for the chip with that folder below `nvidia/`, as `ad104`. Nothing for a
/// chip that needs none.
pub fn of(folder: &str) -> Vec<FirmwareFile> {
    CHIPS.iter().filter(|chip| chip.folder == folder).flat_map(files).collect()
}

fn files(chip: &Chip) -> Vec<FirmwareFile> {
    let folder = chip.folder;
    let mut files = Vec::new();
    for version in chip.versions() {
        let mut file = |image: &str, contents| {
            let path = format!("nvidia/{folder}/gsp/{image}-{version}.bin");
            files.push(FirmwareFile { path, contents });
        };
        file("gsp", images::gsp(chip.signature));
        file("bootloader", images::bootloader());
        match chip.start {
            Start::Booter { scrubber, .. } => {
                file("booter_load", images::booter());
                file("booter_unload", images::booter());
                if scrubber && version == &chips::NOVA_CORE {
                    file("scrubber", images::booter());
                }
            }
            Start::Fmc(sizes) => file("fmc", images::fmc(sizes)),
        }
    }
    if let Start::Booter { bootloader: true, .. } = chip.start {
        // One image, where either driver looks for it.
        for name in ["acr/bl.bin".to_owned(), format!("gsp/gen_bootloader-{}.bin", chips::NOVA_CORE)] {
            let path = format!("nvidia/{folder}/{name}");
            files.push(FirmwareFile { path, contents: images::falcon_bootloader() });
        }
    }
    files
}

/// Writes `files` below `folder`, which stands for a guest's `/lib/firmware`; returns their paths.
pub fn write(files: &[FirmwareFile], folder: &Path) -> Result<Vec<PathBuf>, WriteError> {
    let mut written = Vec::new();
    for file in files {
        let path = folder.join(&file.path);
        let failed = |source| WriteError { path: path.clone(), source };
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(failed)?;
        }
        fs::write(&path, &file.contents).map_err(failed)?;
        written.push(path);
    }
    Ok(written)
}
