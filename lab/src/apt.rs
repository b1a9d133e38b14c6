//! apt as a package fetcher: a private configuration, no root, nothing installed.
//!
//! apt's state, lists and archives lie in the cache folder, and the dpkg status is empty: dependencies
//! resolve to the packages of the suite in question (its own C library included), not to what this machine
//! happens to have. Signatures are checked as always, against Debian's own keyring. A package is unpacked by
//! `dpkg-deb -x` and none of its scripts runs.

use std::cmp::Ordering;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};

use crate::cache::Cache;
use crate::sources::Mirror;

/// Debian's archive keys, as the package debian-archive-keyring installs them.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// How long package lists are not asked for again: a run that fetches ten things asks once.
const FRESH: Duration = Duration::from_secs(600);

/// What the machine's own apt does after it fetched something concerns the machine, not this folder.
const WITHOUT_HOOKS: &str = "#clear APT::Update::Pre-Invoke;\n#clear APT::Update::Post-Invoke;\n\
                             #clear APT::Update::Post-Invoke-Success;\n#clear DPkg::Post-Invoke;\n";

/// apt with a private configuration.
#[derive(Debug)]
pub struct Apt {
    folder: PathBuf,
    options: Vec<OsString>,
}

impl Apt {
    /// Sets the private configuration up and refreshes its package lists: free software only.
    pub fn set_up(cache: &Cache) -> Result<Self> {
        Self::set_up_with(cache, &[])
    }

    /// The same with more components, each with its suite (`("trixie-backports", "non-free-firmware")`).
    pub fn set_up_with(cache: &Cache, more: &[(&str, &str)]) -> Result<Self> {
        for tool in ["apt-get", "apt-cache", "dpkg-deb"] {
            ensure!(
                on_path(tool),
                "'{tool}' is not on this machine: QEMU and the guest kernels come from Debian packages, which need \
                 apt and dpkg (any Debian or Ubuntu has them)"
            );
        }
        ensure!(
            Path::new(KEYRING).exists(),
            "{KEYRING} is missing: install the package debian-archive-keyring, packages are not taken unchecked"
        );
        let folder = cache.path("apt");
        for sub in ["lists/partial", "cache/archives/partial", "state"] {
            let path = folder.join(sub);
            fs::create_dir_all(&path).with_context(|| format!("Cannot create {}", path.display()))?;
        }
        fs::write(folder.join("state/status"), "").context("Cannot write the empty dpkg status")?;
        let sources = source_list(&Mirror::of_this_machine()?, more);
        fs::write(folder.join("sources.list"), &sources).context("Cannot write the private sources.list")?;
        fs::write(folder.join("apt.conf"), WITHOUT_HOOKS).context("Cannot write the private apt.conf")?;
        let path = |key: &str, path: PathBuf| {
            let mut option = OsString::from(format!("{key}="));
            option.push(path);
            option
        };
        let options = vec![
            path("Dir::Etc::sourcelist", folder.join("sources.list")),
            "Dir::Etc::sourceparts=/dev/null".into(),
            path("Dir::State", folder.join("state")),
            path("Dir::State::lists", folder.join("lists")),
            path("Dir::State::status", folder.join("state/status")),
            path("Dir::Cache", folder.join("cache")),
            "APT::Architecture=amd64".into(),
            "APT::Architectures::=amd64".into(),
            "Acquire::Languages=none".into(),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".into(),
            "APT::Install-Recommends=false".into(),
            // apt drops to its own user where it can; that user may not reach this folder.
            "APT::Sandbox::User=".into(),
        ];
        let apt = Self { folder, options };
        let stamp = apt.folder.join("refreshed");
        if !is_fresh(&stamp, &sources) {
            // What is interrupted is done again.
            let _ = fs::remove_file(&stamp);
            apt.run_loud("apt-get", &["update"]).context("Cannot refresh Debian's package lists")?;
            fs::write(&stamp, &sources).context("Cannot note that Debian's package lists are new")?;
        }
        Ok(apt)
    }

    /// The names of all packages that match `pattern` (an extended regular expression, anchored by the
    /// caller).
    pub fn names(&self, pattern: &str) -> Result<Vec<String>> {
        let text = self.output("apt-cache", &["search", "--names-only", pattern])?;
        Ok(text.lines().filter_map(|line| line.split(" - ").next()).map(str::to_owned).collect())
    }

    /// Downloads `packages` with everything they depend on; returns the package files.
    pub fn download_with_dependencies(&self, packages: &[&str], release: &str) -> Result<Vec<PathBuf>> {
        // The archive folder is emptied first: what lies in it afterwards is exactly the closure.
        self.drop_archives()?;
        let arguments = [&["install", "--yes", "--download-only", "-t", release], packages].concat();
        self.run_loud("apt-get", &arguments)?;
        let archives = self.folder.join("cache/archives");
        Ok(fs::read_dir(&archives)?.flatten().map(|entry| entry.path()).filter(|path| is_deb(path)).collect())
    }

    /// Downloads just these packages into `folder`; returns the package files.
    pub fn download(&self, packages: &[&str], folder: &Path) -> Result<Vec<PathBuf>> {
        fs::create_dir_all(folder).with_context(|| format!("Cannot create {}", folder.display()))?;
        let mut command = self.command("apt-get", &[&["download"], packages].concat());
        check(command.current_dir(folder).stdout(Stdio::from(std::io::stderr())))?;
        Ok(fs::read_dir(folder)?.flatten().map(|entry| entry.path()).filter(|path| is_deb(path)).collect())
    }

    /// Removes downloaded package files: what is unpacked is not needed twice.
    pub fn drop_archives(&self) -> Result<()> {
        let archives = self.folder.join("cache/archives");
        for path in fs::read_dir(&archives)?.flatten().map(|entry| entry.path()).filter(|path| is_deb(path)) {
            fs::remove_file(&path).with_context(|| format!("Cannot remove {}", path.display()))?;
        }
        Ok(())
    }

    fn command(&self, tool: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(tool);
        command.arg("-c").arg(self.folder.join("apt.conf"));
        for option in &self.options {
            command.arg("-o").arg(option);
        }
        command.args(arguments).env("LC_ALL", "C.UTF-8").env("DEBIAN_FRONTEND", "noninteractive");
        command.stdin(Stdio::null());
        command
    }

    /// Runs a tool with its own progress on our standard error.
    fn run_loud(&self, tool: &str, arguments: &[&str]) -> Result<()> {
        check(self.command(tool, arguments).stdout(Stdio::from(std::io::stderr())))
    }

    fn output(&self, tool: &str, arguments: &[&str]) -> Result<String> {
        let output = self
            .command(tool, arguments)
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("Cannot start {tool}"))?;
        ensure!(output.status.success(), "'{tool} {}' failed: {}", arguments.join(" "), output.status);
        String::from_utf8(output.stdout).with_context(|| format!("{tool} printed something that is not text"))
    }
}

/// Whether package lists of these sources were fetched just now, by whatever process.
fn is_fresh(stamp: &Path, sources: &str) -> bool {
    let age = fs::metadata(stamp).and_then(|stamp| stamp.modified()).map(|time| time.elapsed());
    let young = matches!(age, Ok(Ok(age)) if age < FRESH);
    young && fs::read_to_string(stamp).is_ok_and(|noted| noted == sources)
}

/// Unpacks package files into `root`, with a progress bar.
pub fn unpack(packages: &[PathBuf], root: &Path, what: &str) -> Result<()> {
    let bar = ProgressBar::new(packages.len() as u64);
    if let Ok(style) = ProgressStyle::with_template("{prefix} {bar:30} {pos}/{len} {wide_msg}") {
        bar.set_style(style);
    }
    bar.set_prefix(format!("Unpacking {what}"));
    for package in packages {
        if let Some(name) = package.file_name() {
            bar.set_message(name.to_string_lossy().into_owned());
        }
        check(Command::new("dpkg-deb").arg("-x").arg(package).arg(root))?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(())
}

fn source_list(mirror: &Mirror, more: &[(&str, &str)]) -> String {
    let component = |base: &str, suite: &str, name: &str| {
        format!("deb [signed-by={KEYRING} arch=amd64] {base} {suite} {name}\n")
    };
    let line = |base: &str, suite: &str| component(base, suite, "main");
    let mut text: String =
        ["bookworm", "trixie", "trixie-backports"].map(|suite| line(&mirror.main, suite)).concat();
    for (suite, name) in more {
        text.push_str(&component(&mirror.main, suite, name));
    }
    if let Some(security) = &mirror.security {
        // Debian 12's newest kernel comes through the security archive.
        text.push_str(&line(security, "bookworm-security"));
    }
    text
}

fn check(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("Cannot start {:?}", command.get_program()))?;
    if !status.success() {
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        bail!("'{} {}' failed: {status}", command.get_program().to_string_lossy(), words.join(" "));
    }
    Ok(())
}

fn is_deb(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "deb")
}

/// Whether a program is found in one of PATH's folders.
pub fn on_path(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

/// Orders names by their numbers as numbers: `6.12.107` is newer than `6.12.94`.
pub fn compare_versions(left: &str, right: &str) -> Ordering {
    let (left, right) = (pieces(left), pieces(right));
    left.cmp(&right)
}

/// A name as alternating words and numbers; `(0, word)` and `(number, "")`.
fn pieces(name: &str) -> Vec<(u64, String)> {
    let mut found: Vec<(u64, String)> = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let letters = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (word, after) = after.split_at(letters);
        found.push((number.parse().unwrap_or(0), word.to_owned()));
        rest = after;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_numbers_are_compared_as_numbers() {
        let newest =
            |names: &[&str]| names.iter().copied().max_by(|l, r| compare_versions(l, r)).unwrap().to_owned();
        assert_eq!(
            newest(&[
                "linux-image-6.12.107+deb13-amd64-unsigned",
                "linux-image-6.12.94+deb13-amd64-unsigned"
            ]),
            "linux-image-6.12.107+deb13-amd64-unsigned"
        );
        assert_eq!(
            newest(&["linux-image-6.1.0-9-amd64", "linux-image-6.1.0-50-amd64"]),
            "linux-image-6.1.0-50-amd64"
        );
    }

    #[test]
    fn lists_are_asked_for_again_after_a_while_and_for_other_sources() {
        let folder = tempfile::tempdir().unwrap();
        let stamp = folder.path().join("refreshed");
        assert!(!is_fresh(&stamp, "deb one"));
        fs::write(&stamp, "deb one").unwrap();
        assert!(is_fresh(&stamp, "deb one"));
        assert!(!is_fresh(&stamp, "deb one\ndeb two"));
        let file = fs::File::options().append(true).open(&stamp).unwrap();
        file.set_modified(std::time::SystemTime::now() - 2 * FRESH).unwrap();
        assert!(!is_fresh(&stamp, "deb one"));
    }

    #[test]
    fn sources_are_signed_and_name_the_security_suite_only_with_its_archive() {
        let mirror = Mirror { main: "http://m.example/debian".into(), security: None };
        let text = source_list(&mirror, &[]);
        assert_eq!(text.lines().count(), 3);
        assert!(text.lines().all(|line| line.contains("signed-by=/usr/share/keyrings/")));
        assert!(
            source_list(&mirror, &[("trixie", "non-free-firmware")]).ends_with(" trixie non-free-firmware\n")
        );
        let with_security = Mirror { security: Some("http://m.example/debian-security".into()), ..mirror };
        assert!(source_list(&with_security, &[]).contains("/debian-security bookworm-security main"));
    }
}
