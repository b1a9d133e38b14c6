//! QEMU: this machine's own when it is new enough, else the one of Debian's trixie-backports in the cache.
//!
//! The client side of vfio-user came with QEMU 10.1. The fetched QEMU is started through the dynamic loader and
//! the C library of its own packages (`ld.so --library-path ...`), so it runs on any x86-64 Linux without root,
//! without a chroot and without touching the machine's libraries.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::apt::{self, Apt};
use crate::cache::Cache;

/// The environment variable that names a QEMU to use.
pub const QEMU_VARIABLE: &str = "GPUVMK_QEMU";
/// The first QEMU with `vfio-user-pci`.
const OLDEST: Version = Version { major: 10, minor: 1 };
const PROGRAM: &str = "qemu-system-x86_64";

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
    /// The QEMU to use: `GPUVMK_QEMU`, else one on PATH that is new enough, else Debian's, fetched into the cache.
    pub fn obtain(cache: &Cache) -> Result<Self> {
        match Self::find()? {
            Choice::Use(qemu) => Ok(qemu),
            Choice::Fetch { because } => Self::fetch(cache).with_context(|| {
                format!("{because}, and Debian's could not be had; {QEMU_VARIABLE} can name one of version {OLDEST} or newer")
            }),
        }
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

    fn fetch(cache: &Cache) -> Result<Self> {
        let root = match cache.entry("qemu", None) {
            Some(root) => root,
            None => {
                let lock = cache.lock()?;
                cache.entry_or_build(&lock, "qemu", "trixie-backports", |folder| {
                    eprintln!("gpuvmk: fetching QEMU (about 40 MB)");
                    let apt = Apt::set_up(cache)?;
                    let packages =
                        apt.download_with_dependencies(&["qemu-system-x86", "seabios"], "trixie-backports")?;
                    apt::unpack(&packages, folder, "QEMU")?;
                    apt.drop_archives()
                })?
            }
        };
        let libraries = root.join("usr/lib/x86_64-linux-gnu");
        let command = vec![
            libraries.join("ld-linux-x86-64.so.2").into_os_string(),
            "--library-path".into(),
            libraries.clone().into_os_string(),
            root.join("usr/bin").join(PROGRAM).into_os_string(),
        ];
        let data = vec![root.join("usr/share/qemu"), root.join("usr/share/seabios")];
        let qemu = Self::from_command(command, data, Some(libraries.join("qemu"))).with_context(|| {
            format!("The QEMU in {} does not run: remove that folder and try again", root.display())
        })?;
        ensure!(
            qemu.version >= OLDEST,
            "Debian's QEMU is version {}, but {OLDEST} or newer is needed",
            qemu.version
        );
        Ok(qemu)
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
    fn ten_zero_is_older_than_what_vfio_user_needs() {
        assert!(parse_version("QEMU emulator version 10.0.13").unwrap() < OLDEST);
        assert!(parse_version("QEMU emulator version 10.1.0").unwrap() >= OLDEST);
    }
}
