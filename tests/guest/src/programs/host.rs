//! `host`: this guest is a host itself. Starts an aggregator and boots guests of its own with `gpuvmk vmm`. The console of the only one goes
//! where this guest's goes, reports included; those of several are shown there one after the other, in the end.
//!
//! What it needs lies in `/host`: gpuvmk with the C library that it was linked with, configurations, the inner guest's kernel,
//! initramfs and disk.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Figures, Options, card, debian, gpuvmk};

const FOLDER: &str = "/host";
const CONSOLE: &str = "/dev/console";
/// The aggregator's configuration; its GPU, if that is a card, has this address in it until there is one.
const CONFIG: &str = "/host/gpu.toml";
const ADDRESS: &str = "ADDRESS";
/// Where the aggregator listens, as its configuration says.
const SOCKET: &str = "/run/gpu.sock";
/// What the inner guest leaves, what one under QEMU left, and what is not compared.
const TRACE: &str = "/run/inner.trace";
const OTHER_TRACE: &str = "/host/qemu.trace";
const LEFT_OUT: &str = "/host/leave-out";
/// The inner guest's disk.
const DISK: &str = "/host/disk.raw";
/// How long it may take to listen, and the inner guest to say something.
const START: Duration = Duration::from_secs(30);
/// Lines of a log that are shown: the console is slow.
const LAST_LINES: usize = 40;
/// How long a VMM may take to end.
const STOP: Duration = Duration::from_secs(10);

/// Options: `vms`, how many inner guests; `cpus` and `memory` of each; `card`, whether the GPU is one that has to be given to VFIO first;
/// `trap`, whether all of their accesses are trapped; `reboot`, whether they may reset their machines; `marks`, how many blocks of the
/// disk must have been written in the end; `stop`, whether to boot the first once more and end its VMM by a signal.
pub fn run(options: &Options) -> Result<Figures> {
    let vms: usize = options.get("vms", 1)?;
    ensure!(Path::new("/dev/kvm").exists(), "there is no /dev/kvm");
    let bound = options.get("card", false)?.then(bind).transpose()?;
    let config = if bound.is_some() { "/run/gpu.toml" } else { CONFIG };
    let mut aggregator = daemon(&["aggregator", config], "aggregator")?;
    wait_for_socket(&mut aggregator)?;
    let limit = Duration::from_secs(options.get("secs", 390)?);
    let start = Instant::now();
    let mut inner = Vec::new();
    for number in 1..=vms {
        inner.push(Inner::start(number, vms, options)?);
    }
    let mut confined = 0;
    for guest in &mut inner {
        confined += confined_threads(&mut guest.vmm)?;
    }
    let mut statuses = Vec::new();
    for guest in &mut inner {
        statuses.push(guest.wait(limit.saturating_sub(start.elapsed()))?);
    }
    let took = start.elapsed();
    for guest in &inner {
        guest.show_console()?;
    }
    if options.get("stop", false)? && statuses.iter().all(ExitStatus::success) {
        stop_while_it_boots(&mut command(1, options)?)?;
    }
    let mut figures = Figures::new();
    if let Some(address) = &bound {
        leave(&mut aggregator, address)?;
        figures.insert("card".into(), address.clone().into());
    } else {
        aggregator.kill().context("cannot end the aggregator")?;
        aggregator.wait().context("cannot wait for the aggregator")?;
    }
    for (guest, status) in inner.iter().zip(&statuses) {
        if !status.success() {
            print_log(&guest.name);
            print_log("aggregator");
            bail!("{} ended with {:?}, signal {:?}", guest.name, status.code(), status.signal());
        }
    }
    ensure!(confined > 0, "the VMMs ended before anybody saw whether they are confined");
    figures.insert("confined_threads".into(), confined.into());
    for guest in &inner {
        let log = fs::read_to_string(log_of(&guest.name)).unwrap_or_default();
        // Of all functions, and of all lives of the machine.
        for (name, value) in shortcuts(&log) {
            let before = figures.get(&name).and_then(Value::as_u64).unwrap_or(0);
            figures.insert(name, (before + value).into());
        }
    }
    if Path::new(DISK).exists() {
        let marked = marked_blocks().context("cannot read the inner guest's disk")?;
        ensure!(
            marked >= options.get("marks", 0)?,
            "the inner guest's disk has {marked} blocks that it wrote"
        );
        figures.insert("disk_blocks_written".into(), marked.into());
    }
    if Path::new(OTHER_TRACE).exists() {
        compare_traces(&mut figures)?;
    }
    figures.insert("inner_s".into(), Value::from((took.as_secs_f64() * 10.0).round() / 10.0));
    Ok(figures)
}

/// An inner guest and its VMM.
struct Inner {
    name: String,
    vmm: Child,
    /// Its console, where that is a file.
    console: Option<String>,
}

impl Inner {
    /// The guest of this number, from 1 on.
    fn start(number: usize, vms: usize, options: &Options) -> Result<Self> {
        let name = format!("vmm{number}");
        let console = (vms > 1).then(|| format!("/run/{name}.console"));
        let shown = match &console {
            Some(path) => File::create(path),
            None => File::options().write(true).open(CONSOLE),
        };
        let log = File::create(log_of(&name)).context("cannot create a log")?;
        let mut vmm = command(number, options)?;
        vmm.stdout(shown.context("cannot open a console")?).stderr(log);
        let vmm = vmm.spawn().context("cannot start the VMM")?;
        Ok(Self { name, vmm, console })
    }

    /// Waits for its end; an error, with what helps to see why, if there is none in time.
    fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
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
    fn show_console(&self) -> Result<()> {
        let Some(path) = &self.console else { return Ok(()) };
        let said = fs::read(path).with_context(|| format!("cannot read {path}"))?;
        let mut console = File::options().write(true).open(CONSOLE).context("cannot open the console")?;
        console.write_all(&said).context("cannot write to the console")
    }
}

/// The VMM of a guest.
fn command(number: usize, options: &Options) -> Result<Command> {
    let cpus: u32 = options.get("cpus", 1)?;
    let memory: String = options.get("memory", "512M".to_owned())?;
    let words =
        fs::read_to_string(format!("{FOLDER}/words")).context("cannot read the inner command line")?;
    let mut vmm = gpuvmk::command(&["vmm", &format!("{FOLDER}/vm{number}.toml")]);
    vmm.args(["--kernel", "/host/vmlinuz", "--initrd", "/host/initramfs.cpio", "--append", words.trim()]);
    vmm.args(["--cpus", &cpus.to_string(), "--memory", &memory]);
    if Path::new(DISK).exists() {
        vmm.args(["--disk", DISK]);
    }
    vmm.args(options.get("trap", false)?.then_some("--trap-all"));
    // A kernel that panics resets its machine.
    vmm.args((!options.get("reboot", false)?).then_some("--no-reboot"));
    vmm.stdin(Stdio::null()).env("RUST_LOG", "info,gpuvmk::vmm=debug");
    Ok(vmm)
}

/// Has the kernel keep shared memory in large pages where it can: a card's IOMMU has so many entries, and an emulated one costs a
/// message for each.
fn large_pages() -> Result<()> {
    const SETTING: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    fs::write(SETTING, "always").with_context(|| format!("cannot write to {SETTING}"))
}

/// Gives the only card to VFIO, and makes the aggregator's configuration for it. Returns where it is.
fn bind() -> Result<String> {
    large_pages()?;
    let address = card::gpu()?;
    let bound = gpuvmk::says(&["gpu", "bind", &address, "--json"])?;
    ensure!(bound["driver"] == "vfio-pci", "not bound: {bound}");
    let config = fs::read_to_string(CONFIG).context("cannot read the aggregator's configuration")?;
    fs::write("/run/gpu.toml", config.replace(ADDRESS, &address)).context("cannot write a configuration")?;
    Ok(address)
}

/// Tells the aggregator to end, and takes its card from VFIO.
fn leave(aggregator: &mut Child, address: &str) -> Result<()> {
    kill_process(Pid::from_child(aggregator), Signal::TERM).context("cannot signal the aggregator")?;
    let ended = wait(aggregator, STOP)?;
    if !ended.is_some_and(|status| status.success()) {
        print_log("aggregator");
        bail!("the aggregator was told to end: {ended:?}");
    }
    let free = gpuvmk::says(&["gpu", "unbind", address, "--json"])?;
    ensure!(free["driver"].is_null(), "the card is not given back: {free}");
    Ok(())
}

/// Starts the VMM once more and ends it by a signal, while its guest boots.
fn stop_while_it_boots(vmm: &mut Command) -> Result<()> {
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

/// Waits for a process; none if it is there when the time is up.
fn wait(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for a process")? {
            return Ok(Some(status));
        }
        if start.elapsed() > limit {
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// Waits until the guest runs, and sees that each thread of its VMM has a filter of system calls and no capability. How many there are.
fn confined_threads(vmm: &mut Child) -> Result<usize> {
    let start = Instant::now();
    let mut threads = Vec::new();
    while !threads.iter().any(|status: &String| status.starts_with("Name:\tprocessor")) {
        if vmm.try_wait().context("cannot look at the VMM")?.is_some() {
            // Why, is said by its log.
            return Ok(0);
        }
        ensure!(start.elapsed() < START, "the VMM starts no processor");
        thread::sleep(Duration::from_millis(50));
        let tasks = fs::read_dir(format!("/proc/{}/task", vmm.id())).into_iter().flatten().flatten();
        threads = tasks.filter_map(|task| fs::read_to_string(task.path().join("status")).ok()).collect();
    }
    for status in &threads {
        let confined = status.contains("\nSeccomp:\t2\n") && status.contains("\nCapEff:\t0000000000000000\n");
        ensure!(confined, "a thread of the VMM is not confined: {status}");
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

/// How many blocks of the inner guest's disk begin as the program `debian` writes them.
fn marked_blocks() -> std::io::Result<usize> {
    let mut disk = File::open(DISK)?;
    let mut block = [0; debian::BLOCK];
    let mut marked = 0;
    for _ in 0..disk.metadata()?.len() / debian::BLOCK as u64 {
        disk.read_exact(&mut block)?;
        marked += usize::from(block.starts_with(debian::MARK.as_bytes()));
    }
    Ok(marked)
}

/// Compares the trace that the inner guest left with the one that a guest under QEMU did.
fn compare_traces(figures: &mut Figures) -> Result<()> {
    let whole = gpuvmk::says(&["trace", "verify", "--json", TRACE])?;
    ensure!(whole["lost"] == 0, "the trace is not whole: {whole}");
    let left_out = fs::read_to_string(LEFT_OUT).with_context(|| format!("cannot read {LEFT_OUT}"))?;
    let found = gpuvmk::says(&[
        "trace",
        "diff",
        "--json",
        "--most",
        "20",
        "--leave-out",
        left_out.trim(),
        OTHER_TRACE,
        TRACE,
    ])?;
    figures.insert("accesses_same".into(), found["same"].clone());
    let differences = found["differences"].as_array().map_or(0, Vec::len);
    ensure!(differences == 0, "the traces differ: {found}");
    Ok(())
}

/// Starts a daemon whose output goes to a log.
fn daemon(arguments: &[&str], name: &str) -> Result<Child> {
    let log = File::create(log_of(name)).context("cannot create a log")?;
    gpuvmk::command(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .with_context(|| format!("cannot start the {name}"))
}

fn wait_for_socket(aggregator: &mut Child) -> Result<()> {
    let start = Instant::now();
    while !Path::new(SOCKET).exists() {
        if let Some(status) = aggregator.try_wait().context("cannot look at the aggregator")? {
            print_log("aggregator");
            bail!("the aggregator ended: {status}");
        }
        ensure!(start.elapsed() < START, "the aggregator does not listen after {} s", START.as_secs());
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// What the VMM says at its end of exits and what saved them: the numbers of its last lines, by name.
fn shortcuts(log: &str) -> Vec<(String, u64)> {
    let lines = log.lines().filter_map(|line| line.split_once("Counts: "));
    let words = lines.flat_map(|(_, counts)| counts.split_whitespace());
    let pairs = words.filter_map(|word| word.split_once('='));
    pairs.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
}

fn log_of(name: &str) -> String {
    format!("/run/{name}.log")
}

/// Shows a daemon's log on the console, for who looks for what went wrong.
fn print_log(name: &str) {
    let log = fs::read_to_string(log_of(name)).unwrap_or_default();
    let skipped = log.lines().count().saturating_sub(LAST_LINES);
    log.lines().skip(skipped).for_each(|line| eprintln!("{name}: {line}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_the_log() {
        let log = "INFO other a=1\nINFO Counts: exits=12 runs_mapped=3\nINFO Counts: doorbells=9 odd=x\n";
        let named = [("exits", 12), ("runs_mapped", 3), ("doorbells", 9)];
        assert_eq!(shortcuts(log), named.map(|(name, value)| (name.to_owned(), value)));
    }
}
