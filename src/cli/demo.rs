//! `gpuvmk demo`: stock guests on one shared software GPU, from nothing to verified bytes.
//!
//! The demonstration is a program of the laboratory, `gpuvmk-lab`: the daemons' program has nothing of it.
//! Here it is found, in a source tree built, and then this process becomes it.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, anyhow, bail, ensure};

/// The laboratory's program, and the package that it is of.
const LAB: &str = "gpuvmk-lab";

/// The source tree that this program was built from, if it is still there.
const SOURCES: &str = env!("CARGO_MANIFEST_DIR");

/// A file that every target folder of cargo has.
const MARK: &str = ".rustc_info.json";

/// Arguments of `gpuvmk demo`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "QEMU and the guest kernels come from Debian's packages; they are kept in the folder that \
                  GPUVMK_CACHE names (.cache in the source tree by default).\n\n\
                  Examples:\n  gpuvmk demo\n  gpuvmk demo --vms 3 --kernel 7.2 --json\n  gpuvmk demo --chip gh100"
)]
pub(super) struct Args {
    /// How many guests share the GPU.
    #[arg(long, value_name = "N", default_value_t = 2)]
    vms: u32,
    /// The chip that guests see: gf100 or gh100.
    #[arg(long, value_name = "CHIP", default_value = "gf100")]
    chip: String,
    /// The guests' kernel: 6.1, 6.12 or 7.2 (GH100: 7.2). [default: 6.12; GH100: 7.2]
    #[arg(long, value_name = "SERIES")]
    kernel: Option<String>,
    /// Print one JSON object as the last line.
    #[arg(long)]
    json: bool,
    /// Keep the configuration files and logs also when all went well.
    #[arg(long)]
    keep: bool,
}

impl Args {
    /// The same for the laboratory, which checks them.
    fn words(&self) -> Vec<String> {
        let mut words = vec!["--vms".to_owned(), self.vms.to_string(), format!("--chip={}", self.chip)];
        words.extend(self.kernel.as_ref().map(|kernel| format!("--kernel={kernel}")));
        words.extend(self.json.then(|| "--json".to_owned()));
        words.extend(self.keep.then(|| "--keep".to_owned()));
        words
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let own = env::current_exe().context("Cannot tell where this program is")?;
    let lab = match Build::of(&own, Path::new(SOURCES)) {
        Some(build) => build.run()?,
        None => beside(&own)?,
    };
    let mut command = Command::new(&lab);
    command.args(["demo", "--gpuvmk"]).arg(&own).args(args.words());
    // This returns only if it failed.
    Err(anyhow!(command.exec()).context(format!("Cannot start {}", lab.display())))
}

/// The laboratory's program in this program's folder.
fn beside(own: &Path) -> anyhow::Result<PathBuf> {
    let lab = own.with_file_name(LAB);
    ensure!(
        lab.is_file(),
        "The demonstration is run by {LAB}, which is not installed beside {}. It is part of gpuvmk's source tree: \
         run `cargo run --release -- demo` there",
        own.display()
    );
    Ok(lab)
}

/// How the laboratory's program is brought up to date where this one was built.
#[derive(Debug, PartialEq, Eq)]
struct Build {
    sources: PathBuf,
    target: PathBuf,
    profile: OsString,
}

impl Build {
    /// If `own` lies in a target folder of cargo, and `sources` are there.
    fn of(own: &Path, sources: &Path) -> Option<Self> {
        let folder = own.parent()?;
        let target = folder.parent()?;
        let is_one = target.join(MARK).is_file() && sources.join("lab/Cargo.toml").is_file();
        is_one.then_some(())?;
        // The folder of the profile `dev` has another name.
        let name = folder.file_name()?;
        let profile = if name == "debug" { "dev".into() } else { name.to_owned() };
        Some(Self { sources: sources.to_owned(), target: target.to_owned(), profile })
    }

    /// Has cargo build the program, which shows its progress; returns where it is.
    fn run(&self) -> anyhow::Result<PathBuf> {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(&cargo);
        // With both packages the features of what they share are those that this program was built with.
        command.args(["build", "--package", env!("CARGO_PKG_NAME"), "--package", LAB, "--bin", LAB]);
        command.arg("--profile").arg(&self.profile).arg("--target-dir").arg(&self.target);
        command.current_dir(&self.sources).stdin(Stdio::null()).stdout(Stdio::null());
        let status = command
            .status()
            .with_context(|| format!("Cannot start {} to build {LAB}", cargo.to_string_lossy()))?;
        if !status.success() {
            bail!("{LAB} cannot be built in {}: cargo ended with {status}", self.sources.display());
        }
        let folder = if self.profile == "dev" { "debug".as_ref() } else { self.profile.as_os_str() };
        Ok(self.target.join(folder).join(LAB))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn it_is_built_only_where_this_program_was() {
        let folder = tempfile::tempdir().unwrap();
        let (sources, target) = (folder.path().join("tree"), folder.path().join("target"));
        let own = target.join("debug/gpuvmk");
        fs::create_dir_all(sources.join("lab")).unwrap();
        fs::create_dir_all(target.join("debug")).unwrap();
        assert_eq!(Build::of(&own, &sources), None);
        fs::write(target.join(MARK), "").unwrap();
        assert_eq!(Build::of(&own, &sources), None, "no sources");
        fs::write(sources.join("lab/Cargo.toml"), "").unwrap();
        let build = Build::of(&own, &sources).unwrap();
        assert_eq!((build.profile.as_os_str(), &build.target), ("dev".as_ref(), &target));
        let build = Build::of(&target.join("release/gpuvmk"), &sources).unwrap();
        assert_eq!(build.profile, "release");
        assert_eq!(Build::of(Path::new("/usr/bin/gpuvmk"), &sources), None, "installed");
    }

    #[test]
    fn options_are_handed_on() {
        let args = Args { vms: 3, chip: "gh100".into(), kernel: Some("7.2".into()), json: true, keep: false };
        assert_eq!(args.words(), ["--vms", "3", "--chip=gh100", "--kernel=7.2", "--json"]);
    }
}
