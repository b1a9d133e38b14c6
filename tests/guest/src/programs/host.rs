//! `host`: this guest is a host itself. Starts an aggregator and boots guests of its own with `gpuvmk vmm`.
//! The console of the only one goes where this guest's goes, reports included; those of several are shown
//! there one after the other, in the end.
//!
//! What it needs lies in `/host`: gpuvmk with the C library that it was linked with, configurations, the
//! inner guest's kernel, initramfs and disk.

mod inner;
mod network;
mod qemu;

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use self::inner::{Front, Inner};
use super::{Figures, Options, card, debian, gpuvmk};

const FOLDER: &str = "/host";
/// Where configurations are once they are complete, and what is in them in place of the card's address.
const CONFIGS: &str = "/run";
const ADDRESS: &str = "ADDRESS";
/// Where that is then.
const ADDRESS_FILE: &str = "/run/address";
/// Where the aggregator listens, as its configuration says.
const SOCKET: &str = "/run/gpu.sock";
const CONTROL: &str = "/run/gpu.control";
/// What the inner guest leaves, what one under QEMU left, and what is not compared.
const TRACE: &str = "/run/inner.trace";
const OTHER_TRACE: &str = "/host/qemu.trace";
const LEFT_OUT: &str = "/host/leave-out";
/// What brings the card up, made from the inner guest's trace.
const INIT: &str = "/run/card.init";
/// The test of micro guests, and which of them is meant.
const MICRO: &str = "/host/kvm_micro";
const MICRO_CASE: &str = "copies_work_on_the_aggregator_that_is_named";
/// The inner guest's disk.
const DISK: &str = "/host/disk.raw";
/// How long it may take to listen, and the inner guest to say something.
const START: Duration = Duration::from_secs(30);
/// Lines of a log that are shown: the console is slow.
const LAST_LINES: usize = 40;
/// How long a VMM may take to end.
const STOP: Duration = Duration::from_secs(10);

/// Options: `vms`, how many inner guests; `cpus` and `memory` of each; `card`, whether the GPU is one that
/// has to be given to VFIO first; `interface`, by which of VFIO's the aggregator is to have it; `whole`,
/// whether it is the only guest's alone, without an aggregator, and `front`, what runs that one; `again`,
/// whether an aggregator is to bring it up afterwards by the trace; `trap`, whether all of their accesses are
/// trapped; `reboot`, whether they may reset their machines; `marks`, how many blocks of the disk must have
/// been written in the end; `stop`, whether to boot the first once more and end its VMM by a signal;
/// `network`, whether they have one, and a folder.
pub fn run(options: &Options) -> Result<Figures> {
    let vms: usize = options.get("vms", 1)?;
    if options.get("network", false)? {
        network::prepare()?;
    }
    ensure!(Path::new("/dev/kvm").exists(), "there is no /dev/kvm");
    let bound = options.get("card", false)?.then(bind).transpose()?;
    complete_configs(bound.as_deref())?;
    let mut aggregator = if options.get("whole", false)? { None } else { Some(start_aggregator()?) };
    let mut figures = Figures::new();
    if aggregator.is_some() && Path::new(MICRO).exists() {
        figures.insert("micro_guest".into(), micro_guest()?);
    }
    let front = Front::of(options)?;
    let mut device = (front == Front::QemuUser).then(qemu::start_device).transpose()?;
    let limit = Duration::from_secs(options.get("secs", 390)?);
    let start = Instant::now();
    let mut inner = Vec::new();
    for number in 1..=vms {
        inner.push(Inner::start(number, vms, front, options)?);
    }
    let mut confined = 0;
    for guest in inner.iter_mut().filter(|_| front == Front::Vmm) {
        confined += inner::confined_threads(&mut guest.vmm)?;
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
        inner::stop_while_it_boots(&mut inner::command(1, front, options)?)?;
    }
    if let Some(device) = &mut device {
        confined += inner::confined_daemon(device)?;
        end(device, "device")?;
    }
    if let Some(aggregator) = &mut aggregator {
        if bound.is_some() {
            let status = gpuvmk::says(&["status", "--socket", CONTROL, "--json"])?;
            let used = &status["gpu"]["card"];
            ensure!(used["reads"].as_u64() > Some(0), "a card that nobody reads: {status}");
            figures.insert("card_reads".into(), used["reads"].clone());
            figures.insert("card_writes".into(), used["writes"].clone());
            let interface: String = options.get("interface", "Group".to_owned())?;
            let said =
                fs::read_to_string(log_of("aggregator")).context("cannot read the aggregator's log")?;
            ensure!(said.contains(&format!("open by {interface}")), "the card is not open by {interface}");
        }
        end(aggregator, "aggregator")?;
    }
    if options.get("again", false)? {
        figures.insert("initialisation".into(), bring_up_again()?);
    }
    if let Some(address) = &bound {
        let free = gpuvmk::says(&["gpu", "unbind", address, "--json"])?;
        ensure!(free["driver"].is_null(), "the card is not given back: {free}");
        figures.insert("card".into(), address.clone().into());
    }
    for (guest, status) in inner.iter().zip(&statuses) {
        if !status.success() {
            print_log(&guest.name);
            print_log("aggregator");
            bail!("{} ended with {:?}, signal {:?}", guest.name, status.code(), status.signal());
        }
    }
    ensure!(
        confined > 0 || front == Front::QemuVfio,
        "the VMMs ended before anybody saw whether they are confined"
    );
    figures.insert("confined_threads".into(), confined.into());
    for name in inner.iter().map(|guest| guest.name.as_str()).chain(["device"]) {
        let log = fs::read_to_string(log_of(name)).unwrap_or_default();
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
    } else if Path::new(TRACE).exists() {
        let whole = whole_trace()?;
        figures.insert("trace_entries".into(), whole["entries"].clone());
    }
    figures.insert("inner_s".into(), Value::from((took.as_secs_f64() * 10.0).round() / 10.0));
    Ok(figures)
}

/// Has the kernel keep shared memory in large pages where it can: a card's IOMMU has so many entries, and an
/// emulated one costs a message for each.
fn large_pages() -> Result<()> {
    const SETTING: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    fs::write(SETTING, "always").with_context(|| format!("cannot write to {SETTING}"))
}

/// Writes the configurations to where they are used, with the card's address in them.
fn complete_configs(card: Option<&str>) -> Result<()> {
    for entry in fs::read_dir(FOLDER).context("cannot list the host's files")? {
        let path = entry.context("cannot list the host's files")?.path();
        let Some(name) = path.file_name().filter(|_| path.extension().is_some_and(|ending| ending == "toml"))
        else {
            continue;
        };
        let config = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let whole = config.replace(ADDRESS, card.unwrap_or(ADDRESS));
        fs::write(Path::new(CONFIGS).join(name), whole).context("cannot write a configuration")?;
    }
    Ok(())
}

fn start_aggregator() -> Result<Child> {
    let mut aggregator = daemon(&["aggregator", &format!("{CONFIGS}/gpu.toml")], "aggregator")?;
    wait_for_socket(&mut aggregator, SOCKET, "aggregator")?;
    Ok(aggregator)
}

/// Has an aggregator bring the card up by what the guest's driver was seen to do, and a micro guest use it.
/// What was made of the trace.
fn bring_up_again() -> Result<Value> {
    let made = gpuvmk::says(&["gpu", "init", TRACE, "-o", INIT, "--json"])?;
    ensure!(made["ok"] == true, "no initialisation: {made}");
    let parts = made["parts"].as_object().map_or(0, serde_json::Map::len);
    ensure!(parts == 5, "a part was not brought up by the guest: {made}");
    let path = format!("{CONFIGS}/gpu.toml");
    let config = fs::read_to_string(&path).context("cannot read the aggregator's configuration")?;
    fs::write(&path, format!("init = \"{INIT}\"\n{config}")).context("cannot write it")?;
    let mut aggregator = start_aggregator()?;
    let micro = micro_guest();
    end(&mut aggregator, "aggregator")?;
    micro?;
    Ok(made)
}

/// Runs a micro guest on the aggregator's GPU. What it cost.
fn micro_guest() -> Result<Value> {
    let arguments = ["--ignored", "--exact", MICRO_CASE, "--nocapture"];
    let mut command = gpuvmk::program(MICRO, &arguments);
    let output = command.env("GPUVMK_AGGREGATOR", SOCKET).stdin(Stdio::null()).output();
    let output = output.context("cannot start a micro guest")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let told = said.lines().find_map(|line| serde_json::from_str(line.get(line.find('{')?..)?).ok());
    let errors = || String::from_utf8_lossy(&output.stderr).into_owned();
    told.filter(|_| output.status.success())
        .with_context(|| format!("a micro guest: {}\n{said}{}", output.status, errors()))
}

/// Gives the only card to VFIO. Returns where it is.
fn bind() -> Result<String> {
    large_pages()?;
    let address = card::gpu()?;
    let bound = gpuvmk::says(&["gpu", "bind", &address, "--json"])?;
    ensure!(bound["driver"] == "vfio-pci", "not bound: {bound}");
    fs::write(ADDRESS_FILE, &address).context("cannot write the card's address")?;
    Ok(address)
}

/// Tells a daemon to end.
fn end(daemon: &mut Child, name: &str) -> Result<()> {
    kill_process(Pid::from_child(daemon), Signal::TERM).context("cannot signal a daemon")?;
    let ended = wait(daemon, STOP)?;
    if !ended.is_some_and(|status| status.success()) {
        print_log(name);
        bail!("the {name} was told to end: {ended:?}");
    }
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
    whole_trace()?;
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

/// What is known of the trace that the inner guest left, once it is sure that nothing is missing.
fn whole_trace() -> Result<Value> {
    let trace = gpuvmk::says(&["trace", "verify", "--json", TRACE])?;
    ensure!(trace["lost"] == 0, "the trace is not whole: {trace}");
    Ok(trace)
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

fn wait_for_socket(daemon: &mut Child, socket: &str, name: &str) -> Result<()> {
    let start = Instant::now();
    while !Path::new(socket).exists() {
        if let Some(status) = daemon.try_wait().context("cannot look at a daemon")? {
            print_log(name);
            bail!("the {name} ended: {status}");
        }
        ensure!(start.elapsed() < START, "the {name} does not listen after {} s", START.as_secs());
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
