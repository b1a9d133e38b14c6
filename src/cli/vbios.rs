//! `gpuvmk gpu vbios`: a card's VBIOS, looked at and kept as a file; and files of it that other commands are
//! given.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use serde_json::json;

use super::output::CARRIED_OUT;
use crate::gpu::init_script::Script;
use crate::gpu::vfio::sysfs::Sysfs;
use crate::gpu::vfio::vbios::{MOST, Vbios};
use crate::gpu::vfio::{Interface, VfioFunction};
use crate::host::size::show_size;
use crate::pci::PciAddress;
use crate::pci::PciFunction;

/// Arguments of `gpuvmk gpu vbios`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// PCI address of a GPU that vfio-pci has.
    #[arg(value_name = "ADDRESS", required_unless_present = "file")]
    gpu: Option<PciAddress>,
    /// Look at this file instead of a card.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["gpu", "output", "interface"])]
    file: Option<PathBuf>,
    /// Keep it as this file; it must not exist.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Which of VFIO's interfaces to use; without it, the function's own node where there is one.
    #[arg(long, value_name = "INTERFACE")]
    interface: Option<Interface>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let vbios = match (&args.gpu, &args.file) {
        (Some(address), _) => {
            let sysfs = Sysfs::default();
            let device = sysfs.device(*address)?;
            let card = VfioFunction::open(&sysfs, &device, args.interface)?;
            of_card(card.as_ref(), &address.to_string())?
        }
        (None, Some(path)) => read(path)?,
        (None, None) => anyhow::bail!("Give the address of a GPU, or --file"),
    };
    if let Some(output) = &args.output {
        let file = File::options().write(true).create_new(true).open(output);
        let written = file.and_then(|mut file| file.write_all(vbios.bytes()));
        written.with_context(|| format!("Cannot write {}", output.display()))?;
    }
    let (bytes, crc) = (vbios.bytes().len(), format!("{:#010x}", vbios.crc()));
    let device = format!("10de:{:04x}", vbios.device());
    let told = if args.json {
        let images = vbios.images();
        let version = vbios.version();
        say!(
            "{}",
            json!({ "ok": true, "device": device, "bytes": bytes, "images": images, "version": version, "crc": crc })
        )
    } else {
        let version = vbios.version().unwrap_or("unknown");
        let size = show_size(bytes as u64);
        say!("VBIOS of {device}: version {version}, {size}, {} images, CRC {crc}", vbios.images())
    };
    if args.output.is_some() {
        told.context(CARRIED_OUT)?;
    } else {
        told?;
    }
    Ok(ExitCode::SUCCESS)
}

fn of_card(card: &dyn PciFunction, name: &str) -> anyhow::Result<Vbios> {
    Vbios::of_card(card).with_context(|| format!("The VBIOS of {name} cannot be used"))
}

/// Reads one from a file.
pub(super) fn read(path: &Path) -> anyhow::Result<Vbios> {
    let shown = path.display();
    let file = File::open(path).with_context(|| format!("Cannot open {shown}"))?;
    let mut bytes = Vec::new();
    file.take(MOST as u64 + 1).read_to_end(&mut bytes).with_context(|| format!("Cannot read {shown}"))?;
    ensure!(bytes.len() <= MOST, "{shown} is longer than {}, which no VBIOS is", show_size(MOST as u64));
    Vbios::parse(&bytes).with_context(|| format!("{shown} is no VBIOS"))
}

/// An error if an initialisation was recorded with another VBIOS than the card has, or than `file` says that
/// it has.
pub(super) fn check(script: &Script, card: &dyn PciFunction, file: Option<&Path>) -> anyhow::Result<()> {
    let Some(recorded) = script.vbios else { return Ok(()) };
    let vbios = match file {
        Some(path) => read(path)?,
        None => of_card(card, "the card").context(
            "The initialisation names a VBIOS. If the card shows none, `vbios` can name a file with it",
        )?,
    };
    let found = vbios.crc();
    ensure!(
        found == recorded,
        "The initialisation was recorded with a VBIOS of CRC {recorded:#010x}, and the card's has {found:#010x}: record one from this card"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::softgpu::{SoftGpu, SoftGpuConfig};

    #[test]
    fn initialisation_of_another_vbios_is_refused() {
        let gpu = SoftGpu::new(SoftGpuConfig::default()).unwrap();
        let vbios = Vbios::of_card(gpu.as_ref()).unwrap();
        let script = |vbios| Script { vbios, ..Script::default() };
        check(&script(None), gpu.as_ref(), None).unwrap();
        check(&script(Some(vbios.crc())), gpu.as_ref(), None).unwrap();
        let error = check(&script(Some(7)), gpu.as_ref(), None).unwrap_err().to_string();
        assert!(error.contains("CRC 0x00000007") && error.contains("record one"), "{error}");

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("card.rom");
        std::fs::write(&path, vbios.bytes()).unwrap();
        check(&script(Some(vbios.crc())), gpu.as_ref(), Some(&path)).unwrap();
        std::fs::write(&path, "nonsense").unwrap();
        let error = check(&script(Some(vbios.crc())), gpu.as_ref(), Some(&path)).unwrap_err();
        assert!(error.to_string().contains("card.rom is no VBIOS"), "{error:#}");
    }
}
