//! Facts about a PCI function in the kernel's files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use gpuvmk_pci::PciAddress;

/// PCI vendor number of NVIDIA.
pub const NVIDIA: u16 = 0x10de;
/// Base class of display controllers (PCI Code and ID Assignment Specification).
const CLASS_DISPLAY: u32 = 0x03;
/// Base class of bridges.
const CLASS_BRIDGE: u32 = 0x06;

/// Where the kernel's files are.
#[derive(Clone, Debug)]
pub struct Sysfs {
    root: PathBuf,
}

impl Default for Sysfs {
    fn default() -> Self {
        Self::below("/")
    }
}

/// Why a function's files cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SysfsError {
    /// No such function.
    #[error("There is no PCI function {0}: `lspci -D` and `gpuvmk gpu list` show those that there are")]
    Absent(PciAddress),
    /// A file that each function has cannot be read, or has unexpected content.
    #[error("Cannot read {}", .path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// A PCI function as the kernel shows it at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciDevice {
    /// PCI address of the function.
    pub address: PciAddress,
    /// Its folder in sysfs.
    pub folder: PathBuf,
    /// PCI vendor id.
    pub vendor: u16,
    /// PCI device id.
    pub device: u16,
    /// Base class, subclass and programming interface, 24 bits.
    pub class: u32,
    /// The kernel driver that has it.
    pub driver: Option<String>,
    /// The only driver that may bind it, if one was set.
    pub driver_override: Option<String>,
    /// True if the firmware shows its messages on it.
    pub boot_display: bool,
    /// How the kernel would reset it, best first; `None` where the kernel does not report it (before Linux
    /// 5.15).
    pub reset_methods: Option<Vec<String>>,
    /// Its IOMMU group; absent without an IOMMU.
    pub group: Option<Group>,
    /// All other functions on its bus.
    pub bus_mates: Vec<Member>,
    /// True if a bridge is above that bus, which can reset it.
    pub below_bridge: bool,
    /// Its node below `/dev/vfio/devices`, while `vfio-pci` has it and the kernel has that interface.
    pub cdev: Option<String>,
}

/// Functions that the IOMMU cannot distinguish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Number of the group.
    pub number: u32,
    /// All others in it.
    pub others: Vec<Member>,
}

/// Another function of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its address, as sysfs writes it.
    pub address: String,
    /// Its folder in sysfs.
    pub folder: PathBuf,
    /// Its class number.
    pub class: u32,
    /// The driver that has it.
    pub driver: Option<String>,
    /// The only driver that may bind it, if one was set.
    pub driver_override: Option<String>,
}

impl Member {
    fn at(folder: PathBuf) -> Self {
        Self {
            address: folder.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            class: hex(&folder.join("class")).unwrap_or(0),
            driver: link_name(&folder.join("driver")),
            driver_override: driver_override(&folder),
            folder,
        }
    }

    fn is_bridge(&self) -> bool {
        self.class >> 16 == CLASS_BRIDGE
    }

    /// True if VFIO lets the group be used while this one is as it is: it has no driver or VFIO's, or it is a
    /// bridge, which does no DMA.
    pub fn is_harmless(&self) -> bool {
        self.is_bridge() || self.driver.as_deref().is_none_or(|driver| driver == "vfio-pci")
    }
}

impl PciDevice {
    /// True if it is a display or 3D controller of NVIDIA's.
    pub fn is_nvidia_gpu(&self) -> bool {
        self.vendor == NVIDIA && self.class >> 16 == CLASS_DISPLAY
    }

    /// The card's other functions, such as its sound: they share its slot, and its fate.
    pub fn siblings(&self) -> impl Iterator<Item = &Member> {
        self.bus_mates.iter().filter(|mate| !mate.is_bridge() && self.is_sibling(&mate.address))
    }

    /// True if an address is that of another function of this card.
    pub fn is_sibling(&self, address: &str) -> bool {
        let slot = |address: PciAddress| (address.domain, address.bus, address.device);
        let other: Option<PciAddress> = address.parse().ok();
        other.is_some_and(|other| other != self.address && slot(other) == slot(self.address))
    }

    /// True if the kernel can reset it: by itself, or with its bus if that has only functions of this card.
    pub fn can_be_reset(&self) -> bool {
        let by_itself = self.reset_methods.as_ref().is_none_or(|methods| !methods.is_empty());
        by_itself || (self.below_bridge && self.bus_mates.iter().all(|mate| self.is_sibling(&mate.address)))
    }
}

impl Sysfs {
    /// The kernel's files below another folder than `/`.
    pub fn below(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The folder in whose place `/` is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The file through which the bus looks for a driver of a function.
    pub fn drivers_probe(&self) -> PathBuf {
        self.root.join("sys/bus/pci/drivers_probe")
    }

    /// The folder of a driver of the bus.
    pub fn driver(&self, name: &str) -> PathBuf {
        self.root.join("sys/bus/pci/drivers").join(name)
    }

    /// NVIDIA's display and 3D controllers, by address; what cannot be read of one leaves it out.
    pub fn gpus(&self) -> Vec<PciDevice> {
        let entries = fs::read_dir(self.devices()).into_iter().flatten().flatten();
        let addresses = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let devices = addresses.filter_map(|address| self.device(address).ok());
        let mut gpus: Vec<_> = devices.filter(PciDevice::is_nvidia_gpu).collect();
        gpus.sort_by_key(|gpu| gpu.address);
        gpus
    }

    fn devices(&self) -> PathBuf {
        self.root.join("sys/bus/pci/devices")
    }

    /// Looks at a function.
    ///
    /// # Errors
    /// It is not there, or its files cannot be read.
    pub fn device(&self, address: PciAddress) -> Result<PciDevice, SysfsError> {
        let folder = self.devices().join(address.to_string());
        if !folder.exists() {
            return Err(SysfsError::Absent(address));
        }
        let number = |name: &str| hex(&folder.join(name));
        let short = |name: &str| Ok(u16::try_from(number(name)?).unwrap_or(u16::MAX));
        Ok(PciDevice {
            address,
            vendor: short("vendor")?,
            device: short("device")?,
            class: number("class")?,
            driver: link_name(&folder.join("driver")),
            driver_override: driver_override(&folder),
            boot_display: word(&folder.join("boot_vga")).as_deref() == Some("1"),
            reset_methods: fs::read_to_string(folder.join("reset_method"))
                .ok()
                .map(|text| text.split_whitespace().map(str::to_owned).collect()),
            group: group(&folder, address),
            bus_mates: self.bus_mates(address),
            below_bridge: below_bridge(&folder),
            cdev: only_entry(&folder.join("vfio-dev")),
            folder,
        })
    }
}

impl Sysfs {
    fn bus_mates(&self, address: PciAddress) -> Vec<Member> {
        let bus = |address: PciAddress| (address.domain, address.bus);
        let entries = fs::read_dir(self.devices()).into_iter().flatten().flatten();
        let others = entries.filter(|entry| {
            let other: Option<PciAddress> = entry.file_name().to_str().and_then(|name| name.parse().ok());
            other.is_some_and(|other| other != address && bus(other) == bus(address))
        });
        let mut mates: Vec<_> = others.map(|entry| Member::at(entry.path())).collect();
        mates.sort_by(|a, b| a.address.cmp(&b.address));
        mates
    }
}

/// True if the folder that a function's link leads to is in a bridge's.
fn below_bridge(folder: &Path) -> bool {
    let place = fs::canonicalize(folder).unwrap_or_default();
    let above = place.parent().and_then(Path::file_name).and_then(|name| name.to_str());
    above.is_some_and(|name| name.parse::<PciAddress>().is_ok())
}

fn driver_override(folder: &Path) -> Option<String> {
    word(&folder.join("driver_override")).filter(|name| name != "(null)")
}

fn group(folder: &Path, address: PciAddress) -> Option<Group> {
    let link = folder.join("iommu_group");
    let number = link_name(&link)?.parse().ok()?;
    let mut others: Vec<Member> = fs::read_dir(link.join("devices"))
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy() != address.to_string())
        .map(|entry| Member::at(entry.path()))
        .collect();
    others.sort_by(|a, b| a.address.cmp(&b.address));
    Some(Group { number, others })
}

/// The last part of where a link leads.
fn link_name(link: &Path) -> Option<String> {
    Some(fs::read_link(link).ok()?.file_name()?.to_string_lossy().into_owned())
}

fn only_entry(folder: &Path) -> Option<String> {
    let entry = fs::read_dir(folder).ok()?.flatten().next()?;
    Some(entry.file_name().to_string_lossy().into_owned())
}

/// A file's text without the space around it, unless that is all.
fn word(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn hex(path: &Path) -> Result<u32, SysfsError> {
    let unreadable = |source| SysfsError::Unreadable { path: path.to_owned(), source };
    let text = fs::read_to_string(path).map_err(unreadable)?;
    let digits = text.trim().strip_prefix("0x").unwrap_or("");
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, format!("\"{}\" is no number", text.trim()));
    u32::from_str_radix(digits, 16).map_err(|_| unreadable(wrong()))
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A host that is a folder, with one GPU at 0000:01:00.0 in group 3.
    pub(in crate::vfio) struct FakeHost {
        folder: tempfile::TempDir,
    }

    pub(in crate::vfio) const GPU: &str = "0000:01:00.0";

    impl FakeHost {
        pub(in crate::vfio) fn new() -> Self {
            let host = Self { folder: tempfile::tempdir().unwrap() };
            host.add(GPU, 0x03_0000, Some("nouveau"));
            for driver in ["vfio-pci", "nouveau"] {
                fs::create_dir_all(host.sysfs().driver(driver)).unwrap();
            }
            host.write(GPU, "boot_vga", "0\n");
            host.write(GPU, "reset_method", "pm bus\n");
            host.write(GPU, "driver_override", "(null)\n");
            host
        }

        pub(in crate::vfio) fn sysfs(&self) -> Sysfs {
            Sysfs::below(self.folder.path())
        }

        pub(in crate::vfio) fn device(&self) -> PciDevice {
            self.sysfs().device(GPU.parse().unwrap()).unwrap()
        }

        /// Another function of the group.
        pub(in crate::vfio) fn add(&self, address: &str, class: u32, driver: Option<&str>) {
            let folder = self.folder(address);
            let group = self.folder.path().join("sys/kernel/iommu_groups/3");
            fs::create_dir_all(&folder).unwrap();
            fs::create_dir_all(group.join("devices")).unwrap();
            symlink(&group, folder.join("iommu_group")).unwrap();
            symlink(&folder, group.join("devices").join(address)).unwrap();
            self.write(address, "vendor", "0x10de\n");
            self.write(address, "device", "0x06c0\n");
            self.write(address, "class", &format!("{class:#08x}\n"));
            if let Some(driver) = driver {
                symlink(self.sysfs().driver(driver), folder.join("driver")).unwrap();
            }
        }

        pub(in crate::vfio) fn write(&self, address: &str, file: &str, text: &str) {
            fs::write(self.folder(address).join(file), text).unwrap();
        }

        pub(in crate::vfio) fn remove(&self, address: &str, file: &str) {
            fs::remove_file(self.folder(address).join(file)).unwrap();
        }

        fn folder(&self, address: &str) -> PathBuf {
            self.folder.path().join("sys/bus/pci/devices").join(address)
        }
    }

    #[test]
    fn function_is_read_from_the_kernels_files() {
        let host = FakeHost::new();
        host.add("0000:01:00.1", 0x04_0300, Some("snd_hda_intel"));

        let gpu = host.device();

        assert!(gpu.is_nvidia_gpu() && !gpu.boot_display);
        assert_eq!((gpu.vendor, gpu.device, gpu.class), (NVIDIA, 0x06c0, 0x03_0000));
        assert_eq!((gpu.driver.as_deref(), gpu.driver_override.as_deref()), (Some("nouveau"), None));
        assert_eq!(gpu.reset_methods.as_deref(), Some(&["pm".to_owned(), "bus".to_owned()][..]));
        let group = gpu.group.clone().unwrap();
        let [audio] = &*group.others else { panic!("{group:?}") };
        assert_eq!((group.number, &*audio.address, audio.is_harmless()), (3, "0000:01:00.1", false));
        assert!(gpu.siblings().map(|mate| &mate.address).eq([&audio.address]), "{gpu:?}");
    }

    #[test]
    fn what_is_not_there_is_told() {
        let host = FakeHost::new();
        let absent = host.sysfs().device("0000:02:00.0".parse().unwrap());
        assert!(absent.unwrap_err().to_string().contains("no PCI function 0000:02:00.0"));

        host.write(GPU, "class", "nonsense\n");
        let broken = host.sysfs().device(GPU.parse().unwrap());
        assert!(matches!(broken, Err(SysfsError::Unreadable { .. })));
    }

    #[test]
    fn bus_is_reset_if_the_card_has_it_for_itself() {
        let host = FakeHost::new();
        host.add("0000:01:00.1", 0x04_0300, None);
        host.write(GPU, "reset_method", "\n");
        let card = |below_bridge| PciDevice { below_bridge, ..host.device() };
        assert!(card(true).can_be_reset() && !card(false).can_be_reset());

        host.add("0000:01:01.0", 0x02_0000, None);
        assert!(!card(true).can_be_reset());
        host.write(GPU, "reset_method", "flr\n");
        assert!(card(false).can_be_reset());
    }

    #[test]
    fn function_below_a_bridge_is_seen_by_where_its_link_leads() {
        let host = FakeHost::new();
        assert!(!host.device().below_bridge);
        let devices = host.folder.path().join("sys/devices/pci0000:00/0000:00:02.0");
        fs::create_dir_all(&devices).unwrap();
        fs::rename(host.folder(GPU), devices.join(GPU)).unwrap();
        symlink(devices.join(GPU), host.folder(GPU)).unwrap();
        assert!(host.device().below_bridge);
    }

    #[test]
    fn bridges_and_functions_without_a_driver_do_no_harm() {
        let member = |class, driver: Option<&str>| Member {
            address: "0000:00:01.0".to_owned(),
            folder: PathBuf::new(),
            class,
            driver: driver.map(str::to_owned),
            driver_override: None,
        };
        assert!(member(0x06_0400, Some("pcieport")).is_harmless());
        assert!(member(0x04_0300, None).is_harmless());
        assert!(member(0x04_0300, Some("vfio-pci")).is_harmless());
        assert!(!member(0x04_0300, Some("snd_hda_intel")).is_harmless());
    }
}
