//! A disk with Debian on it: an ext4 file system of a few packages, made without root by the e2fsprogs among
//! them.
//!
//! Packages are unpacked, not installed: none of their scripts has run. There is a shell, and the usual small
//! programs. A list of all files with their sums lies in the root, by which a guest can tell whether it reads
//! what was put there.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};

use crate::cache::Cache;
use crate::debian_program::{DebianProgram, Recipe};

/// What the disk has, and what makes it.
static RECIPE: Recipe = Recipe {
    name: "debian-root",
    about: "a small Debian for guests' disks (30 MB)",
    packages: &["base-files", "coreutils", "dash", "e2fsprogs"],
    dependencies: true,
    program: "sbin/mke2fs",
    libraries: &[],
    unwanted: &[
        "usr/share/doc",
        "usr/share/locale",
        "usr/share/man",
        "usr/share/info",
        "usr/lib/x86_64-linux-gnu/gconv",
    ],
};
/// The image's name in the cache, and what changes when the image is to be made anew.
const NAME: &str = "debian-disk";
const LAYOUT: &str = "2";
/// Bytes of a block: what guests write is looked for at multiples of it.
const BLOCK: &str = "4096";
/// Room for what guests write, too.
const SIZE: &str = "96M";
/// The list of files, from the root on.
const SUMS: &str = "sha256sums";

/// The raw image, from the cache, made first if need be. It is not to be written to: guests have copies.
pub fn obtain(cache: &Cache) -> Result<PathBuf> {
    if let Some(folder) = cache.entry(NAME, Some(LAYOUT)) {
        return Ok(folder.join("disk.raw"));
    }
    let debian = DebianProgram::obtain(cache, &RECIPE)?;
    let lock = cache.lock()?;
    let folder = cache.entry_or_build(&lock, NAME, LAYOUT, |folder| make(&debian, folder))?;
    Ok(folder.join("disk.raw"))
}

fn make(debian: &DebianProgram, folder: &Path) -> Result<()> {
    let root = folder.join("root");
    run(Command::new("cp").arg("-a").arg(debian.root()).arg(&root))?;
    let mut sums = String::new();
    list(&root, Path::new(""), &mut sums)?;
    fs::write(root.join(SUMS), sums).context("Cannot write the list of files")?;
    let arguments = ["-q", "-t", "ext4", "-b", BLOCK, "-d", "root", "disk.raw", SIZE];
    run(&mut debian.command(&arguments, folder)?)?;
    fs::remove_dir_all(&root).context("Cannot remove the folder that the disk was made of")
}

fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("Cannot start {name}"))?;
    ensure!(status.success(), "{name} failed: {status}");
    Ok(())
}

/// Adds a line for each file below a folder, as `sha256sum` writes it. Links are not followed.
fn list(root: &Path, folder: &Path, sums: &mut String) -> Result<()> {
    let place = root.join(folder);
    let entries = fs::read_dir(&place).with_context(|| format!("Cannot list {}", place.display()))?;
    let mut names: Vec<_> =
        entries.map(|entry| entry.map(|entry| entry.file_name())).collect::<Result<_, _>>()?;
    names.sort();
    for path in names.into_iter().map(|name| folder.join(name)) {
        let full = root.join(&path);
        let kind =
            fs::symlink_metadata(&full).with_context(|| format!("Cannot look at {}", full.display()))?;
        if kind.is_dir() {
            list(root, &path, sums)?;
        } else if kind.is_file() {
            let bytes = fs::read(&full).with_context(|| format!("Cannot read {}", full.display()))?;
            Sha256::digest(bytes).iter().try_for_each(|byte| write!(sums, "{byte:02x}"))?;
            writeln!(sums, "  {}", path.display())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_names_every_file_and_its_sum() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("etc/empty")).unwrap();
        fs::write(folder.path().join("etc/name"), "abc").unwrap();
        fs::write(folder.path().join("a"), "").unwrap();
        std::os::unix::fs::symlink("a", folder.path().join("link")).unwrap();
        let mut sums = String::new();
        list(folder.path(), Path::new(""), &mut sums).unwrap();
        let expected = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  a\n\
                        ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  etc/name\n";
        assert_eq!(sums, expected);
    }
}
