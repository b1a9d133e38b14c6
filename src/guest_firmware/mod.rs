//! Firmware files for guests: what stock nouveau asks `/lib/firmware` for before it starts a GSP.
//!
//! On hardware these files hold NVIDIA's GSP firmware. The driver copies them into memory, describes them to
//! the chip, and never looks inside; a virtual GPU plays the firmware itself and reads none of them. So small
//! stand-ins of the right shape serve as well as 63 MiB of the real thing, and hold nothing of NVIDIA's:
//!
//! * `fmc`: the image that FSP would verify and start; an ELF32 file whose header nouveau compares byte for
//!   byte;
//! * `bootloader`: a header, a descriptor and an image;
//! * `gsp`: GSP-RM itself; an ELF64 file of which two sections are used.
//!
//! A guest with Debian's `firmware-nvidia-graphics` needs none of this. One version is made: Linux 6.16 to
//! 7.2 name it in `gh100_gsps[]` (drivers/gpu/drm/nouveau/nvkm/subdev/gsp/gh100.c).

// They panic where the output takes no more.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod elf;
mod images;

#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The firmware version whose interface the virtual GSP speaks.
pub const VERSION: &str = "570.144";

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

/// The files that nouveau requests for a GH100, in its order.
pub fn gh100() -> Vec<FirmwareFile> {
    let file = |image: &str, contents| FirmwareFile {
        path: format!("nvidia/gh100/gsp/{image}-{VERSION}.bin"),
        contents,
    };
    vec![
        file("gsp", images::gsp(".fwsignature_gh100")),
        file("bootloader", images::bootloader()),
        file("fmc", images::fmc()),
    ]
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
