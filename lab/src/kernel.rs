//! Stock guest kernels from Debian's packages: the kernel image, and nouveau with the modules it needs.
//!
//! Of each series the newest version that Debian's archive has: 6.1 (Debian 12), 6.12 (Debian 13), 7.2 (its
//! backports), and whatever is newest in those backports. Of each package only what a test guest boots is
//! kept: the image, and the modules that a role of a guest needs with all that they depend on, unpacked.
//! [`packages`] knows how Debian names and splits them.

mod packages;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};

use crate::apt::{self, Apt};
use crate::cache::Cache;
use crate::modules;
use packages::Packages;

/// A kernel series that guests run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KernelSeries {
    /// Debian 12.
    V6_1,
    /// Debian 13.
    V6_12,
    /// Debian 13 with backports, at a series that figures and recordings were made with. Where the archive
    /// has it no more, the newest kernel takes its place.
    V7_2,
    /// The newest that Debian 13's backports have, of whatever series.
    Newest,
}

impl KernelSeries {
    /// All series, oldest first.
    pub const ALL: [Self; 4] = [Self::V6_1, Self::V6_12, Self::V7_2, Self::Newest];

    /// Those that are named by a number, so that what is recorded with them stays comparable.
    pub const NUMBERED: [Self; 3] = [Self::V6_1, Self::V6_12, Self::V7_2];

    /// The series as a user writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
            Self::V7_2 => "7.2",
            Self::Newest => "newest",
        }
    }

    /// The version of GSP firmware that its nouveau takes where there are all: the first of `*_gsps[]` in
    /// drivers/gpu/drm/nouveau/nvkm/subdev/gsp. None: it drives no chip by firmware.
    pub fn gsp_firmware(self) -> Option<&'static str> {
        match self {
            Self::V6_1 => None,
            Self::V6_12 => Some("535.113.01"),
            Self::V7_2 | Self::Newest => Some("570.144"),
        }
    }

    /// Processors of a guest whose processes sleep for fences. nouveau before Linux 6.2 forgets such a
    /// sleeper now and then if there are several: a process that falls asleep on one of them, while the
    /// interrupt handler on another has just woken up the channel's last sleeper, is not noted among those
    /// who want to be told (`nvif_notify`).
    pub fn processors(self) -> u32 {
        if self == Self::V6_1 { 1 } else { 2 }
    }
}

impl fmt::Display for KernelSeries {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for KernelSeries {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        match Self::ALL.into_iter().find(|series| series.name() == text) {
            Some(series) => Ok(series),
            None => bail!("No guest kernel '{text}': there are {}", Self::ALL.map(Self::name).join(", ")),
        }
    }
}

/// What is kept of a kernel's packages: another name has folders that were made before fetched again.
const KEPT: &str = "modules of five roles";

/// What a kernel is to be able to do: the modules that are kept of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Drive a GPU.
    Nouveau,
    /// Drive a GPU, with a virtio disk as its root.
    NouveauWithDisk,
    /// Drive a GPU, with a network card and folders of its host's.
    NouveauWithNetwork,
    /// Have guests of its own on AMD's virtualisation.
    Host,
    /// The same, with a card that it gives away through VFIO.
    CardHost,
    /// Give a card away that its own drivers have.
    CardOwner,
}

impl Role {
    /// Most roles: what is kept of a package serves each, so that none is fetched twice.
    const ALL: [Self; 5] =
        [Self::Nouveau, Self::NouveauWithDisk, Self::Host, Self::CardHost, Self::CardOwner];

    /// What is kept for it, and for which others: its entry of the cache, and its mark.
    fn kept(self, series: KernelSeries) -> (String, &'static str) {
        match self {
            // One test's alone: nobody else's kernels are fetched anew for it.
            Self::NouveauWithNetwork => {
                (format!("{}-network", entry(series)), "modules of a network and folders")
            }
            _ => (entry(series), KEPT),
        }
    }

    /// The modules, the most wanted one last.
    const fn modules(self) -> &'static [&'static str] {
        match self {
            Self::Nouveau => &["nouveau"],
            Self::NouveauWithDisk => &["virtio_blk", "ext4", "nouveau"],
            Self::NouveauWithNetwork => &["virtio_net", "nouveau"],
            Self::Host => &["kvm_amd"],
            Self::CardHost => &["kvm_amd", "vfio_iommu_type1", "vfio_pci"],
            Self::CardOwner => &["vfio_iommu_type1", "vfio_pci", "nouveau"],
        }
    }

    /// Modules that some series have and need, without naming them as what they depend on.
    const fn optional(self) -> &'static [&'static str] {
        match self {
            // Built into some; and ext4 asks the kernel for a checksum by its name.
            Self::NouveauWithDisk => &["virtio_pci", "crc32c_generic"],
            Self::CardOwner => &["virtio_pci"],
            Self::NouveauWithNetwork => &["virtio_pci", "virtiofs"],
            Self::Nouveau | Self::Host | Self::CardHost => &[],
        }
    }

    /// The file that lists its modules, in a kernel's folder.
    const fn list(self) -> &'static str {
        match self {
            Self::Nouveau => "order",
            Self::NouveauWithDisk => "order-disk",
            Self::NouveauWithNetwork => "order-network",
            Self::Host => "order-host",
            Self::CardHost => "order-card",
            Self::CardOwner => "order-owner",
        }
    }
}

/// A kernel ready to boot.
#[derive(Debug, Clone)]
pub struct GuestKernel {
    /// Which series it belongs to.
    pub series: KernelSeries,
    /// Its full version, such as `6.12.107+deb13-amd64`.
    pub release: String,
    /// The kernel image.
    pub image: PathBuf,
    /// Module files in the order in which they must be loaded; the one that is wanted is the last.
    pub modules: Vec<PathBuf>,
}

/// What the archive has of a series, against what is in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Freshness {
    /// The cache has the archive's newest.
    Newest,
    /// It had an older one, which was replaced.
    Replaced {
        /// What the cache had.
        before: String,
    },
    /// The archive has none of this series any more; what is in the cache is used on.
    NotInArchive,
}

impl GuestKernel {
    /// Whether it is of the series that its name says: of a series that the archive has no more, another is
    /// taken.
    pub fn is_of_its_series(&self) -> bool {
        let rest = self.release.strip_prefix(self.series.name());
        self.series == KernelSeries::Newest || rest.is_some_and(|rest| rest.starts_with('.'))
    }

    /// Brings the cache up to what the archive has now.
    pub fn refresh(cache: &Cache, apt: &Apt, series: KernelSeries) -> Result<(Self, Freshness)> {
        let here = Self::obtain(cache, series)?;
        let Some(there) = Packages::choose(series, &apt.names(Packages::PATTERN)?) else {
            return Ok((here, Freshness::NotInArchive));
        };
        if there.release_of(&here.release) || !there.newer_than(&here.release) {
            return Ok((here, Freshness::Newest));
        }
        let lock = cache.lock()?;
        let all = &Role::ALL;
        cache
            .replace(&lock, entry(series), KEPT, |folder| fetch_packages(apt, series, &there, all, folder))?;
        Ok((Self::obtain(cache, series)?, Freshness::Replaced { before: here.release }))
    }

    /// The kernel with nouveau from the cache, fetched first if need be.
    pub fn obtain(cache: &Cache, series: KernelSeries) -> Result<Self> {
        Self::obtain_for(cache, series, Role::Nouveau)
    }

    /// The kernel with the modules of a role, from the cache, fetched first if need be.
    pub fn obtain_for(cache: &Cache, series: KernelSeries, role: Role) -> Result<Self> {
        let (name, kept) = role.kept(series);
        let folder = match cache.entry(&name, Some(kept)) {
            Some(folder) => folder,
            None => {
                let lock = cache.lock()?;
                let alone = [role];
                let roles: &[Role] = if Role::ALL.contains(&role) { &Role::ALL } else { &alone };
                cache.entry_or_build(&lock, &name, kept, |folder| {
                    fetch(cache, series, roles, folder)
                        .with_context(|| format!("Cannot fetch the guest kernel {series}"))
                })?
            }
        };
        Self::from_folder(series, role, &folder)
            .with_context(|| format!("{} is damaged: remove that folder and try again", folder.display()))
    }

    fn from_folder(series: KernelSeries, role: Role, folder: &Path) -> Result<Self> {
        let release = fs::read_to_string(folder.join("release"))?.trim().to_owned();
        let order = fs::read_to_string(folder.join(role.list()))?;
        let modules = order.lines().map(|name| folder.join("modules").join(name)).collect();
        Ok(Self { series, release, image: folder.join("vmlinuz"), modules })
    }
}

/// A series' entry of the cache.
fn entry(series: KernelSeries) -> String {
    format!("kernel-{series}")
}

fn fetch(cache: &Cache, series: KernelSeries, roles: &[Role], folder: &Path) -> Result<()> {
    let apt = Apt::set_up(cache)?;
    let names = apt.names(Packages::PATTERN)?;
    let packages = match Packages::choose(series, &names) {
        Some(packages) => packages,
        None => {
            let newest = Packages::choose(KernelSeries::Newest, &names)
                .context("Debian's package lists have no kernel that is known to be one")?;
            ensure!(series == KernelSeries::V7_2, "Debian's package lists have no kernel {series}");
            eprintln!(
                "gpuvmk: the archive has no kernel {series} any more: {} takes its place",
                newest.version()
            );
            newest
        }
    };
    fetch_packages(&apt, series, &packages, roles, folder)
}

fn fetch_packages(
    apt: &Apt,
    series: KernelSeries,
    packages: &Packages,
    roles: &[Role],
    folder: &Path,
) -> Result<()> {
    eprintln!("gpuvmk: fetching the guest kernel {series}: {} (70 to 170 MB)", packages.version());
    let names: Vec<&str> = packages.names().iter().map(String::as_str).collect();
    let downloads = folder.join("download");
    let packages = apt.download(&names, &downloads)?;
    let root = folder.join("root");
    apt::unpack(&packages, &root, &format!("the kernel {series}"))?;

    let tree = module_tree(&root)?;
    let release = tree.file_name().context("The module folder has no name")?.to_string_lossy().into_owned();
    let image = [tree.join("vmlinuz"), root.join("boot").join(format!("vmlinuz-{release}"))]
        .into_iter()
        .find(|path| path.is_file())
        .with_context(|| format!("The packages {} hold no kernel image {release}", names.join(", ")))?;
    fs::copy(&image, folder.join("vmlinuz")).context("Cannot keep the kernel image")?;

    let kept = folder.join("modules");
    fs::create_dir_all(&kept)?;
    for role in roles {
        let mut order = String::new();
        for module in modules::closure(&tree, role.modules(), role.optional())? {
            let name = format!("{}.ko", module.name);
            fs::write(kept.join(&name), &module.image)
                .with_context(|| format!("Cannot keep the module {name}"))?;
            order.push_str(&name);
            order.push('\n');
        }
        fs::write(folder.join(role.list()), order)?;
    }
    fs::write(folder.join("release"), release)?;
    fs::remove_dir_all(&root)?;
    fs::remove_dir_all(&downloads)?;
    Ok(())
}

/// The one folder below `lib/modules` (6.1) or `usr/lib/modules` (later kernels) that has a `kernel` folder.
pub(crate) fn module_tree(root: &Path) -> Result<PathBuf> {
    ["usr/lib/modules", "lib/modules"]
        .into_iter()
        .flat_map(|place| fs::read_dir(root.join(place)).into_iter().flatten().flatten())
        .map(|entry| entry.path())
        .find(|path| path.join("kernel").is_dir())
        .context("The kernel packages hold no modules")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_parses_from_the_name_it_prints() {
        for series in KernelSeries::ALL {
            assert_eq!(series.to_string().parse::<KernelSeries>().unwrap(), series);
        }
    }

    #[test]
    fn unknown_series_is_refused_with_what_there_is() {
        let message = "5.10".parse::<KernelSeries>().unwrap_err().to_string();
        assert!(message.contains("5.10") && message.contains("6.1, 6.12, 7.2, newest"), "{message}");
    }

    #[test]
    fn kernel_that_stands_in_for_another_series_is_told_from_one_of_its_own() {
        let of = |series, release: &str| GuestKernel {
            series,
            release: release.into(),
            image: PathBuf::new(),
            modules: Vec::new(),
        };
        assert!(of(KernelSeries::V7_2, "7.2.12+deb13-amd64").is_of_its_series());
        assert!(!of(KernelSeries::V7_2, "7.20.1+deb13-amd64").is_of_its_series());
        assert!(!of(KernelSeries::V7_2, "7.3.4+deb13-amd64").is_of_its_series());
        assert!(of(KernelSeries::V6_1, "6.1.0-56-amd64").is_of_its_series());
        assert!(of(KernelSeries::Newest, "7.3.4+deb13-amd64").is_of_its_series());
    }
}
