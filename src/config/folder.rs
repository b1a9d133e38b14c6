//! The configuration files of a folder, and what else lies in one: what editors and package managers leave
//! beside a file is none.

use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use super::mistake::ConfigError;

/// The files of a folder that are meant as configuration, by name: those that end in `.toml`, but for hidden
/// ones and those that begin with `#`, as the shell's `*.toml` and systemd's drop-in folders have it.
///
/// # Errors
/// The folder cannot be listed; or one that is meant is no file, or a link to nothing.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>, ConfigError> {
    let unreadable = |path: &Path| {
        let path = path.to_owned();
        move |source| ConfigError::Unreadable { path, source }
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable(folder))? {
        let path = entry.map_err(unreadable(folder))?.path();
        if is_meant(&path) {
            look(&path).map_err(unreadable(&path))?;
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// True if a file's name is one of a configuration file.
fn is_meant(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    path.extension().is_some_and(|ending| ending == "toml")
        && !name.starts_with(b".")
        && !name.starts_with(b"#")
}

/// An error that names what is there instead of a file. Opening a pipe would wait for a writer.
fn look(path: &Path) -> Result<(), Error> {
    match path.metadata() {
        Ok(meta) if meta.is_file() => Ok(()),
        Ok(meta) => {
            let kind = if meta.is_dir() { "a folder" } else { "a pipe, socket or device" };
            Err(Error::other(format!("it is {kind}, and a file is wanted")))
        }
        Err(error) => match path.read_link() {
            Ok(target) if error.kind() == ErrorKind::NotFound => Err(Error::new(
                ErrorKind::NotFound,
                format!("it is a link to {}, which is not there", target.display()),
            )),
            _ => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_of_editors_and_package_managers_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        for name in [
            "vm1.toml",
            "gpu0.toml",
            "vm1.toml~",
            ".vm1.toml.swp",
            "#vm1.toml#",
            "#vm1.toml",
            ".#vm2.toml",
            ".vm3.toml",
            "vm1.toml.dpkg-old",
            "vm1.toml.dpkg-dist",
            "vm1.toml.rpmsave",
            "vm1.toml.bak",
            "vm1.toml.orig",
            "4913",
            "README",
        ] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        // Emacs's lock of a file that is being changed: a link to nothing.
        symlink("user@host.123:1763", folder.path().join(".#vm1.toml")).unwrap();
        symlink("vm1.toml", folder.path().join("vm9.toml")).unwrap();

        let names: Vec<_> = files(folder.path())
            .unwrap()
            .iter()
            .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
            .collect();
        assert_eq!(names, ["gpu0.toml", "vm1.toml", "vm9.toml"]);
    }

    #[test]
    fn what_is_meant_and_is_no_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vm1.toml");
        let said = || format!("{:#}", anyhow::Error::from(files(folder.path()).unwrap_err()));

        symlink("../elsewhere/vm1.toml", &path).unwrap();
        let link = said();
        assert!(
            link.contains("vm1.toml") && link.contains("a link to ../elsewhere/vm1.toml, which is not there"),
            "{link}"
        );
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(said().contains("it is a folder"), "{}", said());
        std::fs::remove_dir(&path).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
        assert!(said().contains("it is a pipe"), "{}", said());
        std::fs::remove_dir_all(folder.path()).unwrap();
        assert!(said().contains("Cannot read"), "{}", said());
    }
}
