//! `cargo xtask setup`: everything that tests, benchmarks and the demo need, in the cache folder.

use anyhow::Result;
use gpuvmk_lab::cache::Cache;
use gpuvmk_lab::chromium::Chromium;
use gpuvmk_lab::firmware::Firmware;
use gpuvmk_lab::kernel::{GuestKernel, KernelSeries};
use gpuvmk_lab::promtool::Promtool;
use gpuvmk_lab::qemu::Qemu;
use gpuvmk_lab::{guest_build, initramfs, nvk};

use crate::test::kvm;
use crate::workshop;

pub fn run() -> Result<()> {
    let cache = Cache::open()?;
    let qemu = Qemu::obtain(&cache)?;
    println!("QEMU {}", qemu.version);
    let init = guest_build::obtain(&cache)?;
    let gpuvmk = workshop::build_gpuvmk()?;
    for series in KernelSeries::ALL {
        let kernel = GuestKernel::obtain(&cache, series)?;
        let firmware = Firmware::for_kernel(series);
        let files = firmware.files(&cache, &gpuvmk)?;
        let image = initramfs::obtain(&cache, &kernel, &init, &files, firmware.label())?;
        println!("guest kernel {} with {}", kernel.release, image.display());
    }
    let outer = GuestKernel::obtain_with(&cache, kvm::OUTER, kvm::KVM)?;
    println!("kernel {} with {} for machines that have guests of their own", outer.release, kvm::KVM);
    Promtool::obtain(&cache)?;
    println!("promtool");
    Chromium::obtain(&cache)?;
    println!("Chromium");
    println!("Mesa's NVK in {}", nvk::obtain(&cache)?.display());
    println!("everything is in {}", cache.root().display());
    Ok(())
}
