//! `cargo xtask pack`: a folder that runs the guest suite on a machine with nothing but Linux and a GPU.
//!
//! Everything is made static or brings its own loader and libraries, and lies in one compressed archive
//! beside a script and the runner. docs/pack.md says how to use it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use gpuvmk_lab::archive;
use gpuvmk_lab::cache::{Cache, source_tree};
use gpuvmk_lab::firmware::Firmware;
use gpuvmk_lab::kernel::{GuestKernel, KernelSeries};
use gpuvmk_lab::nvk::mesa::Mesa;
use gpuvmk_lab::pack::{self, Manifest, Pack};
use gpuvmk_lab::qemu::{self, Qemu};
use gpuvmk_lab::static_build::StaticBuild;
use gpuvmk_lab::{guest_build, initramfs, nvidia, nvk};

/// What a pack may weigh: it must travel to machines that take little.
const LIMIT: u64 = 60 << 20;

const GPUVMK: StaticBuild =
    StaticBuild { what: "gpuvmk", package: "gpuvmk", target_folder: "pack-target", panic_aborts: false };
const GPU_BENCH: StaticBuild = StaticBuild {
    what: "what measures a GPU without guests",
    package: "gpuvmk-gpu-bench",
    target_folder: "pack-target",
    panic_aborts: false,
};
const SASS: StaticBuild = StaticBuild {
    what: "what records machine code",
    package: "gpuvmk-sass",
    target_folder: "pack-target",
    panic_aborts: false,
};
const RUNNER: StaticBuild = StaticBuild {
    what: "the pack's runner",
    package: "gpuvmk-runner",
    target_folder: "pack-target",
    panic_aborts: false,
};

/// What GPUs gave for machine code, below `tests/sass`.
const RECORDINGS: [&str; 3] = ["tests/h200.gz", "tests/h100.gz", "tests/generic.gz"];

const SCRIPT: &str = "#!/bin/sh\n\
    # Runs the guest suite of gpuvmk; `./run.sh --help` says how. Needs nothing but this folder.\n\
    here=$(cd \"$(dirname \"$0\")\" && pwd) || exit 2\n\
    exec \"$here/gpuvmk-runner\" --pack \"$here\" \"$@\"\n";

/// What to pack.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The folder to make; one that holds an older pack is replaced
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// The guests' kernel
    #[arg(long, default_value = "7.2")]
    kernel: KernelSeries,
    /// For CUDA instead: guests with NVIDIA's own driver, which is fetched from Debian's archive for it
    #[arg(long, conflicts_with = "kernel")]
    cuda: bool,
    /// Print one JSON object as the last line
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<bool> {
    let out = &arguments.out;
    clear(out)?;
    let cache = Cache::open()?;
    let staging = cache.path("pack.partial");
    remove(&staging)?;
    let made = stage(&cache, arguments, &Pack::at(&staging)).and_then(|manifest| {
        eprintln!("compressing");
        let payload = archive::pack(&staging, &out.join(pack::PAYLOAD))?;
        Ok((manifest, payload))
    });
    remove(&staging)?;
    let (manifest, payload) = made?;
    let runner = install(&RUNNER.obtain(&cache)?, &out.join(pack::RUNNER))?;
    let script = out.join(pack::SCRIPT);
    fs::write(&script, SCRIPT).with_context(|| format!("Cannot write {}", script.display()))?;
    executable(&script)?;

    let total = payload + runner + SCRIPT.len() as u64;
    println!(
        "{}: gpuvmk {}, QEMU {}, Linux {}",
        out.display(),
        manifest.gpuvmk,
        manifest.qemu,
        manifest.kernel
    );
    println!(
        "{} MiB: {} in {}, {} in {}",
        mib(total),
        mib(payload),
        pack::PAYLOAD,
        mib(runner),
        pack::RUNNER
    );
    ensure!(total <= LIMIT, "The pack has {} MiB, more than the {} that it may", mib(total), mib(LIMIT));
    if arguments.json {
        println!("{}", serde_json::json!({ "ok": true, "bytes": total, "manifest": manifest }));
    }
    Ok(true)
}

/// Lays everything out that is to be compressed.
fn stage(cache: &Cache, arguments: &Arguments, pack: &Pack) -> Result<Manifest> {
    let qemu = Qemu::fetch(cache)?;
    let qemu_root = qemu::fetched(cache)?;
    eprintln!("building the guest programs, gpuvmk and the runner");
    let init = guest_build::obtain(cache)?;
    let gpuvmk = GPUVMK.obtain(cache)?;
    install(&gpuvmk, &pack.gpuvmk())?;
    install(&GPU_BENCH.obtain(cache)?, &pack.gpu_bench())?;
    let kernel = if arguments.cuda {
        nvidia_guests(cache, &init, &gpuvmk, pack)?
    } else {
        nouveau_guests(cache, arguments.kernel, &init, &gpuvmk, pack)?
    };
    install(&kernel.image, &pack.kernel_image())?;
    for file in qemu::needed_files(&qemu_root)? {
        install(&qemu_root.join(&file), &pack.qemu_folder().join(&file))?;
    }
    pack.qemu().context("The packed QEMU lacks something")?;
    let manifest = Manifest {
        gpuvmk: env!("CARGO_PKG_VERSION").to_owned(),
        commit: commit(),
        qemu: qemu.version.to_string(),
        series: kernel.series.name().to_owned(),
        kernel: kernel.release,
        nvidia: arguments.cuda.then(|| nvidia::VERSION.to_owned()),
    };
    fs::write(pack.manifest_file(), serde_json::to_string_pretty(&manifest)?)
        .context("Cannot write the manifest")?;
    Ok(manifest)
}

/// Guests with nouveau and Mesa's NVK, and recorded machine code.
fn nouveau_guests(
    cache: &Cache,
    series: KernelSeries,
    init: &Path,
    gpuvmk: &Path,
    pack: &Pack,
) -> Result<GuestKernel> {
    let kernel = GuestKernel::obtain(cache, series)?;
    install(&SASS.obtain(cache)?, &pack.sass())?;
    for file in RECORDINGS {
        let path = source_tree().join("tests/sass").join(file);
        let name = path.file_name().context("A recording has no name")?;
        install(&path, &pack.recordings().join(name))?;
    }
    let firmware = Firmware::for_kernel(series);
    let files = firmware.files(cache, gpuvmk, series)?;
    install(&initramfs::obtain(cache, &kernel, init, &files, &firmware.label())?, &pack.initramfs())?;
    install(&nvk::obtain(cache, Mesa::beside(series))?, &pack.vulkan())?;
    Ok(kernel)
}

/// Guests with NVIDIA's own driver. Such a pack has parts of NVIDIA's: it is for who made it.
fn nvidia_guests(cache: &Cache, init: &Path, gpuvmk: &Path, pack: &Pack) -> Result<GuestKernel> {
    let files = Firmware::NvidiaDriver.files(cache, gpuvmk, nvidia::SERIES)?;
    let (kernel, image) = nvidia::obtain(cache, nvidia::SERIES, init, &files)?;
    install(&image, &pack.initramfs())?;
    Ok(kernel)
}

/// Copies a file (not a link to it); returns its size.
fn install(from: &Path, to: &Path) -> Result<u64> {
    let folder = to.parent().context("A packed file has no folder")?;
    fs::create_dir_all(folder).with_context(|| format!("Cannot create {}", folder.display()))?;
    fs::copy(from, to).with_context(|| format!("Cannot copy {} to {}", from.display(), to.display()))
}

fn executable(path: &Path) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("Cannot make {} executable", path.display()))
}

/// Makes room for a pack; refuses a folder that holds anything else.
fn clear(out: &Path) -> Result<()> {
    fs::create_dir_all(out).with_context(|| format!("Cannot create {}", out.display()))?;
    for entry in fs::read_dir(out).with_context(|| format!("Cannot list {}", out.display()))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        ensure!(
            matches!(name, Some(pack::PAYLOAD | pack::RUNNER | pack::SCRIPT)),
            "{} holds {}, which is no part of a pack: name a folder of its own",
            out.display(),
            path.display()
        );
        fs::remove_file(&path).with_context(|| format!("Cannot remove {}", path.display()))?;
    }
    Ok(())
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("Cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// The source's commit; without git, or outside a checkout, there is none to tell.
fn commit() -> Option<String> {
    let output = Command::new("git")
        .current_dir(source_tree())
        .args(["describe", "--always", "--dirty", "--abbrev=12"])
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

/// One digit after the point.
fn mib(bytes: u64) -> String {
    format!("{}.{}", bytes >> 20, ((bytes & 0xf_ffff) * 10) >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_with_something_else_is_left_alone() {
        let folder = std::env::temp_dir().join(format!("gpuvmk-pack-test-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("mine"), "keep").unwrap();
        let message = clear(&folder).unwrap_err().to_string();
        assert!(message.contains("mine"), "{message}");
        fs::rename(folder.join("mine"), folder.join(pack::SCRIPT)).unwrap();
        clear(&folder).unwrap();
        assert!(!folder.join(pack::SCRIPT).exists());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn sizes_are_shown_with_a_digit_after_the_point() {
        assert_eq!(mib((3 << 20) + (1 << 19)), "3.5");
        assert_eq!(mib(0), "0.0");
    }
}
