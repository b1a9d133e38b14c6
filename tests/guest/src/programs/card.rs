//! `card`: this guest is a host itself, with a GPU behind an IOMMU. Gives it to VFIO and back with `gpuvmk
//! gpu`, and looks at it meanwhile.

use std::fs::{self, File};
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{FlockOperation, flock};
use serde_json::Value;

use super::{Figures, Options, gpuvmk};

pub(super) const DEVICES: &str = "/sys/bus/pci/devices";

/// Options: `interface`, which of VFIO's: `group` or `cdev`.
pub fn run(options: &Options) -> Result<Figures> {
    let interface: String = options.get("interface", "group".to_owned())?;
    let address = gpu()?;
    let driver = || link_name(&format!("{DEVICES}/{address}/driver"));
    ensure!(driver().is_none(), "{address} has driver {:?} already", driver());
    refusals(&address)?;
    let list = gpuvmk::says(&["gpu", "list", "--json"])?;
    let listed = list["gpus"].as_array().into_iter().flatten().any(|gpu| gpu["address"] == *address);
    ensure!(listed, "the list lacks {address}: {list}");

    let plan = gpuvmk::says(&["gpu", "bind", &address, "--dry-run", "--json"])?;
    ensure!(plan["steps"].as_array().is_some_and(|steps| steps.len() == 2), "the plan is {plan}");
    ensure!(driver().is_none(), "a plan was carried out");

    let bound = gpuvmk::says(&["gpu", "bind", &address, "--json"])?;
    ensure!(bound["driver"] == "vfio-pci" && driver().as_deref() == Some("vfio-pci"), "not bound: {bound}");
    let again = gpuvmk::says(&["gpu", "bind", &address, "--json"])?;
    ensure!(again["steps"] == Value::Array(Vec::new()), "bound twice: {again}");

    let found = gpuvmk::says(&["gpu", "probe", &address, "--interface", &interface, "--json"])?;
    ensure!(found["chip"] == "GF100" && found["interface"] == *interface, "the card says {found}");
    ensure!(found["interrupt"] == true, "no message of the card's came: {found}");
    ensure!(found["initialised"] == false, "somebody has initialised it: {found}");
    let regions = found["regions"].as_array().map_or(0, Vec::len);
    ensure!(regions >= 5, "it has {regions} regions: {found}");
    let tried = gpuvmk::says(&[
        "gpu",
        "probe",
        &address,
        "--interface",
        &interface,
        "--engines",
        "--stray-dma",
        "--json",
    ])?;
    let engines = &tried["engines"];
    let trials = engines["tried"].as_array().map_or(&[][..], Vec::as_slice);
    ensure!(trials.len() == 3, "GF100 has three engines: {engines}");
    ensure!(
        trials.iter().all(|trial| trial["failures"] == Value::Array(Vec::new())),
        "copies failed: {engines}"
    );
    ensure!(engines["verified"].as_u64().is_some_and(|bytes| bytes > 0), "nothing was copied: {engines}");
    ensure!(engines["stray_dma_stopped"] == true, "the IOMMU did not keep the card off: {engines}");
    claimed(&address)?;
    open_elsewhere(&address)?;

    let free = gpuvmk::says(&["gpu", "unbind", &address, "--json"])?;
    ensure!(free["driver"].is_null() && driver().is_none(), "not given back: {free}");
    let text = fs::read_to_string(format!("{DEVICES}/{address}/driver_override"));
    ensure!(text.is_ok_and(|text| text.trim() == "(null)"), "somebody may have only vfio-pci");
    let mut figures = Figures::new();
    figures.insert("interface".into(), interface.into());
    figures.insert("engines".into(), engines.clone());
    figures.insert("card".into(), found);
    Ok(figures)
}

/// The only NVIDIA GPU.
pub(super) fn gpu() -> Result<String> {
    for entry in fs::read_dir(DEVICES).context("there is no PCI bus")?.flatten() {
        let file = |name: &str| fs::read_to_string(entry.path().join(name)).unwrap_or_default();
        if file("vendor").trim() == "0x10de" && file("class").starts_with("0x03") {
            return Ok(entry.file_name().to_string_lossy().into_owned());
        }
    }
    bail!("there is no NVIDIA GPU");
}

pub(super) fn link_name(link: &str) -> Option<String> {
    Some(fs::read_link(link).ok()?.file_name()?.to_string_lossy().into_owned())
}

/// Runs a command that must be refused, with `word` in what it says.
pub(super) fn refused(arguments: &[&str], word: &str) -> Result<()> {
    let output = gpuvmk::output(arguments)?;
    let said = String::from_utf8_lossy(&output.stderr);
    let words = arguments.join(" ");
    ensure!(!output.status.success(), "gpuvmk {words} was not refused");
    ensure!(said.contains(word), "gpuvmk {words} was refused without '{word}': {said}");
    Ok(())
}

/// What is refused before anything is bound.
fn refusals(address: &str) -> Result<()> {
    refused(&["gpu", "bind", "0000:7f:1f.7"], "There is no PCI function 0000:7f:1f.7")?;
    refused(&["gpu", "bind", "0000:00:00.0"], "is no NVIDIA GPU")?;
    refused(&["gpu", "probe", address], &format!("sudo gpuvmk gpu bind {address}"))
}

/// A card that another gpuvmk has is left alone.
fn claimed(address: &str) -> Result<()> {
    let config =
        File::open(format!("{DEVICES}/{address}/config")).context("cannot open its configuration")?;
    flock(&config, FlockOperation::LockExclusive).context("cannot lock its configuration")?;
    refused(&["gpu", "probe", address], "Another gpuvmk has")?;
    refused(&["gpu", "unbind", address], "Another gpuvmk has")
}

/// A card that some other program has open is left alone.
fn open_elsewhere(address: &str) -> Result<()> {
    let group = link_name(&format!("{DEVICES}/{address}/iommu_group")).context("it has no IOMMU group")?;
    let node = PathBuf::from("/dev/vfio").join(group);
    let _open = File::options().read(true).write(true).open(&node).context("cannot open its group")?;
    refused(&["gpu", "probe", address, "--interface", "group"], "another process has it")?;
    refused(&["gpu", "unbind", address], "is in use by process")
}
