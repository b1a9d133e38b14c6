//! Mesa's NVK for guests: an initramfs part with Debian's Vulkan loader and driver, and our Vulkan program.
//!
//! The part is an archive of its own that is put behind a guest's initramfs (the kernel unpacks archives one
//! after the other). Everything in it lies below `/nvk`:
//!
//! - `lib/`: the dynamic loader, the C library and every library that loader and driver are linked with;
//! - `stock/`, `edited/`, `rebuilt/`: the driver as Debian builds it; and of the backports' Mesa, which a
//!   guest with a Hopper has, the same with Hopper's launches and branches put right ([`edit`]), and one
//!   built from Debian's source with our patches, if there is one ([`rebuild`]);
//! - `stock.json` and so on: what tells the Vulkan loader where the driver lies;
//! - `bin/gpuvmk-nvk`: the program.
//!
//! The guest program `nvk:driver=NAME:checks=NAME,...` starts it. See docs/nvk.md.

pub mod edit;
pub mod lavapipe;
pub mod mesa;
pub mod rebuild;

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::cache::Cache;
use crate::cpio::Writer;
use crate::dynamic_build;
use crate::kernel::KernelSeries;
use mesa::Mesa;

/// The driver's file, in each driver's folder.
pub const DRIVER: &str = "libvulkan_nouveau.so";
/// Where everything lies in the guest.
const PLACE: &str = "nvk";

/// A file of the part: its name below [`PLACE`], its bytes, whether it can be executed.
struct Part {
    name: String,
    contents: Vec<u8>,
    executable: bool,
}

/// Our Vulkan program; [`mesa`] tries it.
fn program(cache: &Cache) -> Result<PathBuf> {
    dynamic_build::obtain(cache, "gpuvmk-nvk", "the Vulkan program")
}

/// The initramfs part with this Mesa, fetched and built first if need be.
pub fn obtain(cache: &Cache, mesa: Mesa) -> Result<PathBuf> {
    let program = program(cache)?;
    let folder = mesa::obtain(cache, &program, mesa)?;
    let mut parts = vec![Part { name: "bin/gpuvmk-nvk".into(), contents: read(&program)?, executable: true }];
    for path in files(&folder.join(mesa::LIBRARIES))? {
        let name = format!("lib/{}", name_of(&path)?);
        parts.push(Part { name, contents: read(&path)?, executable: true });
    }
    // Edited anew each time: a cache that an older version filled has nothing of it that could be out of
    // date.
    let stock = read(&folder.join(mesa::STOCK).join(DRIVER))?;
    let mut drivers = Vec::new();
    // No kernel that drives a Hopper has the release's Mesa beside it.
    if mesa == Mesa::Backports {
        let mut edited = stock.clone();
        edit::apply(&mut edited).context("Debian's NVK cannot be edited for Hopper")?;
        drivers.push(("edited", edited));
        if let Some(driver) = rebuild::built(cache) {
            drivers.push(("rebuilt", read(&driver)?));
        }
    }
    drivers.push(("stock", stock));
    for (name, contents) in drivers {
        parts.push(Part { name: format!("{name}/{DRIVER}"), contents, executable: false });
        parts.push(Part { name: format!("{name}.json"), contents: manifest(name), executable: false });
    }
    write(cache, mesa, &parts)
}

/// A guest's initramfs with the part behind it, in the cache: with the Mesa that belongs to its kernel.
pub fn behind(cache: &Cache, initramfs: &Path, kernel: KernelSeries) -> Result<PathBuf> {
    let part = obtain(cache, Mesa::beside(kernel))?;
    let key = hash([("image", read(initramfs)?.as_slice()), ("part", read(&part)?.as_slice())].into_iter());
    let name = format!("nvk-initramfs-{}", key.get(..16).unwrap_or(&key));
    let lock = cache.lock()?;
    if cache.entry(&name, Some(&key)).is_none() {
        cache.drop_unused(&lock, "nvk-initramfs-")?;
    }
    let folder = cache.entry_or_build(&lock, &name, &key, |folder| {
        join(initramfs, &part, &folder.join("initramfs.cpio"))
    })?;
    cache.touch(&name);
    Ok(folder.join("initramfs.cpio"))
}

/// Writes an initramfs and the part behind it to `out`.
pub fn join(initramfs: &Path, part: &Path, out: &Path) -> Result<()> {
    // Archives are whole multiples of four bytes, as what follows one must begin at such a place.
    fs::write(out, [read(initramfs)?, read(part)?].concat())
        .with_context(|| format!("Cannot write {}", out.display()))
}

/// What tells the Vulkan loader where a driver lies.
fn manifest(driver: &str) -> Vec<u8> {
    let library = format!("/{PLACE}/{driver}/{DRIVER}");
    let icd = serde_json::json!({
        "file_format_version": "1.0.1",
        "ICD": { "api_version": "1.4.0", "library_path": library },
    });
    format!("{icd}\n").into_bytes()
}

fn write(cache: &Cache, mesa: Mesa, parts: &[Part]) -> Result<PathBuf> {
    let key = hash(parts.iter().map(|part| (part.name.as_str(), part.contents.as_slice())));
    let lock = cache.lock()?;
    let name = format!("nvk-part{}", mesa.word());
    let folder = cache.entry_or_build(&lock, &name, &key, |folder| {
        let path = folder.join("nvk.cpio");
        let file = File::create(&path).with_context(|| format!("Cannot create {}", path.display()))?;
        archive(Writer::new(BufWriter::new(file)), parts)
            .with_context(|| format!("Cannot write {}", path.display()))?;
        Ok(())
    })?;
    Ok(folder.join("nvk.cpio"))
}

fn archive<W: std::io::Write>(mut archive: Writer<W>, parts: &[Part]) -> std::io::Result<W> {
    archive.folder(PLACE)?;
    let mut folders: Vec<&str> =
        parts.iter().filter_map(|part| Some(part.name.rsplit_once('/')?.0)).collect();
    folders.sort_unstable();
    folders.dedup();
    for folder in folders {
        archive.folder(&format!("{PLACE}/{folder}"))?;
    }
    for part in parts {
        let add = if part.executable { Writer::program } else { Writer::file };
        add(&mut archive, &format!("{PLACE}/{}", part.name), &part.contents)?;
    }
    archive.finish()
}

fn hash<'a>(members: impl Iterator<Item = (&'a str, &'a [u8])>) -> String {
    let mut hash = Sha256::new();
    for (name, contents) in members {
        hash.update(name.as_bytes());
        hash.update([0]);
        hash.update(contents);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("Cannot list {}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}

fn name_of(path: &Path) -> Result<String> {
    let name = path.file_name().with_context(|| format!("{} has no name", path.display()))?;
    Ok(name.to_string_lossy().into_owned())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("Cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpio::Reader;

    #[test]
    fn part_has_every_folder_before_what_lies_in_it() {
        let part = |name: &str| Part { name: name.into(), contents: b"x".to_vec(), executable: false };
        let bytes = archive(Writer::new(Vec::new()), &[part("lib/a.so"), part("stock.json")]).unwrap();
        let mut reader = Reader::new(bytes.as_slice());
        let mut names = Vec::new();
        while let Some(member) = reader.next().unwrap() {
            names.push(member.name);
        }
        assert_eq!(names, ["nvk", "nvk/lib", "nvk/lib/a.so", "nvk/stock.json"]);
    }

    #[test]
    fn manifest_names_the_driver_by_its_place_in_the_guest() {
        let json: serde_json::Value = serde_json::from_slice(&manifest("edited")).unwrap();
        assert_eq!(json["ICD"]["library_path"], "/nvk/edited/libvulkan_nouveau.so");
    }
}
