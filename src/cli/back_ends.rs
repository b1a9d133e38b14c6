//! `gpuvmk vmm --net user --share DIR=TAG`: back ends that it starts itself, passt for a network and
//! virtiofsd for folders.
//!
//! A second process does that, which is made before the jail is put on: the one with the guest starts no
//! program, ever. It listens at a socket for each back end, and starts one when somebody comes: so whoever
//! asks again for one that ended gets another. It hears nothing from the guest's process but that it comes,
//! and ends with it.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::config::{Forward, Protocol, Share};
use crate::host::fork::second_process;
use crate::vmm::vhost_user::{BackEnd, DeviceKind};

/// Where programs are that no user starts, beside those on `PATH`.
const LIBEXEC: [&str; 2] = ["/usr/libexec", "/usr/lib/qemu"];
/// How long between two starts of a back end.
const PACE: Duration = Duration::from_millis(100);

/// A back end to start, and how it is given who comes.
struct Startable {
    program: PathBuf,
    arguments: Vec<String>,
    /// It takes a connection; else the socket that listens.
    takes_connection: bool,
}

/// The process that starts them, and their sockets. Dropping this ends it.
#[derive(Debug)]
pub(super) struct BackEnds {
    /// What the VM's devices are.
    pub(super) devices: Vec<BackEnd>,
    _process: Option<OwnedFd>,
}

impl BackEnds {
    /// Starts the process, if there is something for it. To be called before anything else has threads.
    ///
    /// # Errors
    /// A program is missing or too old, a folder is none, or the host lacks something.
    pub(super) fn start(network: Option<([u8; 6], &[Forward])>, shares: &[Share]) -> anyhow::Result<Self> {
        let (mut startable, mut kinds) = (Vec::new(), Vec::new());
        if let Some((mac, forwards)) = network {
            startable.push(passt(forwards)?);
            kinds.push(DeviceKind::Net { mac });
        }
        for Share { folder, tag } in shares {
            startable.push(virtiofsd(folder)?);
            kinds.push(DeviceKind::fs(tag).map_err(anyhow::Error::msg)?);
        }
        if startable.is_empty() {
            return Ok(Self { devices: Vec::new(), _process: None });
        }
        let folder = make_folder()?;
        let (mut kept, mut devices) = (Vec::new(), Vec::new());
        for (number, (startable, kind)) in startable.into_iter().zip(kinds).enumerate() {
            let socket = folder.join(format!("{number}.sock"));
            let listener = UnixListener::bind(&socket)
                .with_context(|| format!("Cannot make the socket {}", socket.display()))?;
            kept.push(Kept { startable, listener, child: None, next: Instant::now() });
            devices.push(BackEnd { kind, socket, queues: None, configuration: 0 });
        }
        let process = second_process(move |parent| keep(kept, &parent, &folder));
        let process = process.context("Cannot start a second process for back ends")?;
        Ok(Self { devices, _process: Some(process) })
    }
}

/// A program on `PATH`, or where programs are that no user starts.
fn find(name: &str, option: &str, package: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(LIBEXEC.map(PathBuf::from));
    let is_program = |path: &PathBuf| {
        let metadata = fs::metadata(path);
        metadata.is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    let found = folders.map(|folder| folder.join(name)).find(is_program);
    found.with_context(|| {
        format!(
            "{option} needs the program {name}, which is not on PATH (Debian has it in the package {package})"
        )
    })
}

fn passt(forwards: &[Forward]) -> anyhow::Result<Startable> {
    let program = find("passt", "--net user", "passt")?;
    let asked = Command::new(&program)
        .args(["--vhost-user", "--print-capabilities"])
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("Cannot start {}", program.display()))?;
    ensure!(
        asked.status.success(),
        "{} knows no vhost-user: --net user needs a passt of 2025 or later (Debian 13 has one)",
        program.display()
    );
    let mut arguments: Vec<String> = ["--foreground", "--quiet", "--vhost-user"].map(str::to_owned).to_vec();
    arguments.extend(["--repair-path", "none", "--fd", "0"].map(str::to_owned));
    for forward in forwards {
        let option = match forward.protocol {
            Protocol::Tcp => "--tcp-ports",
            Protocol::Udp => "--udp-ports",
        };
        let address = forward.address.map(|address| format!("{address}/")).unwrap_or_default();
        arguments.extend([option.to_owned(), format!("{address}{}:{}", forward.host, forward.guest)]);
    }
    Ok(Startable { program, arguments, takes_connection: true })
}

fn virtiofsd(folder: &Path) -> anyhow::Result<Startable> {
    let program = find("virtiofsd", "--share", "virtiofsd")?;
    let folder = fs::canonicalize(folder).with_context(|| format!("Cannot share {}", folder.display()))?;
    ensure!(folder.is_dir(), "Cannot share {}: it is no folder", folder.display());
    let Some(path) = folder.to_str() else { bail!("Cannot share {}: its name is no text", folder.display()) };
    let arguments = ["--shared-dir", path, "--fd", "0", "--log-level", "error"].map(str::to_owned).to_vec();
    Ok(Startable { program, arguments, takes_connection: false })
}

/// A folder of this process's own, where the user's sockets are.
fn make_folder() -> anyhow::Result<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let own = |folder: &PathBuf| {
        fs::metadata(folder)
            .is_ok_and(|found| found.is_dir() && found.uid() == rustix::process::geteuid().as_raw())
    };
    let parent = runtime.filter(own).unwrap_or_else(std::env::temp_dir);
    let folder = parent.join(format!("gpuvmk-vmm-{}", std::process::id()));
    let made = DirBuilder::new().mode(0o700).create(&folder);
    made.with_context(|| format!("Cannot make a folder for sockets, {}", folder.display()))?;
    Ok(folder)
}

/// A back end that is started when somebody comes.
struct Kept {
    startable: Startable,
    listener: UnixListener,
    child: Option<(Child, OwnedFd)>,
    next: Instant,
}

impl Kept {
    /// Somebody has come.
    fn begin(&mut self) -> io::Result<()> {
        self.next = Instant::now() + PACE;
        let socket: OwnedFd = if self.startable.takes_connection {
            self.listener.accept()?.0.into()
        } else {
            self.listener.try_clone()?.into()
        };
        // Its standard input is the socket; standard output is the guest's console.
        let mut command = Command::new(&self.startable.program);
        command.args(&self.startable.arguments).stdin(socket).stdout(Stdio::null());
        let child = command.spawn()?;
        let watched = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
        self.child = Some((child, watched));
        Ok(())
    }

    /// It may have ended.
    fn look(&mut self) {
        if let Some((child, _)) = &mut self.child {
            match child.try_wait() {
                Ok(None) => {}
                Ok(Some(status)) => {
                    log::debug!("{} ended: {status}", self.startable.program.display());
                    self.child = None;
                }
                Err(error) => {
                    log::warn!("{} cannot be waited for: {error}", self.startable.program.display());
                    self.child = None;
                }
            }
        }
    }
}

/// The second process's work, until the first one is gone.
fn keep(mut kept: Vec<Kept>, parent: &OwnedFd, folder: &Path) -> i32 {
    while wait(&mut kept, parent) {}
    // Back ends end by themselves: nobody is at the other end of their sockets.
    let _ = fs::remove_dir_all(folder);
    0
}

/// Waits for somebody who comes, for a back end's end, or for the first process's: false then.
fn wait(kept: &mut [Kept], parent: &OwnedFd) -> bool {
    let now = Instant::now();
    let early = |kept: &Kept| kept.child.is_none() && kept.next > now;
    let pause = kept.iter().filter(|kept| early(kept)).map(|kept| kept.next - now).min();
    let mut descriptors = vec![PollFd::new(parent, PollFlags::IN)];
    for kept in kept.iter() {
        let (watched, what) = match &kept.child {
            Some((_, process)) => (process.as_fd(), PollFlags::IN),
            None if early(kept) => (kept.listener.as_fd(), PollFlags::empty()),
            None => (kept.listener.as_fd(), PollFlags::IN),
        };
        descriptors.push(PollFd::from_borrowed_fd(watched, what));
    }
    let timeout = pause.and_then(|pause| Timespec::try_from(pause).ok());
    match poll(&mut descriptors, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => {
            log::error!("Back ends are not started any more: {error}");
            return false;
        }
    }
    let ready: Vec<_> = descriptors.iter().map(|descriptor| !descriptor.revents().is_empty()).collect();
    let Some((gone, ready)) = ready.split_first() else { return false };
    for (kept, ready) in kept.iter_mut().zip(ready).filter(|(_, ready)| **ready) {
        if kept.child.is_some() {
            kept.look();
        } else if *ready && let Err(error) = kept.begin() {
            log::error!("{} cannot be started: {error}", kept.startable.program.display());
        }
    }
    !gone
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    /// A program that says hello to who comes, and ends.
    fn greeter(folder: &Path) -> Kept {
        let program = folder.join("greeter");
        fs::write(&program, "#!/bin/sh\nprintf \"$1\" >&0\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let startable = Startable { program, arguments: vec!["hello".to_owned()], takes_connection: true };
        let listener = UnixListener::bind(folder.join("0.sock")).unwrap();
        Kept { startable, listener, child: None, next: Instant::now() }
    }

    #[test]
    fn back_end_is_started_for_each_who_comes_until_the_first_process_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("sockets");
        fs::create_dir(&place).unwrap();
        let kept = vec![greeter(&place)];
        let (ours, theirs) = UnixStream::pair().unwrap();
        let own = place.clone();
        let process = std::thread::spawn(move || keep(kept, &theirs.into(), &own));
        for _ in 0..3 {
            let mut said = String::new();
            UnixStream::connect(place.join("0.sock")).unwrap().read_to_string(&mut said).unwrap();
            assert_eq!(said, "hello");
        }
        drop(ours);
        assert_eq!(process.join().unwrap(), 0);
        assert!(!place.exists());
    }

    #[test]
    fn program_that_is_missing_is_named_with_its_package() {
        let error = find("no-such-program", "--net user", "a-package").unwrap_err().to_string();
        assert!(error.contains("no-such-program") && error.contains("a-package"), "{error}");
    }
}
