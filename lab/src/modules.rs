//! Kernel modules: finding them, unpacking them, and the order in which a module's needs must be loaded.
//!
//! A module names what it needs in its `.modinfo` section (`depends=a,b`). The index files that `depmod`
//! writes are made when a package is installed, so an unpacked package has none: the section is read instead.
//! Built-in code is no module and is never named there.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use liblzma::read::XzDecoder;

/// A module, unpacked.
#[derive(Debug, Clone)]
pub struct Module {
    /// Its name with underscores, as the kernel knows it.
    pub name: String,
    /// The ELF image that `finit_module` takes.
    pub image: Vec<u8>,
}

/// `wanted`, those of `optional` that there are, and everything they need, in load order, from the module
/// tree `tree` (`lib/modules/RELEASE`).
pub fn closure(tree: &Path, wanted: &[&str], optional: &[&str]) -> Result<Vec<Module>> {
    let mut index = BTreeMap::new();
    index_folder(&tree.join("kernel"), &mut index)?;
    let mut loaded = Vec::new();
    let there = optional.iter().filter(|name| index.contains_key(&canonical(name)));
    for name in there.chain(wanted) {
        add(&index, &canonical(name), &mut loaded, &mut Vec::new())?;
    }
    Ok(loaded)
}

fn add(
    index: &BTreeMap<String, PathBuf>,
    name: &str,
    loaded: &mut Vec<Module>,
    waiting: &mut Vec<String>,
) -> Result<()> {
    if loaded.iter().any(|module| module.name == name) {
        return Ok(());
    }
    ensure!(
        !waiting.iter().any(|other| other == name),
        "Modules need each other in a circle: {}",
        waiting.join(", ")
    );
    let path = index.get(name).with_context(|| format!("The kernel has no module '{name}'"))?;
    let image = read_module(path)?;
    waiting.push(name.to_owned());
    for needed in needs(&image).with_context(|| format!("Cannot read {}", path.display()))? {
        add(index, &needed, loaded, waiting)?;
    }
    waiting.pop();
    loaded.push(Module { name: name.to_owned(), image });
    Ok(())
}

/// A file's name may have hyphens where the kernel has underscores.
fn canonical(name: &str) -> String {
    name.replace('-', "_")
}

fn index_folder(folder: &Path, index: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("Cannot list {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            index_folder(&path, index)?;
        } else if let Some(file) = path.file_name().and_then(|name| name.to_str())
            && let Some(name) = file.strip_suffix(".ko").or_else(|| file.strip_suffix(".ko.xz"))
        {
            index.insert(canonical(name), path.clone());
        }
    }
    Ok(())
}

fn read_module(path: &Path) -> Result<Vec<u8>> {
    let bytes = fs::read(path).with_context(|| format!("Cannot read {}", path.display()))?;
    if path.extension().is_some_and(|extension| extension == "xz") {
        let mut image = Vec::new();
        XzDecoder::new(bytes.as_slice())
            .read_to_end(&mut image)
            .with_context(|| format!("Cannot unpack {}", path.display()))?;
        return Ok(image);
    }
    Ok(bytes)
}

/// The names in a module's `depends=` entry.
fn needs(image: &[u8]) -> Result<Vec<String>> {
    let section = modinfo(image)?;
    let entry = section.split(|&byte| byte == 0).find_map(|entry| entry.strip_prefix(b"depends=".as_slice()));
    let text = std::str::from_utf8(entry.unwrap_or_default()).context("The dependency list is not text")?;
    Ok(text.split(',').filter(|name| !name.is_empty()).map(canonical).collect())
}

/// The `.modinfo` section of a 64-bit little-endian ELF file.
fn modinfo(image: &[u8]) -> Result<&[u8]> {
    ensure!(image.starts_with(b"\x7fELF\x02\x01"), "This is no 64-bit little-endian ELF file");
    // Positions in the ELF header and in a section header, by the ELF-64 object file format.
    let table = usize::try_from(field::<8>(image, 0x28).map(u64::from_le_bytes)?)?;
    let entry_size = usize::from(field::<2>(image, 0x3a).map(u16::from_le_bytes)?);
    let count = usize::from(field::<2>(image, 0x3c).map(u16::from_le_bytes)?);
    let names_index = usize::from(field::<2>(image, 0x3e).map(u16::from_le_bytes)?);
    let header = |index: usize| -> Result<&[u8]> {
        let start = index.checked_mul(entry_size).and_then(|offset| offset.checked_add(table));
        start.and_then(|start| image.get(start..)).context("A section header lies outside the file")
    };
    let body = |header: &[u8]| -> Result<&[u8]> {
        let offset = usize::try_from(field::<8>(header, 0x18).map(u64::from_le_bytes)?)?;
        let size = usize::try_from(field::<8>(header, 0x20).map(u64::from_le_bytes)?)?;
        let end = offset.checked_add(size).context("A section's size overflows")?;
        image.get(offset..end).context("A section lies outside the file")
    };
    let names = body(header(names_index)?)?;
    for index in 0..count {
        let header = header(index)?;
        let name_at = usize::try_from(field::<4>(header, 0).map(u32::from_le_bytes)?)?;
        let name = names.get(name_at..).unwrap_or_default();
        if name.starts_with(b".modinfo\0") {
            return body(header);
        }
    }
    bail!("The file has no .modinfo section: it is no kernel module")
}

fn field<const SIZE: usize>(bytes: &[u8], at: usize) -> Result<[u8; SIZE]> {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk::<SIZE>())
        .copied()
        .with_context(|| format!("The file ends before offset {at:#x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A minimal ELF file with a name table and a `.modinfo` section.
    fn module(info: &[u8]) -> Vec<u8> {
        let names = b"\0.shstrtab\0.modinfo\0";
        let (names_at, info_at) = (0x40, 0x40 + names.len());
        let table = info_at + info.len();
        let mut image = b"\x7fELF\x02\x01".to_vec();
        image.resize(0x40, 0);
        image[0x28..0x30].copy_from_slice(&(table as u64).to_le_bytes());
        image[0x3a..0x3c].copy_from_slice(&64u16.to_le_bytes());
        image[0x3c..0x3e].copy_from_slice(&2u16.to_le_bytes());
        image.extend_from_slice(names);
        image.extend_from_slice(info);
        for (name, offset, size) in [(1u32, names_at, names.len()), (11, info_at, info.len())] {
            let mut header = [0u8; 64];
            header[..4].copy_from_slice(&name.to_le_bytes());
            header[0x18..0x20].copy_from_slice(&(offset as u64).to_le_bytes());
            header[0x20..0x28].copy_from_slice(&(size as u64).to_le_bytes());
            image.extend_from_slice(&header);
        }
        image
    }

    fn tree(modules: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let drivers = folder.path().join("kernel/drivers");
        fs::create_dir_all(&drivers).unwrap();
        for (file, depends) in modules {
            let info = format!("license=GPL\0depends={depends}\0name={file}\0");
            fs::write(drivers.join(file), module(info.as_bytes())).unwrap();
        }
        folder
    }

    #[test]
    fn needed_modules_come_before_those_that_need_them() {
        let folder = tree(&[
            ("nouveau.ko", "drm,mxm-wmi"),
            ("drm.ko", ""),
            ("mxm-wmi.ko", "wmi"),
            ("wmi.ko", ""),
            ("other.ko", ""),
        ]);
        let names: Vec<_> = closure(folder.path(), &["nouveau"], &["other", "none"])
            .unwrap()
            .into_iter()
            .map(|module| module.name)
            .collect();
        assert_eq!(names, ["other", "drm", "wmi", "mxm_wmi", "nouveau"]);
    }

    #[test]
    fn missing_module_is_named() {
        let folder = tree(&[("nouveau.ko", "drm")]);
        let message = closure(folder.path(), &["nouveau"], &[]).unwrap_err().to_string();
        assert!(message.contains("'drm'"), "{message}");
    }

    #[test]
    fn circle_of_modules_is_refused() {
        let folder = tree(&[("a.ko", "b"), ("b.ko", "a")]);
        assert!(closure(folder.path(), &["a"], &[]).unwrap_err().to_string().contains("circle"));
    }

    #[test]
    fn truncated_file_is_an_error_and_no_panic() {
        let image = module(b"depends=\0");
        for length in 0..image.len() {
            let _ = needs(&image[..length]);
        }
        assert!(needs(&image[..image.len() - 1]).is_err() || needs(&image).is_ok());
        assert!(needs(b"\x7fELF\x02\x01").is_err());
    }
}
