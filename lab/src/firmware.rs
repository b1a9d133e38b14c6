//! Firmware files for guests whose GPU has a GSP: the small stand-ins that gpuvmk makes, or the real ones
//! that Debian packages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::apt::{self, Apt};
use crate::cache::Cache;
use crate::kernel::KernelSeries;

/// Debian's package of NVIDIA's firmware; it is not free software.
const PACKAGE: &str = "firmware-nvidia-graphics";
/// The cache's entry for its files.
const DEBIAN: &str = "firmware-debian";
const SUITE: &str = "trixie-backports";
const COMPONENT: &str = "non-free-firmware";
/// Where the files that a GH100 needs lie below a firmware folder.
const GH100: &str = "nvidia/gh100/gsp";
/// The version that nouveau of Linux 6.16 to 7.3 asks for.
const VERSION: &str = "570.144";

/// Whose files a guest gets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Firmware {
    /// None: kernels that ask for none.
    #[default]
    None,
    /// gpuvmk's.
    StandIn,
    /// NVIDIA's, from Debian's package.
    Debian,
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirmwareFile {
    /// Its path below `/lib/firmware`.
    pub path: String,
    /// Its bytes.
    pub contents: Vec<u8>,
}

impl Firmware {
    /// What guests with this kernel get: stand-ins, if their nouveau asks for files at all.
    pub fn for_kernel(kernel: KernelSeries) -> Self {
        if kernel.drives_gsp_chips() { Self::StandIn } else { Self::None }
    }

    /// The files; `gpuvmk` is the program that makes the stand-ins.
    pub fn files(self, cache: &Cache, gpuvmk: &Path) -> Result<Vec<FirmwareFile>> {
        match self {
            Self::None => Ok(Vec::new()),
            Self::StandIn => stand_in(cache, gpuvmk),
            Self::Debian => {
                let folder = debian(cache)?;
                collect(&folder)
            }
        }
    }

    /// Whether the files can be had without fetching anything.
    pub fn is_there(self, cache: &Cache) -> bool {
        match self {
            Self::None | Self::StandIn => true,
            Self::Debian => cache.entry(DEBIAN, None).is_some(),
        }
    }

    /// A word for names of what holds these files.
    pub fn label(self) -> &'static str {
        match self {
            Self::None => "no-firmware",
            Self::StandIn => "stand-in-firmware",
            Self::Debian => "debian-firmware",
        }
    }
}

/// The files of `gpuvmk guest-firmware`, made anew: they take no time.
fn stand_in(cache: &Cache, gpuvmk: &Path) -> Result<Vec<FirmwareFile>> {
    let folder = cache.path(format!("stand-in-firmware.{}", std::process::id()));
    let status = Command::new(gpuvmk)
        .arg("guest-firmware")
        .arg("--out")
        .arg(&folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .with_context(|| format!("Cannot start {}", gpuvmk.display()))?;
    ensure!(status.success(), "'gpuvmk guest-firmware' failed: {status}");
    let files = collect(&folder);
    fs::remove_dir_all(&folder).with_context(|| format!("Cannot remove {}", folder.display()))?;
    files
}

/// The folder with Debian's files, fetched first if need be.
fn debian(cache: &Cache) -> Result<PathBuf> {
    if let Some(folder) = cache.entry(DEBIAN, None) {
        return Ok(folder);
    }
    let lock = cache.lock()?;
    cache.entry_or_build(&lock, DEBIAN, VERSION, |folder| {
        eprintln!("gpuvmk: fetching Debian's {PACKAGE} (about 100 MB)");
        let apt = Apt::set_up_with(cache, &[(SUITE, COMPONENT)])?;
        let downloads = folder.join("download");
        let packages = apt.download(&[&format!("{PACKAGE}/{SUITE}")], &downloads)?;
        let root = folder.join("root");
        apt::unpack(&packages, &root, PACKAGE)?;
        let source = ["usr/lib/firmware", "lib/firmware"]
            .into_iter()
            .map(|place| root.join(place).join(GH100))
            .find(|place| place.is_dir())
            .with_context(|| format!("{PACKAGE} has no {GH100}"))?;
        let kept = folder.join(GH100);
        fs::create_dir_all(&kept)?;
        for file in collect_folder(&source)? {
            fs::write(kept.join(&file.path), &file.contents)
                .with_context(|| format!("Cannot keep {}", file.path))?;
        }
        fs::remove_dir_all(&root)?;
        fs::remove_dir_all(&downloads)?;
        Ok(())
    })
}

/// The files below `folder`, which stands for a firmware folder.
fn collect(folder: &Path) -> Result<Vec<FirmwareFile>> {
    let mut files = collect_folder(&folder.join(GH100))?;
    for file in &mut files {
        file.path = format!("{GH100}/{}", file.path);
    }
    Ok(files)
}

/// The files of the wanted version in one folder (links are followed), by their names.
fn collect_folder(folder: &Path) -> Result<Vec<FirmwareFile>> {
    let entries = fs::read_dir(folder).with_context(|| format!("Cannot list {}", folder.display()))?;
    let mut files = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if name.ends_with(&format!("-{VERSION}.bin")) {
            let contents = fs::read(&path).with_context(|| format!("Cannot read {}", path.display()))?;
            files.push(FirmwareFile { path: name.to_owned(), contents });
        }
    }
    files.sort_by(|left, right| left.path.cmp(&right.path));
    ensure!(!files.is_empty(), "{} has no file of version {VERSION}", folder.display());
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_wanted_version_are_found_below_the_chips_folder() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join(GH100);
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join("gsp-570.144.bin"), "new").unwrap();
        fs::write(place.join("gsp-535.113.01.bin"), "old").unwrap();
        std::os::unix::fs::symlink("gsp-570.144.bin", place.join("fmc-570.144.bin")).unwrap();
        let files = collect(folder.path()).unwrap();
        let names: Vec<_> = files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(names, ["nvidia/gh100/gsp/fmc-570.144.bin", "nvidia/gh100/gsp/gsp-570.144.bin"]);
        assert!(files.iter().all(|file| file.contents == b"new"));
    }

    #[test]
    fn folder_without_the_version_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join(GH100)).unwrap();
        assert!(collect(folder.path()).unwrap_err().to_string().contains("570.144"));
    }
}
