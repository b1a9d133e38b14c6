//! The aggregator's control socket, as its clients find it and speak with it.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};

use crate::config::GpuConfig;

/// How long an aggregator may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Where control sockets are on a host that is set up as the documentation says, and how their names end.
const FOLDER: &str = "/run/gpuvmk";
const ENDING: &str = "control";

/// The control socket that is meant: given itself, by the GPU's file, or the only one that there is.
pub(super) fn socket(file: Option<&Path>, socket: Option<&Path>) -> anyhow::Result<PathBuf> {
    match (socket, file) {
        (Some(socket), _) => Ok(socket.to_owned()),
        (None, Some(file)) => match GpuConfig::load(file)?.control {
            Some(control) => Ok(control.path),
            None => bail!("{} has no [control] section, so there is nobody to ask", file.display()),
        },
        (None, None) => the_only_one(Path::new(FOLDER)),
    }
}

fn the_only_one(folder: &Path) -> anyhow::Result<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut sockets: Vec<_> = entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()))
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ending| ending == ENDING))
        .collect();
    sockets.sort();
    match sockets.as_slice() {
        [one] => Ok(one.clone()),
        [] => bail!(
            "No control socket {}/*.{ENDING} is there: say which GPU with --gpu FILE or --socket PATH",
            folder.display()
        ),
        many => {
            let names: Vec<_> = many.iter().map(|path| path.display().to_string()).collect();
            bail!("There are several GPUs; choose with --socket: {}", names.join(", "))
        }
    }
}

/// Sends one line to a control socket and returns the answer's line.
pub(super) fn ask(socket: &Path, request: &str) -> anyhow::Result<String> {
    let absent = || format!("No aggregator answers at {}: is it running?", socket.display());
    let mut stream = UnixStream::connect(socket).with_context(absent)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    writeln!(stream, "{request}").with_context(absent)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).with_context(absent)?;
    if answer.is_empty() {
        bail!("The aggregator at {} closed the connection without an answer", socket.display());
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn only_socket_is_taken_and_several_are_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file.control"), "").unwrap();
        let none = the_only_one(folder.path()).unwrap_err().to_string();
        assert!(none.contains("--gpu FILE"), "{none}");

        let path = |name: &str| folder.path().join(name);
        let _other = UnixListener::bind(path("gpu0.sock")).unwrap();
        let _first = UnixListener::bind(path("gpu0.control")).unwrap();
        assert_eq!(the_only_one(folder.path()).unwrap(), path("gpu0.control"));

        let _second = UnixListener::bind(path("gpu1.control")).unwrap();
        let several = the_only_one(folder.path()).unwrap_err().to_string();
        assert!(several.contains("gpu0.control") && several.contains("gpu1.control"), "{several}");
    }
}
