//! The process that the user starts: unpacks, gives up root, watches the clock, prints the result.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use gpuvmk_lab::process::Process;
use gpuvmk_lab::{archive, interrupt, pack};

use crate::options::Options;
use crate::record::Record;

/// How often the worker is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// Folders below the working folder.
const PACK: &str = "pack";
const LOGS: &str = "logs";
const TEMPORARY: &str = "tmp";

/// The folder that everything is unpacked to; gone with its value.
#[derive(Debug)]
struct WorkFolder(PathBuf);

impl Drop for WorkFolder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("gpuvmk-runner: {} is left behind: {error}", self.0.display());
        }
    }
}

/// The unpacked pack in a worker's folder.
pub fn pack_in(work: &Path) -> PathBuf {
    work.join(PACK)
}

/// The logs in a worker's folder.
pub fn logs_in(work: &Path) -> PathBuf {
    work.join(LOGS)
}

/// Runs everything and prints the result. `Ok(false)` if something failed.
pub fn run(options: &Options) -> Result<bool> {
    let started = Instant::now();
    let mut record = Record::new(options);
    let outcome = prepare(options).and_then(|work| {
        let ended = supervise(options, &work.0, started);
        record = Record::read(&logs_in(&work.0)).unwrap_or(record.clone());
        keep_logs(&logs_in(&work.0), &options.logs).and(ended)
    });
    match outcome {
        Ok(None) => {}
        Ok(Some(problem)) => record.problem(problem),
        Err(error) => record.problem(format!("{error:#}")),
    }
    record.finish(started.elapsed());
    // Where it cannot be kept it is still printed.
    if let Err(error) = record.write(&options.logs) {
        eprintln!("gpuvmk-runner: {error:#}");
    }
    for problem in record.problems() {
        eprintln!("problem: {problem}");
    }
    println!("{}", record.line());
    Ok(record.ok())
}

/// Unpacks into a folder that the unprivileged user can read.
fn prepare(options: &Options) -> Result<WorkFolder> {
    options.check()?;
    let program = std::env::current_exe().context("Cannot tell where this program is")?;
    let folder = match &options.pack {
        Some(folder) => folder.clone(),
        None => program.parent().context("This program lies in no folder")?.to_owned(),
    };
    let place = options.work.clone().unwrap_or_else(std::env::temp_dir);
    let path = place.join(format!("gpuvmk-run-{}", std::process::id()));
    fs::create_dir_all(&place).with_context(|| format!("Cannot create {}", place.display()))?;
    fs::create_dir(&path).with_context(|| format!("Cannot create {}", path.display()))?;
    let work = WorkFolder(path.canonicalize().unwrap_or(path));
    eprintln!("unpacking to {}", work.0.display());
    fs::create_dir(pack_in(&work.0)).context("Cannot create the folder to unpack to")?;
    archive::unpack(&folder.join(pack::PAYLOAD), &pack_in(&work.0))?;
    fs::copy(&program, work.0.join(pack::RUNNER)).context("Cannot copy the runner")?;
    let user = unprivileged(options, &work.0)?;
    for folder in [LOGS, TEMPORARY] {
        let path = work.0.join(folder);
        fs::create_dir(&path).with_context(|| format!("Cannot create {}", path.display()))?;
        if let Some(user) = user {
            chown(&path, Some(user), Some(user))
                .with_context(|| format!("Cannot give {} to user {user}", path.display()))?;
        }
    }
    // Others' umask must not keep the unprivileged user out.
    fs::set_permissions(&work.0, fs::Permissions::from_mode(0o755))?;
    fs::set_permissions(pack_in(&work.0), fs::Permissions::from_mode(0o755))?;
    Ok(work)
}

/// The user to become, if this is root and is to become another. (Whoever made the folder owns it.)
fn unprivileged(options: &Options, folder: &Path) -> Result<Option<u32>> {
    let own = fs::metadata(folder).context("Cannot look at the working folder")?.uid();
    Ok((own == 0 && options.user != 0).then_some(options.user))
}

/// Runs the worker to its end, or to the end of its time. Returns what was wrong about how it ended.
fn supervise(options: &Options, work: &Path, started: Instant) -> Result<Option<String>> {
    let mut command = Command::new(work.join(pack::RUNNER));
    command.args(std::env::args_os().skip(1)).arg("--worker").arg(work);
    // Standard output is for the result alone.
    command.stdin(Stdio::null()).stdout(Stdio::from(std::io::stderr()));
    command.current_dir(work).env("TMPDIR", work.join(TEMPORARY));
    if let Some(user) = unprivileged(options, work)? {
        eprintln!("everything runs as user {user}");
        command.uid(user).gid(user);
    } else if options.user == 0 {
        eprintln!("warning: guests' work is served by root, as --user 0 asks");
    }
    let mut worker = Process::start(command, "the worker")?;
    loop {
        if let Some(status) = worker.ended()? {
            // 1 says that something failed, and the record says what.
            return Ok(match status.code() {
                Some(0 | 1) => None,
                _ => Some(format!("the worker ended with {status}")),
            });
        }
        if started.elapsed() > options.limit() {
            worker.stop()?;
            return Ok(Some(format!("not done after {} s", options.limit)));
        }
        interrupt::check()?;
        thread::sleep(LOOK);
    }
}

/// Copies the logs to where the user wants them.
fn keep_logs(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("Cannot create {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("Cannot list {}", from.display()))? {
        let path = entry?.path();
        let Some(name) = path.file_name() else { continue };
        if path.is_dir() {
            keep_logs(&path, &to.join(name))?;
        } else if path.is_file() {
            fs::copy(&path, to.join(name)).with_context(|| format!("Cannot keep {}", path.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_are_kept_with_their_folders() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to/deep"));
        fs::create_dir_all(from.join("step/vm1")).unwrap();
        fs::write(from.join("step/vm1/console.log"), "hello").unwrap();

        keep_logs(&from, &to).unwrap();

        assert_eq!(fs::read_to_string(to.join("step/vm1/console.log")).unwrap(), "hello");
    }

    #[test]
    fn working_folder_goes_with_its_value() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("work");
        fs::create_dir(&path).unwrap();
        drop(WorkFolder(path.clone()));
        assert!(!path.exists());
    }
}
