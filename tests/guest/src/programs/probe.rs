//! `probe`: what nouveau made of the GPU.

use std::fs;

use anyhow::{Result, ensure};

use super::{Figures, Options};
use crate::drm::abi::Parameter;
use crate::drm::{Device, render_nodes};
use crate::init;

pub fn run(options: &Options) -> Result<Figures> {
    ensure!(fs::exists("/sys/module/nouveau").unwrap_or(false), "nouveau is not loaded");
    let device = Device::open(options.gpu()?)?;
    let cards = fs::read_dir("/dev/dri")?
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("card"))
        .count();
    let render_nodes = render_nodes().len();
    ensure!(cards >= render_nodes, "{render_nodes} render nodes but only {cards} cards");
    let vram = device.parameter(Parameter::VramSize)?;
    ensure!(vram > 0, "nouveau found no VRAM");

    // The GPU's clock must run, or every timeout of the driver would be infinite.
    let first = device.parameter(Parameter::PtimerTime)?;
    std::thread::sleep(std::time::Duration::from_millis(2));
    let second = device.parameter(Parameter::PtimerTime)?;
    ensure!(second > first, "the GPU's clock stands at {first}");

    let mut figures = Figures::new();
    figures.insert("kernel".into(), fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().into());
    figures.insert("nouveau".into(), device.version()?.into());
    figures.insert("probe_ms".into(), init::probe_ms().into());
    figures.insert("cards".into(), cards.into());
    figures.insert("render_nodes".into(), render_nodes.into());
    figures.insert("chipset".into(), format!("{:#x}", device.parameter(Parameter::Chipset)?).into());
    let (vendor, id) = (device.parameter(Parameter::PciVendor)?, device.parameter(Parameter::PciDevice)?);
    figures.insert("pci".into(), format!("{vendor:04x}:{id:04x}").into());
    figures.insert("vram_mib".into(), (vram >> 20).into());
    Ok(figures)
}
