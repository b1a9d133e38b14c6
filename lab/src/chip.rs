//! The chips that guests can be shown, and what only the laboratory knows of them: which stock kernels drive
//! those of each generation.

use std::ops::RangeInclusive;

use anyhow::{Result, ensure};
pub use gpuvmk_chip::Chip;
use gpuvmk_chip::{Face, compute};

use crate::kernel::KernelSeries;

/// The chips that tests, attacks and figures of every kind are made with: one that is driven by registers,
/// and one by firmware. The others have cases of their own.
pub const USUAL: [Chip; 2] = [Chip::GF100, Chip::GH100];

/// Which stock kernels drive chips that nouveau has these numbers of.
struct Support {
    /// nouveau's numbers: bits 28:20 of a chip's identification.
    chipsets: RangeInclusive<u32>,
    /// The oldest series that does.
    oldest: KernelSeries,
    /// The oldest Linux that does, as users know it.
    linux: &'static str,
    /// What nouveau of an older one makes of such a chip.
    before: Before,
    /// The kernel that a guest gets if nobody chose one.
    usual: KernelSeries,
}

/// What nouveau makes of a chip that it does not drive.
enum Before {
    /// It has no number of it, and leaves it alone.
    Unknown,
    /// It drives the chip by registers only, with NVIDIA's signed firmware of many parts.
    WithoutGsp,
}

/// Linux: drivers/gpu/drm/nouveau/nvkm/engine/device/base.c has the numbers, subdev/gsp whose GSP it uses.
const SUPPORT: [Support; 4] = [
    // Fermi.
    Support {
        chipsets: 0xc0..=0xdf,
        oldest: KernelSeries::V6_1,
        linux: "6.1",
        before: Before::Unknown,
        usual: KernelSeries::V6_12,
    },
    // Turing, Ampere.
    Support {
        chipsets: 0x162..=0x177,
        oldest: KernelSeries::V6_12,
        linux: "6.7",
        before: Before::WithoutGsp,
        usual: KernelSeries::V6_12,
    },
    // Ada.
    Support {
        chipsets: 0x192..=0x197,
        oldest: KernelSeries::V6_12,
        linux: "6.7",
        before: Before::Unknown,
        usual: KernelSeries::V6_12,
    },
    // Hopper, Blackwell: all others.
    Support {
        chipsets: 0x180..=0x1ff,
        oldest: KernelSeries::V7_2,
        linux: "6.16",
        before: Before::Unknown,
        usual: KernelSeries::V7_2,
    },
];

fn support(chip: Chip) -> &'static Support {
    let [.., newest] = &SUPPORT;
    let chipset = chip.boot_0 >> 20 & 0x1ff;
    SUPPORT.iter().find(|support| support.chipsets.contains(&chipset)).unwrap_or(newest)
}

/// What the laboratory asks of a chip.
pub trait GuestChip {
    /// The kernel that a guest gets if nobody chose one.
    fn usual_kernel(self) -> KernelSeries;

    /// Whether a software GPU of this chip can be a guest's own. What a chip with a GSP speaks to is
    /// firmware, which only a mediated GPU's process plays.
    fn has_native_form(self) -> bool;

    /// Its folder among firmware files.
    fn firmware_folder(self) -> String;

    /// Whether nouveau of this kernel drives it.
    fn driven_by(self, kernel: KernelSeries) -> bool;

    /// Refuses a kernel whose nouveau does not drive this chip, and says what such a guest would see.
    fn check_kernel(self, kernel: KernelSeries) -> Result<()>;

    /// Whether the software GPU executes its machine code, and tests have kernels for it.
    fn computes(self) -> bool;

    /// Whether compute shaders of Debian's Mesa, as it comes, run on it there. Mesa's launches and branches
    /// for Hopper are wrong (docs/nvk.md).
    fn computes_by_mesa(self) -> bool;
}

impl GuestChip for Chip {
    fn usual_kernel(self) -> KernelSeries {
        support(self).usual
    }

    fn has_native_form(self) -> bool {
        self.face == Face::Registers
    }

    fn firmware_folder(self) -> String {
        self.name().to_ascii_lowercase()
    }

    fn driven_by(self, kernel: KernelSeries) -> bool {
        kernel >= support(self).oldest
    }

    fn check_kernel(self, kernel: KernelSeries) -> Result<()> {
        let support = support(self);
        let says = match support.before {
            Before::Unknown => {
                format!("its nouveau says 'unknown chipset ({:08x})' and leaves the GPU alone", self.boot_0)
            }
            Before::WithoutGsp => {
                "its nouveau does without the GSP, and wants firmware whose code a virtual GPU cannot run"
                    .to_owned()
            }
        };
        ensure!(
            self.driven_by(kernel),
            "Linux {kernel} does not drive a {self}: {says}. Linux {} or newer is needed: choose --kernel {}",
            support.linux,
            support.usual
        );
        Ok(())
    }

    fn computes(self) -> bool {
        // Blackwell's is not executed yet.
        sm(self).is_some_and(|sm| sm < 100)
    }

    fn computes_by_mesa(self) -> bool {
        sm(self).is_some_and(|sm| sm < 90)
    }
}

/// The version of its machine code, 89 for SM 8.9, where it has a GSP.
fn sm(chip: Chip) -> Option<u16> {
    compute::of_class(chip.classes.compute.number).map(|class| class.sm.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_that_is_too_old_is_refused_with_the_remedy() {
        let message = Chip::GH100.check_kernel(KernelSeries::V6_12).unwrap_err().to_string();
        assert!(
            message.contains("unknown chipset (180000a1)") && message.contains("--kernel 7.2"),
            "{message}"
        );
    }

    #[test]
    fn every_chip_driven_by_its_usual_kernel_and_by_all_that_are_newer() {
        for &chip in Chip::ALL {
            assert!(chip.check_kernel(chip.usual_kernel()).is_ok(), "{chip}");
            let driven = KernelSeries::ALL.map(|kernel| chip.driven_by(kernel));
            assert!(driven.is_sorted() && driven.ends_with(&[true, true]), "{chip}: {driven:?}");
        }
        assert!(Chip::AD104.driven_by(KernelSeries::V6_12) && !Chip::AD104.driven_by(KernelSeries::V6_1));
        assert!(!Chip::GB203.driven_by(KernelSeries::V6_12));
        let message = Chip::TU106.check_kernel(KernelSeries::V6_1).unwrap_err().to_string();
        assert!(message.contains("GSP") && message.contains("--kernel 6.12"), "{message}");
    }
}
