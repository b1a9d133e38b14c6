//! A folder as one file: a newc cpio archive compressed by xz, which this program unpacks by itself.
//!
//! For machines that get nothing but what is carried to them. The same formats as an initramfs has, so there
//! is no second archive writer; by hand it is `xz -dc FILE | cpio -id`. Deferred are folders, files and
//! whether a file can be executed; links are resolved when packing.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use liblzma::read::XzDecoder;
use liblzma::write::XzEncoder;

use crate::cpio::{Member, Reader, Writer};

/// xz's own default: higher levels need more memory to unpack, and gain nothing for a few dozen megabytes.
const LEVEL: u32 = 6;

/// Packs everything below `folder` into `file`; returns the file's size.
pub fn pack(folder: &Path, file: &Path) -> Result<u64> {
    let out = File::create(file).with_context(|| format!("Cannot create {}", file.display()))?;
    let mut archive = Writer::new(XzEncoder::new(BufWriter::new(out), LEVEL));
    add_folder(&mut archive, folder, Path::new(""))?;
    let encoder = archive.finish().context("Cannot end the archive")?;
    let out = encoder.finish().context("Cannot end the compression")?;
    let out = out.into_inner().map_err(io::IntoInnerError::into_error).context("Cannot write the archive")?;
    Ok(out.metadata()?.len())
}

/// Unpacks `file`, which [`pack`] made, below `folder`.
pub fn unpack(file: &Path, folder: &Path) -> Result<()> {
    let packed = File::open(file).with_context(|| format!("Cannot open {}", file.display()))?;
    let mut archive = Reader::new(XzDecoder::new(BufReader::new(packed)));
    let damaged = || format!("{} is damaged", file.display());
    while let Some(member) = archive.next().with_context(damaged)? {
        let place = folder.join(inside(&member.name).with_context(damaged)?);
        unpack_member(&mut archive, &member, &place)
            .with_context(|| format!("Cannot unpack '{}' to {}", member.name, place.display()))?;
    }
    Ok(())
}

fn add_folder<W: io::Write>(archive: &mut Writer<W>, folder: &Path, name: &Path) -> Result<()> {
    let here = folder.join(name);
    let entries = fs::read_dir(&here).with_context(|| format!("Cannot list {}", here.display()))?;
    let mut names =
        entries.map(|entry| Ok(name.join(entry?.file_name()))).collect::<Result<Vec<PathBuf>>>()?;
    // Equal contents give an equal archive.
    names.sort();
    for name in names {
        let path = folder.join(&name);
        let text = name.to_str().with_context(|| format!("{} has a name that is no text", path.display()))?;
        let metadata = fs::metadata(&path).with_context(|| format!("Cannot look at {}", path.display()))?;
        if metadata.is_dir() {
            archive.folder(text)?;
            add_folder(archive, folder, &name)?;
            continue;
        }
        ensure!(metadata.is_file(), "{} is neither a file nor a folder", path.display());
        let contents = fs::read(&path).with_context(|| format!("Cannot read {}", path.display()))?;
        let executable = metadata.permissions().mode() & 0o111 != 0;
        let add = if executable { Writer::program } else { Writer::file };
        add(archive, text, &contents).with_context(|| format!("Cannot pack {}", path.display()))?;
    }
    Ok(())
}

fn unpack_member<R: Read>(archive: &mut Reader<R>, member: &Member, place: &Path) -> Result<()> {
    if member.is_folder() {
        return Ok(fs::create_dir_all(place)?);
    }
    ensure!(member.is_file(), "it has mode {:o}, which is neither a file's nor a folder's", member.mode);
    let mode = if member.mode & 0o111 == 0 { 0o644 } else { 0o755 };
    let mut file = File::options().write(true).create_new(true).mode(mode).open(place)?;
    archive.copy_contents(&mut file)?;
    Ok(())
}

/// A member's name as a path that cannot leave the folder that it is put into.
fn inside(name: &str) -> Result<PathBuf> {
    let path = PathBuf::from(name);
    if name.is_empty() || !path.components().all(|part| matches!(part, Component::Normal(_))) {
        bail!("the name '{name}' leads out of the archive");
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unpacked_folder_has_the_packed_ones_files_and_modes() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to, file) =
            (folder.path().join("from"), folder.path().join("to"), folder.path().join("a.cpio.xz"));
        fs::create_dir_all(from.join("bin/empty")).unwrap();
        fs::create_dir(&to).unwrap();
        fs::write(from.join("bin/tool"), vec![7; 100_001]).unwrap();
        fs::set_permissions(from.join("bin/tool"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(from.join("text"), "hello").unwrap();
        std::os::unix::fs::symlink("text", from.join("link")).unwrap();

        let size = pack(&from, &file).unwrap();
        unpack(&file, &to).unwrap();

        assert_eq!(size, fs::metadata(&file).unwrap().len());
        assert!(size < 1000, "100 kB of equal bytes take {size}");
        assert_eq!(fs::read(to.join("bin/tool")).unwrap(), vec![7; 100_001]);
        assert_eq!(fs::metadata(to.join("bin/tool")).unwrap().permissions().mode() & 0o111, 0o111);
        assert_eq!(fs::metadata(to.join("text")).unwrap().permissions().mode() & 0o111, 0);
        assert!(to.join("bin/empty").is_dir());
        assert_eq!(fs::read_to_string(to.join("link")).unwrap(), "hello");
    }

    #[test]
    fn truncated_archive_is_called_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to, file) =
            (folder.path().join("from"), folder.path().join("to"), folder.path().join("a.cpio.xz"));
        fs::create_dir_all(&from).unwrap();
        fs::create_dir(&to).unwrap();
        fs::write(from.join("text"), "hello").unwrap();
        pack(&from, &file).unwrap();
        let whole = fs::read(&file).unwrap();
        fs::write(&file, &whole[..whole.len() / 2]).unwrap();

        let message = format!("{:#}", unpack(&file, &to).unwrap_err());

        assert!(message.contains("a.cpio.xz is damaged"), "{message}");
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for name in ["", "/etc/passwd", "../up", "a/../../b"] {
            assert!(inside(name).is_err(), "{name}");
        }
        assert_eq!(inside("bin/tool").unwrap(), PathBuf::from("bin/tool"));
    }
}
