//! Falcons, by which GSP is booted from Turing to Ada: FWSEC on GSP's own sets up a protected region, the
//! booter on SEC2's loads GSP into it.

use anyhow::Result;

use super::generation::Load;
use super::rpc::put;
use crate::attack::card::Card;
use crate::attack::low;
use crate::dma_memory::{DmaMemory, Piece};
use crate::push::split;

/// Where the units are.
pub const GSP: u32 = 0x11_0000;
pub const SEC2: u32 = 0x84_0000;
/// Registers of a unit with a falcon: mailboxes, start, DMA, ports of its memories, reset, DMA's targets.
const MAILBOX_0: u32 = 0x040;
const MAILBOX_1: u32 = 0x044;
pub const START: u32 = 0x100;
const VECTOR: u32 = 0x104;
pub const DMA_CONTROL: u32 = 0x10c;
pub const DMA_BASE: u32 = 0x110;
pub const DMA_TO: u32 = 0x114;
pub const DMA_COMMAND: u32 = 0x118;
pub const DMA_FROM: u32 = 0x11c;
pub const DMA_BASE_HIGH: u32 = 0x128;
pub const IMEM_PORT: u32 = 0x180;
pub const IMEM_DATA: u32 = 0x184;
pub const DMEM_PORT: u32 = 0x1c0;
pub const DMEM_DATA: u32 = 0x1c4;
const RESET: u32 = 0x3c0;
pub const DMA_TARGETS: u32 = 0x600;
/// Which core a unit has after a reset.
const CORE: u32 = 0x1668;
/// Errors of FWSEC's commands FRTS (upper half) and SB (lower half), and the end of the protected region.
const FRTS_ERROR: u32 = 0x1438;
const SB_ERROR: u32 = 0x1454;
const REGION_END: u32 = 0x1f_a828;
/// Whether GSP's firmware runs: of a Turing, and of others.
const OLD_ACTIVE: (u32, u32) = (0x11_1240, 1);
const ACTIVE: (u32, u32) = (0x11_1388, 1 << 7);

/// Transfers of 256 bytes into instruction and data memory; a port that moves on with each word written.
const TO_IMEM: u32 = 0x614;
pub const TO_DMEM: u32 = 0x600;
pub const MOVES_ON: u32 = 1 << 24;
/// Physical addresses of coherent system memory.
const SYSTEM: u32 = 5;

/// Commands of FWSEC.
pub const FRTS: u32 = 0x15;
pub const SB: u32 = 0x19;
/// Bytes of FWSEC's code and data; where in data its list of interfaces, what that names, and a command are.
const CODE: usize = 0x100;
const DATA: usize = 0x300;
pub const INTERFACES: usize = 0x1a0;
pub const MAPPER: usize = 0x1b0;
const COMMAND: usize = 0x200;

/// Falcons of a card, and images for them in memory.
#[derive(Debug)]
pub struct Falcons<'a> {
    pub card: &'a Card,
    pub memory: &'a mut DmaMemory,
    load: Load,
    /// Bytes of VRAM.
    vram: u64,
    pub image: Piece,
    /// What describes GSP's image.
    pub meta: Piece,
}

impl<'a> Falcons<'a> {
    /// Writes a description of GSP's image, too.
    pub fn new(card: &'a Card, memory: &'a mut DmaMemory, load: Load, vram: u64) -> Result<Self> {
        let (image, meta) = (memory.take(0x1000, 0x1000)?, memory.take(0x1000, 0x1000)?);
        let frts = vram - (2 << 20);
        for (at, word) in [
            (0x00, 0xdc3a_ae21_371a_60b3),
            (0x08, 1),
            (0x60, frts - (4 << 20)),
            (0x68, 1 << 20),
            (0x70, frts - (3 << 20)),
            (0x98, frts),
            (0xa0, 1 << 20),
            (0xa8, frts + (1 << 20)),
        ] {
            memory.store64(meta, at, word);
        }
        Ok(Self { card, memory, load, vram, image, meta })
    }

    /// Boots GSP with arguments at a bus address: the first error code, 0 if there is none.
    pub fn boot(&mut self, arguments: u64) -> u32 {
        if !self.has_region() {
            let (mailbox, error) = (self.fwsec(FRTS, &self.region()), self.frts_error());
            if mailbox | error != 0 {
                return mailbox | error;
            }
        }
        self.prepare(arguments);
        self.booter(self.meta.physical)
    }

    /// A region of 1 MiB below the last one of VRAM: first page, pages, and that it is in VRAM.
    pub fn region(&self) -> [u32; 3] {
        [low((self.vram - (2 << 20)) >> 12), 0x100, 2]
    }

    /// FWSEC's data with a command.
    pub fn data(command: u32, region: &[u32]) -> Vec<u8> {
        let mut data = vec![0; DATA];
        let [mapper, buffer] = [MAPPER, COMMAND].map(|at| u32::try_from(at).unwrap_or(0));
        // Version 1, heads of 4 bytes, entries of 8, one; which is of kind 4.
        put(&mut data, INTERFACES, &[0x0108_0401, 4, mapper]);
        put(&mut data, MAPPER, &[u32::from_le_bytes(*b"PAMD"), 0x40 << 16 | 3, buffer, 0x2c]);
        put(&mut data, MAPPER + 0x2c, &[command]);
        put(&mut data, COMMAND, &[1, 24, 0, 0, 0, 2, 1, 20]);
        put(&mut data, COMMAND + 32, region);
        data
    }

    /// Has FWSEC run: its mailbox.
    pub fn fwsec(&mut self, command: u32, region: &[u32]) -> u32 {
        self.fwsec_with(&Self::data(command, region))
    }

    /// The same with data of choice.
    pub fn fwsec_with(&mut self, data: &[u8]) -> u32 {
        self.reset(GSP);
        let image = [&[0x5a; CODE], data].concat();
        for (at, word) in (0..).step_by(4).zip(image.as_chunks::<4>().0) {
            self.memory.store32(self.image, at, u32::from_le_bytes(*word));
        }
        match self.load {
            Load::Ports => {
                self.fill(GSP, IMEM_PORT, IMEM_DATA, 0xff00, &[0x5a5a_5a5a; CODE / 4]);
                self.card.set(GSP + DMA_TARGETS + 4, SYSTEM);
                // What FWSEC's bootloader is told: the index of DMA, where code and data are.
                let mut told = vec![0; 21 * 4];
                let code = self.image.physical;
                let ([code_high, code_low], [data_high, data_low]) = (split(code), split(code + CODE as u64));
                put(&mut told, 32, &[1, code_low, code_high]);
                let size = u32::try_from(data.len()).unwrap_or(u32::MAX);
                put(&mut told, 64, &[data_low, data_high, size]);
                let words: Vec<u32> =
                    told.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
                self.fill(GSP, DMEM_PORT, DMEM_DATA, 0, &words);
            }
            Load::Dma => {
                let code = u32::try_from(CODE).unwrap_or(0);
                self.transfers(GSP, TO_IMEM, 0, 0, code);
                self.transfers(GSP, TO_DMEM, code, 0, u32::try_from(data.len()).unwrap_or(0));
            }
        }
        self.start(GSP, 0)
    }

    /// Resets GSP and leaves the bus address of its arguments.
    pub fn prepare(&self, arguments: u64) {
        let [high, low] = split(arguments);
        self.reset(GSP);
        if self.load == Load::Dma {
            self.card.set(GSP + CORE, 0x111);
        }
        self.card.set(GSP + MAILBOX_0, low);
        self.card.set(GSP + MAILBOX_1, high);
    }

    /// Has the booter run with this in its mailboxes: the first of them afterwards.
    pub fn booter(&mut self, mailboxes: u64) -> u32 {
        self.reset(SEC2);
        match self.load {
            Load::Ports => {
                self.fill(SEC2, IMEM_PORT, IMEM_DATA, 0, &[0x5a5a_5a5a; 64]);
                self.fill(SEC2, DMEM_PORT, DMEM_DATA, 0, &[0x5a5a_5a5a; 64]);
            }
            Load::Dma => {
                self.memory.fill(self.image, 0x5a5a_5a5a);
                self.transfers(SEC2, TO_IMEM, 0, 0, 0x100);
                self.transfers(SEC2, TO_DMEM, 0, 0, 0x200);
            }
        }
        let [high, low] = split(mailboxes);
        self.card.set(SEC2 + MAILBOX_1, high);
        self.start(SEC2, low)
    }

    /// Resets a unit; its falcon, and no other core, is what starts.
    pub fn reset(&self, unit: u32) {
        self.card.set(unit + RESET, 1);
        self.card.set(unit + RESET, 0);
        if self.load == Load::Dma {
            self.card.set(unit + CORE, 0);
        }
        self.card.set(unit + DMA_CONTROL, 0);
        self.card.set(unit + DMA_TARGETS, SYSTEM);
    }

    /// Starts a falcon: its first mailbox afterwards.
    pub fn start(&self, unit: u32, mailbox: u32) -> u32 {
        self.card.set(unit + MAILBOX_0, mailbox);
        self.card.set(unit + VECTOR, 0);
        self.card.set(unit + START, 2);
        self.card.reg(unit + MAILBOX_0)
    }

    /// Writes words by a port, from a position on.
    pub fn fill(&self, unit: u32, port: u32, data: u32, position: u32, words: &[u32]) {
        self.card.set(unit + port, MOVES_ON | position);
        words.iter().for_each(|word| self.card.set(unit + data, *word));
    }

    /// Transfers parts of the image.
    fn transfers(&self, unit: u32, command: u32, from: u32, to: u32, size: u32) {
        for at in (0..size).step_by(256) {
            self.transfer(unit, self.image.physical, command, from + at, to + at);
        }
    }

    /// One transfer of what lies at a bus address.
    pub fn transfer(&self, unit: u32, address: u64, command: u32, from: u32, to: u32) {
        self.card.set(unit + DMA_BASE, low(address >> 8));
        self.card.set(unit + DMA_BASE_HIGH, low(address >> 40));
        self.card.set(unit + DMA_TO, to);
        self.card.set(unit + DMA_FROM, from);
        self.card.set(unit + DMA_COMMAND, command);
    }

    /// Error codes of FWSEC's commands.
    pub fn frts_error(&self) -> u32 {
        self.card.reg(FRTS_ERROR) >> 16
    }

    pub fn sb_error(&self) -> u32 {
        self.card.reg(SB_ERROR) & 0xffff
    }

    /// Whether there is a protected region.
    pub fn has_region(&self) -> bool {
        self.card.reg(REGION_END) != 0
    }

    /// Whether GSP's firmware runs.
    pub fn gsp_runs(&self) -> bool {
        let (register, bit) = if self.load == Load::Ports { OLD_ACTIVE } else { ACTIVE };
        self.card.reg(register) & bit != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_of_fwsec_leads_to_its_command() {
        let data = Falcons::data(FRTS, &[0x3e00, 0x100, 2]);
        let word = |at: usize| u32::from_le_bytes(data[at..at + 4].try_into().unwrap());
        let mapper = word(INTERFACES + 8) as usize;
        assert_eq!((&data[mapper..mapper + 4], word(mapper + 0x2c)), (&b"PAMD"[..], FRTS));
        let command = word(mapper + 8) as usize;
        assert_eq!([24, 28, 32, 36, 40].map(|at| word(command + at)), [1, 20, 0x3e00, 0x100, 2]);
        assert!(command + 44 <= data.len());
    }
}
