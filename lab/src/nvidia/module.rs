//! Builds the driver's kernel modules as a user would: by the package's own Makefile, against the headers of
//! Debian's kernel.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::apt;

/// What must be there, and the package that has it.
const DEMANDED: [(&str, &str); 4] = [("gcc", "gcc"), ("make", "make"), ("ld", "binutils"), ("awk", "mawk")];
/// The compiler that the kernel was built with.
const COMPILER: &str = "gcc-12";
/// Where sources lie in a tree of unpacked packages.
const SOURCES: &str = "usr/src";
/// Those of the modules that a guest without a screen loads.
const MODULES: [&str; 2] = ["nvidia.ko", "nvidia-uvm.ko"];
const LEFT_OUT: &str = "nvidia-drm nvidia-modeset nvidia-peermem";

/// An error that names what this machine lacks.
pub(super) fn check_tools() -> Result<()> {
    for (program, package) in DEMANDED {
        ensure!(apt::on_path(program), "'{program}' is not on this machine: apt-get install {package}");
    }
    Ok(())
}

/// The modules of the driver `driver` for the kernel `version`, whose headers are below `root` with the
/// source.
pub(super) fn build(root: &Path, driver: &str, version: &str) -> Result<Vec<PathBuf>> {
    let sources = root.join(SOURCES);
    let [output, common] =
        ["amd64", "common"].map(|part| sources.join(format!("linux-headers-{version}-{part}")));
    let tree = sources.join(format!("nvidia-current-open-{driver}"));
    relocate(&output.join("Makefile"), &sources)?;
    eprintln!("gpuvmk: building NVIDIA's kernel modules (3 minutes on two processors)");
    let variable = |name: &str, value: &Path| {
        let mut word = OsString::from(format!("{name}="));
        word.push(value);
        word
    };
    let jobs = std::thread::available_parallelism().map_or(1, |count| count.get());
    let log = root.join("build.log");
    let mut command = Command::new("make");
    command
        .current_dir(&tree)
        .args([&format!("-j{jobs}"), "modules"])
        .args([variable("SYSSRC", &common), variable("SYSOUT", &output)])
        .arg(format!("KERNEL_UNAME={version}-amd64"))
        .arg(format!("NV_EXCLUDE_KERNEL_MODULES={LEFT_OUT}"))
        // Type information for tracers, which needs one more tool.
        .arg("CONFIG_DEBUG_INFO_BTF_MODULES=")
        // What debuggers read is stripped below.
        .arg("KCFLAGS=-g0")
        .env_remove("MAKEFLAGS")
        .stdin(Stdio::null())
        .stdout(fs::File::create(&log).with_context(|| format!("Cannot create {}", log.display()))?)
        .stderr(fs::OpenOptions::new().append(true).open(&log)?);
    if !apt::on_path(COMPILER) {
        command.arg("CC=gcc");
    }
    let status = command.status().context("Cannot start make")?;
    if !status.success() {
        let said = fs::read_to_string(&log).unwrap_or_default();
        let last: Vec<_> = said.lines().rev().take(30).collect();
        let last: Vec<_> = last.into_iter().rev().collect();
        anyhow::bail!("NVIDIA's kernel modules do not build: make ended with {status}\n{}", last.join("\n"));
    }
    let built = MODULES.map(|name| tree.join(name));
    for module in &built {
        // Else they would take 300 MB of a guest's memory.
        let status = Command::new("strip").arg("--strip-debug").arg(module).status();
        ensure!(status.context("Cannot start strip")?.success(), "Cannot strip {}", module.display());
    }
    Ok(built.to_vec())
}

/// The headers' Makefile names another by the place where the packages are installed.
fn relocate(makefile: &Path, sources: &Path) -> Result<()> {
    let text = fs::read_to_string(makefile).with_context(|| format!("Cannot read {}", makefile.display()))?;
    let here = sources.to_str().context("the cache's folder has a name that is no text")?;
    let installed = format!("/{SOURCES}/");
    ensure!(text.contains(&installed), "{} is not as the packages have had it", makefile.display());
    fs::write(makefile, text.replace(&installed, &format!("{here}/"))).context("Cannot relocate the headers")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_makefile_is_led_to_where_they_lie() {
        let folder = tempfile::tempdir().unwrap();
        let makefile = folder.path().join("Makefile");
        fs::write(&makefile, "include /usr/src/linux-headers-6.12-common/Makefile\n").unwrap();
        relocate(&makefile, Path::new("/cache/root/usr/src")).unwrap();
        let text = fs::read_to_string(&makefile).unwrap();
        assert_eq!(text, "include /cache/root/usr/src/linux-headers-6.12-common/Makefile\n");
        fs::write(&makefile, "all:\n").unwrap();
        assert!(relocate(&makefile, Path::new("/cache")).is_err());
    }
}
