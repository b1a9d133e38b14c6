//! The initramfs of a test guest: `/init` (our guest programs), nouveau, the modules it needs and firmware
//! for GPUs with a GSP; nothing else.
//!
//! Cached below the hash of what goes in, so that source trees that share a cache do not take each other's
//! images away. It is not compressed: QEMU places it in the guest's memory by one copy, while unpacking costs
//! an emulated processor most of a second at each boot.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::cache::Cache;
use crate::cpio::Writer;
use crate::firmware::FirmwareFile;
use crate::kernel::GuestKernel;

const FOLDERS: [&str; 7] = ["dev", "proc", "sys", "run", "tmp", "bin", "modules"];
/// Changes when the layout below changes, so that older images are not taken for current ones.
const LAYOUT: &[u8] = b"layout 3";

/// The initramfs for `kernel` with the guest binary `init` and these firmware files, which `label` names.
pub fn obtain(
    cache: &Cache,
    kernel: &GuestKernel,
    init: &Path,
    firmware: &[FirmwareFile],
    label: &str,
) -> Result<PathBuf> {
    let files: Vec<_> = firmware
        .iter()
        .map(|file| ImageFile {
            path: Path::new("lib/firmware").join(&file.path),
            contents: file.contents.clone(),
            program: false,
        })
        .collect();
    obtain_with(cache, kernel, init, &files, label)
}

/// A file of an initramfs beside the usual ones.
#[derive(Debug, Clone)]
pub struct ImageFile {
    /// From the root, without a slash before it.
    pub path: PathBuf,
    /// What is in it.
    pub contents: Vec<u8>,
    /// It can be run.
    pub program: bool,
}

/// The initramfs for `kernel` with the guest binary `init` and these files, which `label` names.
pub fn obtain_with(
    cache: &Cache,
    kernel: &GuestKernel,
    init: &Path,
    files: &[ImageFile],
    label: &str,
) -> Result<PathBuf> {
    let mut members = Vec::new();
    for module in &kernel.modules {
        let name = module.file_name().context("A module has no name")?.to_string_lossy().into_owned();
        members.push((name, read(module)?));
    }
    let init = read(init)?;

    let mut hash = Sha256::new();
    hash.update(LAYOUT);
    hash.update(&init);
    let named = files.iter().map(|file| (file.path.to_string_lossy(), &file.contents));
    for (name, contents) in members.iter().map(|(name, contents)| (name.into(), contents)).chain(named) {
        hash.update(name.as_bytes());
        hash.update([0]);
        hash.update(contents);
    }
    let key: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();

    let prefix = format!("initramfs-{}-{label}-", kernel.series);
    // Another source tree may have guests running from another image: each has a name of its own.
    let name = format!("{prefix}{}", key.get(..16).unwrap_or(&key));
    let lock = cache.lock()?;
    let folder = match cache.entry(&name, Some(&key)) {
        Some(folder) => folder,
        None => {
            cache.drop_unused(&lock, &prefix)?;
            cache.entry_or_build(&lock, &name, &key, |folder| {
                let path = folder.join("initramfs.cpio");
                let file =
                    File::create(&path).with_context(|| format!("Cannot create {}", path.display()))?;
                write(Writer::new(BufWriter::new(file)), &init, &members, files)
                    .with_context(|| format!("Cannot write {}", path.display()))
            })?
        }
    };
    cache.touch(&name);
    Ok(folder.join("initramfs.cpio"))
}

fn write<W: std::io::Write>(
    mut archive: Writer<W>,
    init: &[u8],
    modules: &[(String, Vec<u8>)],
    files: &[ImageFile],
) -> std::io::Result<()> {
    for folder in FOLDERS {
        archive.folder(folder)?;
    }
    archive.character_device("dev/console", 5, 1)?;
    archive.character_device("dev/null", 1, 3)?;
    archive.program("init", init)?;
    let mut order = String::new();
    for (name, contents) in modules {
        archive.file(&format!("modules/{name}"), contents)?;
        order.push_str(name);
        order.push('\n');
    }
    archive.file("modules/order", order.as_bytes())?;
    let mut folders = BTreeSet::new();
    for ImageFile { path, contents, program } in files {
        // From the root down, without the archive's own root (the empty path).
        for folder in path.ancestors().skip(1).collect::<Vec<_>>().into_iter().rev() {
            if !folder.as_os_str().is_empty() && folders.insert(folder.to_owned()) {
                archive.folder(&folder.to_string_lossy())?;
            }
        }
        let name = path.to_string_lossy();
        if *program { archive.program(&name, contents)? } else { archive.file(&name, contents)? }
    }
    archive.finish()?;
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("Cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::KernelSeries;

    #[test]
    fn image_is_built_again_when_what_goes_in_changes() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().join("cache")).unwrap();
        let module = folder.path().join("nouveau.ko");
        let init = folder.path().join("init");
        fs::write(&module, "module").unwrap();
        fs::write(&init, "first").unwrap();
        let kernel = GuestKernel {
            series: KernelSeries::V6_12,
            release: "6.12.0".into(),
            image: folder.path().join("vmlinuz"),
            modules: vec![module],
        };

        let first = fs::read(obtain(&cache, &kernel, &init, &[], "none").unwrap()).unwrap();
        fs::write(&init, "second").unwrap();
        let second = fs::read(obtain(&cache, &kernel, &init, &[], "none").unwrap()).unwrap();

        let holds =
            |image: &[u8], text: &str| image.windows(text.len()).any(|window| window == text.as_bytes());
        assert!(holds(&first, "first") && holds(&first, "nouveau.ko\n"));
        assert!(holds(&second, "second") && !holds(&second, "first"));

        let file = FirmwareFile { path: "nvidia/gh100/gsp/fmc.bin".into(), contents: b"stand-in".to_vec() };
        let third = fs::read(obtain(&cache, &kernel, &init, &[file], "some").unwrap()).unwrap();
        for folder in ["lib\0", "lib/firmware\0", "lib/firmware/nvidia\0", "lib/firmware/nvidia/gh100/gsp\0"]
        {
            assert!(holds(&third, folder), "{folder:?} must be there before what lies in it");
        }
        assert!(holds(&third, "lib/firmware/nvidia/gh100/gsp/fmc.bin\0") && holds(&third, "stand-in"));
    }
}
