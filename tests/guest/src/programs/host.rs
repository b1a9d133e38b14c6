//! `host`: this guest is a host itself. Starts an aggregator and boots a guest of its own with `gpuvmk vmm`, whose console goes where this
//! guest's goes, reports included.
//!
//! What it needs lies in `/host`: gpuvmk with the C library that it was linked with, configurations, the inner guest's kernel,
//! initramfs and disk.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Figures, Options, debian, gpuvmk};

const FOLDER: &str = "/host";
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

/// Options: `cpus` and `memory` of the inner guest; `trap`, whether all of its accesses are trapped; `reboot`, whether it may reset its machine; `marks`, how many blocks of its disk
/// must have been written by it in the end; `stop`, whether to boot it once more and end the VMM by a signal.
pub fn run(options: &Options) -> Result<Figures> {
    let cpus: u32 = options.get("cpus", 1)?;
    let memory: String = options.get("memory", "512M".to_owned())?;
    let words =
        fs::read_to_string(format!("{FOLDER}/words")).context("cannot read the inner command line")?;
    ensure!(Path::new("/dev/kvm").exists(), "there is no /dev/kvm");
    let mut aggregator = daemon(&["aggregator", "/host/gpu.toml"], "aggregator")?;
    wait_for_socket(&mut aggregator)?;
    let limit = Duration::from_secs(options.get("secs", 390)?);
    let start = Instant::now();
    let mut vmm = gpuvmk::command(&["vmm", "/host/vm.toml"]);
    vmm.args(["--kernel", "/host/vmlinuz", "--initrd", "/host/initramfs.cpio", "--append", words.trim()]);
    vmm.args(["--cpus", &cpus.to_string(), "--memory", &memory, "--disk", DISK]);
    vmm.args(options.get("trap", false)?.then_some("--trap-all"));
    // A kernel that panics resets its machine.
    vmm.args((!options.get("reboot", false)?).then_some("--no-reboot"));
    vmm.stdin(Stdio::null()).env("RUST_LOG", "info,gpuvmk::vmm=debug");
    let console = File::options().write(true).open("/dev/console").context("cannot open the console")?;
    let log = File::create("/run/vmm.log").context("cannot create a log")?;
    let mut running = vmm.stdout(console).stderr(log).spawn().context("cannot start the VMM")?;
    let confined = confined_threads(&mut running)?;
    let Some(status) = wait(&mut running, limit)? else {
        print_threads(&running);
        // Its last lines say where its guest is.
        kill_process(Pid::from_child(&running), Signal::TERM).context("cannot signal the VMM")?;
        let ended = wait(&mut running, STOP)?;
        print_log("vmm");
        bail!("the VMM does not end after {} s; told to end: {ended:?}", limit.as_secs());
    };
    let took = start.elapsed();
    if options.get("stop", false)? && status.success() {
        stop_while_it_boots(&mut vmm)?;
    }
    aggregator.kill().context("cannot end the aggregator")?;
    aggregator.wait().context("cannot wait for the aggregator")?;
    if !status.success() {
        print_log("vmm");
        print_log("aggregator");
        bail!("the VMM ended with {:?}, signal {:?}", status.code(), status.signal());
    }
    let mut figures = Figures::new();
    ensure!(confined > 0, "the VMM ended before anybody saw whether it is confined");
    figures.insert("confined_threads".into(), confined.into());
    let log = fs::read_to_string("/run/vmm.log").unwrap_or_default();
    // Of all functions, and of all lives of the machine.
    for (name, value) in shortcuts(&log) {
        let before = figures.get(&name).and_then(Value::as_u64).unwrap_or(0);
        figures.insert(name, (before + value).into());
    }
    let marked = marked_blocks().context("cannot read the inner guest's disk")?;
    ensure!(marked >= options.get("marks", 0)?, "the inner guest's disk has {marked} blocks that it wrote");
    figures.insert("disk_blocks_written".into(), marked.into());
    if Path::new(OTHER_TRACE).exists() {
        compare_traces(&mut figures)?;
    }
    figures.insert("inner_s".into(), Value::from((took.as_secs_f64() * 10.0).round() / 10.0));
    Ok(figures)
}

/// Starts the VMM once more and ends it by a signal, while its guest boots.
fn stop_while_it_boots(vmm: &mut Command) -> Result<()> {
    const CONSOLE: &str = "/run/stopped.console";
    let console = File::create(CONSOLE).context("cannot create a file for the console")?;
    let log = File::create("/run/stopped.log").context("cannot create a log")?;
    let mut child = vmm.stdout(console).stderr(log).spawn().context("cannot start the VMM again")?;
    let start = Instant::now();
    while !fs::read_to_string(CONSOLE).unwrap_or_default().contains("Linux version") {
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
    let log = File::create(format!("/run/{name}.log")).context("cannot create a log")?;
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

/// Shows a daemon's log on the console, for who looks for what went wrong.
fn print_log(name: &str) {
    let log = fs::read_to_string(format!("/run/{name}.log")).unwrap_or_default();
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
