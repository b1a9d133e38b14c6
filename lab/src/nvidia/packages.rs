//! Debian's packages: a kernel with its headers, the driver's source, its libraries and programs; of all that
//! what a guest boots is kept.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::{SERIES, VERSION, module};
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

const ENTRY: &str = "nvidia-driver";
/// Changes when what is kept does.
const KEPT: &str = "550.163.01, layout 1";

/// Where the driver comes from, and the components that hold it.
const SUITE: &str = "trixie";
/// Where the kernel comes from. The driver's source builds as shipped for kernels whose
/// `pci_resize_resource()` has three arguments, as this suite's 6.12 has; that of Debian 13 itself has four.
const KERNEL_SUITE: &str = "bookworm-backports";
const MORE: [(&str, &str); 3] = [(SUITE, "contrib"), (SUITE, "non-free"), (KERNEL_SUITE, "main")];
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
/// The newest kernel for which it was built; of those from 6.12.107 on, the security archive's, 6.12.115 has
/// four.
const NEWEST_TRIED: &str = "6.12.95";
/// The names of that suite's kernels of the series, and of the security archive's.
const KERNELS: &str = r"^linux-image-6\.12\.[0-9]+\+deb12-amd64-unsigned$";

/// Where libraries lie in a tree of unpacked packages, and which of them are kept.
const TREES: [&str; 2] = ["usr/lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu/nvidia/current"];
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
pub(super) fn built(cache: &Cache) -> Option<PathBuf> {
    cache.entry(ENTRY, Some(KEPT))
}

/// The same, made first if need be.
pub(super) fn obtain(cache: &Cache) -> Result<PathBuf> {
    if let Some(folder) = built(cache) {
        return Ok(folder);
    }
    let lock = cache.lock()?;
    cache.entry_or_build(&lock, ENTRY, KEPT, |folder| {
        make(cache, folder).with_context(|| format!("No guest with NVIDIA's driver {VERSION}"))
    })
}

/// The kernel of such a folder.
pub(super) fn kernel(folder: &Path) -> Result<GuestKernel> {
    let read = |name: &str| {
        let path = folder.join(name);
        fs::read_to_string(&path).with_context(|| format!("Cannot read {}", path.display()))
    };
    let modules = read(ORDER)?.lines().map(|name| folder.join(MODULES).join(name)).collect();
    let release = read(RELEASE)?.trim().to_owned();
    Ok(GuestKernel { series: SERIES, release, image: folder.join(IMAGE), modules })
}

fn make(cache: &Cache, folder: &Path) -> Result<()> {
    module::check_tools()?;
    eprintln!(
        "gpuvmk: fetching NVIDIA's driver {VERSION} and a kernel from Debian's archive (190 MB). It is in contrib and \
         non-free: the kernel modules' source is under the MIT and GPL licences, libraries and programs are NVIDIA's, \
         who allows their use and distribution as they are and nothing else (/usr/share/doc/*/copyright in them). \
         {}=off turns this off",
        super::VARIABLE
    );
    let apt = Apt::set_up_with(cache, &MORE)?;
    let version = newest(&apt.names(KERNELS)?).context("The archive has no kernel for which it builds")?;
    let (downloads, root) = (folder.join("download"), folder.join("root"));
    let kernel = [
        format!("linux-image-{version}-amd64-unsigned"),
        format!("linux-headers-{version}-amd64"),
        format!("linux-headers-{version}-common"),
        format!("linux-kbuild-{version}"),
    ];
    let driver = DRIVER.map(|package| format!("{package}/{SUITE}"));
    let wanted: Vec<&str> = kernel.iter().chain(&driver).map(String::as_str).collect();
    let packages = apt.download(&wanted, &downloads)?;
    let shipped = packages.iter().any(|path| is_of_version(path));
    ensure!(shipped, "Debian's {SUITE} has another version of the driver than {VERSION}");
    apt::unpack(&packages, &root, "NVIDIA's driver")?;
    fs::remove_dir_all(&downloads)?;

    let release = format!("{version}-amd64");
    let tree = module_tree(&root)?;
    for module in module::build(&root, &version)? {
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
fn newest(names: &[String]) -> Option<String> {
    let version =
        |name: &String| Some(name.strip_prefix("linux-image-")?.strip_suffix("-amd64-unsigned")?.to_owned());
    let fits = |version: &String| {
        let number = version.split('+').next().unwrap_or(version);
        compare_versions(number, NEWEST_TRIED).is_le()
    };
    names.iter().filter_map(version).filter(fits).max_by(|left, right| compare_versions(left, right))
}

/// Whether a package file is that of the modules' source, of our version.
fn is_of_version(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.strip_prefix(DRIVER[0])
        .and_then(|rest| rest.strip_prefix('_'))
        .is_some_and(|rest| rest.starts_with(VERSION))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_kernel_for_which_the_driver_builds_is_chosen() {
        let named = |versions: &[&str]| -> Vec<String> {
            versions.iter().map(|version| format!("linux-image-{version}-amd64-unsigned")).collect()
        };
        let names = named(&["6.12.9+deb12", "6.12.95+deb12", "6.12.115+deb12"]);
        assert_eq!(newest(&names).as_deref(), Some("6.12.95+deb12"));
        assert_eq!(newest(&named(&["6.12.115+deb12"])), None, "the driver does not build for it");
    }

    #[test]
    fn other_version_of_the_driver_is_told() {
        let of = |name: &str| is_of_version(Path::new(name));
        assert!(of("/a/nvidia-open-kernel-dkms_550.163.01-2_amd64.deb"));
        assert!(!of("/a/nvidia-open-kernel-dkms_570.1-1_amd64.deb"));
        assert!(!of("/a/libcuda1_550.163.01-2_amd64.deb"));
    }

    #[test]
    fn kernel_is_read_from_what_was_kept() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(ORDER), "nvidia.ko\nnvidia_uvm.ko\n").unwrap();
        fs::write(folder.path().join(RELEASE), "6.12.95+deb12-amd64").unwrap();
        let kernel = kernel(folder.path()).unwrap();
        assert_eq!(kernel.release, "6.12.95+deb12-amd64");
        assert!(kernel.modules[1].ends_with("modules/nvidia_uvm.ko"));
    }
}
