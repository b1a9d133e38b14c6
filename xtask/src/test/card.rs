//! A software GPU that an outer machine has as its card.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gpuvmk_lab::daemons::{Daemon, listens};
use gpuvmk_lab::machine::LOOK;

/// How long the software GPU may take to listen.
const START: Duration = Duration::from_secs(20);
/// Its VRAM.
const VRAM: &str = "256M";

/// A running software GPU.
#[derive(Debug)]
pub struct SoftCard {
    gpu: Daemon,
    sockets: PathBuf,
}

impl SoftCard {
    /// Starts one, whose log goes to a folder.
    pub fn start(gpuvmk: &Path, logs: &Path) -> Result<Self> {
        fs::create_dir_all(logs).with_context(|| format!("Cannot create {}", logs.display()))?;
        // Short enough for a socket's path.
        let sockets = std::env::temp_dir().join(format!("gpuvmk-card-{}", std::process::id()));
        fs::create_dir_all(&sockets).with_context(|| format!("Cannot create {}", sockets.display()))?;
        let socket = sockets.join(SOCKET);
        let shown = socket.to_string_lossy();
        let arguments = ["softgpu", "--socket-path", &shown, "--vram", VRAM];
        let mut gpu = Daemon::start(gpuvmk, &arguments, logs, "softgpu")?;
        let waited = Instant::now();
        while !listens(&socket) {
            ensure!(gpu.runs()?, "The software GPU ended: {}", gpu.last_words());
            ensure!(waited.elapsed() < START, "The software GPU does not listen");
            std::thread::sleep(LOOK);
        }
        Ok(Self { gpu, sockets })
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        self.sockets.join(SOCKET)
    }

    /// Ends it; what was wrong with it.
    pub fn stop(mut self) -> Result<Option<String>> {
        let problem = self.gpu.stop()?.map(|problem| format!("the software GPU: {problem}"));
        fs::remove_dir_all(&self.sockets)
            .with_context(|| format!("Cannot remove {}", self.sockets.display()))?;
        Ok(problem)
    }
}

const SOCKET: &str = "gpu.sock";
