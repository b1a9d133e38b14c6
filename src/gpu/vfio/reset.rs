//! How a card is reset: by itself where that is worth something, with its bus otherwise.
//!
//! Most graphics cards cannot be reset by themselves (no FLR). The kernel then offers a change of the power
//! state and back, which leaves most of the card as it was. Resetting its bus, with all that is on it, resets
//! such a card. VFIO does that for a process that has all functions on the bus (`VFIO_DEVICE_PCI_HOT_RESET`,
//! linux/vfio.h).

#![allow(unsafe_code, reason = "VFIO's calls for that are not in vfio-ioctls, or lose what the kernel says")]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use vfio_ioctls::VfioDevice;
use vmm_sys_util::ioctl::{ioctl, ioctl_with_mut_ref, ioctl_with_ref};

use super::open::Interface;
use super::sysfs::PciDevice;

/// Numbers of the calls (linux/vfio.h: `_IO(VFIO_TYPE, VFIO_BASE + n)`).
const DEVICE_RESET: u64 = 0x3b6f;
const GET_PCI_HOT_RESET_INFO: u64 = 0x3b70;
const PCI_HOT_RESET: u64 = 0x3b71;
/// `VFIO_PCI_HOT_RESET_FLAG_DEV_ID_OWNED`: all that would be reset belongs to who asks by iommufd.
const ALL_OWNED: u32 = 1 << 1;
/// Most functions of a bus that are considered.
const MOST: usize = 64;
/// Ways in which the kernel resets a function that leave nothing of what it was
/// (Documentation/ABI/testing/sysfs-bus-pci).
const THOROUGH: [&str; 4] = ["device_specific", "acpi", "flr", "af_flr"];

/// How the card is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ResetMethod {
    /// The function alone, by the best of the kernel's methods for it.
    Function,
    /// Everything on its bus.
    Bus,
}

/// How a card is reset.
#[derive(Debug)]
pub(super) struct Reset {
    way: ResetMethod,
    /// The open group, which proves that all functions on the bus are ours; none by iommufd.
    group: Option<OwnedFd>,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Dependent {
    /// Its group, or its number at iommufd.
    group: u32,
    segment: u16,
    bus: u8,
    function: u8,
}

#[repr(C)]
struct Info {
    size: u32,
    flags: u32,
    count: u32,
    devices: [Dependent; MOST],
}

#[repr(C)]
struct Groups {
    size: u32,
    flags: u32,
    count: u32,
    group: i32,
}

impl Reset {
    /// The best way for an open card.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn of(card: &VfioDevice, device: &PciDevice, interface: Interface) -> io::Result<Self> {
        let methods = device.reset_methods.as_deref();
        let alone = || Self { way: ResetMethod::Function, group: None };
        if is_thorough(methods) {
            return Ok(alone());
        }
        match by_bus(card, device, interface) {
            Ok(group) => Ok(Self { way: ResetMethod::Bus, group }),
            // Better than nothing.
            Err(_) if methods.is_some_and(|methods| !methods.is_empty()) => Ok(alone()),
            Err(error) => Err(error),
        }
    }

    /// Which way that is.
    pub(super) fn way(&self) -> ResetMethod {
        self.way
    }

    /// Resets the card.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn run(&self, card: &VfioDevice) -> io::Result<()> {
        let result = match self.way {
            // SAFETY: the call has no argument, and touches nothing of this process's.
            ResetMethod::Function => unsafe { ioctl(card, DEVICE_RESET) },
            ResetMethod::Bus => {
                let group = self.group.as_ref().map_or(-1, AsRawFd::as_raw_fd);
                let count = u32::from(self.group.is_some());
                let groups = Groups { size: size_of_u32::<Groups>(), flags: 0, count, group };
                // SAFETY: the kernel reads the structure, of which it is told the size and how many groups
                // are in it.
                unsafe { ioctl_with_ref(card, PCI_HOT_RESET, &groups) }
            }
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// True if the kernel's first choice is worth something; one that does not tell (before Linux 5.15) is
/// believed.
fn is_thorough(methods: Option<&[String]>) -> bool {
    methods.is_none_or(|methods| methods.first().is_some_and(|first| THOROUGH.contains(&&**first)))
}

/// The group's file that proves the right to reset the bus.
fn by_bus(card: &VfioDevice, device: &PciDevice, interface: Interface) -> io::Result<Option<OwnedFd>> {
    let mut info =
        Info { size: size_of_u32::<Info>(), flags: 0, count: 0, devices: [Dependent::default(); MOST] };
    // SAFETY: the kernel writes to the structure, of which it is told the size.
    let result = unsafe { ioctl_with_mut_ref(card, GET_PCI_HOT_RESET_INFO, &mut info) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let count = usize::try_from(info.count).unwrap_or(usize::MAX);
    let others = info.devices.get(..count).ok_or_else(|| shared("more functions than can be told"))?;
    if interface == Interface::Cdev {
        return if info.flags & ALL_OWNED != 0 { Ok(None) } else { Err(shared("functions of others")) };
    }
    let group = device.group.as_ref().map(|group| group.number);
    if let Some(other) = others.iter().find(|other| Some(other.group) != group) {
        let Dependent { segment, bus, function, group } = other;
        let at = format!("{segment:04x}:{bus:02x}:{:02x}.{} of group {group}", function >> 3, function & 7);
        return Err(shared(&at));
    }
    let number = group.ok_or_else(|| shared("no group"))?;
    own_file(&Path::new("/dev/vfio").join(number.to_string())).map(Some)
}

fn shared(with: &str) -> io::Error {
    io::Error::other(format!("it cannot be reset by itself, and its bus has {with} on it"))
}

/// Duplicates this process's open file of a path: a group's node can be opened once, and vfio-ioctls does not
/// lend its file.
fn own_file(path: &Path) -> io::Result<OwnedFd> {
    let found = std::fs::read_dir("/proc/self/fd")?.flatten().find_map(|entry| {
        let leads = std::fs::read_link(entry.path()).is_ok_and(|target| target == path);
        if leads { entry.file_name().to_str()?.parse().ok() } else { None }
    });
    let found: i32 = found.ok_or_else(|| io::Error::other(format!("{} is not open", path.display())))?;
    let itself: Pid = getpid();
    let process = pidfd_open(itself, PidfdFlags::empty())?;
    Ok(pidfd_getfd(process, found, PidfdGetfdFlags::empty())?)
}

/// CAST: a structure of this file, some hundred bytes.
#[allow(clippy::cast_possible_truncation, reason = "structures of this file are some hundred bytes")]
const fn size_of_u32<T>() -> u32 {
    size_of::<T>() as u32
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn change_of_power_is_no_thorough_reset() {
        let list = |words: &str| words.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert!(is_thorough(None) && is_thorough(Some(&list("flr bus"))));
        for weak in ["", "pm", "pm bus", "bus"] {
            assert!(!is_thorough(Some(&list(weak))), "{weak}");
        }
    }

    #[test]
    fn structures_are_the_kernels() {
        assert_eq!((size_of::<Dependent>(), size_of::<Groups>()), (8, 16));
        assert_eq!(size_of::<Info>(), 12 + 8 * MOST);
    }

    #[test]
    fn own_file_is_found_by_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("7");
        let file = File::create(&path).unwrap();
        let again = File::from(own_file(&path).unwrap());
        assert_eq!(again.metadata().unwrap().ino(), file.metadata().unwrap().ino());
        assert!(own_file(&folder.path().join("8")).is_err());
    }
}
