//! Debian's packages: a kernel with its headers, the driver's source, its libraries and programs; of all that
//! what a guest boots is kept.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::{Release, module};
use crate::apt::{self, Apt, compare_versions};
use crate::cache::Cache;
use crate::kernel::{GuestKernel, module_tree};
use crate::modules;

/// Folders of the cache's entry: as they are called in the guest.
pub(super) const LIBRARIES: &str = "lib";
pub(super) const PROGRAMS: &str = "bin";
/// The kernel modules, a file with their names in load order, the kernel's release, and the kernel.
const MODULES: &str = "modules";
const ORDER: &str = "order";
const RELEASE: &str = "release";
const IMAGE: &str = "vmlinuz";

/// Components that hold the driver.
const COMPONENTS: [&str; 2] = ["contrib", "non-free"];
/// The driver, and the C library that it runs with.
const DRIVER: [&str; 7] = [
    "nvidia-open-kernel-dkms",
    "libcuda1",
    "libnvidia-ml1",
    "libnvidia-ptxjitcompiler1",
    "nvidia-smi",
    "libc6",
    "libgcc-s1",
];
/// Where libraries lie in a tree of unpacked packages, and which of them are kept.
const TREES: [&str; 3] =
    ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu/nvidia/current"];
const KEPT_LIBRARIES: [&str; 9] = [
    "ld-linux-x86-64.so.2",
    "libc.so.6",
    "libm.so.6",
    "libdl.so.2",
    "libpthread.so.0",
    "librt.so.1",
    "libgcc_s.so.1",
    "libcuda.so.1",
    "libnvidia-ml.so.1",
];
/// The compiler of CUDA's intermediate code, which libcuda loads by its name.
const COMPILER: &str = "libnvidia-ptxjitcompiler.so.1";
const SMI: &str = "usr/lib/nvidia/current/nvidia-smi";

/// What a guest boots, if it is there.
pub(super) fn built(cache: &Cache, release: &Release) -> Option<PathBuf> {
    cache.entry(release.entry, Some(release.kept))
}

/// The same, made first if need be.
pub(super) fn obtain(cache: &Cache, release: &Release) -> Result<PathBuf> {
    if let Some(folder) = built(cache, release) {
        return Ok(folder);
    }
    let lock = cache.lock()?;
    cache.entry_or_build(&lock, release.entry, release.kept, |folder| {
        make(cache, release, folder)
            .with_context(|| format!("No guest with NVIDIA's driver {}", release.version))
    })
}

/// The kernel of such a folder.
pub(super) fn kernel(release: &Release, folder: &Path) -> Result<GuestKernel> {
    let read = |name: &str| {
        let path = folder.join(name);
        fs::read_to_string(&path).with_context(|| format!("Cannot read {}", path.display()))
    };
    let modules = read(ORDER)?.lines().map(|name| folder.join(MODULES).join(name)).collect();
    let name = read(RELEASE)?.trim().to_owned();
    Ok(GuestKernel { series: release.series, release: name, image: folder.join(IMAGE), modules })
}

fn make(cache: &Cache, of: &Release, folder: &Path) -> Result<()> {
    module::check_tools()?;
    eprintln!(
        "gpuvmk: fetching NVIDIA's driver {} and a kernel from Debian's archive ({} MB). It is in contrib and \
         non-free: the kernel modules' source is under the MIT and GPL licences, libraries and programs are NVIDIA's, \
         who allows their use and distribution as they are and nothing else (/usr/share/doc/*/copyright in them). \
         {}=off turns this off",
        of.version,
        of.megabytes,
        super::VARIABLE
    );
    let more: Vec<_> = COMPONENTS
        .iter()
        .map(|component| (of.suite, *component))
        .chain(of.kernel_suite.map(|suite| (suite, "main")))
        .collect();
    let apt = Apt::set_up_with(cache, &more)?;
    let version = newest(&apt.names(of.kernels)?, of.newest_kernel)
        .context("The archive has no kernel for which it builds")?;
    let (downloads, root) = (folder.join("download"), folder.join("root"));
    let kernel = [
        format!("linux-image-{version}-amd64-unsigned"),
        format!("linux-headers-{version}-amd64"),
        format!("linux-headers-{version}-common"),
        of.kbuild.map_or_else(|| format!("linux-kbuild-{version}"), str::to_owned),
    ];
    let driver = DRIVER.map(|package| format!("{package}/{}", of.suite));
    let wanted: Vec<&str> = kernel.iter().chain(&driver).map(String::as_str).collect();
    let packages = apt.download(&wanted, &downloads)?;
    let shipped = packages.iter().any(|path| is_of_version(path, of.version));
    ensure!(shipped, "Debian's {} has another version of the driver than {}", of.suite, of.version);
    apt::unpack(&packages, &root, "NVIDIA's driver")?;
    fs::remove_dir_all(&downloads)?;

    let release = format!("{version}-amd64");
    let tree = module_tree(&root)?;
    for module in module::build(&root, of.version, &version)? {
        let name = module.file_name().context("a module has no name")?;
        fs::copy(&module, tree.join("kernel").join(name)).context("Cannot keep a module")?;
    }
    fs::create_dir_all(folder.join(MODULES))?;
    let mut order = String::new();
    for module in modules::closure(&tree, &["nvidia-uvm"], &[])? {
        let name = format!("{}.ko", module.name);
        fs::write(folder.join(MODULES).join(&name), &module.image)
            .with_context(|| format!("Cannot keep the module {name}"))?;
        order.push_str(&name);
        order.push('\n');
    }
    fs::write(folder.join(ORDER), order)?;
    fs::write(folder.join(RELEASE), &release)?;
    fs::copy(root.join("boot").join(format!("vmlinuz-{release}")), folder.join(IMAGE))
        .context("Cannot keep the kernel")?;
    keep(&root, folder)?;
    fs::remove_dir_all(&root).context("Cannot remove what is not needed of the packages")
}

/// Keeps libraries and programs.
fn keep(root: &Path, folder: &Path) -> Result<()> {
    for place in [LIBRARIES, PROGRAMS] {
        fs::create_dir_all(folder.join(place))?;
    }
    for name in KEPT_LIBRARIES.into_iter().chain([COMPILER]) {
        let from = TREES.iter().map(|tree| root.join(tree).join(name)).find(|path| path.is_file());
        let from = from.with_context(|| format!("The packages have no {name}"))?;
        fs::copy(&from, folder.join(LIBRARIES).join(name)).with_context(|| format!("Cannot keep {name}"))?;
    }
    fs::copy(root.join(SMI), folder.join(PROGRAMS).join("nvidia-smi")).context("Cannot keep nvidia-smi")?;
    Ok(())
}

/// The version of the newest kernel among these packages for which the driver builds, such as
/// `6.12.95+deb12`.
fn newest(names: &[String], newest_tried: &str) -> Option<String> {
    let version =
        |name: &String| Some(name.strip_prefix("linux-image-")?.strip_suffix("-amd64-unsigned")?.to_owned());
    let fits = |version: &String| {
        let number = version.split('+').next().unwrap_or(version);
        compare_versions(number, newest_tried).is_le()
    };
    names.iter().filter_map(version).filter(fits).max_by(|left, right| compare_versions(left, right))
}

/// Whether a package file is that of the modules' source, of this version.
fn is_of_version(path: &Path, version: &str) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.strip_prefix(DRIVER[0])
        .and_then(|rest| rest.strip_prefix('_'))
        .is_some_and(|rest| rest.starts_with(version))
}

#[cfg(test)]
mod tests {
    use super::super::RELEASES;
    use super::*;

    #[test]
    fn newest_kernel_for_which_the_driver_builds_is_chosen() {
        let named = |versions: &[&str]| -> Vec<String> {
            versions.iter().map(|version| format!("linux-image-{version}-amd64-unsigned")).collect()
        };
        let names = named(&["6.12.9+deb12", "6.12.95+deb12", "6.12.115+deb12"]);
        assert_eq!(newest(&names, "6.12.95").as_deref(), Some("6.12.95+deb12"));
        assert_eq!(newest(&named(&["6.12.115+deb12"]), "6.12.95"), None, "the driver does not build for it");
        let names = named(&["6.1.0-9", "6.1.0-47", "6.1.0-50", "6.1.0-57"]);
        assert_eq!(newest(&names, "6.1.0-50").as_deref(), Some("6.1.0-50"));
    }

    #[test]
    fn other_version_of_the_driver_is_told() {
        let of = |name: &str| is_of_version(Path::new(name), "550.163.01");
        assert!(of("/a/nvidia-open-kernel-dkms_550.163.01-2_amd64.deb"));
        assert!(!of("/a/nvidia-open-kernel-dkms_570.1-1_amd64.deb"));
        assert!(!of("/a/libcuda1_550.163.01-2_amd64.deb"));
    }

    #[test]
    fn kernel_is_read_from_what_was_kept() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(ORDER), "nvidia.ko\nnvidia_uvm.ko\n").unwrap();
        fs::write(folder.path().join(RELEASE), "6.12.95+deb12-amd64").unwrap();
        let [usual, _] = RELEASES;
        let kernel = kernel(usual, folder.path()).unwrap();
        assert_eq!((kernel.release.as_str(), kernel.series), ("6.12.95+deb12-amd64", usual.series));
        assert!(kernel.modules[1].ends_with("modules/nvidia_uvm.ko"));
    }
}
