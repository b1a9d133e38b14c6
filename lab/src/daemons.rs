//! gpuvmk's own processes: started, waited for, stopped or killed, with their logs kept.
//!
//! A socket counts as ready when the kernel lists it as listening. It is not connected to for a try: a
//! vfio-user server has one client at a time, and that is to be QEMU.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::machine::last_lines;
use crate::process::{Priority, Process};

/// How long a daemon may take until its socket listens.
const READY: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(5);

/// One of gpuvmk's processes.
#[derive(Debug)]
pub struct Daemon {
    process: Process,
    log: PathBuf,
}

impl Daemon {
    /// Starts `gpuvmk ARGUMENTS`; its output goes to `NAME.log` in `folder`.
    pub fn start(gpuvmk: &Path, arguments: &[&str], folder: &Path, name: &str) -> Result<Self> {
        Self::launch(gpuvmk, arguments, folder, name, Process::start)
    }

    /// The same with these variables in its environment.
    pub fn start_with(
        gpuvmk: &Path,
        arguments: &[&str],
        folder: &Path,
        name: &str,
        environment: &[(&str, &str)],
    ) -> Result<Self> {
        Self::launch(gpuvmk, arguments, folder, name, |mut command, name| {
            command.envs(environment.iter().copied());
            Process::start(command, name)
        })
    }

    /// The same with a lower priority.
    pub fn start_lower(
        gpuvmk: &Path,
        arguments: &[&str],
        folder: &Path,
        name: &str,
        priority: Priority,
    ) -> Result<Self> {
        Self::launch(gpuvmk, arguments, folder, name, |command, name| {
            Process::start_lower(command, name, priority)
        })
    }

    fn launch(
        gpuvmk: &Path,
        arguments: &[&str],
        folder: &Path,
        name: &str,
        start: impl FnOnce(Command, &str) -> Result<Process>,
    ) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("Cannot create {}", folder.display()))?;
        let log = folder.join(format!("{name}.log"));
        let file = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .with_context(|| format!("Cannot open {}", log.display()))?;
        let mut command = Command::new(gpuvmk);
        command.args(arguments).stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        Ok(Self { process: start(command, name)?, log })
    }

    /// Waits until a socket at `path` listens; an error if the daemon ends first.
    pub fn wait_listening(&mut self, path: &Path) -> Result<()> {
        let start = Instant::now();
        while !listens(path) {
            if let Some(status) = self.process.ended()? {
                bail!("{} ended with {status}: {}", self.process.name(), self.last_words());
            }
            if start.elapsed() > READY {
                bail!(
                    "{} does not listen on {} after {READY:?}: {}",
                    self.process.name(),
                    path.display(),
                    self.last_words()
                );
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> Result<bool> {
        Ok(self.process.ended()?.is_none())
    }

    /// The process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// The processor time that it has used.
    pub fn cpu_time(&self) -> Duration {
        self.process.cpu_time()
    }

    /// Bytes that it wrote.
    pub fn log_bytes(&self) -> u64 {
        fs::metadata(&self.log).map_or(0, |file| file.len())
    }

    /// Everything it wrote.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The end of what it wrote, on one line.
    pub fn last_words(&self) -> String {
        last_lines(&self.log(), 3)
    }

    /// Asks it to end. A problem if it was not running any more, or takes long, or fails.
    pub fn stop(&mut self) -> Result<Option<String>> {
        let name = self.process.name().to_owned();
        if let Some(status) = self.process.ended()? {
            return Ok(Some(format!("{name} had ended by itself with {status}: {}", self.last_words())));
        }
        let (status, took) = self.process.stop()?;
        if took > Duration::from_secs(3) {
            return Ok(Some(format!(
                "{name} took {took:?} to end after SIGTERM, beside its waits for a processor"
            )));
        }
        if !status.success() {
            return Ok(Some(format!("{name} ended with {status} after SIGTERM: {}", self.last_words())));
        }
        Ok(None)
    }
}

/// Whether a socket at `path` listens, by the kernel's list of unix sockets.
pub fn listens(path: &Path) -> bool {
    fs::read_to_string("/proc/net/unix").is_ok_and(|table| lists_listener(&table, path))
}

/// Columns: address, references, protocol, flags, type, state, inode, path.
fn lists_listener(table: &str, path: &Path) -> bool {
    /// `__SO_ACCEPTCON`: the socket listens.
    const LISTENING: &str = "00010000";
    let Some(path) = path.to_str() else { return false };
    table.lines().any(|line| {
        let mut columns = line.split_whitespace();
        columns.nth(3) == Some(LISTENING) && columns.nth(3) == Some(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn listening_socket_is_seen_without_a_connection() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        assert!(!listens(&path));
        let listener = UnixListener::bind(&path).unwrap();
        assert!(listens(&path));
        drop(listener);
        // A process that another test is just starting holds a copy of the listener until it has become its
        // program.
        let until = Instant::now() + Duration::from_secs(5);
        while listens(&path) && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        assert!(!listens(&path), "a socket file that nobody serves does not listen");
    }

    #[test]
    fn connected_socket_with_the_same_path_is_no_listener() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
                     0000000000000000: 00000003 00000000 00000000 0001 03 35042 /run/a.sock\n";
        assert!(!lists_listener(table, Path::new("/run/a.sock")));
        let table = table.replace("00000000 0001 03", "00010000 0001 01");
        assert!(lists_listener(&table, Path::new("/run/a.sock")));
    }

    #[test]
    fn daemon_that_ends_early_is_reported_with_its_last_words() {
        let folder = tempfile::tempdir().unwrap();
        let mut daemon = Daemon::start(
            Path::new("/bin/sh"),
            &["-c", "echo no folder /x >&2; exit 3"],
            folder.path(),
            "device",
        )
        .unwrap();
        let message = daemon.wait_listening(&folder.path().join("none.sock")).unwrap_err().to_string();
        assert!(message.contains("device") && message.contains("no folder /x"), "{message}");
    }

    #[test]
    fn stopping_a_daemon_that_ignores_its_exit_status_is_a_problem() {
        let folder = tempfile::tempdir().unwrap();
        let script = "trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done";
        let mut daemon =
            Daemon::start(Path::new("/bin/sh"), &["-c", script], folder.path(), "device").unwrap();
        while !daemon.log().contains("ready") {
            thread::sleep(LOOK);
        }
        assert!(daemon.stop().unwrap().unwrap().contains("exit status: 7"));
    }
}
