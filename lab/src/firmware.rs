//! Firmware files for guests whose GPU has a GSP: the small stand-ins that gpuvmk makes, or the real ones
//! that Debian packages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::apt::{self, Apt};
use crate::cache::{Cache, CacheLock};
use crate::chip::{Chip, GuestChip};
use crate::kernel::KernelSeries;
use crate::nvidia::Release;

/// Debian's package of NVIDIA's firmware; it is not free software.
const PACKAGE: &str = "firmware-nvidia-graphics";
/// The cache's entry for the package, and what the entries of chips' files begin with.
const DEBIAN: &str = "firmware-debian";
/// What is kept: another name has entries that were made before fetched again.
const KEPT: &str = "the package";
const SUITE: &str = "trixie-backports";
const COMPONENT: &str = "non-free-firmware";
/// Where files of all chips lie below a firmware folder.
const VENDOR: &str = "nvidia";
/// Folders of a chip's files: those for its GSP, and the loader that Turing's falcons need.
const FOLDERS: [&str; 2] = ["gsp", "acr"];
/// That loader's file.
const LOADER: &str = "bl.bin";

/// Whose files a guest gets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Firmware {
    /// None: kernels that ask for none.
    #[default]
    None,
    /// gpuvmk's, of all chips.
    StandIn,
    /// NVIDIA's for this chip, from Debian's package.
    Debian(Chip),
    /// gpuvmk's for NVIDIA's own driver, which then is the guest's driver ([`crate::nvidia`]).
    NvidiaDriver,
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
        if kernel.gsp_firmware().is_some() { Self::StandIn } else { Self::None }
    }

    /// The files for guests with this kernel; `gpuvmk` is the program that makes the stand-ins.
    pub fn files(self, cache: &Cache, gpuvmk: &Path, kernel: KernelSeries) -> Result<Vec<FirmwareFile>> {
        if self == Self::NvidiaDriver {
            let release = Release::of(kernel)
                .with_context(|| format!("No version of NVIDIA's driver is built for Linux {kernel}"))?;
            let mut files = stand_in(cache, gpuvmk)?;
            files.retain(|file| file.path.starts_with(&format!("{VENDOR}/{}/", release.version)));
            ensure!(!files.is_empty(), "gpuvmk makes no firmware for NVIDIA's driver {}", release.version);
            return Ok(files);
        }
        let Some(version) = kernel.gsp_firmware() else { return Ok(Vec::new()) };
        let files = match self {
            Self::None | Self::NvidiaDriver => return Ok(Vec::new()),
            Self::StandIn => stand_in(cache, gpuvmk)?,
            Self::Debian(chip) => collect(&debian(cache, chip)?)?,
        };
        let wanted: Vec<_> = files.into_iter().filter(|file| is_wanted(&file.path, version)).collect();
        ensure!(!wanted.is_empty(), "There are no firmware files of version {version}");
        Ok(wanted)
    }

    /// Whether Debian's files can be had without fetching anything.
    pub fn debian_is_there(cache: &Cache) -> bool {
        cache.entry(DEBIAN, Some(KEPT)).is_some()
    }

    /// A word for names of what holds these files.
    pub fn label(self) -> String {
        match self {
            Self::None => "no-firmware".to_owned(),
            Self::StandIn => "stand-in-firmware".to_owned(),
            Self::Debian(chip) => format!("debian-firmware-{}", chip.firmware_folder()),
            Self::NvidiaDriver => "nvidia-driver".to_owned(),
        }
    }
}

/// Whether nouveau that takes this version asks for the file.
fn is_wanted(path: &str, version: &str) -> bool {
    path.ends_with(&format!("-{version}.bin")) || path.ends_with(&format!("/{LOADER}"))
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

/// The folder with Debian's files for a chip; its package is fetched first if need be.
fn debian(cache: &Cache, chip: Chip) -> Result<PathBuf> {
    let name = format!("{DEBIAN}-{}", chip.firmware_folder());
    if let Some(folder) = cache.entry(&name, Some(KEPT)) {
        return Ok(folder);
    }
    let lock = cache.lock()?;
    let package = package(cache, &lock)?;
    cache.entry_or_build(&lock, &name, KEPT, |folder| {
        let root = folder.join("root");
        apt::unpack(&[package], &root, PACKAGE)?;
        let place = Path::new(VENDOR).join(chip.firmware_folder());
        let source = ["usr/lib/firmware", "lib/firmware"]
            .into_iter()
            .map(|firmware| root.join(firmware).join(&place))
            .find(|source| source.is_dir())
            .with_context(|| format!("{PACKAGE} has no {}", place.display()))?;
        for sub in FOLDERS.iter().filter(|sub| source.join(sub).is_dir()) {
            let kept = folder.join(&place).join(sub);
            fs::create_dir_all(&kept)?;
            for (file, contents) in binaries(&source.join(sub))? {
                fs::write(kept.join(&file), contents).with_context(|| format!("Cannot keep {file}"))?;
            }
        }
        Ok(fs::remove_dir_all(&root)?)
    })
}

/// Debian's package.
fn package(cache: &Cache, lock: &CacheLock) -> Result<PathBuf> {
    let folder = cache.entry_or_build(lock, DEBIAN, KEPT, |folder| {
        eprintln!("gpuvmk: fetching Debian's {PACKAGE} (about 100 MB)");
        let apt = Apt::set_up_with(cache, &[(SUITE, COMPONENT)])?;
        apt.download(&[&format!("{PACKAGE}/{SUITE}")], folder).map(|_| ())
    })?;
    let entries = fs::read_dir(&folder).with_context(|| format!("Cannot list {}", folder.display()))?;
    let mut paths = entries.flatten().map(|entry| entry.path());
    paths
        .find(|path| path.extension().is_some_and(|end| end == "deb"))
        .with_context(|| format!("{} holds no package: remove that folder and try again", folder.display()))
}

/// All chips' files below `folder`, which stands for a firmware folder, by their names.
fn collect(folder: &Path) -> Result<Vec<FirmwareFile>> {
    let vendor = folder.join(VENDOR);
    let mut files = Vec::new();
    for chip in fs::read_dir(&vendor).with_context(|| format!("Cannot list {}", vendor.display()))?.flatten()
    {
        let chip = chip.file_name().to_string_lossy().into_owned();
        for sub in FOLDERS.iter().filter(|sub| vendor.join(&chip).join(sub).is_dir()) {
            for (name, contents) in binaries(&vendor.join(&chip).join(sub))? {
                files.push(FirmwareFile { path: format!("{VENDOR}/{chip}/{sub}/{name}"), contents });
            }
        }
        // A version of NVIDIA's own driver has a folder like a chip, and files right in it.
        for (name, contents) in binaries(&vendor.join(&chip))? {
            files.push(FirmwareFile { path: format!("{VENDOR}/{chip}/{name}"), contents });
        }
    }
    files.sort_by(|left, right| left.path.cmp(&right.path));
    Ok(files)
}

/// The binary files of one folder (links are followed).
fn binaries(folder: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let entries = fs::read_dir(folder).with_context(|| format!("Cannot list {}", folder.display()))?;
    let mut files = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if name.ends_with(".bin") && path.is_file() {
            let contents = fs::read(&path).with_context(|| format!("Cannot read {}", path.display()))?;
            files.push((name.to_owned(), contents));
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_all_chips_are_found_and_links_followed() {
        let folder = tempfile::tempdir().unwrap();
        let place = |path: &str| {
            let place = folder.path().join("nvidia").join(path);
            fs::create_dir_all(&place).unwrap();
            place
        };
        let (hopper, turing) = (place("gh100/gsp"), place("tu106/acr"));
        fs::write(hopper.join("gsp-570.144.bin"), "new").unwrap();
        fs::write(hopper.join("README"), "words").unwrap();
        std::os::unix::fs::symlink("gsp-570.144.bin", hopper.join("fmc-570.144.bin")).unwrap();
        fs::write(turing.join("bl.bin"), "loader").unwrap();
        fs::write(place("550.163.01").join("gsp_ga10x.bin"), "driver's").unwrap();
        let files = collect(folder.path()).unwrap();
        let names: Vec<_> = files.iter().map(|file| file.path.as_str()).collect();
        let gsp = ["nvidia/gh100/gsp/fmc-570.144.bin", "nvidia/gh100/gsp/gsp-570.144.bin"];
        assert_eq!(names, ["nvidia/550.163.01/gsp_ga10x.bin", gsp[0], gsp[1], "nvidia/tu106/acr/bl.bin"]);
        assert_eq!((files[1].contents.as_slice(), files[2].contents.as_slice()), (&b"new"[..], &b"new"[..]));
    }

    #[test]
    fn kernel_gets_the_version_that_its_nouveau_takes_and_the_loader() {
        let wanted = |path: &str, kernel: KernelSeries| is_wanted(path, kernel.gsp_firmware().unwrap());
        for (path, old, new) in [
            ("nvidia/ad104/gsp/gsp-535.113.01.bin", true, false),
            ("nvidia/ad104/gsp/gsp-570.144.bin", false, true),
            ("nvidia/tu106/acr/bl.bin", true, true),
            ("nvidia/tu106/acr/ucode_ahesasc.bin", false, false),
        ] {
            assert_eq!(wanted(path, KernelSeries::V6_12), old, "{path}");
            assert_eq!(wanted(path, KernelSeries::V7_2), new, "{path}");
        }
        assert_eq!(KernelSeries::V6_1.gsp_firmware(), None);
    }
}
