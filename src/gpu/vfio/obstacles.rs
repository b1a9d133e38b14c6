//! Reasons why a function cannot be taken for VFIO, each with its remedy.

use super::holders::Holder;
use super::sysfs::{Member, PciDevice, Sysfs};
use gpuvmk_pci::PciAddress;

/// A reason not to take a function.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// Another kind of function.
    #[error(
        "{address} is no NVIDIA GPU (vendor {vendor:#06x}, class {class:#08x}): `gpuvmk gpu list` shows those that there are"
    )]
    NoGpu {
        /// PCI address of the function.
        address: PciAddress,
        /// PCI vendor id.
        vendor: u16,
        /// Its class number.
        class: u32,
    },
    /// The firmware's display.
    #[error(
        "{0} shows the console since boot: let the firmware use another display (its set-up calls it the primary display), or \
         none, and boot again"
    )]
    BootDisplay(PciAddress),
    /// A process uses it.
    #[error("{address} is in use by {}: end these first", list(.by))]
    Held {
        /// PCI address of the function.
        address: PciAddress,
        /// The processes that use it.
        by: Vec<Holder>,
    },
    /// The function is in no IOMMU group.
    #[error(
        "{0} is in no IOMMU group, so that nothing would keep it from the host's memory: switch VT-d or AMD-Vi on in the \
         firmware's set-up, boot Intel machines with intel_iommu=on, and see `dmesg | grep -i -e DMAR -e AMD-Vi`"
    )]
    NoIommu(PciAddress),
    /// Others that the IOMMU cannot tell from it have drivers.
    #[error(
        "IOMMU group {group} of {address} has other functions with drivers: {}. Take them from these drivers (echo ADDRESS > \
         /sys/bus/pci/devices/ADDRESS/driver/unbind), or put the GPU into another slot",
        members(.others)
    )]
    GroupShared {
        /// PCI address of the function.
        address: PciAddress,
        /// Number of its IOMMU group.
        group: u32,
        /// Other functions of the group.
        others: Vec<Member>,
    },
    /// The kernel knows no way to reset it.
    #[error(
        "The kernel has no way to reset {0} (its reset_method is empty, and its bus is not its own): a VM would find what the \
         one before it left. Put it into a slot whose bridge it has for itself"
    )]
    NoReset(PciAddress),
    /// The kernel's driver for VFIO is not there.
    #[error("The kernel's driver vfio-pci is not there: modprobe vfio-pci")]
    NoVfioPci,
}

fn list(holders: &[Holder]) -> String {
    let words: Vec<_> = holders.iter().map(|holder| format!("process {holder}")).collect();
    words.join(", ")
}

fn members(others: &[Member]) -> String {
    let driver = |member: &Member| member.driver.clone().unwrap_or_else(|| "no driver".to_owned());
    let words: Vec<_> =
        others.iter().map(|member| format!("{} ({})", member.address, driver(member))).collect();
    words.join(", ")
}

/// Everything that keeps the function from being taken; nothing, if it may be.
pub fn obstacles(sysfs: &Sysfs, device: &PciDevice, holders: Vec<Holder>) -> Vec<Obstacle> {
    let address = device.address;
    if !device.is_nvidia_gpu() {
        return vec![Obstacle::NoGpu { address, vendor: device.vendor, class: device.class }];
    }
    let mut found = Vec::new();
    if device.boot_display {
        found.push(Obstacle::BootDisplay(address));
    }
    if !holders.is_empty() {
        found.push(Obstacle::Held { address, by: holders });
    }
    match &device.group {
        None => found.push(Obstacle::NoIommu(address)),
        Some(group) => {
            // The card's own functions go with it.
            let foreign = |member: &&Member| !member.is_harmless() && !device.is_sibling(&member.address);
            let others: Vec<_> = group.others.iter().filter(foreign).cloned().collect();
            if !others.is_empty() {
                found.push(Obstacle::GroupShared { address, group: group.number, others });
            }
        }
    }
    if !device.can_be_reset() {
        found.push(Obstacle::NoReset(address));
    }
    if !sysfs.driver("vfio-pci").exists() {
        found.push(Obstacle::NoVfioPci);
    }
    found
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::sysfs::tests::{FakeHost, GPU};
    use super::*;

    fn found(host: &FakeHost) -> Vec<Obstacle> {
        obstacles(&host.sysfs(), &host.device(), Vec::new())
    }

    #[test]
    fn gpu_that_may_be_taken_has_none() {
        assert_eq!(found(&FakeHost::new()), []);
    }

    #[test]
    fn each_is_found_and_says_what_to_do() {
        type Spoil = fn(&FakeHost);
        let cases: [(Spoil, &str); 6] = [
            (|host| host.write(GPU, "vendor", "0x8086\n"), "gpuvmk gpu list"),
            (|host| host.write(GPU, "boot_vga", "1\n"), "use another display"),
            (|host| host.remove(GPU, "iommu_group"), "intel_iommu=on"),
            (|host| host.add("0000:02:00.0", 0x02_0000, Some("e1000e")), "0000:02:00.0 (e1000e)"),
            (|host| host.write(GPU, "reset_method", "\n"), "reset_method is empty"),
            (|host| fs::remove_dir(host.sysfs().driver("vfio-pci")).unwrap(), "modprobe vfio-pci"),
        ];
        for (spoil, word) in cases {
            let host = FakeHost::new();
            spoil(&host);
            let found = found(&host);
            let [only] = &*found else { panic!("{word}: {found:?}") };
            assert!(only.to_string().contains(word), "{only}");
        }
    }

    #[test]
    fn the_cards_own_sound_is_none() {
        let host = FakeHost::new();
        host.add("0000:01:00.1", 0x04_0300, Some("snd_hda_intel"));
        assert_eq!(found(&host), []);
    }

    #[test]
    fn who_uses_it_is_named() {
        let host = FakeHost::new();
        let by = vec![Holder { process: 17, name: "Xorg".to_owned() }];
        let found = obstacles(&host.sysfs(), &host.device(), by);
        let [held] = &*found else { panic!("{found:?}") };
        assert_eq!(held.to_string(), "0000:01:00.0 is in use by process 17 (Xorg): end these first");
    }

    #[test]
    fn kernel_that_does_not_tell_how_it_resets_is_believed() {
        let host = FakeHost::new();
        host.remove(GPU, "reset_method");
        assert_eq!(found(&host), []);
    }
}
