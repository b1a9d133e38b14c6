//! Debian's Mesa: the Vulkan loader, the NVK driver and what they are linked with, kept; the rest dropped.
//!
//! The package has a driver for processors as well (llvmpipe). Our Vulkan program is run on it once, before
//! it goes: that shows that the program fits the packages' C library, and that its checks pass where Vulkan
//! works.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::DRIVER;
use crate::apt::{self, Apt};
use crate::cache::Cache;
use crate::kernel::KernelSeries;

/// Folders of the cache's entry.
pub const LIBRARIES: &str = "lib";
/// The driver as Debian built it.
pub const STOCK: &str = "stock";
/// The file with the package's version.
const VERSION: &str = "version";

/// Which of Debian 13's Mesas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mesa {
    /// That of the release itself, which a Debian 13 as it comes has beside its own kernel.
    Release,
    /// That of its backports.
    Backports,
}

impl Mesa {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Release, Self::Backports];

    /// What a Debian with this kernel has: all from its release, or all from the backports.
    pub fn beside(kernel: KernelSeries) -> Self {
        match kernel {
            KernelSeries::V6_1 | KernelSeries::V6_12 => Self::Release,
            KernelSeries::V7_2 | KernelSeries::Newest => Self::Backports,
        }
    }

    fn suite(self) -> &'static str {
        match self {
            Self::Release => "trixie",
            Self::Backports => "trixie-backports",
        }
    }

    /// Its word in names of the cache's entries.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Release => "-trixie",
            Self::Backports => "",
        }
    }
}

const ENTRY: &str = "nvk-mesa";
const PACKAGES: [&str; 2] = ["mesa-vulkan-drivers", "libvulkan1"];
/// The Vulkan loader, which programs load at run time.
const VULKAN: &str = "libvulkan.so.1";
/// The driver for processors.
pub(super) const SOFTWARE: &str = "libvulkan_lvp.so";
/// Where libraries lie in a tree of unpacked packages.
const TREE: &str = "usr/lib/x86_64-linux-gnu";
const LOADER: &str = "ld-linux-x86-64.so.2";

/// The folder with loader, libraries and drivers, filled first if need be; `program` is tried then.
pub fn obtain(cache: &Cache, program: &Path, mesa: Mesa) -> Result<PathBuf> {
    let (entry, suite) = (format!("{ENTRY}{}", mesa.word()), mesa.suite());
    if let Some(folder) = cache.entry(&entry, None) {
        return Ok(folder);
    }
    let lock = cache.lock()?;
    cache.entry_or_build(&lock, &entry, suite, |folder| {
        let root = fetch(cache, folder, mesa)?;
        try_program(&root, program)
            .context("Our Vulkan program does not pass on Mesa's driver for processors")?;
        keep(&root, folder, DRIVER, STOCK)?;
        fs::remove_dir_all(&root).context("Cannot remove what is not needed of the packages")
    })
}

/// Fetches the packages and unpacks them below `folder`, where their version is written as well. Says where.
pub(super) fn fetch(cache: &Cache, folder: &Path, mesa: Mesa) -> Result<PathBuf> {
    let suite = mesa.suite();
    eprintln!("gpuvmk: fetching Vulkan drivers of Debian's {suite} (about 65 MB)");
    let apt = Apt::set_up(cache)?;
    let packages = apt.download_with_dependencies(&PACKAGES, suite)?;
    let version = packages.iter().find_map(|path| version_of(path));
    fs::write(folder.join(VERSION), version.context("apt fetched no package of Mesa's")?)?;
    let root = folder.join("root");
    apt::unpack(&packages, &root, "Vulkan")?;
    apt.drop_archives()?;
    Ok(root)
}

/// The version of the packages in `folder`.
pub fn version(folder: &Path) -> Result<String> {
    fs::read_to_string(folder.join(VERSION)).context("Cannot read Mesa's version")
}

/// `mesa-vulkan-drivers_26.1.6-1~bpo13+1_amd64.deb`.
fn version_of(package: &Path) -> Option<String> {
    let name = package.file_name()?.to_str()?.strip_prefix(PACKAGES[0])?;
    name.strip_prefix('_')?.split('_').next().map(str::to_owned)
}

/// Copies a driver into its own folder, and what it needs of the unpacked packages beside that.
pub(super) fn keep(root: &Path, folder: &Path, driver: &str, place: &str) -> Result<()> {
    let tree = root.join(TREE);
    for name in [LIBRARIES, place] {
        fs::create_dir_all(folder.join(name)).with_context(|| format!("Cannot create {name}"))?;
    }
    let mut names = vec![LOADER.to_owned(), VULKAN.to_owned()];
    for library in [VULKAN, driver] {
        names.extend(linked(root, &tree.join(library))?);
    }
    names.sort();
    names.dedup();
    for name in names {
        let from = tree.join(&name);
        fs::copy(&from, folder.join(LIBRARIES).join(&name))
            .with_context(|| format!("Cannot keep {}", from.display()))?;
    }
    fs::copy(tree.join(driver), folder.join(place).join(driver))
        .with_context(|| format!("Cannot keep Debian's {driver}"))?;
    Ok(())
}

/// The names of all libraries that `library` is linked with, in the end.
fn linked(root: &Path, library: &Path) -> Result<Vec<String>> {
    let output =
        by_loader(&root.join(TREE)).arg("--list").arg(library).output().context("Cannot start the loader")?;
    ensure!(
        output.status.success(),
        "The dynamic loader cannot tell what {} is linked with: {}",
        library.display(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    // "libm.so.6 => /some/where/libm.so.6 (0x...)"; the loader itself is listed by its path.
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let names = text.lines().filter_map(|line| Some(line.trim().split_once(" => ")?.0.to_owned()));
    Ok(names.filter(|name| !name.starts_with('/')).collect())
}

fn try_program(root: &Path, program: &Path) -> Result<()> {
    let tree = root.join(TREE);
    let output = on_processors(&tree, &tree.join(SOFTWARE), root, program)?
        .args(["driver=llvmpipe", "checks=transfer,compute"])
        .output()
        .context("Cannot start it")?;
    ensure!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout).trim(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

/// Our Vulkan program on the driver for processors, with the packages' libraries. `scratch` takes what tells
/// the Vulkan loader where the driver lies.
pub(super) fn on_processors(
    libraries: &Path,
    driver: &Path,
    scratch: &Path,
    program: &Path,
) -> Result<Command> {
    let manifest = scratch.join("software.json");
    let icd = serde_json::json!({
        "file_format_version": "1.0.1",
        "ICD": { "api_version": "1.4.0", "library_path": driver },
    });
    fs::write(&manifest, icd.to_string()).with_context(|| format!("Cannot write {}", manifest.display()))?;
    let mut command = by_loader(libraries);
    command.arg(program).env("VK_DRIVER_FILES", manifest).env("MESA_SHADER_CACHE_DISABLE", "true");
    Ok(command)
}

/// The packages' own dynamic loader, with their libraries.
fn by_loader(libraries: &Path) -> Command {
    let mut command = Command::new(libraries.join(LOADER));
    command.arg("--library-path").arg(libraries).stdin(Stdio::null());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_in_the_name_of_the_drivers_package() {
        let path = Path::new("/a/mesa-vulkan-drivers_26.1.6-1~bpo13+1_amd64.deb");
        assert_eq!(version_of(path).as_deref(), Some("26.1.6-1~bpo13+1"));
        assert_eq!(version_of(Path::new("/a/libvulkan1_1.4.309.0-1_amd64.deb")), None);
    }
}
