//! The chips that guests can be shown, and which stock kernels drive them.

use std::fmt;
use std::str::FromStr;

use anyhow::{Error, Result, bail, ensure};

use crate::kernel::KernelSeries;

/// A chip that a vGPU presents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Chip {
    /// Fermi.
    #[default]
    Gf100,
    /// Hopper.
    Gh100,
}

impl Chip {
    /// All chips, oldest first.
    pub const ALL: [Self; 2] = [Self::Gf100, Self::Gh100];

    /// Its name, as configuration files have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gf100 => "GF100",
            Self::Gh100 => "GH100",
        }
    }

    /// The kernel that a guest gets if nobody chose one.
    pub fn usual_kernel(self) -> KernelSeries {
        match self {
            Self::Gf100 => KernelSeries::V6_12,
            Self::Gh100 => KernelSeries::V7_2,
        }
    }

    /// Whether a software GPU of this chip can be a guest's own. A GH100's driver speaks to firmware, which
    /// only a mediated GPU's process plays.
    pub fn has_native_form(self) -> bool {
        self == Self::Gf100
    }

    /// Refuses a kernel whose nouveau does not drive this chip, and says what such a guest would see.
    pub fn check_kernel(self, kernel: KernelSeries) -> Result<()> {
        ensure!(
            self == Self::Gf100 || kernel.drives_gsp_chips(),
            "Linux {kernel} does not drive a {self}: its nouveau says 'unknown chipset (180000a1)' and leaves the GPU \
             alone. Linux 6.16 or newer is needed: choose --kernel {}",
            self.usual_kernel()
        );
        Ok(())
    }
}

impl fmt::Display for Chip {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Chip {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match Self::ALL.into_iter().find(|chip| chip.name().eq_ignore_ascii_case(text)) {
            Some(chip) => Ok(chip),
            None => bail!("No chip '{text}': there are {}", Self::ALL.map(Self::name).join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chip_parses_in_either_case() {
        assert_eq!("gh100".parse::<Chip>().unwrap(), Chip::Gh100);
        assert_eq!("GF100".parse::<Chip>().unwrap(), Chip::Gf100);
        let message = "GA100".parse::<Chip>().unwrap_err().to_string();
        assert!(message.contains("GF100, GH100"), "{message}");
    }

    #[test]
    fn kernel_that_is_too_old_is_refused_with_the_remedy() {
        let message = Chip::Gh100.check_kernel(KernelSeries::V6_12).unwrap_err().to_string();
        assert!(message.contains("unknown chipset") && message.contains("--kernel 7.2"), "{message}");
        for chip in Chip::ALL {
            assert!(chip.check_kernel(chip.usual_kernel()).is_ok());
            assert!(chip.check_kernel(KernelSeries::V7_2).is_ok());
        }
    }
}
