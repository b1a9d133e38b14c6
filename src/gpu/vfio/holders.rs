//! Which processes have a GPU open through its present kernel driver.
//!
//! Taking a function from its driver while a process uses it breaks that process, and with some drivers the
//! whole kernel: NVIDIA's waits for ever, holding the bus's lock.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::makedev;

use super::sysfs::{PciDevice, Sysfs};
use gpuvmk_ordered::OrderedSet;

/// Major number of the nodes of NVIDIA's driver.
const NVIDIA_MAJOR: u32 = 195;

/// A process that has a node open.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    /// Id of the process.
    pub process: u32,
    /// Name of the process.
    pub name: String,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.process, self.name)
    }
}

/// Processes that have a node of the function's driver open. Those of other users are seen by root only.
pub fn holders(sysfs: &Sysfs, device: &PciDevice) -> Vec<Holder> {
    let nodes = nodes(sysfs, device);
    if nodes.is_empty() {
        return Vec::new();
    }
    let processes = fs::read_dir(sysfs.root().join("proc")).into_iter().flatten().flatten();
    let mut found: Vec<Holder> = processes
        .filter_map(|entry| {
            let process = entry.file_name().to_string_lossy().parse().ok()?;
            let holds = has_open(&entry.path(), &nodes);
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default().trim().to_owned();
            holds.then_some(Holder { process, name })
        })
        .collect();
    found.sort();
    found
}

fn has_open(process: &Path, nodes: &OrderedSet<u64>) -> bool {
    let descriptors = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    // The link leads to the open file, whatever its path names by now.
    descriptors.flat_map(|entry| fs::metadata(entry.path())).any(|file| nodes.contains(&file.rdev()))
}

/// Numbers of the device nodes that belong to the function.
fn nodes(sysfs: &Sysfs, device: &PciDevice) -> OrderedSet<u64> {
    let drm = numbers_in(&device.folder.join("drm"));
    // A sound card's folder has one for each of its nodes.
    let entries = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten();
    let cards = device.siblings().flat_map(|sibling| entries(&sibling.folder.join("sound")));
    let sound = cards.flat_map(|card| numbers_in(&card.path()));
    let information = format!("proc/driver/nvidia/gpus/{}/information", device.address);
    let information = fs::read_to_string(sysfs.root().join(information)).unwrap_or_default();
    let minor = information.lines().find_map(|line| line.strip_prefix("Device Minor:")?.trim().parse().ok());
    let vfio = [
        device.group.as_ref().map(|group| group.number.to_string()),
        device.cdev.as_ref().map(|name| format!("devices/{name}")),
    ];
    let vfio = vfio.into_iter().flatten().filter_map(|name| {
        let node = sysfs.root().join("dev/vfio").join(name);
        Some(fs::metadata(node).ok()?.rdev()).filter(|number| *number != 0)
    });
    drm.into_iter().chain(sound).chain(vfio).chain(minor.map(|minor| makedev(NVIDIA_MAJOR, minor))).collect()
}

/// Numbers of the nodes that have a folder each in `folder`.
fn numbers_in(folder: &Path) -> Vec<u64> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| {
        let text = fs::read_to_string(entry.path().join("dev")).ok()?;
        let (major, minor) = text.trim().split_once(':')?;
        Some(makedev(major.parse().ok()?, minor.parse().ok()?))
    });
    numbers.collect()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::symlink;

    use super::super::sysfs::tests::FakeHost;
    use super::*;

    #[test]
    fn process_with_an_open_node_is_found() {
        let host = FakeHost::new();
        let (sysfs, device) = (host.sysfs(), host.device());
        let node = File::open("/dev/null").unwrap();
        let drm = device.folder.join("drm/card0");
        fs::create_dir_all(&drm).unwrap();
        // `/dev/null` stands in for the card's node.
        fs::write(drm.join("dev"), "1:3\n").unwrap();
        for (process, comm, open) in [(17, "Xorg", true), (18, "sh", false)] {
            let folder = sysfs.root().join(format!("proc/{process}"));
            fs::create_dir_all(folder.join("fd")).unwrap();
            fs::write(folder.join("comm"), format!("{comm}\n")).unwrap();
            if open {
                symlink(format!("/proc/self/fd/{}", node.as_raw_fd()), folder.join("fd/5")).unwrap();
            }
        }

        let found = holders(&sysfs, &device);

        assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), ["17 (Xorg)"]);
    }

    #[test]
    fn function_without_nodes_is_held_by_nobody() {
        let host = FakeHost::new();
        assert_eq!(holders(&host.sysfs(), &host.device()), []);
    }
}
