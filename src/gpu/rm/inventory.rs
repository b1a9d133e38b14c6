//! The GPUs of a host: those that the NVIDIA driver has, those that are only on the bus, and which backends
//! could use each. Looking changes nothing. Facts that cannot be found out are marked as such.

use std::sync::Arc;

use super::abi::Branch;
use super::abi::calls::CardInfo;
use super::client::Client;
use super::device::{Device, DeviceFacts, address_of, architecture_name};
use super::engine_table::EngineTable;
use super::error::RmError;
use super::host_paths::{HostDriver, HostPaths};
use super::kernel::Kernel;
use super::open_error::OpenError;
use super::sys::NodeKernel;
use crate::vfio::sysfs::{PciDevice, Sysfs};
use gpuvmk_chip::Chip;

/// A GPU as `gpuvmk gpu list` shows it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct GpuEntry {
    /// PCI address of the function.
    pub address: String,
    /// PCI vendor and device number.
    pub pci_id: String,
    /// Marketing name, where a driver knows it.
    pub name: Option<String>,
    /// Architecture, where it is known.
    pub architecture: Option<String>,
    /// Kernel driver that has it.
    pub driver: Option<String>,
    /// Bytes of VRAM.
    pub vram: Option<u64>,
    /// Free VRAM in bytes.
    pub vram_free: Option<u64>,
    /// Its copy engines.
    pub copy_engines: Vec<CopyEngineEntry>,
    /// The backends that could use it.
    pub backends: Backends,
}

/// A copy engine as `gpuvmk gpu list` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct CopyEngineEntry {
    /// N of COPYn.
    pub number: u32,
    /// True for one that shares the graphics engine's runlist.
    pub with_graphics: bool,
    /// Physical copy engines behind it.
    pub units: u32,
}

/// The backends that could use a GPU.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Backends {
    /// The RM driver.
    pub rm: Verdict,
    /// The whole card, by VFIO.
    pub vfio: Verdict,
}

/// Whether a backend can serve vGPUs.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Verdict {
    /// True when it can.
    pub possible: bool,
    /// Chips that vGPUs can be.
    pub chips: Vec<&'static str>,
    /// Why, or why not.
    pub why: String,
}

impl Verdict {
    fn no(why: impl Into<String>) -> Self {
        Self { possible: false, chips: Vec::new(), why: why.into() }
    }
}

/// GPUs and drivers of a host.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Inventory {
    /// Version of the NVIDIA driver, where one is loaded.
    pub nvidia_driver: Option<String>,
    /// True if its branch is one that the RM driver knows.
    pub branch_supported: bool,
    /// Branches that the RM driver knows.
    pub supported_branches: Vec<u32>,
    /// Why the driver cannot be asked, where it cannot: what an aggregator would say.
    pub problem: Option<String>,
    /// All NVIDIA GPUs of the host.
    pub gpus: Vec<GpuEntry>,
    /// The software GPU needs none.
    pub soft: Verdict,
}

/// Looks at everything.
pub fn inventory(paths: &HostPaths) -> Inventory {
    let driver = paths.driver();
    let kernel = driver.clone().check().and_then(|()| NodeKernel::open(paths));
    let kernel = kernel.map(|kernel| Arc::new(kernel) as Arc<dyn Kernel>);
    inventory_with(paths, &driver, kernel)
}

/// The same with a kernel that is there, or why it is not.
pub(super) fn inventory_with(
    paths: &HostPaths,
    driver: &HostDriver,
    kernel: Result<Arc<dyn Kernel>, OpenError>,
) -> Inventory {
    let asked = kernel.and_then(|kernel| ask_all(&kernel)).map_err(|error| with_causes(&error));
    let on_bus = pci_gpus(&paths.sysfs());
    let mut gpus: Vec<GpuEntry> = on_bus.iter().map(|found| entry(found, &asked)).collect();
    // A GPU that the driver has is one also where sysfs is hidden (containers).
    for (card, _) in asked.iter().flatten() {
        let address = address_of(card);
        if !on_bus.iter().any(|found| found.address == address) {
            let driver = Some("nvidia".to_owned());
            gpus.push(entry(&PciGpu { address, device: card.device, driver, iommu_group: false }, &asked));
        }
    }
    gpus.sort_by(|a, b| a.address.cmp(&b.address));
    Inventory {
        nvidia_driver: driver.version().map(str::to_owned),
        branch_supported: matches!(driver, HostDriver::Loaded { branch: Some(_), .. }),
        supported_branches: Branch::ALL.iter().map(|branch| branch.number()).collect(),
        problem: asked.err(),
        gpus,
        soft: Verdict {
            possible: true,
            chips: Chip::ALL.iter().map(|chip| chip.name()).collect(),
            why: "needs no GPU".to_owned(),
        },
    }
}

/// An error with its causes.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// The driver's facts about one of its GPUs.
type Asked = (CardInfo, Result<DeviceFacts, String>);

fn ask_all(kernel: &Arc<dyn Kernel>) -> Result<Vec<Asked>, OpenError> {
    let cards = kernel.cards().map_err(|error| RmError::new("the list of GPUs", error))?;
    Ok(cards
        .into_iter()
        .map(|card| (card, ask(kernel, &card).map_err(|error| with_causes(&error))))
        .collect())
}

fn ask(kernel: &Arc<dyn Kernel>, card: &CardInfo) -> Result<DeviceFacts, OpenError> {
    let client = Client::new(Arc::clone(kernel))?;
    let device = Device::open(client, card)?;
    Ok(device.facts(card)?)
}

/// A GPU on the bus.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PciGpu {
    address: String,
    device: u16,
    driver: Option<String>,
    iommu_group: bool,
}

/// NVIDIA's display and 3D controllers.
fn pci_gpus(sysfs: &Sysfs) -> Vec<PciGpu> {
    let gpu = |found: PciDevice| PciGpu {
        address: found.address.to_string(),
        device: found.device,
        driver: found.driver,
        iommu_group: found.group.is_some(),
    };
    sysfs.gpus().into_iter().map(gpu).collect()
}

fn entry(found: &PciGpu, asked: &Result<Vec<Asked>, String>) -> GpuEntry {
    let facts = asked
        .iter()
        .flatten()
        .find(|(card, _)| address_of(card) == found.address)
        .map(|(_, facts)| facts.as_ref().map_err(String::as_str));
    let known = facts.and_then(Result::ok);
    let rm = match (facts, asked) {
        (Some(Ok(facts)), _) => suitable(facts),
        (Some(Err(why)), _) => Verdict::no(why),
        (None, Err(problem)) => Verdict::no(problem.clone()),
        (None, Ok(_)) => Verdict::no(match &found.driver {
            Some(driver) if driver == "nvidia" => "the NVIDIA driver does not list it".to_owned(),
            Some(driver) => format!("kernel driver {driver} has it, not nvidia"),
            None => "no kernel driver has it".to_owned(),
        }),
    };
    GpuEntry {
        address: found.address.clone(),
        pci_id: format!("10de:{:04x}", found.device),
        name: known.map(|facts| facts.name.clone()),
        architecture: known.map(|facts| architecture_name(facts.architecture)),
        driver: found.driver.clone(),
        vram: known.map(|facts| facts.vram),
        vram_free: known.map(|facts| facts.vram_free),
        copy_engines: known.map_or_else(Vec::new, |facts| {
            let entry = |engine: &super::device::CopyEngine| CopyEngineEntry {
                number: engine.number,
                with_graphics: engine.with_graphics,
                units: engine.units.count_ones(),
            };
            facts.copy_engines.iter().map(entry).collect()
        }),
        backends: Backends { rm, vfio: through_vfio(found) },
    }
}

/// Numbers of the devices that are GF100s (the PCI ID Repository: GeForce GTX 480 to Tesla M2070-Q).
const GF100_DEVICES: std::ops::RangeInclusive<u16> = 0x06c0..=0x06df;

/// Whether vGPUs can be served on a card that `vfio-pci` has, or would have.
fn through_vfio(found: &PciGpu) -> Verdict {
    if !found.iommu_group {
        return Verdict::no("it is in no IOMMU group");
    }
    if !GF100_DEVICES.contains(&found.device) {
        return Verdict::no("the driver by registers knows GF100 only; one VM can have all of it");
    }
    let why = match found.driver.as_deref() {
        Some("vfio-pci") => "a GF100, and vfio-pci has it",
        _ => "a GF100, once vfio-pci has it: gpuvmk gpu bind",
    };
    Verdict { possible: true, chips: vec!["GF100"], why: why.to_owned() }
}

/// Whether vGPUs can be served on a GPU.
fn suitable(facts: &DeviceFacts) -> Verdict {
    if facts.chips.is_empty() {
        return Verdict::no(format!(
            "{} GPUs lack classes of every chip that a vGPU can be",
            architecture_name(facts.architecture)
        ));
    }
    if !facts.graphics || EngineTable::choose(&facts.copy_engines).is_none() {
        return Verdict::no("it lacks engines that every vGPU has (MIG mode takes them away)");
    }
    let why = format!("{}, whose classes it has", architecture_name(facts.architecture));
    Verdict { possible: true, chips: facts.chips.iter().map(|chip| chip.name()).collect(), why }
}

/// Where `address` is if the NVIDIA driver does not have it, in words for a message.
pub(super) fn elsewhere(sysfs: &Sysfs, address: &str) -> Option<String> {
    let found = pci_gpus(sysfs).into_iter().find(|gpu| gpu.address == address)?;
    Some(match found.driver.as_deref() {
        Some(driver) => format!("; kernel driver {driver} has that one"),
        None => "; that one is on the bus, but no kernel driver has it".to_owned(),
    })
}
