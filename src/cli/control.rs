//! The aggregator's control socket, as its clients find it.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::bail;
use gpuvmk_control_client::Status;
use serde_json::Value;

use crate::config::GpuConfig;

/// Where control sockets are on a host that is set up as the documentation says, and how their names end.
const FOLDER: &str = "/run/gpuvmk";
const ENDING: &str = "control";

/// Whose control socket is meant.
#[derive(Debug, clap::Args)]
pub(super) struct Target {
    /// The GPU's configuration file, for its control socket [default: the only socket /run/gpuvmk/*.control].
    #[arg(long, value_name = "FILE", conflicts_with = "socket")]
    gpu: Option<PathBuf>,
    /// The control socket itself.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

impl Target {
    /// Calls a method of the aggregator that is meant.
    pub(super) fn call(&self, method: &str, params: &Value) -> anyhow::Result<Value> {
        Ok(gpuvmk_control_client::call(&self.path()?, method, params)?)
    }

    /// The state of the aggregator that is meant.
    pub(super) fn status(&self) -> anyhow::Result<Status> {
        Ok(gpuvmk_control_client::status(&self.path()?)?)
    }

    fn path(&self) -> anyhow::Result<PathBuf> {
        socket(self.gpu.as_deref(), self.socket.as_deref())
    }
}

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

/// All control sockets of this host.
pub(super) fn all() -> Vec<PathBuf> {
    all_in(Path::new(FOLDER))
}

fn all_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut sockets: Vec<_> = entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()))
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ending| ending == ENDING))
        .collect();
    sockets.sort();
    sockets
}

fn the_only_one(folder: &Path) -> anyhow::Result<PathBuf> {
    match all_in(folder).as_slice() {
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
