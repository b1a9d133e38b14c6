//! `cargo xtask setup`: everything that tests, benchmarks and the demo need, in the cache folder.

use anyhow::Result;
use gpuvmk_lab::apt::Apt;
use gpuvmk_lab::cache::Cache;
use gpuvmk_lab::chromium::Chromium;
use gpuvmk_lab::firmware::Firmware;
use gpuvmk_lab::kernel::{Freshness, GuestKernel, KernelSeries, Role};
use gpuvmk_lab::nvk::mesa::Mesa;
use gpuvmk_lab::promtool::Promtool;
use gpuvmk_lab::qemu::Qemu;
use gpuvmk_lab::{debian_disk, guest_build, initramfs, nvk};

use crate::test::{inner, kvm};
use crate::workshop;

pub fn run() -> Result<()> {
    let cache = Cache::open()?;
    let qemu = Qemu::obtain(&cache)?;
    println!("QEMU {}", qemu.version);
    let init = guest_build::obtain(&cache)?;
    let gpuvmk = workshop::build_gpuvmk()?;
    let archive = archive(&cache);
    for series in KernelSeries::ALL {
        let kernel = kernel(&cache, archive.as_ref(), series)?;
        let firmware = Firmware::for_kernel(series);
        let files = firmware.files(&cache, &gpuvmk, series)?;
        let image = initramfs::obtain(&cache, &kernel, &init, &files, &firmware.label())?;
        println!("guest kernel {series}: {} with {}", kernel.release, image.display());
    }
    let outer = GuestKernel::obtain_for(&cache, inner::OUTER, Role::Host)?;
    println!("kernel {} for machines that have guests of their own", outer.release);
    let card = GuestKernel::obtain_for(&cache, inner::OUTER, Role::CardHost)?;
    println!("the same with VFIO: {} modules", card.modules.len());
    for series in kvm::inner_kernels() {
        let inner = GuestKernel::obtain_for(&cache, series, Role::NouveauWithDisk)?;
        println!("guest kernel {} with a disk", inner.release);
    }
    println!("Debian on {}", debian_disk::obtain(&cache)?.display());
    Promtool::obtain(&cache)?;
    println!("promtool");
    Chromium::obtain(&cache)?;
    println!("Chromium");
    for mesa in Mesa::ALL {
        println!("Mesa's NVK in {}", nvk::obtain(&cache, mesa)?.display());
    }
    println!("everything is in {}", cache.root().display());
    Ok(())
}

/// What Debian's archive has today; without it, what is in the cache is used as it is.
fn archive(cache: &Cache) -> Option<Apt> {
    let lock = cache.lock();
    let apt = lock.and_then(|_lock| Apt::set_up(cache));
    apt.inspect_err(|error| eprintln!("gpuvmk: no look at what the archive has today: {error:#}")).ok()
}

/// A series' newest kernel. An archive that has it and does not give it is no reason to stop: the one in the
/// cache is used on.
fn kernel(cache: &Cache, archive: Option<&Apt>, series: KernelSeries) -> Result<GuestKernel> {
    let Some(apt) = archive else { return GuestKernel::obtain(cache, series) };
    let (kernel, freshness) = match GuestKernel::refresh(cache, apt, series) {
        Ok(found) => found,
        Err(error) => {
            eprintln!("gpuvmk: the guest kernel {series} could not be brought up to date: {error:#}");
            return GuestKernel::obtain(cache, series);
        }
    };
    match freshness {
        Freshness::Newest => {}
        Freshness::Replaced { before } => {
            println!("guest kernel {series}: {} replaces {before}", kernel.release);
        }
        Freshness::NotInArchive => {
            println!("guest kernel {series}: the archive has it no more, {} is used on", kernel.release);
        }
    }
    Ok(kernel)
}
