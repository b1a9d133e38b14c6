//! The host's side of the program `network`: a server, a folder, and the end of what serves its guest.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::programs::network::{
    A_FOLDER, BIG, BIG_NAME, FETCHED, GUEST_PORT, HOST_PORT, SERVED, SMALL, TAG, WRITTEN, content, small,
};
use crate::{net, sys};

const SHARED: &str = "/run/shared";
/// A place that is a mount, as back ends that leave their root need one to leave.
const ROOT: &str = "/bound";
/// The port that is the guest's.
const FORWARDED: u16 = 2222;
/// How long a forwarded port may take after its back end has come back.
const PATIENCE: Duration = Duration::from_secs(30);

/// Back ends that were killed.
static KILLED: AtomicU32 = AtomicU32::new(0);

/// Makes all that the guest asks for, and serves.
pub fn prepare() -> Result<()> {
    fs::create_dir_all(ROOT).context("cannot make a folder")?;
    sys::bind("/", ROOT).context("cannot bind the root")?;
    sys::enter_root(ROOT).context("cannot enter another root")?;
    net::up("lo")?;
    for number in 0..SMALL {
        let (path, content) = small(number);
        let path = Path::new(SHARED).join(path);
        if number % A_FOLDER == 0 {
            fs::create_dir_all(path.parent().context("a file lies in a folder")?)?;
        }
        fs::write(path, content).context("cannot write a small file")?;
    }
    fs::write(Path::new(SHARED).join(BIG_NAME), content(3, BIG)).context("cannot write the big file")?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, HOST_PORT)).context("cannot listen")?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                if let Err(error) = net::answer(stream, answer) {
                    eprintln!("host: {error:#}");
                }
            });
        }
    });
    Ok(())
}

/// What a VMM is told of it.
pub fn give(vmm: &mut Command) {
    let forward = format!("127.0.0.1/{FORWARDED}:{GUEST_PORT}");
    let share = format!("{SHARED}={TAG}");
    vmm.args(["--net", "user", "--forward", &forward, "--share", &share]).env("PATH", "/usr/bin");
}

fn answer(path: &str) -> Result<Vec<u8>> {
    match path {
        "/content" => Ok(content(1, FETCHED)),
        "/back" => back().map(|()| Vec::new()),
        "/written" => {
            let found = fs::read(Path::new(SHARED).join(WRITTEN)).context("the guest wrote nothing")?;
            ensure!(found == content(4, SERVED), "what the guest wrote is something else");
            Ok(Vec::new())
        }
        "/killed" => Ok(KILLED.load(Ordering::SeqCst).to_string().into_bytes()),
        other => match other.strip_prefix("/kill/") {
            Some(name) => kill(name).map(|()| Vec::new()),
            None => bail!("nobody serves {other}"),
        },
    }
}

/// Fetches what the guest serves, through its forwarded port.
fn back() -> Result<()> {
    let start = Instant::now();
    loop {
        match net::fetch(Ipv4Addr::LOCALHOST, FORWARDED, "/") {
            Ok(found) => {
                ensure!(found == content(2, SERVED), "what the guest serves is something else");
                return Ok(());
            }
            Err(error) if start.elapsed() > PATIENCE => return Err(error.context("the forwarded port")),
            Err(_) => thread::sleep(Duration::from_millis(200)),
        }
    }
}

/// Kills the processes of a program.
fn kill(name: &str) -> Result<()> {
    let mut found = false;
    for process in fs::read_dir("/proc").context("cannot list processes")?.flatten() {
        let comm = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
        let number = process.file_name().to_string_lossy().parse().ok();
        if let Some(pid) = number.and_then(Pid::from_raw)
            && comm.trim().split('.').next() == Some(name)
        {
            // One of several may be gone with the others.
            found |= kill_process(pid, Signal::KILL).is_ok();
        }
    }
    ensure!(found, "there is no {name}");
    KILLED.fetch_add(1, Ordering::SeqCst);
    Ok(())
}
