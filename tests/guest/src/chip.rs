//! Which chip a device is, as far as these programs must know: its classes, and what it can. A row of a table
//! for each generation; nothing else asks which one it is.

use std::fmt;
use std::fs;
use std::ops::Range;

use anyhow::{Context, Result, bail};
use gpuvmk_kernels::{Kernels, SM75, SM86, SM89, SM90};

use crate::drm::Device;
use crate::drm::abi::Parameter;
use crate::engine::Engine;

/// Chips whose classes these programs speak.
#[derive(Debug, PartialEq, Eq)]
pub struct Chip {
    /// NVIDIA's name of the generation.
    name: &'static str,
    /// nouveau's numbers of its chips.
    chipsets: Range<u64>,
    /// The register that says what VRAM BAR0 shows (bits 23:16 of the address and up).
    pub window: usize,
    /// The classes of chips whose engines a GSP hands out; none for those that are driven by registers.
    classes: Option<Classes>,
    /// Version of its machine code, as compilers number it (89 for SM 8.9); none for those of before Turing.
    pub sm: Option<u16>,
    /// Compute kernels for it, if there are any.
    kernels: Option<&'static Kernels>,
    /// Whether Mesa lists it without being told to take what does not conform.
    pub is_listed_by_mesa: bool,
}

/// The classes of a chip with a GSP: numbers from NVIDIA's headers (cl*.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Classes {
    /// Copies.
    pub copy: u16,
    /// Compute.
    pub compute: u16,
    /// Uploads.
    pub upload: u16,
    /// How the compute class is told to launch.
    pub launch: Launch,
}

/// The method that launches what SEND_PCAS_A named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Launch {
    /// SEND_SIGNALING_PCAS_B: INVALIDATE and SCHEDULE.
    Pcas,
    /// SEND_SIGNALING_PCAS2_B: an action.
    Pcas2,
}

/// Uploads (KEPLER_INLINE_TO_MEMORY_B), up to Hopper.
const KEPLER_UPLOAD: u16 = 0xa140;
/// Where older chips and newer ones have their window's register.
const OLD_WINDOW: usize = 0x1700;
const NEW_WINDOW: usize = 0x10_fd40;

static CHIPS: [Chip; 6] = [
    Chip {
        name: "Fermi",
        chipsets: 0xc0..0xe0,
        window: OLD_WINDOW,
        classes: None,
        sm: None,
        kernels: None,
        is_listed_by_mesa: false,
    },
    Chip {
        name: "Turing",
        chipsets: 0x160..0x170,
        window: OLD_WINDOW,
        classes: Some(Classes { copy: 0xc5b5, compute: 0xc5c0, upload: KEPLER_UPLOAD, launch: Launch::Pcas }),
        sm: Some(75),
        kernels: Some(&SM75),
        is_listed_by_mesa: true,
    },
    // GA100 has classes of its own.
    Chip {
        name: "Ampere",
        chipsets: 0x172..0x180,
        window: OLD_WINDOW,
        classes: Some(Classes {
            copy: 0xc7b5,
            compute: 0xc7c0,
            upload: KEPLER_UPLOAD,
            launch: Launch::Pcas2,
        }),
        sm: Some(86),
        kernels: Some(&SM86),
        is_listed_by_mesa: true,
    },
    Chip {
        name: "Hopper",
        chipsets: 0x180..0x190,
        window: NEW_WINDOW,
        classes: Some(Classes {
            copy: 0xc8b5,
            compute: 0xcbc0,
            upload: KEPLER_UPLOAD,
            launch: Launch::Pcas2,
        }),
        sm: Some(90),
        kernels: Some(&SM90),
        is_listed_by_mesa: false,
    },
    Chip {
        name: "Ada",
        chipsets: 0x190..0x1a0,
        window: OLD_WINDOW,
        classes: Some(Classes {
            copy: 0xc7b5,
            compute: 0xc9c0,
            upload: KEPLER_UPLOAD,
            launch: Launch::Pcas2,
        }),
        sm: Some(89),
        kernels: Some(&SM89),
        is_listed_by_mesa: true,
    },
    // GB10x have classes of their own.
    Chip {
        name: "Blackwell",
        chipsets: 0x1b0..0x1c0,
        window: NEW_WINDOW,
        classes: Some(Classes { copy: 0xcab5, compute: 0xcec0, upload: 0xcd40, launch: Launch::Pcas2 }),
        sm: Some(120),
        kernels: None,
        is_listed_by_mesa: true,
    },
];

impl Chip {
    /// The chip of an open device; an error for one whose classes these programs do not speak.
    pub fn of(device: &Device) -> Result<&'static Self> {
        Self::from_chipset(device.parameter(Parameter::Chipset)?)
    }

    fn from_chipset(chipset: u64) -> Result<&'static Self> {
        match CHIPS.iter().find(|chip| chip.chipsets.contains(&chipset)) {
            Some(chip) => Ok(chip),
            None => bail!("chipset {chipset:#x} is none for which these programs have classes"),
        }
    }

    /// Its classes, if it has a GSP: an error for a program that needs such a chip.
    pub fn classes(&self) -> Result<&Classes> {
        self.classes
            .as_ref()
            .with_context(|| format!("this program is for chips with a GSP, the GPU is a {self}"))
    }

    /// The compute kernels for this chip; an error if there are none.
    pub fn kernels(&self) -> Result<&'static Kernels> {
        self.kernels.with_context(|| format!("there are no kernels for the GPU, which is a {self}"))
    }

    /// The object class of an engine.
    pub fn class(&self, engine: Engine) -> Result<u16> {
        match engine {
            Engine::M2mf => Ok(0x9039),
            Engine::Copy0 => Ok(0x90b5),
            Engine::Copy1 => Ok(0x90b8),
            Engine::Copy | Engine::GraphicsCopy => Ok(self.classes()?.copy),
        }
    }

    /// The engine that ordinary copies use.
    pub fn mover(&self) -> Engine {
        if self.classes.is_some() { Engine::Copy } else { Engine::M2mf }
    }

    /// Engines that every device of this chip has.
    pub fn engines(&self) -> &'static [Engine] {
        if self.classes.is_some() { &[Engine::Copy, Engine::GraphicsCopy] } else { &[Engine::M2mf] }
    }

    /// Engines that a device may have: nouveau reaches a Fermi's copy engines only on some kernels.
    pub fn more_engines(&self) -> &'static [Engine] {
        if self.classes.is_some() { &[] } else { &[Engine::Copy0, Engine::Copy1] }
    }

    /// Words of the kernel's log line about a channel that made no progress on its engine.
    pub fn hang_words(&self) -> &'static [&'static str] {
        if self.classes.is_some() { &["rc engn:", "type:109"] } else { &["SCHED_ERROR", "CTXSW_TIMEOUT"] }
    }

    /// Words of the kernel's log line about a channel whose semaphore nobody releases.
    pub fn stuck_words(&self) -> &'static [&'static str] {
        // Fermi: the unit's acquire interrupt, for which nouveau has no name.
        if self.classes.is_some() { &["rc engn:", "type:32"] } else { &["PBDMA0: 04000000"] }
    }

    /// Words of the kernel's log line about an address that is not mapped; `address` as the line has it.
    pub fn fault_words<'a>(&self, address: &'a str) -> Result<Vec<&'a str>> {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").context("cannot tell the kernel")?;
        self.fault_words_below(&release, address)
    }

    fn fault_words_below<'a>(&self, release: &str, address: &'a str) -> Result<Vec<&'a str>> {
        Ok(match self.classes {
            None => vec!["fault", "_NOT_PRESENT", address],
            // The firmware's "robust channel" event.
            Some(_) if firmware_tells_addresses(release)? => {
                vec!["rc engn:", "type:31", "fault_addr:", address]
            }
            Some(_) => vec!["rc engn:", "type:31"],
        })
    }
}

/// Whether the firmware that this kernel's nouveau takes says at which address a fault was: that of version
/// 535.113.01 does not, and nouveau before Linux 6.16 knows no other.
fn firmware_tells_addresses(release: &str) -> Result<bool> {
    let mut numbers = release.trim().split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Ok((major, minor) >= (6, 16)),
        _ => bail!("the kernel's release '{release}' has no numbers"),
    }
}

impl fmt::Display for Chip {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chip(chipset: u64) -> &'static Chip {
        Chip::from_chipset(chipset).unwrap()
    }

    #[test]
    fn chips_are_told_by_nouveaus_chipset_number() {
        let names = [(0xc0, "Fermi"), (0x168, "Turing"), (0x176, "Ampere"), (0x180, "Hopper")];
        for (chipset, name) in names.into_iter().chain([(0x194, "Ada"), (0x1b3, "Blackwell")]) {
            assert_eq!(chip(chipset).to_string(), name);
        }
        for none in [0xe4, 0x140, 0x170, 0x1a0] {
            assert!(Chip::from_chipset(none).unwrap_err().to_string().contains(&format!("{none:#x}")));
        }
    }

    #[test]
    fn engine_has_the_class_of_its_chip() {
        let copy = |chipset| chip(chipset).class(Engine::Copy).unwrap();
        let all = [copy(0x162), copy(0x172), copy(0x180), copy(0x192), copy(0x1b2)];
        assert_eq!(all, [0xc5b5, 0xc7b5, 0xc8b5, 0xc7b5, 0xcab5]);
        assert_eq!(chip(0xc0).class(chip(0xc0).mover()).unwrap(), 0x9039);
        assert!(chip(0xc0).class(Engine::Copy).unwrap_err().to_string().contains("Fermi"));
    }

    #[test]
    fn kernels_are_of_the_machine_code_that_the_chip_has() {
        for chip in &CHIPS {
            let of_kernels = chip.kernels.map(|kernels| u16::from(kernels.spin.target.sm));
            assert!(of_kernels.is_none() || of_kernels == chip.sm, "{chip}");
        }
    }

    #[test]
    fn address_of_a_fault_is_looked_for_where_the_firmware_tells_it() {
        let words = |chipset, release| chip(chipset).fault_words_below(release, "3f").unwrap();
        assert_eq!(words(0x194, "7.2.12+deb13-amd64\n"), ["rc engn:", "type:31", "fault_addr:", "3f"]);
        assert_eq!(words(0x194, "6.12.117+deb13-amd64"), ["rc engn:", "type:31"]);
        assert_eq!(words(0xc0, "6.1.0-50-amd64"), ["fault", "_NOT_PRESENT", "3f"]);
        assert!(firmware_tells_addresses("next").is_err());
    }
}
