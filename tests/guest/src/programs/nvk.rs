//! `nvk`: Vulkan through Mesa's NVK.
//!
//! The program is another binary, with Debian's libraries beside it: the guest has them only if its initramfs
//! was made with them (docs/nvk.md). This process becomes that program; it prints the result line.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{Figures, Options};
use crate::chip::Chip;
use crate::drm::Device;

const LOADER: &str = "/nvk/lib/ld-linux-x86-64.so.2";
const LIBRARIES: &str = "/nvk/lib";
const PROGRAM: &str = "/nvk/bin/gpuvmk-nvk";

pub fn run(options: &Options) -> Result<Figures> {
    let driver: String = options.get("driver", "stock".to_owned())?;
    let checks: String = options.get("checks", "all".to_owned())?;
    let [times, rounds]: [u32; 2] = [options.get("times", 0)?, options.get("rounds", 0)?];
    let given = |name: &str, number: u32| (number > 0).then(|| format!("{name}={number}"));
    let manifest = format!("/nvk/{driver}.json");
    for path in [LOADER, manifest.as_str()] {
        ensure!(Path::new(path).exists(), "{path} is not in this guest's initramfs");
    }
    let gpu = options.gpu()?;
    let mut program = Command::new(LOADER);
    let chip = Chip::of(&Device::open(gpu)?)?;
    if !chip.is_listed_by_mesa {
        program.env("NVK_I_WANT_A_BROKEN_VULKAN_DRIVER", "1");
    }
    let error = program
        .args(["--library-path", LIBRARIES, PROGRAM])
        .args(["name=nvk".to_owned(), format!("gpu={gpu}")])
        .arg(format!("driver={driver}"))
        .arg(format!("checks={checks}"))
        .args(chip.sm.map(|sm| format!("sm={sm}")))
        .args(given("times", times).into_iter().chain(given("rounds", rounds)))
        .env("VK_DRIVER_FILES", manifest)
        .env("MESA_SHADER_CACHE_DISABLE", "true")
        .env("HOME", "/tmp")
        .exec();
    Err(error).context("the Vulkan program cannot be started")
}
