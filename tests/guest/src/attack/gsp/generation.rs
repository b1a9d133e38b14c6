//! What a driver of its own does differently from one generation of chips to the next: a row of a table.

use std::ops::Range;

use anyhow::{Result, bail};
use gpuvmk_chip::gh100::methods::compute;
use gpuvmk_chip::qmd::layout::{Layout, V2_2, V3_0, V4_0, V5_0};

use super::space::Format;
use crate::attack::card::Card;

/// A generation.
#[derive(Debug)]
pub struct Generation {
    /// What stands in bits 28:20 of a chip's identification.
    chipsets: Range<u32>,
    /// How its GSP is booted.
    pub boot: Boot,
    /// Where it says how much VRAM there is.
    size: Size,
    /// The register that moves the window.
    pub window: u32,
    /// Its page tables.
    pub format: Format,
    /// Classes of channels and of copies.
    pub channel: u32,
    pub copy: u32,
    /// Bits that a doorbell's token has set beside its runlist and channel.
    token: u32,
    /// What always reads the same beside straps: the first register, and how many.
    constants: &'static [(u32, u32)],
    /// Classes of drawing and of compute.
    pub threed: u32,
    pub compute: u32,
    /// How a launch is described.
    pub launch: &'static Layout,
    /// The method that launches it.
    pub signal: u16,
    /// A branch to itself (BRA): Hopper has other bits of its distance.
    pub branch: u128,
}

/// How GSP is booted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boot {
    /// By a message to FSP, of this version.
    Fsp(u32),
    /// By firmware on the falcons of GSP and SEC2, which gets there so.
    Falcons(Load),
}

/// How firmware gets into a falcon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// By the ports of the falcon's memories.
    Ports,
    /// By the falcon's DMA.
    Dma,
}

/// A register with the size of VRAM.
#[derive(Debug, Clone, Copy)]
enum Size {
    /// In MiB.
    Mebibytes,
    /// A number and by how far it is shifted.
    Scaled,
}

const MEBIBYTES: u32 = 0x11_83a4;
const SCALED: u32 = 0x10_0ce0;
/// The register of the window, where the bus unit has it, and where its successor has it.
const OLD_WINDOW: u32 = 0x1700;
const NEW_WINDOW: u32 = 0x10_fd40;

const STRAPS: u32 = 0x10_1000;
/// The VBIOS's beginning; all fuses; those with the least versions of firmware for SEC2's and for GSP's
/// falcon.
const ROM: (u32, u32) = (0x30_0000, 64);
const FUSES: (u32, u32) = (0x82_0000, 64);
const SEC2_FUSES: (u32, u32) = (0x82_4140, 16);
const GSP_FUSES: (u32, u32) = (0x82_41c0, 16);
/// Who may look how far the card's own firmware is, and how far it is.
const FIRMWARE_READERS: (u32, u32) = (0x11_8128, 1);
const FIRMWARE_PROGRESS: (u32, u32) = (0x11_8234, 1);

const TURING: Generation = Generation {
    chipsets: 0x160..0x170,
    boot: Boot::Falcons(Load::Ports),
    size: Size::Scaled,
    window: OLD_WINDOW,
    format: Format::V2,
    channel: 0xc46f,
    copy: 0xc5b5,
    token: 0,
    // The last are fuses of the display.
    constants: &[ROM, SEC2_FUSES, GSP_FUSES, FIRMWARE_READERS, FIRMWARE_PROGRESS, (SCALED, 1), (0x2_1c00, 2)],
    threed: 0xc597,
    compute: 0xc5c0,
    launch: &V2_2,
    signal: compute::SEND_SIGNALING_PCAS_B,
    branch: 0x000f_c000_0383_ffff_ffff_fff0_0000_7947,
};

const AMPERE: Generation = Generation {
    chipsets: 0x172..0x180,
    boot: Boot::Falcons(Load::Dma),
    size: Size::Mebibytes,
    channel: 0xc56f,
    copy: 0xc7b5,
    constants: &[
        ROM,
        SEC2_FUSES,
        GSP_FUSES,
        FIRMWARE_READERS,
        FIRMWARE_PROGRESS,
        (MEBIBYTES, 1),
        (0x82_0c04, 1),
    ],
    threed: 0xc797,
    compute: 0xc7c0,
    launch: &V3_0,
    signal: compute::SEND_SIGNALING_PCAS2_B,
    ..TURING
};

const ADA: Generation = Generation { chipsets: 0x190..0x1a0, threed: 0xc997, compute: 0xc9c0, ..AMPERE };

const HOPPER: Generation = Generation {
    chipsets: 0x180..0x190,
    boot: Boot::Fsp(1),
    size: Size::Mebibytes,
    window: NEW_WINDOW,
    format: Format::V3,
    channel: 0xc86f,
    copy: 0xc8b5,
    token: 0,
    // The last says that FSP is up.
    constants: &[ROM, FUSES, (MEBIBYTES, 1), (0x2_00bc, 1)],
    threed: 0xcb97,
    compute: 0xcbc0,
    launch: &V4_0,
    signal: compute::SEND_SIGNALING_PCAS2_B,
    branch: 0x000f_c000_0383_ffff_ffff_fffc_00fc_7947,
};

/// Tokens name a runlist, and say so.
const BLACKWELL: Generation = Generation {
    chipsets: 0x1b0..0x1c0,
    boot: Boot::Fsp(2),
    channel: 0xca6f,
    copy: 0xcab5,
    token: 1 << 30,
    threed: 0xce97,
    compute: 0xcec0,
    launch: &V5_0,
    constants: &[ROM, FUSES, (MEBIBYTES, 1), (0xad_00bc, 1)],
    ..HOPPER
};

static GENERATIONS: [Generation; 5] = [TURING, AMPERE, HOPPER, ADA, BLACKWELL];

impl Generation {
    /// The generation of a card.
    pub fn of(card: &Card) -> Result<&'static Self> {
        Self::of_identification(card.reg(0))
    }

    /// That of a chip with this identification.
    pub fn of_identification(identification: u32) -> Result<&'static Self> {
        let chip = identification >> 20 & 0x1ff;
        match GENERATIONS.iter().find(|generation| generation.chipsets.contains(&chip)) {
            Some(generation) => Ok(generation),
            None => bail!("there are no attacks for chip {chip:#x}"),
        }
    }

    /// What a doorbell is told: a runlist, and a channel on it.
    pub const fn token(&self, runlist: u32, channel: u32) -> u32 {
        self.token | runlist << 16 | channel
    }

    /// Registers that always read the same.
    pub fn constants(&self) -> Vec<u32> {
        let words =
            self.constants.iter().flat_map(|(first, count)| (0..*count).map(move |word| first + word * 4));
        std::iter::once(STRAPS).chain(words).collect()
    }

    /// Bytes of VRAM.
    pub fn vram(&self, card: &Card) -> u64 {
        match self.size {
            Size::Mebibytes => u64::from(card.reg(MEBIBYTES)) << 20,
            Size::Scaled => {
                let register = card.reg(SCALED);
                u64::from(register >> 4 & 0x3f) << ((register & 0xf) + 20)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chips_are_of_their_generation() {
        let copy = |boot_0| Generation::of_identification(boot_0).unwrap().copy;
        let all = [0x1660_00a1, 0x1760_00a1, 0x1800_00a1, 0x1940_00a1, 0x1b30_00a1].map(copy);
        assert_eq!(all, [0xc5b5, 0xc7b5, 0xc8b5, 0xc7b5, 0xcab5]);
        for none in [0x0c00_00a3, 0x1700_00a1, 0x1a20_00a1, u32::MAX] {
            assert!(Generation::of_identification(none).is_err(), "{none:#x}");
        }
    }

    #[test]
    fn tokens_have_what_their_generation_looks_for() {
        let token = |boot_0| Generation::of_identification(boot_0).unwrap().token(1, 3);
        assert_eq!([0x1800_00a1, 0x1b30_00a1].map(token), [0x1_0003, 0x4001_0003]);
    }
}
