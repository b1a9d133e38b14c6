//! `smi` and `cuda`: NVIDIA's own driver, by its own programs and libraries.
//!
//! The kernel modules are loaded with all others of a bare guest; what lies below `/nvidia` is there only if
//! the guest's initramfs was made with it (docs/nvidia.md).

mod persistent;
mod watched;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use serde_json::Value;

use super::{Figures, Options};
use crate::stats;

const LOADER: &str = "/nvidia/lib/ld-linux-x86-64.so.2";
const LIBRARIES: &str = "/nvidia/lib";
const SMI: &str = "/nvidia/bin/nvidia-smi";
const CUDA: &str = "/nvidia/bin/gpuvmk-cuda";

/// The device nodes that the libraries open: their names, their drivers by the kernel's list, their minor
/// numbers.
const NODES: [(&str, &[&str], u32); 4] = [
    ("/dev/nvidiactl", &["nvidia", "nvidia-frontend"], 255),
    ("/dev/nvidia0", &["nvidia", "nvidia-frontend"], 0),
    ("/dev/nvidia-uvm", &["nvidia-uvm"], 0),
    ("/dev/nvidia-uvm-tools", &["nvidia-uvm"], 1),
];

/// What `nvidia-smi` says: the list of GPUs, its usual page, and all it knows.
///
/// With `busy=1`, what it says of a GPU that a CUDA program uses (`memory=MIB` is how much the GPU has); with
/// `persist=1`, whether persistence mode keeps the GPU up.
pub fn smi(options: &Options) -> Result<Figures> {
    let times: u32 = options.get("times", 1)?;
    let [busy, persist]: [u8; 2] = [options.get("busy", 0)?, options.get("persist", 0)?];
    make_nodes()?;
    if busy != 0 {
        return watched::run(options);
    }
    if persist != 0 {
        return persistent::run(options);
    }
    let mut figures = Figures::new();
    for _ in 0..times {
        for (name, arguments) in [("list", &["-L"][..]), ("page", &[]), ("query", &["-q"])] {
            let start = Instant::now();
            let said = ask_smi(arguments)?;
            for line in said.lines() {
                println!("{name}: {line}");
            }
            ensure!(!said.contains("ERR!"), "nvidia-smi {} shows an error: {said}", arguments.join(" "));
            ensure!(name != "list" || said.starts_with("GPU 0: "), "nvidia-smi lists no GPU: {said}");
            figures.insert(name.into(), lines(&said).into());
            figures.insert(format!("{name}_ms"), stats::round(start.elapsed().as_secs_f64() * 1e3).into());
        }
    }
    Ok(figures)
}

/// Tells the CUDA program's check `table` which program of the table alone it runs.
const ONLY: &str = "GPUVMK_ONLY";

/// Becomes the CUDA program, which prints the result line; with `processes=N`, waits for as many that run at
/// once, and prints one line of all.
pub fn cuda(options: &Options) -> Result<Figures> {
    let checks: String = options.get("checks", "all".to_owned())?;
    let processes: usize = options.get("processes", 1)?;
    let only: String = options.get("only", String::new())?;
    make_nodes()?;
    let gpu = options.gpu()?;
    let command = || {
        let mut command = cuda_program(gpu, &checks)?;
        if !only.is_empty() {
            command.env(ONLY, &only);
        }
        anyhow::Ok(command)
    };
    if processes == 1 {
        return Err(command()?.exec()).context("the CUDA program cannot be started");
    }
    let started: Vec<Child> = (0..processes)
        .map(|_| command()?.stdout(Stdio::piped()).spawn().context("the CUDA program cannot be started"))
        .collect::<Result<_>>()?;
    // All are waited for, so that none is left behind by the failure of another.
    let ended: Vec<_> = started.into_iter().map(Child::wait_with_output).collect();
    let mut figures = Figures::new();
    for (number, output) in ended.into_iter().enumerate() {
        let output = output.context("the CUDA program cannot be waited for")?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let result = result(&said);
        ensure!(
            output.status.success() && result.is_some(),
            "CUDA program {number} of {processes} ended with {}: {}",
            output.status,
            said.trim()
        );
        figures.insert(format!("process_{number}"), result.unwrap_or_default());
    }
    Ok(figures)
}

/// What `nvidia-smi` prints when it is asked so.
fn ask_smi(arguments: &[&str]) -> Result<String> {
    let output =
        program(SMI)?.args(arguments).output().with_context(|| format!("{SMI} cannot be started"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "nvidia-smi {} ended with {}: {}{}",
        arguments.join(" "),
        output.status,
        said.trim(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(said)
}

/// The CUDA program with these checks.
fn cuda_program(gpu: usize, checks: &str) -> Result<Command> {
    let mut command = program(CUDA)?;
    command.arg("name=cuda").arg(format!("gpu={gpu}")).arg(format!("checks={checks}"));
    command.env("HOME", "/tmp").env("CUDA_CACHE_DISABLE", "1");
    Ok(command)
}

/// What a CUDA program says of its checks, if it went well.
fn result(said: &str) -> Option<Value> {
    let line = said.lines().find_map(|line| line.strip_prefix("GPUVMK-JSON "))?;
    let line: Value = serde_json::from_str(line).ok()?;
    (line["ok"] == true).then(|| line["checks"].clone())
}

/// Lines with something in them, without the space at their ends.
fn lines(text: &str) -> Vec<String> {
    text.lines().map(|line| line.trim_end().to_owned()).filter(|line| !line.is_empty()).collect()
}

/// A program of the initramfs's, by the dynamic loader beside it.
fn program(path: &str) -> Result<Command> {
    for part in [LOADER, path] {
        ensure!(Path::new(part).exists(), "{part} is not in this guest's initramfs");
    }
    let mut command = Command::new(LOADER);
    command.args(["--library-path", LIBRARIES, path]);
    Ok(command)
}

/// Makes the device nodes, which on a Debian are `nvidia-modprobe`'s.
fn make_nodes() -> Result<()> {
    let devices = fs::read_to_string("/proc/devices").context("cannot read /proc/devices")?;
    for (path, drivers, minor) in NODES {
        if Path::new(path).exists() {
            continue;
        }
        let Some(major) = drivers.iter().find_map(|driver| major(&devices, driver)) else {
            bail!("the kernel has no driver {}", drivers.join(" or "))
        };
        let mode = Mode::from_raw_mode(0o666);
        mknodat(CWD, path, FileType::CharacterDevice, mode, makedev(major, minor))
            .with_context(|| format!("cannot make {path}"))?;
    }
    Ok(())
}

/// A driver's major number in the kernel's list.
fn major(devices: &str, driver: &str) -> Option<u32> {
    let mut words = devices.lines().filter_map(|line| line.trim().split_once(' '));
    words.find(|(_, name)| *name == driver)?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn major_number_is_that_of_the_very_driver() {
        let list = "Character devices:\n  1 mem\n195 nvidia\n511 nvidia-uvm\n\nBlock devices:\n  8 sd\n";
        assert_eq!(major(list, "nvidia"), Some(195));
        assert_eq!(major(list, "nvidia-uvm"), Some(511));
        assert_eq!(major(list, "nvidia-frontend"), None);
    }

    #[test]
    fn result_is_that_of_a_program_that_went_well() {
        let said = "other\nGPUVMK-JSON {\"ok\":true,\"checks\":{\"copy\":1}}\n";
        assert_eq!(result(said), Some(serde_json::json!({ "copy": 1 })));
        assert_eq!(result(&said.replace("true", "false")), None);
        assert_eq!(result("GPUVMK"), None);
    }

    #[test]
    fn lines_are_kept_without_those_that_are_empty() {
        assert_eq!(lines("GPU 0: a  \n\n b\n"), ["GPU 0: a", " b"]);
    }
}
