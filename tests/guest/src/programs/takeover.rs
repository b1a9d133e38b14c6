//! `takeover`: this guest is a host whose own drivers have the card: nouveau, and one that has its second
//! function. What is in the way of taking it from them is said and changes nothing; then it is taken, reset
//! with its bus, taken away from who has it open, and given back.

use std::fs::{self, File};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::card::{DEVICES, gpu, link_name, refused};
use super::session::Session;
use super::{Figures, Options, evict, gpuvmk};
use crate::drm::render_nodes;
use crate::init;

/// An ordinary user, and what it may lock.
const USER: u32 = 1000;
const LOCKED: u64 = 64 << 10;
const CONFIG: &str = "/run/taken-out.toml";
const SOCKET: &str = "/run/taken-out.sock";
const LOG: &str = "/run/takeover.log";
const ROM: &str = "/run/card.rom";
/// How long a daemon may take to come, the kernel to get a card back, and a driver to have it again.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(50);

/// Options: `scene`: `sibling`, a card with a second function; `neighbour`, one behind a bridge whose group
/// has another function; `no-iommu`.
pub fn run(options: &Options) -> Result<Figures> {
    let scene: String = options.get("scene", "sibling".to_owned())?;
    let address = gpu()?;
    let mut figures = Figures::new();
    match scene.as_str() {
        "sibling" => sibling(&address, &mut figures)?,
        "neighbour" => in_the_way(&address, "has other functions with drivers: ")?,
        "no-iommu" => in_the_way(&address, "is in no IOMMU group")?,
        other => anyhow::bail!("there is no scene {other}"),
    }
    Ok(figures)
}

/// A card that cannot be taken, and stays as it is.
fn in_the_way(address: &str, words: &str) -> Result<()> {
    let before = drivers(address);
    refused(&["gpu", "bind", address], words)?;
    refused(&["gpu", "bind", address, "--dry-run"], words)?;
    ensure!(drivers(address) == before, "drivers changed: {before:?} became {:?}", drivers(address));
    Ok(())
}

fn sibling(address: &str, figures: &mut Figures) -> Result<()> {
    let probe_ms = init::load_nouveau()?;
    figures.insert("probe_ms".into(), probe_ms.into());
    let before = drivers(address);
    ensure!(before[0].as_deref() == Some("nouveau") && before[1].is_some(), "drivers are {before:?}");
    worked(address)?;
    in_use(address)?;
    // A card whose functions cannot be reset one by one, as most are.
    let method = format!("{DEVICES}/{address}/reset_method");
    fs::write(&method, "\n").with_context(|| format!("cannot write to {method}"))?;

    let plan = gpuvmk::says(&["gpu", "bind", address, "--dry-run", "--json"])?;
    ensure!(plan["steps"].as_array().is_some_and(|steps| steps.len() == 6), "the plan is {plan}");
    ensure!(drivers(address) == before, "a plan was carried out");
    let bound = gpuvmk::says(&["gpu", "bind", address, "--json"])?;
    ensure!(
        drivers(address).iter().all(|driver| driver.as_deref() == Some("vfio-pci")),
        "not bound: {bound}"
    );

    let found = gpuvmk::says(&["gpu", "probe", address, "--json"])?;
    ensure!(found["reset"] == "bus" && found["chip"] == "GF100", "the card says {found}");
    ensure!(found["initialised"] == false, "a reset of its bus has not reset it: {found}");
    figures.insert("reset".into(), found["reset"].clone());
    figures.insert("vbios".into(), vbios(address)?);
    as_an_ordinary_user(address)?;
    let gone = taken_out(
        address,
        &["device", CONFIG, "--socket-path", SOCKET],
        &format!("name = \"vm1\"\ncard = \"{address}\"\n"),
    );
    figures.insert("whole_card_given_up_ms".into(), gone.context("a device back end")?.into());
    found_again(address)?;
    worked(address)?;
    gpuvmk::says(&["gpu", "bind", address, "--json"])?;
    let gone = taken_out(
        address,
        &["aggregator", CONFIG],
        &format!(
            "name = \"gpu0\"\nbackend = \"vfio\"\ndevice = \"{address}\"\n\n[socket]\npath = \"{SOCKET}\"\n"
        ),
    );
    figures.insert("given_up_ms".into(), gone.context("an aggregator")?.into());
    // The kernel finds it anew, and nouveau too; what has its other function gives it back.
    found_again(address)?;
    gpuvmk::says(&["gpu", "unbind", address, "--json"])?;
    let after = drivers(address);
    ensure!(after == before, "drivers were {before:?} and are {after:?}");
    works().context("after it was given back")
}

/// The drivers of both functions of the card.
fn drivers(address: &str) -> [Option<String>; 2] {
    let second = format!("{}1", address.trim_end_matches('0'));
    [address, &second].map(|address| link_name(&format!("{DEVICES}/{address}/driver")))
}

/// Whether nouveau copies with it.
fn works() -> Result<()> {
    let mut session = Session::open(0, 2 << 20)?;
    session.there_and_back(7, [0, 0, 0], 1 << 20)
}

/// The same, and its own channel too: nouveau waits in vain for one that never worked when it goes.
fn worked(address: &str) -> Result<()> {
    works().with_context(|| format!("before {address} is taken"))?;
    evict::run(&Options::for_gpu(0)).map(|_| ())
}

/// A card that a program has open is left to it.
fn in_use(address: &str) -> Result<()> {
    let node = render_nodes().into_iter().next().context("nouveau has no node")?;
    let _open = File::options().read(true).write(true).open(&node).context("cannot open nouveau's node")?;
    in_the_way(address, "is in use by process")
}

/// What is known of the card's VBIOS.
fn vbios(address: &str) -> Result<serde_json::Value> {
    let read = gpuvmk::says(&["gpu", "vbios", address, "-o", ROM, "--json"])?;
    ensure!(read["device"] == "10de:06c0", "the VBIOS is {read}");
    refused(&["gpu", "vbios", address, "-o", ROM], "Cannot write")?;
    let kept = gpuvmk::says(&["gpu", "vbios", "--file", ROM, "--json"])?;
    ensure!(kept == read, "the card has {read}, and the file {kept}");
    Ok(read["crc"].clone())
}

/// A user who may not open it, and then one who may, and may lock too little memory.
fn as_an_ordinary_user(address: &str) -> Result<()> {
    let user = |arguments: &[&str]| -> Result<Output> {
        let mut command = gpuvmk::command(arguments);
        command.uid(USER).gid(USER).stdin(Stdio::null()).output().context("cannot start gpuvmk")
    };
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let output = user(&["gpu", "probe", address])?;
    ensure!(!output.status.success() && said(&output).contains("let this user have it"), "{}", said(&output));

    let group = link_name(&format!("{DEVICES}/{address}/iommu_group")).context("it has no IOMMU group")?;
    let node = Path::new("/dev/vfio").join(group);
    chown(&node, Some(USER), Some(USER)).context("cannot give the group away")?;
    let output = user(&["gpu", "probe", address])?;
    ensure!(output.status.success(), "the node's owner cannot open it: {}", said(&output));

    let before = getrlimit(Resource::Memlock);
    setrlimit(Resource::Memlock, Rlimit { current: Some(LOCKED), maximum: Some(LOCKED) })
        .context("cannot limit memory")?;
    let output = user(&["gpu", "probe", address, "--engines"]);
    setrlimit(Resource::Memlock, before).context("cannot lift the limit")?;
    let output = output?;
    ensure!(!output.status.success() && said(&output).contains("may lock 64 KiB"), "{}", said(&output));
    let output = user(&["gpu", "probe", address, "--engines"])?;
    ensure!(output.status.success(), "with a higher limit: {}", said(&output));
    chown(&node, Some(0), Some(0)).context("cannot take the group back")
}

/// The card goes while a daemon of ours has it: that ends by itself and says why, and the kernel does not
/// wait. Milliseconds until the kernel had it.
fn taken_out(address: &str, arguments: &[&str], config: &str) -> Result<u64> {
    fs::write(CONFIG, config).context("cannot write a configuration")?;
    let log = File::create(LOG).context("cannot create a log")?;
    let mut daemon = gpuvmk::command(arguments)
        .stdin(Stdio::null())
        .stderr(log)
        .spawn()
        .context("cannot start a daemon")?;
    until("the daemon does not listen", || Path::new(SOCKET).exists() && log_has(" serves"))?;
    let start = Instant::now();
    let remove = format!("{DEVICES}/{address}/remove");
    let removal = thread::spawn(move || fs::write(&remove, "1"));
    until("the kernel does not get the card back", || removal.is_finished())?;
    removal.join().ok().context("a thread has panicked")?.context("the card cannot be removed")?;
    let took = start.elapsed();
    until("the daemon does not end", || matches!(daemon.try_wait(), Ok(Some(_)) | Err(_)))?;
    daemon.wait().context("cannot wait for a daemon")?;
    ensure!(log_has("the card is being taken away"), "{}", log_text());
    ensure!(!Path::new(DEVICES).join(address).exists(), "the card is still there");
    refused(&["gpu", "probe", address], "There is no PCI function")?;
    Ok(u64::try_from(took.as_millis()).unwrap_or(u64::MAX))
}

/// The kernel finds a card that was taken out, and its driver too.
fn found_again(address: &str) -> Result<()> {
    fs::write("/sys/bus/pci/rescan", "1").context("cannot look for cards")?;
    until("nouveau does not find the card again", || drivers(address)[0].as_deref() == Some("nouveau"))
}

fn until(what: &str, mut done: impl FnMut() -> bool) -> Result<()> {
    let start = Instant::now();
    while !done() {
        ensure!(start.elapsed() < PATIENCE, "{what} after {} s: {}", PATIENCE.as_secs(), log_text());
        thread::sleep(LOOK);
    }
    Ok(())
}

fn log_text() -> String {
    fs::read_to_string(LOG).unwrap_or_default()
}

fn log_has(words: &str) -> bool {
    log_text().contains(words)
}
