//! Which chip a device is, as far as these programs must know: its classes, and what it can.

use std::fmt;

use anyhow::{Result, bail, ensure};

use crate::drm::Device;
use crate::drm::abi::Parameter;
use crate::engine::Engine;

/// A chip whose classes these programs speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chip {
    /// Fermi: GF100 and its like.
    Fermi,
    /// Hopper: GH100.
    Hopper,
}

impl Chip {
    /// The chip of an open device; an error for one whose classes these programs do not speak.
    pub fn of(device: &Device) -> Result<Self> {
        Self::from_chipset(device.parameter(Parameter::Chipset)?)
    }

    fn from_chipset(chipset: u64) -> Result<Self> {
        match chipset {
            0xc0..0xe0 => Ok(Self::Fermi),
            0x180..0x190 => Ok(Self::Hopper),
            _ => bail!(
                "chipset {chipset:#x} is neither Fermi nor Hopper: these programs have no classes for it"
            ),
        }
    }

    /// The engine that ordinary copies use.
    pub fn mover(self) -> Engine {
        match self {
            Self::Fermi => Engine::M2mf,
            Self::Hopper => Engine::Copy,
        }
    }

    /// Engines that every device of this chip has.
    pub fn engines(self) -> &'static [Engine] {
        match self {
            Self::Fermi => &[Engine::M2mf],
            Self::Hopper => &[Engine::Copy, Engine::GraphicsCopy],
        }
    }

    /// Engines that a device may have: nouveau reaches a Fermi's copy engines only on some kernels.
    pub fn more_engines(self) -> &'static [Engine] {
        match self {
            Self::Fermi => &[Engine::Copy0, Engine::Copy1],
            Self::Hopper => &[],
        }
    }

    /// Words of the kernel's log line about a channel that made no progress on its engine.
    pub fn hang_words(self) -> &'static [&'static str] {
        match self {
            Self::Fermi => &["SCHED_ERROR", "CTXSW_TIMEOUT"],
            Self::Hopper => &["rc engn:", "type:109"],
        }
    }

    /// Words of the kernel's log line about a channel whose semaphore nobody releases.
    pub fn stuck_words(self) -> &'static [&'static str] {
        match self {
            // The unit's acquire interrupt, for which nouveau has no name.
            Self::Fermi => &["PBDMA0: 04000000"],
            Self::Hopper => &["rc engn:", "type:32"],
        }
    }

    /// Words of the kernel's log line about an address that is not mapped.
    pub fn fault_words(self) -> &'static [&'static str] {
        match self {
            Self::Fermi => &["fault", "_NOT_PRESENT"],
            // The firmware's "robust channel" event.
            Self::Hopper => &["rc engn:", "fault_addr:"],
        }
    }
}

impl fmt::Display for Chip {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Fermi => "Fermi",
            Self::Hopper => "Hopper",
        })
    }
}

/// An error unless `device` is a Hopper.
pub fn hopper(device: &Device) -> Result<()> {
    let chip = Chip::of(device)?;
    ensure!(chip == Chip::Hopper, "this program is for Hopper, the GPU is a {chip}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chips_are_told_by_nouveaus_chipset_number() {
        assert_eq!(Chip::from_chipset(0xc0).unwrap(), Chip::Fermi);
        assert_eq!(Chip::from_chipset(0x180).unwrap(), Chip::Hopper);
        assert!(Chip::from_chipset(0x166).unwrap_err().to_string().contains("0x166"));
    }
}
