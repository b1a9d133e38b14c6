//! Finding GPUs: those that the NVIDIA driver has, those that are only on the bus, and what could be done with each.

use std::path::Path;
use std::sync::Arc;

use super::abi::Branch;
use super::abi::branch::version_of_proc_file;
use super::abi::calls::CardInfo;
use super::channels::EngineTable;
use super::client::Client;
use super::device::{ARCH_GH100, Device, DeviceFacts, address_of, architecture_name};
use super::error::{OpenError, RmError};
use super::kernel::{Kernel, Node};
use super::sys::{NodeKernel, become_user, is_root};
use super::{RmConfig, RmDriver};

const PROC_VERSION: &str = "/proc/driver/nvidia/version";
const SYSFS_DEVICES: &str = "/sys/bus/pci/devices";

/// A GPU as `gpuvmk gpu list` shows it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct GpuEntry {
    /// PCI address.
    pub address: String,
    /// PCI device number.
    pub pci_id: String,
    /// Marketing name, where a driver tells it.
    pub name: Option<String>,
    /// Architecture, where it is known.
    pub architecture: Option<String>,
    /// Kernel driver that has it.
    pub driver: Option<String>,
    /// Bytes of VRAM.
    pub vram: Option<u64>,
    /// Bytes of VRAM that nobody has.
    pub vram_free: Option<u64>,
    /// Copy engines: number, whether on the graphics runlist, physical units.
    pub copy_engines: Vec<(u32, bool, u32)>,
    /// What the RM driver could do with it.
    pub rm: Verdict,
    /// What the VFIO backend could do with it.
    pub vfio: Verdict,
}

/// Whether a backend can serve vGPUs on a GPU.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Verdict {
    /// True when it can.
    pub possible: bool,
    /// Which chips it serves, or why it cannot.
    pub why: String,
}

impl Verdict {
    fn no(why: impl Into<String>) -> Self {
        Self { possible: false, why: why.into() }
    }
}

/// What is there.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Inventory {
    /// Version of the NVIDIA driver, where one is loaded.
    pub nvidia_driver: Option<String>,
    /// Whether its branch is one that the RM driver knows.
    pub branch_supported: bool,
    /// Branches that the RM driver knows.
    pub supported_branches: Vec<u32>,
    /// GPUs.
    pub gpus: Vec<GpuEntry>,
    /// The software GPU needs none.
    pub soft: Verdict,
}

/// The loaded driver's version, if one is loaded.
pub fn driver_version() -> Option<String> {
    version_of_proc_file(&std::fs::read_to_string(PROC_VERSION).ok()?)
}

/// Looks at everything. Never fails: what cannot be asked is told as such.
pub fn inventory() -> Inventory {
    let version = driver_version();
    let branch = version.as_deref().and_then(Branch::of_version);
    let kernel: Option<Arc<dyn Kernel>> = match branch {
        Some(_) => match NodeKernel::new() {
            Ok(kernel) => Some(Arc::new(kernel)),
            Err(error) => {
                log::debug!("{}: {error}", Node::Control);
                None
            }
        },
        None => None,
    };
    let asked: Vec<(CardInfo, Result<DeviceFacts, OpenError>)> =
        kernel.as_ref().map(ask_all).unwrap_or_default();
    let mut gpus: Vec<GpuEntry> = sysfs_gpus(Path::new(SYSFS_DEVICES))
        .into_iter()
        .map(|found| entry(&found, version.as_deref(), branch, kernel.is_some(), &asked))
        .collect();
    // A GPU that the driver has is one also where sysfs is hidden (containers).
    for (card, facts) in &asked {
        let address = address_of(card);
        if !gpus.iter().any(|gpu| gpu.address == address) {
            let found = PciGpu {
                address,
                device: card.device,
                driver: Some("nvidia".to_owned()),
                iommu_group: false,
            };
            let one = [(*card, facts.as_ref().cloned().map_err(|error| error.to_string()))];
            gpus.push(entry_of(&found, version.as_deref(), branch, true, one.first().map(|(_, f)| f)));
        }
    }
    gpus.sort_by(|a, b| a.address.cmp(&b.address));
    Inventory {
        nvidia_driver: version,
        branch_supported: branch.is_some(),
        supported_branches: Branch::ALL.iter().map(|branch| branch.number()).collect(),
        gpus,
        soft: Verdict { possible: true, why: "needs no GPU; serves GF100 and GH100".to_owned() },
    }
}

fn ask_all(kernel: &Arc<dyn Kernel>) -> Vec<(CardInfo, Result<DeviceFacts, OpenError>)> {
    let cards = match kernel.cards() {
        Ok(cards) => cards,
        Err(error) => {
            log::warn!("{}", RmError::new("the list of GPUs", error));
            return Vec::new();
        }
    };
    cards.into_iter().map(|card| (card, ask(kernel, &card))).collect()
}

fn ask(kernel: &Arc<dyn Kernel>, card: &CardInfo) -> Result<DeviceFacts, OpenError> {
    let client = Client::new(Arc::clone(kernel))?;
    let device = Device::open(client, card)?;
    Ok(device.facts(card)?)
}

/// A GPU on the bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PciGpu {
    pub address: String,
    pub device: u16,
    pub driver: Option<String>,
    pub iommu_group: bool,
}

/// NVIDIA's display and 3D controllers below a sysfs folder.
pub(super) fn sysfs_gpus(devices: &Path) -> Vec<PciGpu> {
    let Ok(entries) = std::fs::read_dir(devices) else { return Vec::new() };
    let mut gpus: Vec<PciGpu> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| {
            let path = entry.path();
            let number = |name: &str| {
                let text = std::fs::read_to_string(path.join(name)).ok()?;
                u32::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
            };
            let is_display = number("class")? >> 16 == 0x03;
            if number("vendor")? != 0x10de || !is_display {
                return None;
            }
            let driver = std::fs::read_link(path.join("driver")).ok();
            Some(PciGpu {
                address: entry.file_name().to_string_lossy().into_owned(),
                device: u16::try_from(number("device")?).ok()?,
                driver: driver.and_then(|link| Some(link.file_name()?.to_string_lossy().into_owned())),
                iommu_group: path.join("iommu_group").exists(),
            })
        })
        .collect();
    gpus.sort_by(|a, b| a.address.cmp(&b.address));
    gpus
}

fn entry(
    found: &PciGpu,
    version: Option<&str>,
    branch: Option<Branch>,
    nodes: bool,
    asked: &[(CardInfo, Result<DeviceFacts, OpenError>)],
) -> GpuEntry {
    let facts = asked
        .iter()
        .find(|(card, _)| address_of(card) == found.address)
        .map(|(_, facts)| facts.as_ref().cloned().map_err(ToString::to_string));
    entry_of(found, version, branch, nodes, facts.as_ref())
}

fn entry_of(
    found: &PciGpu,
    version: Option<&str>,
    branch: Option<Branch>,
    nodes: bool,
    facts: Option<&Result<DeviceFacts, String>>,
) -> GpuEntry {
    let known = facts.and_then(|facts| facts.as_ref().ok());
    GpuEntry {
        address: found.address.clone(),
        pci_id: format!("10de:{:04x}", found.device),
        name: known.map(|facts| facts.name.clone()),
        architecture: known.map(|facts| architecture_name(facts.architecture)),
        driver: found.driver.clone(),
        vram: known.map(|facts| facts.vram),
        vram_free: known.map(|facts| facts.vram_free),
        copy_engines: known.map_or_else(Vec::new, |facts| {
            facts.copy_engines.iter().map(|e| (e.number, e.with_graphics, e.units)).collect()
        }),
        rm: rm_verdict(found, version, branch, nodes, facts),
        vfio: Verdict::no(if found.iommu_group {
            "this backend is not built yet"
        } else {
            "this backend is not built yet; and the GPU is in no IOMMU group"
        }),
    }
}

fn rm_verdict(
    found: &PciGpu,
    version: Option<&str>,
    branch: Option<Branch>,
    nodes: bool,
    facts: Option<&Result<DeviceFacts, String>>,
) -> Verdict {
    let Some(version) = version else { return Verdict::no("the NVIDIA driver is not loaded") };
    if branch.is_none() {
        return Verdict::no(format!("driver {version} is of no supported branch ({})", Branch::list()));
    }
    match facts {
        None if !nodes => Verdict::no(format!("{} is not accessible for this user", Node::Control)),
        None => Verdict::no(match &found.driver {
            Some(driver) => format!("kernel driver {driver} has it, not nvidia"),
            None => "no kernel driver has it".to_owned(),
        }),
        Some(Err(why)) => Verdict::no(why.clone()),
        Some(Ok(facts)) if facts.architecture != ARCH_GH100 => Verdict::no(format!(
            "{} GPUs execute no chip that vGPUs can be; GH100 needs Hopper",
            architecture_name(facts.architecture)
        )),
        Some(Ok(facts)) if EngineTable::choose(&facts.copy_engines).is_none() || !facts.graphics => {
            Verdict::no("it lacks engines that a GH100 vGPU has")
        }
        Some(Ok(_)) => Verdict { possible: true, why: "serves GH100".to_owned() },
    }
}

/// The NVIDIA driver, after every check that needs no GPU; becomes the wanted user first.
///
/// # Errors
/// See [`OpenError`].
pub(super) fn open_kernel(uid: Option<u32>) -> Result<Arc<dyn Kernel>, OpenError> {
    let version = driver_version().ok_or(OpenError::NoDriver)?;
    if Branch::of_version(&version).is_none() {
        return Err(OpenError::WrongBranch { version });
    }
    match uid {
        Some(uid) if uid != rustix::process::geteuid().as_raw() => {
            become_user(uid).map_err(|source| OpenError::Privileges { uid, source })?;
        }
        _ => {}
    }
    if is_root() {
        return Err(OpenError::Root);
    }
    let uid = rustix::process::geteuid().as_raw();
    let kernel = NodeKernel::new().map_err(|source| OpenError::Node { node: Node::Control, uid, source })?;
    // The file in /proc may be a container's own; the module has the last word.
    if let Ok(told) = kernel.version()
        && !told.is_empty()
        && Branch::of_version(&told).is_none()
    {
        return Err(OpenError::WrongBranch { version: told });
    }
    Ok(Arc::new(kernel))
}

/// A GPU that can be driven, opened, with what it is and which of its engines are used.
///
/// # Errors
/// See [`OpenError`].
pub(super) fn open_device(
    kernel: &Arc<dyn Kernel>,
    wanted: Option<&str>,
) -> Result<(Device, DeviceFacts, EngineTable), OpenError> {
    let cards = kernel.cards().map_err(|error| RmError::new("the list of GPUs", error))?;
    let names: Vec<_> = cards.iter().map(address_of).collect();
    let no_gpu = || OpenError::NoGpu {
        wanted: wanted.unwrap_or("at all").to_owned(),
        present: if names.is_empty() { "none".to_owned() } else { names.join(", ") },
    };
    let card = match wanted {
        Some(address) => cards.iter().find(|card| address_of(card) == address).ok_or_else(no_gpu)?,
        None => match cards.as_slice() {
            [only] => only,
            [] => return Err(no_gpu()),
            [_, ..] => {
                return Err(OpenError::NoGpu {
                    wanted: "without its PCI address (name one with `gpu`)".to_owned(),
                    present: names.join(", "),
                });
            }
        },
    };
    let device = Device::open(Client::new(Arc::clone(kernel))?, card)?;
    let facts = device.facts(card)?;
    let name = || facts.name.clone();
    if facts.architecture != ARCH_GH100 {
        return Err(OpenError::WrongArchitecture {
            name: name(),
            address: facts.address.clone(),
            architecture: architecture_name(facts.architecture),
        });
    }
    if !facts.graphics {
        return Err(OpenError::MissingEngine { name: name(), what: "a graphics engine" });
    }
    let table = EngineTable::choose(&facts.copy_engines).ok_or_else(|| OpenError::MissingEngine {
        name: name(),
        what: "a copy engine on the graphics runlist and two of their own",
    })?;
    Ok((device, facts, table))
}

impl RmDriver {
    /// Takes a GPU: checks driver, user, GPU and free memory, each with a message of its own.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(config: &RmConfig) -> Result<Self, OpenError> {
        let kernel = open_kernel(config.uid)?;
        Self::on_kernel(&kernel, config)
    }

    /// The same on a kernel that is there.
    pub(super) fn on_kernel(kernel: &Arc<dyn Kernel>, config: &RmConfig) -> Result<Self, OpenError> {
        let (device, facts, table) = open_device(kernel, config.gpu.as_deref())?;
        if facts.vram_free < config.vram {
            return Err(OpenError::NotEnoughVram {
                name: facts.name,
                free: facts.vram_free >> 20,
                wanted: config.vram >> 20,
            });
        }
        Self::new(device, facts, table, config.vram)
    }
}
