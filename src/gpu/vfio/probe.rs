//! Facts that an open card reports, as `gpuvmk gpu probe` shows them.

use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use super::VfioFunction;
use super::open::Interface;
use super::reset::ResetMethod;
use super::sysfs::PciDevice;
use crate::engine_test::EngineTests;
use gpuvmk_chip::gf100::regs::pmc::{NV_PMC_BOOT_0, NV_PMC_ENABLE};
use gpuvmk_chip::registers::Reg;
use gpuvmk_pci::{AccessError, InterruptSink, PciFunction, Region, RegionKind};

/// How long a message that was asked for may take.
const MESSAGE: Duration = Duration::from_secs(2);

/// Facts about a card.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Findings {
    /// Address on the bus.
    pub address: String,
    /// Vendor and device number.
    pub pci_id: String,
    /// Through which of VFIO's interfaces.
    pub interface: Interface,
    /// NV_PMC_BOOT_0.
    pub boot_0: String,
    /// The chip's number in it, as drivers name chips.
    pub chip_number: String,
    /// The chip, if it is one that this program knows.
    pub chip: Option<&'static str>,
    /// True if anything has initialised it: NV_PMC_ENABLE is not as after a reset.
    pub initialised: bool,
    /// Regions that it has.
    pub regions: Vec<RegionFinding>,
    /// How the kernel resets it.
    pub reset_methods: Option<Vec<String>>,
    /// How it was reset.
    pub reset: ResetMethod,
    /// True if a message (MSI) that the kernel was asked to send came here.
    pub interrupt: bool,
    /// Bytes that this process may lock for the card; absent if as many as it likes.
    pub memory_limit: Option<u64>,
    /// Results of its engines' tests, if they were tested.
    pub engines: Option<EngineTests>,
}

impl Findings {
    /// True if nothing speaks against the card.
    pub fn good(&self) -> bool {
        self.interrupt && self.engines.as_ref().is_none_or(EngineTests::passed)
    }
}

/// A region of the card.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct RegionFinding {
    /// Name of the region.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// Its kind.
    pub kind: &'static str,
}

struct MessageSeen(Sender<()>);

impl InterruptSink for MessageSeen {
    fn set_intx(&self, _: bool) {}

    fn fire_msi(&self, _: u16) {
        // The receiver is gone if the message comes too late.
        let _ = self.0.send(());
    }

    fn message_sent(&self, _vector: u16) {}
}

/// Looks at an open card. Writes nothing to its registers.
///
/// # Errors
/// It does not answer.
pub fn probe(device: &PciDevice, card: &VfioFunction) -> Result<Findings, AccessError> {
    let register = |reg: Reg| {
        let mut word = [0; 4];
        card.read(Region::Bar(0), reg.0.into(), &mut word).map(|()| u32::from_le_bytes(word))
    };
    let boot_0 = register(NV_PMC_BOOT_0)?;
    let number = NV_PMC_BOOT_0::CHIPSET.get(boot_0);
    let (sender, told) = mpsc::channel();
    card.connect_interrupts(Some(Arc::new(MessageSeen(sender))));
    let interrupt = card.ask_for_message() && told.recv_timeout(MESSAGE).is_ok();
    card.connect_interrupts(None);
    Ok(Findings {
        address: device.address.to_string(),
        pci_id: format!("{:04x}:{:04x}", device.vendor, device.device),
        interface: card.interface(),
        boot_0: format!("{boot_0:#010x}"),
        chip_number: format!("NV{number:X}"),
        chip: chip(number),
        initialised: register(NV_PMC_ENABLE)? & INITIALISED != 0,
        regions: regions(card),
        reset_methods: device.reset_methods.clone(),
        reset: card.reset_method(),
        interrupt,
        memory_limit: rustix::process::getrlimit(rustix::process::Resource::Memlock).current,
        engines: None,
    })
}

/// NV_PMC_ENABLE: PFIFO and PGRAPH, which only a driver or the VBIOS switches on.
const INITIALISED: u32 = NV_PMC_ENABLE::PFIFO.mask() | NV_PMC_ENABLE::PGRAPH.mask();

/// Chips with a driver here.
fn chip(number: u32) -> Option<&'static str> {
    match number {
        0xc0 => Some("GF100"),
        0xe4 => Some("GK104"),
        0x117 => Some("GM107"),
        0x180 => Some("GH100"),
        _ => None,
    }
}

fn regions(card: &VfioFunction) -> Vec<RegionFinding> {
    let table = card.regions();
    let there = Region::ALL.into_iter().zip(table).filter(|(_, info)| info.size > 0);
    there
        .map(|(region, info)| RegionFinding {
            name: match region {
                Region::Bar(number) => format!("BAR{number}"),
                Region::Rom => "ROM".to_owned(),
                Region::Config => "configuration".to_owned(),
            },
            size: info.size,
            kind: match info.kind {
                RegionKind::Absent => "absent",
                RegionKind::Memory32 => "memory, 32 bits",
                RegionKind::Memory64Prefetch => "memory, 64 bits, prefetchable",
                RegionKind::Io => "ports",
                RegionKind::Rom => "ROM",
                RegionKind::Config => "configuration space",
            },
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chips_have_the_numbers_that_drivers_give_them() {
        for (boot_0, name) in [
            (0x0c00_00a3_u32, "GF100"),
            (0x0e40_00a2, "GK104"),
            (0x1170_00a2, "GM107"),
            (0x1800_00a1, "GH100"),
        ] {
            assert_eq!(chip(NV_PMC_BOOT_0::CHIPSET.get(boot_0)), Some(name), "{boot_0:#x}");
        }
        assert_eq!(chip(0x1ff), None);
    }
}
