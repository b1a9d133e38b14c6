//! `debian`: the guest's root is a disk with Debian on it, whose own programs find all of its files as they
//! were made; then writes a file and reads it from the disk again.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::{Figures, Options};

/// What the disk's files are, as `sha256sum` writes it.
const SUMS: &str = "/sha256sums";
/// What is written: blocks that begin with this and their number, which who has the disk's image can look
/// for.
pub const MARK: &str = "gpuvmk-disk-mark";
/// Bytes of a block.
pub const BLOCK: usize = 4096;
const FILE: &str = "/written";

/// Options: `blocks`, how many blocks of 4 KiB to write.
pub fn run(options: &Options) -> Result<Figures> {
    let blocks: usize = options.get("blocks", 2048)?;
    let mounts = fs::read_to_string("/proc/self/mounts").context("cannot read mounts")?;
    let root = mounts.lines().rfind(|line| line.split(' ').nth(1) == Some("/")).unwrap_or_default();
    ensure!(root.starts_with("/dev/vd") && root.contains(" ext4 "), "the root is no virtio disk: '{root}'");
    let release = fs::read_to_string("/etc/os-release").context("cannot read /etc/os-release")?;
    ensure!(release.lines().any(|line| line == "ID=debian"), "this is no Debian: {release}");
    let files = fs::read_to_string(SUMS).with_context(|| format!("cannot read {SUMS}"))?.lines().count();
    ensure!(files > 0, "{SUMS} names no files");
    forget_cached()?;
    // Debian's shell, by its own C library.
    let check = Command::new("/bin/sh")
        .args(["-c", "cd / && exec sha256sum --quiet --check \"$0\"", SUMS])
        .stdin(Stdio::null())
        .output()
        .context("cannot start Debian's shell")?;
    let said = String::from_utf8_lossy(&check.stdout);
    ensure!(check.status.success(), "files are not as they were made: {} {}", check.status, said.trim());
    write_and_read(blocks)?;
    let mut figures = Figures::new();
    figures.insert("files".into(), files.into());
    figures.insert("blocks".into(), blocks.into());
    Ok(figures)
}

fn block(number: usize) -> Vec<u8> {
    let mut block = format!("{MARK} {number}\n").into_bytes();
    let fill = u8::try_from(number % 251).unwrap_or(0);
    block.resize(BLOCK, fill);
    block
}

fn write_and_read(blocks: usize) -> Result<()> {
    let mut file = File::create(FILE).context("cannot create a file")?;
    for number in 0..blocks {
        file.write_all(&block(number)).context("cannot write")?;
    }
    file.sync_all().context("cannot write to the disk")?;
    drop(file);
    forget_cached()?;
    let mut file = File::open(FILE).context("cannot open what was written")?;
    let mut read = vec![0; BLOCK];
    for number in 0..blocks {
        file.read_exact(&mut read).with_context(|| format!("cannot read block {number}"))?;
        ensure!(read == block(number), "block {number} is not what was written");
    }
    Ok(())
}

/// What is read next comes from the disk.
fn forget_cached() -> Result<()> {
    fs::write("/proc/sys/vm/drop_caches", "3").context("cannot drop caches")
}
