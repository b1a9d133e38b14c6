//! Debian's vhost-user back ends, passt and virtiofsd, with the libraries of the same Debian.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::apt::{self, Apt};
use crate::cache::Cache;
use crate::initramfs::ImageFile;
use crate::qemu;

/// Debian 13: older ones have no passt that knows vhost-user, and no virtiofsd.
const SUITE: &str = "trixie";
/// Their entry of the cache.
const NAME: &str = "back-ends";
/// The programs, where their packages have them.
const PROGRAMS: [&str; 2] = ["usr/bin/passt", "usr/libexec/virtiofsd"];
/// What they are linked with, as QEMU's packages of the same Debian have it.
const LIBRARIES: [&str; 5] = ["libc.so.6", "libm.so.6", "libcap-ng.so.0", "libseccomp.so.2", "libgcc_s.so.1"];
const LIBRARY_FOLDER: &str = "usr/lib/x86_64-linux-gnu";
/// The dynamic loader, and where programs look for it.
const LOADER: &str = "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2";
const INTERPRETER: &str = "lib64/ld-linux-x86-64.so.2";
/// Users that passt looks for: root starts it, and it becomes nobody.
const USERS: &str = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n";

/// All that a machine needs to run them, from its root on; fetched first if need be.
pub fn files(cache: &Cache) -> Result<Vec<ImageFile>> {
    let folder = match cache.entry(NAME, Some(SUITE)) {
        Some(folder) => folder,
        None => {
            let lock = cache.lock()?;
            cache.entry_or_build(&lock, NAME, SUITE, |folder| {
                eprintln!("gpuvmk: fetching passt and virtiofsd (1.3 MB)");
                let packages = [format!("passt/{SUITE}"), format!("virtiofsd/{SUITE}")];
                let packages: Vec<_> = packages.iter().map(String::as_str).collect();
                let downloads = folder.join("download");
                let files = Apt::set_up(cache)?.download(&packages, &downloads)?;
                apt::unpack(&files, folder, NAME)?;
                std::fs::remove_dir_all(&downloads).context("Cannot remove downloads")
            })?
        }
    };
    let libraries = qemu::fetched(cache)?;
    let mut files = Vec::new();
    for program in PROGRAMS {
        files.push(program_at(program, &folder.join(program))?);
    }
    for library in LIBRARIES.map(|library| Path::new(LIBRARY_FOLDER).join(library)) {
        files.push(program_at(&library, &libraries.join(&library))?);
    }
    files.push(program_at(INTERPRETER, &libraries.join(LOADER))?);
    let users = PathBuf::from("etc/passwd");
    files.push(ImageFile { path: users, contents: USERS.as_bytes().to_vec(), program: false });
    Ok(files)
}

fn program_at(place: impl AsRef<Path>, from: &Path) -> Result<ImageFile> {
    let contents = std::fs::read(from).with_context(|| format!("Cannot read {}", from.display()))?;
    Ok(ImageFile { path: place.as_ref().to_owned(), contents, program: true })
}
