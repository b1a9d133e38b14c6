//! `gpuvmk gpu bind | unbind | probe`: a card for VFIO, and what it says of itself.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use serde_json::json;

use super::{init, output, vbios};
use crate::gpu::engine_test::{EngineTest, test_engines};
use crate::gpu::register::RegisterDriver;
use crate::gpu::vfio::binding::{self, Step};
use crate::gpu::vfio::holders::holders;
use crate::gpu::vfio::obstacles::{Obstacle, obstacles};
use crate::gpu::vfio::probe::{self, Findings};
use crate::gpu::vfio::reset::ResetMethod;
use crate::gpu::vfio::sysfs::{PciDevice, Sysfs};
use crate::gpu::vfio::{Interface, VfioFunction};
use crate::host::size::show_size;
use crate::jail;
use crate::pci::PciAddress;

/// Arguments of `bind` and `unbind`.
#[derive(Debug, clap::Args)]
pub(super) struct BindArgs {
    /// PCI address of the GPU.
    #[arg(value_name = "ADDRESS")]
    gpu: PciAddress,
    /// Show what would be written, and write nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Arguments of `probe`.
#[derive(Debug, clap::Args)]
pub(super) struct ProbeArgs {
    /// PCI address of the GPU.
    #[arg(value_name = "ADDRESS")]
    gpu: PciAddress,
    /// Which of VFIO's interfaces to use; without it, the function's own node where there is one.
    #[arg(long, value_name = "INTERFACE")]
    interface: Option<Interface>,
    /// Also bring the GPU up and let each of its engines copy into this process's memory and back.
    #[arg(long)]
    engines: bool,
    /// Bring it up by this file, which `gpuvmk gpu init` made.
    #[arg(long, value_name = "FILE", requires = "engines")]
    init: Option<PathBuf>,
    /// The card's VBIOS, if that file names one and the card shows none.
    #[arg(long, value_name = "FILE", requires = "init")]
    vbios: Option<PathBuf>,
    /// Also let it copy into memory that was just taken away from it: that must be stopped. The bus reports
    /// an error then, and some machines stop at that.
    #[arg(long, requires = "engines")]
    stray_dma: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Where a function is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum To {
    Vfio,
    ItsDriver,
}

pub(super) fn bind(args: &BindArgs, to: To) -> anyhow::Result<ExitCode> {
    let sysfs = Sysfs::default();
    let before = sysfs.device(args.gpu)?;
    let steps = match to {
        To::Vfio => binding::to_vfio(&sysfs, &before),
        To::ItsDriver => binding::from_vfio(&sysfs, &before),
    };
    // A holder of its configuration's lock is a gpuvmk that has it open, or that binds it just now.
    let _claim = if steps.is_empty() { None } else { Some(VfioFunction::claim(&before)?) };
    if !steps.is_empty() {
        refuse(to, &sysfs, &before)?;
    }
    if args.dry_run {
        show_binding(args.json, &before, &before, &steps, true)?;
        return Ok(ExitCode::SUCCESS);
    }
    let after = match to {
        To::Vfio => binding::bind(&sysfs, &before)?,
        To::ItsDriver => binding::unbind_from_vfio(&sysfs, &before)?,
    };
    show_binding(args.json, &before, &after, &steps, false).context(output::CARRIED_OUT)?;
    Ok(ExitCode::SUCCESS)
}

/// An error that names everything in the way. To be given back, a function need only be free.
fn refuse(to: To, sysfs: &Sysfs, device: &PciDevice) -> anyhow::Result<()> {
    let mut found = obstacles(sysfs, device, holders(sysfs, device));
    found.retain(|obstacle| to == To::Vfio || matches!(obstacle, Obstacle::Held { .. }));
    if found.is_empty() {
        return Ok(());
    }
    let words: Vec<_> = found.iter().map(ToString::to_string).collect();
    anyhow::bail!("{}", words.join("\n"))
}

fn show_binding(
    json: bool,
    before: &PciDevice,
    after: &PciDevice,
    steps: &[Step],
    dry: bool,
) -> anyhow::Result<()> {
    if json {
        let said = json!({
            "ok": true, "address": before.address.to_string(), "driver_before": before.driver, "driver": after.driver,
            "dry_run": dry, "steps": steps,
        });
        return say!("{said}");
    }
    let shown = |device: &PciDevice| device.driver.clone().unwrap_or_else(|| "no driver".to_owned());
    if dry {
        say!("{} has {}; this would be written:", before.address, shown(before))?;
    }
    for step in steps.iter().filter(|_| dry) {
        say!("  {:?} to {}: {}", step.word.trim(), step.file.display(), step.what)?;
    }
    match (dry, steps.is_empty()) {
        (true, true) => say!("  nothing"),
        (false, true) => say!("{} has {} already", before.address, shown(after)),
        (false, false) => say!("{}: {} instead of {}", before.address, shown(after), shown(before)),
        (true, false) => Ok(()),
    }
}

/// Opens a card that `vfio-pci` has, for a daemon. To be called before the jail is put on.
pub(super) fn open_card(address: PciAddress) -> anyhow::Result<Arc<VfioFunction>> {
    // Memory that the card reaches is locked, and counts against this limit once capabilities are given up.
    jail::raise_locked_memory();
    let sysfs = Sysfs::default();
    let device = sysfs.device(address)?;
    Ok(VfioFunction::open(&sysfs, &device, None)?)
}

pub(super) fn probe(args: &ProbeArgs) -> anyhow::Result<ExitCode> {
    let script = args.init.as_deref().map(init::read).transpose()?;
    let sysfs = Sysfs::default();
    let device = sysfs.device(args.gpu)?;
    let card = VfioFunction::open(&sysfs, &device, args.interface)?;
    if let Some(script) = &script {
        vbios::check(script, card.as_ref(), args.vbios.as_deref())?;
    }
    let mut findings =
        probe::probe(&device, &card).with_context(|| format!("{} cannot be looked at", args.gpu))?;
    if args.engines {
        let failed = || format!("{} cannot be brought up", args.gpu);
        let mut driver = RegisterDriver::on_card(card, script).with_context(failed)?;
        findings.engines = Some(test_engines(&mut driver, args.stray_dma).with_context(failed)?);
    }
    if args.json {
        say!("{}", serde_json::to_string(&findings)?)?;
    } else {
        output::print(&describe(&findings))?;
    }
    Ok(if findings.good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn describe(findings: &Findings) -> String {
    use std::fmt::Write as _;

    let mut text = String::new();
    let Findings { address, pci_id, chip_number, boot_0, .. } = findings;
    let mut line = |name: &str, value: &str| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {name:<12} {value}");
    };
    let chip = findings.chip.map_or_else(|| "unknown to this program".to_owned(), str::to_owned);
    line("chip", &format!("{chip} ({chip_number}, NV_PMC_BOOT_0 {boot_0})"));
    let initialised =
        if findings.initialised { "yes" } else { "no: nothing has set up its engines since reset" };
    line("initialised", initialised);
    for region in &findings.regions {
        line(&region.name, &format!("{} ({})", show_size(region.size), region.kind));
    }
    line("interrupt", if findings.interrupt { "a message came" } else { "NO MESSAGE CAME" });
    let methods = findings.reset_methods.as_ref().map_or_else(|| "unknown".to_owned(), |all| all.join(", "));
    let way = match findings.reset {
        ResetMethod::Function => "by itself",
        ResetMethod::Bus => "with its bus",
    };
    line("reset", &format!("{way} (the kernel's methods: {methods})"));
    if let Some(engines) = &findings.engines {
        for test in &engines.tried {
            let EngineTest { engine, class, verified, slowest_us, failures } = test;
            let verdict = if failures.is_empty() { "works" } else { "FAILED" };
            let bytes = show_size(*verified);
            line(engine, &format!("{verdict}: {bytes} verified, {slowest_us} us a copy, class {class}"));
            for failure in failures {
                line("", failure);
            }
        }
        match engines.stray_dma_stopped {
            None => {}
            Some(true) => line("stray DMA", "stopped"),
            Some(false) => line("stray DMA", "IT REACHED MEMORY THAT WAS TAKEN AWAY"),
        }
        if let Some(said) = &engines.stray_reported {
            line("", &format!("the GPU said of it: {said}"));
        }
    }
    let limit = findings.memory_limit.map_or_else(|| "unlimited".to_owned(), show_size);
    line("lockable", &limit);
    format!("{address}  {pci_id}, open by {:?}\n{text}", findings.interface)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::engine_test::EngineTests;
    use crate::gpu::vfio::probe::RegionFinding;

    #[test]
    fn findings_are_a_table() {
        let findings = Findings {
            address: "0000:01:00.0".to_owned(),
            pci_id: "10de:06c0".to_owned(),
            interface: Interface::Group,
            boot_0: "0x0c0000a3".to_owned(),
            chip_number: "NVC0".to_owned(),
            chip: Some("GF100"),
            initialised: false,
            regions: vec![RegionFinding { name: "BAR0".to_owned(), size: 16 << 20, kind: "memory, 32 bits" }],
            reset_methods: Some(vec!["pm".to_owned(), "bus".to_owned()]),
            reset: ResetMethod::Bus,
            interrupt: true,
            memory_limit: None,
            engines: Some(EngineTests {
                tried: vec![
                    EngineTest {
                        engine: "graphics".to_owned(),
                        class: "9039".to_owned(),
                        verified: 128 << 10,
                        slowest_us: 70,
                        failures: Vec::new(),
                    },
                    EngineTest {
                        engine: "copy0".to_owned(),
                        class: "90b5".to_owned(),
                        verified: 0,
                        slowest_us: 0,
                        failures: vec![
                            "copy from VRAM to the host's memory: not done after 1000 ms".to_owned(),
                        ],
                    },
                ],
                ..EngineTests::default()
            }),
        };
        let text = describe(&findings);
        assert!(!findings.good());
        for words in [
            "GF100 (NVC0,",
            "BAR0         16M",
            "reset        with its bus (the kernel's methods: pm, bus)",
            "graphics     works: 128K verified, 70 us a copy, class 9039",
            "copy0        FAILED: 0 verified",
            "not done after 1000 ms",
            "lockable     unlimited",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }
}
