//! Inner guests and what runs them.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::{CONFIGS, DISK, FOLDER, START, STOP, gpuvmk, log_of, network, print_log, qemu, wait};
use crate::programs::Options;

const CONSOLE: &str = "/dev/console";

/// What runs inner guests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Front {
    /// `gpuvmk vmm`.
    Vmm,
    /// QEMU, with its own VFIO: nothing of gpuvmk is there.
    QemuVfio,
    /// QEMU, with `gpuvmk device`.
    QemuUser,
}

impl Front {
    /// By the option `front`.
    pub fn of(options: &Options) -> Result<Self> {
        match options.get("front", "vmm".to_owned())?.as_str() {
            "vmm" => Ok(Self::Vmm),
            "vfio-pci" => Ok(Self::QemuVfio),
            "vfio-user" => Ok(Self::QemuUser),
            other => bail!("no front end is called {other}"),
        }
    }
}

/// An inner guest and its VMM.
pub struct Inner {
    pub name: String,
    pub vmm: Child,
    /// Its console, where that is a file.
    console: Option<String>,
}

impl Inner {
    /// The guest of this number, from 1 on.
    pub fn start(number: usize, vms: usize, front: Front, options: &Options) -> Result<Self> {
        let name = format!("vmm{number}");
        let console = (vms > 1).then(|| format!("/run/{name}.console"));
        let shown = match &console {
            Some(path) => File::create(path),
            None => File::options().write(true).open(CONSOLE),
        };
        let log = File::create(log_of(&name)).context("cannot create a log")?;
        let mut vmm = command(number, front, options)?;
        vmm.stdout(shown.context("cannot open a console")?).stderr(log);
        let vmm = vmm.spawn().context("cannot start the VMM")?;
        Ok(Self { name, vmm, console })
    }

    /// Waits for its end; an error, with what helps to see why, if there is none in time.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        if let Some(status) = wait(&mut self.vmm, limit)? {
            return Ok(status);
        }
        print_threads(&self.vmm);
        // Its last lines say where its guest is.
        kill_process(Pid::from_child(&self.vmm), Signal::TERM).context("cannot signal the VMM")?;
        let ended = wait(&mut self.vmm, STOP)?;
        self.show_console()?;
        print_log(&self.name);
        print_log("aggregator");
        bail!("{} does not end in time; told to end: {ended:?}", self.name);
    }

    /// Shows what it said, if nobody has seen it yet.
    pub fn show_console(&self) -> Result<()> {
        let Some(path) = &self.console else { return Ok(()) };
        let said = fs::read(path).with_context(|| format!("cannot read {path}"))?;
        let mut console = File::options().write(true).open(CONSOLE).context("cannot open the console")?;
        console.write_all(&said).context("cannot write to the console")
    }
}

/// What runs a guest.
pub fn command(number: usize, front: Front, options: &Options) -> Result<Command> {
    let cpus: u32 = options.get("cpus", 1)?;
    let memory: String = options.get("memory", "512M".to_owned())?;
    let words =
        fs::read_to_string(format!("{FOLDER}/words")).context("cannot read the inner command line")?;
    if front != Front::Vmm {
        return Ok(qemu::command(front, words.trim(), cpus, &memory));
    }
    let mut vmm = gpuvmk::command(&["vmm", &format!("{CONFIGS}/vm{number}.toml")]);
    vmm.args(["--kernel", "/host/vmlinuz", "--initrd", "/host/initramfs.cpio", "--append", words.trim()]);
    vmm.args(["--cpus", &cpus.to_string(), "--memory", &memory]);
    if Path::new(DISK).exists() {
        vmm.args(["--disk", DISK]);
    }
    if options.get("network", false)? {
        network::give(&mut vmm);
    }
    vmm.args(options.get("trap", false)?.then_some("--trap-all"));
    // A kernel that panics resets its machine.
    vmm.args((!options.get("reboot", false)?).then_some("--no-reboot"));
    vmm.stdin(Stdio::null()).env("RUST_LOG", "info,gpuvmk::vmm=debug");
    Ok(vmm)
}

/// Starts the VMM once more and ends it by a signal, while its guest boots.
pub fn stop_while_it_boots(vmm: &mut Command) -> Result<()> {
    const STOPPED: &str = "/run/stopped.console";
    let console = File::create(STOPPED).context("cannot create a file for the console")?;
    let log = File::create("/run/stopped.log").context("cannot create a log")?;
    let mut child = vmm.stdout(console).stderr(log).spawn().context("cannot start the VMM again")?;
    let start = Instant::now();
    while !fs::read_to_string(STOPPED).unwrap_or_default().contains("Linux version") {
        ensure!(start.elapsed() < START, "the inner guest does not boot again");
        thread::sleep(Duration::from_millis(50));
    }
    kill_process(Pid::from_child(&child), Signal::TERM).context("cannot signal the VMM")?;
    let Some(status) = wait(&mut child, STOP)? else {
        print_threads(&child);
        bail!("a VMM that was stopped is there {} s later", STOP.as_secs());
    };
    ensure!(status.success(), "a VMM that was stopped ended with {status}");
    Ok(())
}

/// Waits until the guest runs, and sees that each thread of its VMM has a filter of system calls and no
/// capability. How many there are.
pub fn confined_threads(vmm: &mut Child) -> Result<usize> {
    let start = Instant::now();
    let mut threads = Vec::new();
    while !threads.iter().any(|status: &String| status.starts_with("Name:\tprocessor")) {
        if vmm.try_wait().context("cannot look at the VMM")?.is_some() {
            // Why, is said by its log.
            return Ok(0);
        }
        ensure!(start.elapsed() < START, "the VMM starts no processor");
        thread::sleep(Duration::from_millis(50));
        threads = threads_of(vmm);
    }
    all_confined(&threads)
}

/// The same for a daemon that has nothing to start any more.
pub fn confined_daemon(daemon: &Child) -> Result<usize> {
    all_confined(&threads_of(daemon))
}

/// What the kernel says of each thread of a process.
fn threads_of(process: &Child) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", process.id())).into_iter().flatten().flatten();
    tasks.filter_map(|task| fs::read_to_string(task.path().join("status")).ok()).collect()
}

fn all_confined(threads: &[String]) -> Result<usize> {
    for status in threads {
        let confined = status.contains("\nSeccomp:\t2\n") && status.contains("\nCapEff:\t0000000000000000\n");
        ensure!(confined, "a thread is not confined: {status}");
    }
    Ok(threads.len())
}

/// Shows what each thread of a process does.
fn print_threads(child: &Child) {
    let tasks = fs::read_dir(format!("/proc/{}/task", child.id())).into_iter().flatten().flatten();
    for task in tasks {
        let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let times = read("stat").split(' ').skip(13).take(2).collect::<Vec<_>>().join("+");
        eprintln!("thread {}: in {}, {times} ticks; {}", read("comm").trim(), read("wchan"), read("stack"));
    }
}
