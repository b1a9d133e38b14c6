//! An outer kernel of our own configuration, built from Debian's source: it has iommufd, which Debian's
//! kernels lack.
//!
//! Tools that few machines have are fetched and not installed; a C compiler, make, Perl and xz must be there.
//! The build takes some minutes and 2 GB, and is done once.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::apt::{self, Apt};
use crate::cache::Cache;
use crate::kernel::{GuestKernel, KernelSeries};

/// The configuration, beside what Linux calls `tinyconfig`.
const CONFIG: &str = include_str!("own_kernel/config");
/// The cache's entry.
const ENTRY: &str = "kernel-own";
const SERIES: KernelSeries = KernelSeries::V6_12;
const SOURCE: &str = "linux-source-6.12";
/// What is fetched to build it, from Debian 12: its programs run on that and on everything newer.
const SUITE: &str = "bookworm";
const TOOLS: [&str; 11] = [
    "bc",
    "bison",
    "flex",
    "libelf-dev",
    "libelf1",
    "libreadline8",
    "libsigsegv2",
    "libtinfo6",
    "m4",
    "zlib1g",
    "zlib1g-dev",
];
/// What must be there, and the package that has it.
const DEMANDED: [(&str, &str); 5] =
    [("gcc", "gcc"), ("make", "make"), ("perl", "perl"), ("tar", "tar"), ("xz", "xz-utils")];

/// The kernel, from the cache, built first if need be.
///
/// # Errors
/// Something is missing, or the build fails; its log is shown.
pub fn obtain(cache: &Cache) -> Result<GuestKernel> {
    let folder = match cache.entry(ENTRY, Some(CONFIG)) {
        Some(folder) => folder,
        None => {
            let lock = cache.lock()?;
            cache.entry_or_build(&lock, ENTRY, CONFIG, |folder| {
                build(cache, folder).context("Cannot build a kernel with iommufd")
            })?
        }
    };
    let release = fs::read_to_string(folder.join("release"))
        .with_context(|| format!("{} is damaged: remove that folder", folder.display()))?;
    Ok(GuestKernel { series: SERIES, release, image: folder.join("vmlinuz"), modules: Vec::new() })
}

fn build(cache: &Cache, folder: &Path) -> Result<()> {
    for (program, package) in DEMANDED {
        ensure!(apt::on_path(program), "'{program}' is not on this machine: apt-get install {package}");
    }
    eprintln!("gpuvmk: fetching Linux's source (153 MB), to build a kernel with iommufd");
    let apt = Apt::set_up(cache)?;
    let downloads = folder.join("download");
    let tools = TOOLS.map(|tool| format!("{tool}/{SUITE}"));
    let root = folder.join("tools");
    apt::unpack(&apt.download(&tools.each_ref().map(String::as_str), &downloads)?, &root, "build tools")?;
    // A link to a place outside; the linker takes the archive beside it then.
    fs::remove_file(root.join("usr/lib/x86_64-linux-gnu/libz.so")).context("Cannot remove a link")?;
    fs::remove_dir_all(&downloads)?;
    apt::unpack(&apt.download(&[SOURCE], &downloads)?, folder, "Linux's source")?;
    fs::remove_dir_all(&downloads)?;

    let archive = folder.join("usr/src").join(format!("{SOURCE}.tar.xz"));
    step(Command::new("tar").arg("-xJf").arg(&archive).current_dir(folder))?;
    let tree = folder.join(SOURCE);
    fs::write(tree.join("own.config"), CONFIG)?;
    let make = |arguments: &[&str]| -> Result<()> {
        let mut command = Command::new("make");
        step(with_tools(command.arg("-s").args(arguments), &root)?.current_dir(&tree))
    };
    make(&["tinyconfig"])?;
    let mut merge = Command::new("scripts/kconfig/merge_config.sh");
    step(with_tools(merge.args(["-m", ".config", "own.config"]), &root)?.current_dir(&tree))?;
    make(&["olddefconfig"])?;
    missing(&fs::read_to_string(tree.join(".config"))?)?;
    eprintln!("gpuvmk: building it (5 minutes on two processors)");
    let jobs = std::thread::available_parallelism().map_or(1, |count| count.get());
    make(&[&format!("-j{jobs}"), "bzImage"])?;
    fs::copy(tree.join("arch/x86/boot/bzImage"), folder.join("vmlinuz")).context("Cannot keep the kernel")?;
    let release = fs::read_to_string(tree.join("include/config/kernel.release"))?;
    fs::write(folder.join("release"), release.trim())?;
    for done in [tree, root, folder.join("usr")] {
        fs::remove_dir_all(&done).with_context(|| format!("Cannot remove {}", done.display()))?;
    }
    Ok(())
}

/// An error if the kernel's own rules have left out something of the configuration.
fn missing(made: &str) -> Result<()> {
    let made: Vec<_> = made.lines().collect();
    let wanted = CONFIG.lines().filter(|line| line.starts_with("CONFIG_") && !line.ends_with("=n"));
    let missing: Vec<_> = wanted.filter(|line| !made.contains(line)).collect();
    ensure!(missing.is_empty(), "Linux's configuration does not take {}", missing.join(", "));
    Ok(())
}

/// Has a command find the tools.
fn with_tools<'a>(command: &'a mut Command, root: &Path) -> Result<&'a mut Command> {
    let folder = |path: &str| root.join(path);
    let library = "usr/lib/x86_64-linux-gnu";
    let joined =
        |paths: &[PathBuf]| env::join_paths(paths).context("the cache's folder has a colon in its name");
    let path = env::var_os("PATH").unwrap_or_default();
    let programs: Vec<_> = std::iter::once(folder("usr/bin")).chain(env::split_paths(&path)).collect();
    let variables: [(&str, OsString); 6] = [
        ("PATH", joined(&programs)?),
        ("M4", folder("usr/bin/m4").into()),
        ("BISON_PKGDATADIR", folder("usr/share/bison").into()),
        ("C_INCLUDE_PATH", joined(&[folder("usr/include"), folder("usr/include/x86_64-linux-gnu")])?),
        ("LIBRARY_PATH", folder(library).into()),
        ("LD_LIBRARY_PATH", joined(&[folder(library), folder("lib/x86_64-linux-gnu")])?),
    ];
    Ok(command.envs(variables))
}

/// Runs a command; what it said, if it fails.
fn step(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("Cannot start {name}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name} failed: {}\n{said}", output.status);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_that_was_taken_has_nothing_missing() {
        missing(CONFIG).unwrap();
    }

    #[test]
    fn option_that_was_left_out_is_named() {
        let without = CONFIG.replace("CONFIG_IOMMUFD=y", "# CONFIG_IOMMUFD is not set");
        assert!(missing(&without).unwrap_err().to_string().contains("CONFIG_IOMMUFD=y"));
    }
}
