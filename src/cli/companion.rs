//! Programs that this one becomes for some of its commands, so that the daemons have nothing of theirs.
//!
//! In a target folder of cargo, with the source tree there, such a program is brought up to date first.
//! Elsewhere it was installed with this one.

use std::env;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, anyhow, bail};

/// The source tree that this program was built from, if it is still there.
const SOURCES: &str = env!("CARGO_MANIFEST_DIR");

/// A file that every target folder of cargo has.
const MARK: &str = ".rustc_info.json";

/// Where an installed program may be besides this program's folder.
const LIBEXEC: &str = "../libexec/gpuvmk";

/// Such a program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Companion {
    /// Its name, which is its package's too.
    pub name: &'static str,
    /// The package's folder in the source tree.
    pub folder: &'static str,
    /// Its task, as the beginning of a sentence.
    pub task: &'static str,
    /// The command that does it in the source tree.
    pub from_sources: &'static str,
}

impl Companion {
    /// Becomes the program; `words` makes its arguments of the path of this one.
    ///
    /// # Errors
    /// It is not there, it cannot be built, or it cannot be started. It does not return otherwise.
    pub(super) fn start(self, words: impl FnOnce(&Path) -> Vec<OsString>) -> anyhow::Result<ExitCode> {
        let own = env::current_exe().context("Cannot tell where this program is")?;
        let program = match Build::of(&own, Path::new(SOURCES), self) {
            Some(build) => build.run()?,
            None => self.installed(&own)?,
        };
        let error = Command::new(&program).args(words(&own)).exec();
        Err(anyhow!(error).context(format!("Cannot start {}", program.display())))
    }

    /// The program beside this one, or where packages put it.
    fn installed(self, own: &Path) -> anyhow::Result<PathBuf> {
        let beside = own.with_file_name(self.name);
        let folder = own.parent().unwrap_or(own).join(LIBEXEC);
        let found = [beside, folder.join(self.name)].into_iter().find(|program| program.is_file());
        found.with_context(|| {
            format!(
                "{} by {}, which is not installed beside {} or in {LIBEXEC}. It is part of gpuvmk's source tree: run `{}` there",
                self.task,
                self.name,
                own.display(),
                self.from_sources
            )
        })
    }
}

/// How a program is brought up to date where this one was built.
#[derive(Debug, PartialEq, Eq)]
struct Build {
    name: &'static str,
    sources: PathBuf,
    target: PathBuf,
    profile: OsString,
}

impl Build {
    /// If `own` lies in a target folder of cargo, and `sources` are there.
    fn of(own: &Path, sources: &Path, companion: Companion) -> Option<Self> {
        let folder = own.parent()?;
        let target = folder.parent()?;
        let manifest = sources.join(companion.folder).join("Cargo.toml");
        (target.join(MARK).is_file() && manifest.is_file()).then_some(())?;
        // The folder of the profile `dev` has another name.
        let name = folder.file_name()?;
        let profile = if name == "debug" { "dev".into() } else { name.to_owned() };
        let (sources, target) = (sources.to_owned(), target.to_owned());
        Some(Self { name: companion.name, sources, target, profile })
    }

    /// Has cargo build the program, which shows its progress; returns where it is.
    fn run(&self) -> anyhow::Result<PathBuf> {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(&cargo);
        // With both packages the features of what they share are those that this program was built with.
        let own = env!("CARGO_PKG_NAME");
        command.args(["build", "--package", own, "--package", self.name, "--bin", self.name]);
        command.arg("--profile").arg(&self.profile).arg("--target-dir").arg(&self.target);
        command.current_dir(&self.sources).stdin(Stdio::null()).stdout(Stdio::null());
        let folder = if self.profile == "dev" { "debug".as_ref() } else { self.profile.as_os_str() };
        let program = self.target.join(folder).join(self.name);
        let status = match command.status() {
            // As by `sudo`, whose path has no cargo: what was built before is taken as it is.
            Err(error) if error.kind() == ErrorKind::NotFound && program.is_file() => return Ok(program),
            status => status.with_context(|| {
                format!("Cannot start {} to build {}", cargo.to_string_lossy(), self.name)
            })?,
        };
        if !status.success() {
            bail!("{} cannot be built in {}: cargo ended with {status}", self.name, self.sources.display());
        }
        Ok(program)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const LAB: Companion =
        Companion { name: "gpuvmk-lab", folder: "lab", task: "It is run", from_sources: "cargo run" };

    #[test]
    fn it_is_built_only_where_this_program_was() {
        let folder = tempfile::tempdir().unwrap();
        let (sources, target) = (folder.path().join("tree"), folder.path().join("target"));
        let own = target.join("debug/gpuvmk");
        fs::create_dir_all(sources.join("lab")).unwrap();
        fs::create_dir_all(target.join("debug")).unwrap();
        assert_eq!(Build::of(&own, &sources, LAB), None);
        fs::write(target.join(MARK), "").unwrap();
        assert_eq!(Build::of(&own, &sources, LAB), None, "no sources");
        fs::write(sources.join("lab/Cargo.toml"), "").unwrap();
        let build = Build::of(&own, &sources, LAB).unwrap();
        assert_eq!((build.profile.as_os_str(), &build.target), ("dev".as_ref(), &target));
        let build = Build::of(&target.join("release/gpuvmk"), &sources, LAB).unwrap();
        assert_eq!(build.profile, "release");
        assert_eq!(Build::of(Path::new("/usr/bin/gpuvmk"), &sources, LAB), None, "installed");
    }

    #[test]
    fn packages_put_it_beside_or_out_of_the_way() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("bin/gpuvmk");
        let aside = folder.path().join("bin").join(LIBEXEC);
        fs::create_dir_all(own.parent().unwrap()).unwrap();
        fs::create_dir_all(folder.path().join("libexec/gpuvmk")).unwrap();
        let error = LAB.installed(&own).unwrap_err().to_string();
        assert!(error.contains("gpuvmk-lab, which is not installed"), "{error}");
        fs::write(aside.join("gpuvmk-lab"), "").unwrap();
        assert_eq!(LAB.installed(&own).unwrap(), aside.join("gpuvmk-lab"));
        let beside = own.with_file_name("gpuvmk-lab");
        fs::write(&beside, "").unwrap();
        assert_eq!(LAB.installed(&own).unwrap(), beside);
    }
}
