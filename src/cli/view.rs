//! `gpuvmk view VM.toml`: shows what a VM's monitor shows, by a viewer that this machine has.

use std::env;
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::Context;

use super::screenshot::socket_of;

/// Names of TigerVNC's viewer, which opens a socket by its path. The second is what other viewers may be
/// called too.
const VIEWERS: [&str; 2] = ["xtigervncviewer", "vncviewer"];

/// Arguments of `gpuvmk view`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpuvmk view /etc/gpuvmk/vm1.toml
  gpuvmk view /etc/gpuvmk/vm1.toml --how
The file must have `display` and a [viewers] section, and the VM's back end must run.")]
pub(super) struct Args {
    /// The VM's configuration file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Say how the socket is reached, and open nothing.
    #[arg(long)]
    how: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let socket = socket_of(&args.file)?;
    let path = env::var_os("PATH").unwrap_or_default();
    match viewer(&path).filter(|_| !args.how) {
        Some(viewer) => {
            let error = Command::new(&viewer).arg(&socket).exec();
            Err(error).with_context(|| format!("Cannot run {}", viewer.display()))
        }
        None => {
            say!("{}", how(&socket))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// The first viewer in folders as PATH has them.
fn viewer(path: &OsStr) -> Option<PathBuf> {
    let found =
        |name: &&str| env::split_paths(path).map(|folder| folder.join(name)).find(|file| file.is_file());
    VIEWERS.iter().find_map(found)
}

/// How any viewer reaches a socket.
fn how(socket: &Path) -> String {
    let socket = socket.display();
    format!(
        "The monitor is shown by RFB (VNC) at {socket}\n\
         by TigerVNC:      vncviewer {socket}\n\
         from elsewhere:   ssh -L 5901:{socket} THIS_MACHINE, then vncviewer localhost:1\n\
         in a browser:     websockify --web /usr/share/novnc --unix-target {socket} 127.0.0.1:6080,\n\
         \x20                 then http://127.0.0.1:6080/vnc.html"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn viewer_is_found_by_its_own_name_first() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = env::join_paths([one.path(), other.path()]).unwrap();
        assert_eq!(viewer(&path), None);
        fs::create_dir(one.path().join("xtigervncviewer")).unwrap();
        fs::write(one.path().join("vncviewer"), "").unwrap();
        assert_eq!(viewer(&path), Some(one.path().join("vncviewer")));
        fs::write(other.path().join("xtigervncviewer"), "").unwrap();
        assert_eq!(viewer(&path), Some(other.path().join("xtigervncviewer")));
    }

    #[test]
    fn every_way_names_the_socket() {
        let text = how(Path::new("/run/vm1.sock"));
        assert_eq!(text.matches("/run/vm1.sock").count(), 4);
        assert!(text.contains("novnc"));
    }
}
