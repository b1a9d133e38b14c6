//! QEMU: this machine's own when it is new enough, else the one of Debian's trixie-backports in the cache.
//!
//! The client side of vfio-user came with QEMU 10.1. The fetched QEMU is started through the dynamic loader
//! and the C library of its own packages (`ld.so --library-path ...`), so it runs on any x86-64 Linux without
//! root, without a chroot and without touching the machine's libraries.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::apt::{self, Apt};
use crate::cache::Cache;

/// The environment variable that names a QEMU to use.
pub const QEMU_VARIABLE: &str = "GPUVMK_QEMU";
/// The first QEMU with `vfio-user-pci`.
const OLDEST: Version = Version { major: 10, minor: 1 };
const PROGRAM: &str = "qemu-system-x86_64";
/// Where Debian's packages put libraries, the dynamic loader among them, and firmware.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
const LOADER: &str = "ld-linux-x86-64.so.2";
const DATA_FOLDERS: [&str; 2] = ["usr/share/qemu", "usr/share/seabios"];
/// The BIOS, its helper for the interrupt controller, and the one that boots a kernel from QEMU's command
/// line.
const FIRMWARE: [&str; 3] = ["bios-256k.bin", "kvmvapic.bin", "linuxboot_dma.bin"];

/// QEMU's version, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The number before the first dot.
    pub major: u32,
    /// The number after the first dot.
    pub minor: u32,
}

impl std::fmt::Display for Version {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}.{}", self.major, self.minor)
    }
}

/// A QEMU that can be started.
#[derive(Debug, Clone)]
pub struct Qemu {
    /// The program and the words that come before QEMU's own arguments.
    pub command: Vec<OsString>,
    /// Folders with firmware (`-L`), when the built-in ones do not fit.
    pub data_folders: Vec<PathBuf>,
    /// Where QEMU's loadable modules lie, when the built-in place does not fit.
    pub module_folder: Option<PathBuf>,
    /// What it says it is.
    pub version: Version,
}

/// What `Qemu::find` settled on before any download.
enum Choice {
    Use(Qemu),
    Fetch { because: String },
}

impl Qemu {
    /// The QEMU to use: `GPUVMK_QEMU`, else one on PATH that is new enough, else Debian's, fetched into the
    /// cache.
    pub fn obtain(cache: &Cache) -> Result<Self> {
        match Self::find()? {
            Choice::Use(qemu) => Ok(qemu),
            Choice::Fetch { because } => Self::fetch(cache).with_context(|| {
                format!("{because}, and Debian's could not be had; {QEMU_VARIABLE} can name one of version {OLDEST} or newer")
            }),
        }
    }

    /// Debian's QEMU from the cache, fetched first if need be.
    pub fn fetch(cache: &Cache) -> Result<Self> {
        let qemu = Self::in_folder(&fetched(cache)?)?;
        ensure!(
            qemu.version >= OLDEST,
            "Debian's QEMU is version {}, but {OLDEST} or newer is needed",
            qemu.version
        );
        Ok(qemu)
    }

    /// The QEMU in a folder laid out as Debian's packages are, with the C library that it is to run on.
    pub fn in_folder(root: &Path) -> Result<Self> {
        let libraries = root.join(LIBRARIES);
        let command = vec![
            libraries.join(LOADER).into_os_string(),
            "--library-path".into(),
            libraries.clone().into_os_string(),
            root.join("usr/bin").join(PROGRAM).into_os_string(),
        ];
        let data = DATA_FOLDERS.map(|folder| root.join(folder)).to_vec();
        // Guests here need none of the modules; a folder that has them is told all the same.
        let modules = Some(libraries.join("qemu")).filter(|folder| folder.is_dir());
        Self::from_command(command, data, modules).with_context(|| {
            format!("The QEMU in {} does not run: remove that folder and try again", root.display())
        })
    }

    fn find() -> Result<Choice> {
        if let Some(path) = env::var_os(QEMU_VARIABLE).filter(|path| !path.is_empty()) {
            let shown = path.to_string_lossy().into_owned();
            let qemu = Self::from_command(vec![path], Vec::new(), None)
                .with_context(|| format!("{QEMU_VARIABLE} names '{shown}', which cannot be used"))?;
            ensure!(
                qemu.version >= OLDEST,
                "{QEMU_VARIABLE} names QEMU {}, but vfio-user-pci needs QEMU {OLDEST} or newer",
                qemu.version
            );
            return Ok(Choice::Use(qemu));
        }
        if !apt::on_path(PROGRAM) {
            return Ok(Choice::Fetch { because: format!("'{PROGRAM}' is not on PATH") });
        }
        match Self::from_command(vec![PROGRAM.into()], Vec::new(), None) {
            Ok(qemu) if qemu.version >= OLDEST => Ok(Choice::Use(qemu)),
            Ok(qemu) => Ok(Choice::Fetch {
                because: format!(
                    "The QEMU on PATH is version {}, but vfio-user-pci needs {OLDEST} or newer",
                    qemu.version
                ),
            }),
            Err(error) => Ok(Choice::Fetch { because: format!("The QEMU on PATH does not run ({error:#})") }),
        }
    }

    fn from_command(
        command: Vec<OsString>,
        data_folders: Vec<PathBuf>,
        module_folder: Option<PathBuf>,
    ) -> Result<Self> {
        let Some((program, words)) = command.split_first() else { bail!("No program is named") };
        let output = Command::new(program)
            .args(words)
            .arg("--version")
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("Cannot start {}", program.to_string_lossy()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(
            output.status.success(),
            "'{} --version' failed: {}",
            program.to_string_lossy(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
        let version = parse_version(&text)
            .with_context(|| format!("'--version' printed '{}', no version", text.trim()))?;
        Ok(Self { command, data_folders, module_folder, version })
    }

    /// A command that starts this QEMU, its own paths already in it.
    pub fn command(&self) -> Result<Command> {
        let Some((program, words)) = self.command.split_first() else { bail!("No QEMU program is named") };
        let mut command = Command::new(program);
        command.args(words);
        for folder in &self.data_folders {
            command.arg("-L").arg(folder);
        }
        if let Some(folder) = &self.module_folder {
            command.env("QEMU_MODULE_DIR", folder);
        }
        Ok(command)
    }
}

/// The folder with Debian's QEMU, filled first if need be.
pub fn fetched(cache: &Cache) -> Result<PathBuf> {
    if let Some(root) = cache.entry("qemu", None) {
        return Ok(root);
    }
    let lock = cache.lock()?;
    cache.entry_or_build(&lock, "qemu", "trixie-backports", |folder| {
        eprintln!("gpuvmk: fetching QEMU (about 40 MB)");
        let apt = Apt::set_up(cache)?;
        let packages = apt.download_with_dependencies(&["qemu-system-x86", "seabios"], "trixie-backports")?;
        apt::unpack(&packages, folder, "QEMU")?;
        apt.drop_archives()
    })
}

/// The files of the QEMU in `root` that guests here need, relative to it: the program, the dynamic loader,
/// every library that it is linked with, and the firmware of a PC that boots a kernel directly.
pub fn needed_files(root: &Path) -> Result<Vec<PathBuf>> {
    let (libraries, program) = (root.join(LIBRARIES), root.join("usr/bin").join(PROGRAM));
    let output = Command::new(libraries.join(LOADER))
        .arg("--library-path")
        .arg(&libraries)
        .arg("--list")
        .arg(&program)
        .stdin(Stdio::null())
        .output()
        .context("Cannot ask the dynamic loader what QEMU is linked with")?;
    ensure!(
        output.status.success(),
        "The dynamic loader cannot tell what QEMU is linked with: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let mut files = vec![Path::new("usr/bin").join(PROGRAM), Path::new(LIBRARIES).join(LOADER)];
    for library in linked(&String::from_utf8_lossy(&output.stdout))? {
        ensure!(
            libraries.join(&library).is_file(),
            "QEMU needs {library}, which is not in {}",
            libraries.display()
        );
        files.push(Path::new(LIBRARIES).join(library));
    }
    for firmware in FIRMWARE {
        let place = DATA_FOLDERS.iter().map(|folder| Path::new(folder).join(firmware));
        let found = place.clone().find(|path| root.join(path).is_file());
        files.push(found.with_context(|| format!("{} has no {firmware}", root.display()))?);
    }
    Ok(files)
}

/// The libraries' names in lines such as `libm.so.6 => /some/where/libm.so.6 (0x...)`.
fn linked(list: &str) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for line in list.lines() {
        let Some((name, place)) = line.trim().split_once(" => ") else { continue };
        ensure!(!place.starts_with("not found"), "QEMU needs {name}, which is not there");
        // The loader itself is listed by its path.
        if !name.starts_with('/') {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// `QEMU emulator version 11.1.3 (Debian ...)`.
fn parse_version(text: &str) -> Option<Version> {
    let (_, rest) = text.split_once("version ")?;
    let mut numbers = rest.split(|c: char| !c.is_ascii_digit());
    Some(Version { major: numbers.next()?.parse().ok()?, minor: numbers.next()?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_read_from_qemus_first_line() {
        let text = "QEMU emulator version 11.1.3 (Debian 1:11.1.3+ds-1)\nCopyright (c) 2003-2026\n";
        assert_eq!(parse_version(text), Some(Version { major: 11, minor: 1 }));
        assert_eq!(parse_version("something else"), None);
    }

    #[test]
    fn libraries_are_read_from_the_loaders_list() {
        let list = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibm.so.6 => /q/libm.so.6 (0x00007f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 => /q/ld-linux-x86-64.so.2 (0x00007f)\n";
        assert_eq!(linked(list).unwrap(), ["libm.so.6"]);
        assert!(linked("libgone.so.1 => not found").unwrap_err().to_string().contains("libgone.so.1"));
    }

    #[test]
    fn ten_zero_is_older_than_what_vfio_user_needs() {
        assert!(parse_version("QEMU emulator version 10.0.13").unwrap() < OLDEST);
        assert!(parse_version("QEMU emulator version 10.1.0").unwrap() >= OLDEST);
    }
}
