//! A disk as root: what the initramfs of a distribution does, and no more. What tests need of our own
//! initramfs goes with it.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::KERNEL_FILE_SYSTEMS;
use crate::sys;

/// Where the disk is before it is the root.
const PLACE: &str = "/root";
/// How long its driver may take to find it.
const LIMIT: Duration = Duration::from_secs(30);
/// What programs and drivers look for.
const NEEDED: [&str; 3] = ["init", "modules", "lib/firmware"];
/// Counts the boots of a machine with this disk.
const BOOTS: &str = "/boots";

/// Has the ext4 file system on `device` as root from now on.
pub fn switch(device: &str) -> Result<()> {
    let start = Instant::now();
    while !Path::new(device).exists() {
        ensure!(start.elapsed() < LIMIT, "there is no {device} after {} s", LIMIT.as_secs());
        thread::sleep(Duration::from_millis(10));
    }
    let root = Path::new(PLACE);
    fs::create_dir_all(root).with_context(|| format!("cannot create {PLACE}"))?;
    sys::mount("ext4", device, PLACE).with_context(|| format!("cannot mount {device}"))?;
    for name in NEEDED {
        copy(&Path::new("/").join(name), &root.join(name))
            .with_context(|| format!("cannot copy {name} to {device}"))?;
    }
    for (kind, place) in KERNEL_FILE_SYSTEMS {
        let place = format!("{PLACE}{place}");
        fs::create_dir_all(&place).with_context(|| format!("cannot create {place}"))?;
        sys::mount(kind, kind, &place).with_context(|| format!("cannot mount {place}"))?;
    }
    sys::enter_root(PLACE).with_context(|| format!("cannot have {device} as root"))
}

/// Copies a file or a folder with all that is in it; nothing, if it is not there.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    if from.is_dir() {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
        return Ok(());
    }
    match fs::copy(from, to) {
        Err(error) if error.kind() == ErrorKind::NotFound && !from.exists() => Ok(()),
        other => other.map(|_| ()),
    }
}

/// Counts this boot on the disk; 1 for its first.
pub fn count_boot() -> u8 {
    let before: u8 = fs::read_to_string(BOOTS).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    let count = before.saturating_add(1);
    if let Err(error) = fs::write(BOOTS, count.to_string()) {
        println!("init: cannot count boots on the disk: {error}");
    }
    count
}
