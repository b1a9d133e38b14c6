//! Opening a function through VFIO: by its own node and iommufd where the kernel has that, by group and
//! container otherwise.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use iommufd_ioctls::IommuFd;
use vfio_ioctls::{VfioContainer, VfioDevice, VfioError, VfioIommufd, VfioOps};

use super::binding::VFIO_PCI;
use super::claim::Claim;
use super::obstacles::Obstacle;
use super::sysfs::{PciDevice, Sysfs, SysfsError};
use gpuvmk_pci::PciAddress;

/// Which of VFIO's interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Interface {
    /// The group's node and a container: every kernel with VFIO.
    Group,
    /// The function's own node and iommufd: Linux 6.6 with `CONFIG_VFIO_DEVICE_CDEV`, which Debian's kernels
    /// do not have.
    Cdev,
}

impl Interface {
    /// The best that there is for a function.
    fn best(sysfs: &Sysfs, device: &PciDevice) -> Self {
        let iommufd = sysfs.root().join("dev/iommu").exists();
        if device.cdev.is_some() && iommufd { Self::Cdev } else { Self::Group }
    }
}

/// Why a function cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It is not there.
    #[error(transparent)]
    Sysfs(#[from] SysfsError),
    /// It is not VFIO's.
    #[error("{address} has {driver}, not vfio-pci: sudo gpuvmk gpu bind {address}")]
    NotBound {
        /// PCI address of the function.
        address: PciAddress,
        /// The driver that has it.
        driver: String,
    },
    /// Something keeps it from being taken.
    #[error(transparent)]
    Obstacle(#[from] Obstacle),
    /// Another gpuvmk has it.
    #[error("Another gpuvmk has {0}: `gpuvmk ls` shows who runs")]
    Claimed(PciAddress),
    /// A node cannot be opened.
    #[error("Cannot open {}{}", .path.display(), remedy(.source))]
    Node {
        /// Path of the file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The kernel has no node for it.
    #[error(
        "The kernel has no node of its own for {0}: that takes Linux 6.6 with CONFIG_IOMMUFD and CONFIG_VFIO_DEVICE_CDEV; \
         the group's node will do"
    )]
    NoCdev(PciAddress),
    /// VFIO refused something else.
    #[error("VFIO refused {address}")]
    Vfio {
        /// PCI address of the function.
        address: PciAddress,
        /// The cause.
        #[source]
        source: VfioError,
    },
    /// A BAR or an interrupt could not be set up.
    #[error("{address}: {what}")]
    SetUp {
        /// PCI address of the function.
        address: PciAddress,
        /// The operation that failed.
        what: String,
        /// The kernel's error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            ": let this user have it (a udev rule for subsystem vfio, or chown), or be root"
        }
        Some(libc::EBUSY) => ": another process has it, such as a QEMU with the same function",
        Some(libc::ENOENT) => ": modprobe vfio-pci vfio_iommu_type1",
        _ => "",
    }
}

/// An open function, and what maps memory for it.
pub(super) struct Opened {
    pub(super) device: VfioDevice,
    pub(super) iommu: Arc<dyn VfioOps>,
    pub(super) interface: Interface,
    pub(super) claim: Claim,
}

/// Claims a function for this process.
pub(super) fn claim(device: &PciDevice) -> Result<Claim, OpenError> {
    let config = device.folder.join("config");
    let claim = Claim::take(device).map_err(|source| OpenError::Node { path: config, source })?;
    claim.ok_or(OpenError::Claimed(device.address))
}

/// Opens a function that `vfio-pci` has.
pub(super) fn open(
    sysfs: &Sysfs,
    device: &PciDevice,
    wanted: Option<Interface>,
) -> Result<Opened, OpenError> {
    let address = device.address;
    if device.driver.as_deref() != Some(VFIO_PCI) {
        let driver =
            device.driver.as_ref().map_or_else(|| "no driver".to_owned(), |name| format!("driver {name}"));
        return Err(OpenError::NotBound { address, driver });
    }
    let group = device.group.as_ref().ok_or(Obstacle::NoIommu(address))?;
    let node = |path: PathBuf| move |source| OpenError::Node { path, source };
    let claim = claim(device)?;
    let interface = wanted.unwrap_or_else(|| Interface::best(sysfs, device));
    let group_node = PathBuf::from(format!("/dev/vfio/{}", group.number));
    let cdev_node = device.cdev.as_ref().map(|name| PathBuf::from("/dev/vfio/devices").join(name));
    let told = |error| match error {
        VfioError::OpenContainer(source) => OpenError::Node { path: "/dev/vfio/vfio".into(), source },
        VfioError::OpenGroup(source, _) => OpenError::Node { path: group_node.clone(), source },
        VfioError::OpenDeviceCdev(source) => {
            OpenError::Node { path: cdev_node.clone().unwrap_or_default(), source }
        }
        VfioError::InvalidVfioDev => OpenError::NoCdev(address),
        VfioError::GroupViable => {
            let others = group.others.iter().filter(|member| !member.is_harmless()).cloned().collect();
            Obstacle::GroupShared { address, group: group.number, others }.into()
        }
        source => OpenError::Vfio { address, source },
    };
    let iommu: Arc<dyn VfioOps> = match interface {
        Interface::Group => Arc::new(VfioContainer::new(None).map_err(told)?),
        Interface::Cdev => {
            let iommufd = std::fs::File::options().read(true).write(true).open("/dev/iommu");
            let iommufd = iommufd.map_err(node("/dev/iommu".into()))?;
            let iommufd = Arc::new(IommuFd::new_from_fd(iommufd));
            Arc::new(VfioIommufd::new(iommufd, None, None).map_err(told)?)
        }
    };
    let device = VfioDevice::new(&device.folder, Arc::clone(&iommu), true).map_err(told)?;
    Ok(Opened { device, iommu, interface, claim })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::sysfs::tests::{FakeHost, GPU};
    use super::*;

    fn error(host: &FakeHost, wanted: Option<Interface>) -> OpenError {
        open(&host.sysfs(), &host.device(), wanted).err().unwrap()
    }

    fn bound() -> FakeHost {
        let host = FakeHost::new();
        host.remove(GPU, "driver");
        let folder = host.device().folder;
        symlink(host.sysfs().driver(VFIO_PCI), folder.join("driver")).unwrap();
        host.write(GPU, "config", "");
        host
    }

    #[test]
    fn function_of_another_driver_is_not_opened() {
        let said = error(&FakeHost::new(), None).to_string();
        assert_eq!(said, "0000:01:00.0 has driver nouveau, not vfio-pci: sudo gpuvmk gpu bind 0000:01:00.0");
    }

    #[test]
    fn function_without_an_iommu_is_not_opened() {
        let host = bound();
        host.remove(GPU, "iommu_group");
        assert!(error(&host, None).to_string().contains("intel_iommu=on"));
    }

    #[test]
    fn function_that_another_has_claimed_is_not_opened() {
        let host = bound();
        let _claim = Claim::take(&host.device()).unwrap();
        assert!(matches!(error(&host, None), OpenError::Claimed(_)));
    }

    #[test]
    fn own_node_is_used_where_there_is_one_and_iommufd() {
        let host = bound();
        let sysfs = host.sysfs();
        assert_eq!(Interface::best(&sysfs, &host.device()), Interface::Group);
        std::fs::create_dir_all(host.device().folder.join("vfio-dev/vfio0")).unwrap();
        assert_eq!(Interface::best(&sysfs, &host.device()), Interface::Group);
        std::fs::create_dir_all(sysfs.root().join("dev")).unwrap();
        std::fs::write(sysfs.root().join("dev/iommu"), "").unwrap();
        assert_eq!(Interface::best(&sysfs, &host.device()), Interface::Cdev);
    }
}
