//! Taking a GPU. Every check that can be made is made before anything is changed, and each has its own error
//! message with the remedy. If a check fails, opened files are closed again, and a process that became an
//! ordinary user is root again.

use std::sync::Arc;

use super::RmConfig;
use super::client::Client;
use super::device::{Device, DeviceFacts, address_of, architecture_name};
use super::engine_table::EngineTable;
use super::error::RmError;
use super::host_paths::{HostDriver, HostPaths};
use super::inventory::elsewhere;
use super::kernel::Kernel;
use super::open_error::OpenError;
use super::sys::{LoweredPrivileges, NodeKernel, is_root, lower};
use super::taken::TakenGpu;
use gpuvmk_chip::Chip;

/// The NVIDIA driver, and who we are for it.
pub struct Opened {
    /// The NVIDIA driver.
    pub kernel: Arc<dyn Kernel>,
    /// The way back to root, where this process is root's.
    lowered: Option<LoweredPrivileges>,
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opened").field("lowered", &self.lowered.is_some()).finish_non_exhaustive()
    }
}

impl Opened {
    /// Gives up root's rights. Must be called before anything is done for a tenant.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn for_good(self) -> Result<Arc<dyn Kernel>, OpenError> {
        if let Some(lowered) = self.lowered {
            lowered.for_good()?;
        }
        Ok(self.kernel)
    }
}

/// The NVIDIA driver, after every check that needs no GPU; becomes the wanted user first.
///
/// # Errors
/// See [`OpenError`].
pub fn open_kernel(paths: &HostPaths, uid: Option<u32>) -> Result<Opened, OpenError> {
    paths.driver().check()?;
    match paths.strict_clients() {
        Ok(true) => {}
        Ok(false) => return Err(OpenError::LaxClients),
        Err(error) => {
            log::warn!(
                "it is not known how the NVIDIA driver tells clients apart, its settings cannot be read: {error}"
            );
        }
    }
    let lowered = match uid {
        Some(uid) if uid != rustix::process::geteuid().as_raw() => {
            Some(lower(uid).map_err(|source| OpenError::Privileges { uid, source })?)
        }
        _ => None,
    };
    if is_root() {
        return Err(OpenError::Root);
    }
    let kernel = NodeKernel::open(paths)?;
    // The file in /proc may be a container's own; the module has the last word.
    if let Ok(version) = kernel.version()
        && !version.is_empty()
    {
        let branch = super::abi::Branch::of_version(&version);
        HostDriver::Loaded { version, branch }.check()?;
    }
    Ok(Opened { kernel: Arc::new(kernel), lowered })
}

/// A GPU that can be driven, opened, with what it is and which of its engines are used.
///
/// # Errors
/// See [`OpenError`].
pub fn open_device(
    kernel: &Arc<dyn Kernel>,
    paths: &HostPaths,
    wanted: Option<&str>,
) -> Result<(Device, DeviceFacts, EngineTable, Chip), OpenError> {
    let cards = kernel.cards().map_err(|error| RmError::new("the list of GPUs", error))?;
    let present = || cards.iter().map(address_of).collect::<Vec<_>>().join(", ");
    let card = match (wanted, cards.as_slice()) {
        (_, []) => return Err(OpenError::NoGpus),
        (Some(address), _) => {
            cards.iter().find(|card| address_of(card) == address).ok_or_else(|| OpenError::UnknownGpu {
                wanted: address.to_owned(),
                present: present(),
                elsewhere: elsewhere(&paths.sysfs(), address).unwrap_or_default(),
            })?
        }
        (None, [only]) => only,
        (None, _) => return Err(OpenError::SeveralGpus { present: present() }),
    };
    let device = Device::open(Client::new(Arc::clone(kernel))?, card)?;
    let facts = device.facts(card)?;
    let name = || facts.name.clone();
    let Some(chip) = facts.chips.first().copied() else {
        return Err(OpenError::NoChip {
            name: name(),
            address: facts.address.clone(),
            architecture: architecture_name(facts.architecture),
        });
    };
    if !facts.graphics {
        return Err(OpenError::MissingEngine { name: name(), what: "a graphics engine" });
    }
    let table = EngineTable::choose(&facts.copy_engines).ok_or_else(|| OpenError::MissingEngine {
        name: name(),
        what: "a copy engine on the graphics runlist and two of their own",
    })?;
    Ok((device, facts, table, chip))
}

/// The same GPU, set up as the configuration says.
pub(super) fn open_as(
    kernel: &Arc<dyn Kernel>,
    config: &RmConfig,
) -> Result<(Device, DeviceFacts, EngineTable, Chip), OpenError> {
    let (mut device, facts, table, chip) = open_device(kernel, &config.paths, config.gpu.as_deref())?;
    device.timeslice = config.timeslice;
    Ok((device, facts, table, chip))
}

impl TakenGpu {
    /// Takes a GPU: checks driver, user, GPU and free memory. Each failed check has its own message.
    ///
    /// # Errors
    /// See [`OpenError`]; the process is who it was then.
    pub fn open(config: &RmConfig) -> Result<Self, OpenError> {
        let opened = open_kernel(&config.paths, config.uid)?;
        let taken = Self::on_kernel(&opened.kernel, config)?;
        opened.for_good()?;
        Ok(taken)
    }

    /// The same on a kernel that is there.
    pub(super) fn on_kernel(kernel: &Arc<dyn Kernel>, config: &RmConfig) -> Result<Self, OpenError> {
        let (device, facts, table, chip) = open_as(kernel, config)?;
        if let Some(wanted) = config.chip.filter(|wanted| !facts.chips.contains(wanted)) {
            return Err(OpenError::OtherChip {
                name: facts.name,
                address: facts.address,
                wanted,
                served: Chip::list(facts.chips.iter().copied(), "", ", "),
            });
        }
        if !device.lock()? {
            let DeviceFacts { name, address, .. } = facts;
            return Err(OpenError::Taken { name, address, node: device.node });
        }
        if facts.vram_free < config.vram {
            return Err(OpenError::NotEnoughVram {
                name: facts.name,
                free: facts.vram_free >> 20,
                wanted: config.vram >> 20,
            });
        }
        Self::new(device, facts, table, chip, config.vram)
    }
}
