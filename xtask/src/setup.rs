//! `cargo xtask setup`: everything that tests, benchmarks and the demo need, in the cache folder.

use std::path::Path;

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

/// What to set up.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Only what needs no gpuvmk: while it is built, `.ci/run` has the rest fetched
    #[arg(long)]
    fetch: bool,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let cache = Cache::open()?;
    let qemu = Qemu::obtain(&cache)?;
    println!("QEMU {}", qemu.version);
    let archive = archive(&cache);
    let mut kernels = Vec::new();
    for series in KernelSeries::ALL {
        let kernel = kernel(&cache, archive.as_ref(), series)?;
        println!("guest kernel {series}: {}", kernel.release);
        kernels.push(kernel);
    }
    programs(&cache)?;
    let init = guest_build::obtain(&cache)?;
    if !arguments.fetch {
        images(&cache, &kernels, &init)?;
    }
    println!("everything is in {}", cache.root().display());
    Ok(())
}

/// What guests boot from.
fn images(cache: &Cache, kernels: &[GuestKernel], init: &Path) -> Result<()> {
    let gpuvmk = workshop::build_gpuvmk()?;
    for kernel in kernels {
        let firmware = Firmware::for_kernel(kernel.series);
        let files = firmware.files(cache, &gpuvmk, kernel.series)?;
        let image = initramfs::obtain(cache, kernel, init, &files, &firmware.label())?;
        println!("guests with {}: {}", kernel.release, image.display());
    }
    Ok(())
}

/// What else tests need, beside QEMU and kernels of guests.
fn programs(cache: &Cache) -> Result<()> {
    let outer = GuestKernel::obtain_for(cache, inner::OUTER, Role::Host)?;
    println!("kernel {} for machines that have guests of their own", outer.release);
    let card = GuestKernel::obtain_for(cache, inner::OUTER, Role::CardHost)?;
    println!("the same with VFIO: {} modules", card.modules.len());
    for series in kvm::inner_kernels() {
        let inner = GuestKernel::obtain_for(cache, series, Role::NouveauWithDisk)?;
        println!("guest kernel {} with a disk", inner.release);
    }
    println!("Debian on {}", debian_disk::obtain(cache)?.display());
    Promtool::obtain(cache)?;
    println!("promtool");
    Chromium::obtain(cache)?;
    println!("Chromium");
    for mesa in Mesa::ALL {
        println!("Mesa's NVK in {}", nvk::obtain(cache, mesa)?.display());
    }
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
