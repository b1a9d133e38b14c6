//! A falcon, the microcontroller inside PMU, the copy engines, FECS and GPCCS.
//!
//! Code and data memory are real: drivers upload through ports that advance by themselves and read data back.
//! No instruction is executed. Starting a falcon that has code makes it run; what its firmware would do is up
//! to the unit that contains it. One that has no code stays halted.
//!
//! Not modelled: DMA into the memories, further ports, the secure modes, breakpoints.

use gpuvmk_chip::gf100::regs::falcon::*;
use gpuvmk_chip::registers::Field;
use gpuvmk_mmio_trap::access::Word;
use gpuvmk_saved_state::{Check, StateError, Words};
use serde::{Deserialize, Serialize};

/// Bits of an upload port's index that are the position.
const POSITION: u32 = CODE_INDEX::ADDR.mask();
/// Memory that is being scrubbed.
const SCRUBBING: u32 = DMA_CONTROL::CODE_SCRUB.mask() | DMA_CONTROL::DATA_SCRUB.mask();

/// Something that the containing unit reacts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FalconEvent {
    /// The core started to run.
    Started,
    /// The driver raised these interrupts.
    Interrupt(u32),
}

/// An upload port: a position that advances.
#[derive(Clone, Copy, Debug, Default)]
struct Port {
    index: u32,
}

impl Port {
    fn advance(&mut self, when: Field) {
        if when.is_set(self.index) {
            self.index = self.index & !POSITION | self.index.wrapping_add(4) & POSITION;
        }
    }

    const fn word(self) -> usize {
        CODE_INDEX::ADDR.get(self.index) as usize
    }
}

/// A falcon's state.
#[derive(Clone, Debug)]
pub struct Falcon {
    code: Vec<u32>,
    data: Vec<u32>,
    code_port: Port,
    data_port: Port,
    tag: u32,
    uploaded: bool,
    running: bool,
    interrupts: u32,
    interrupt_enable: u32,
    access_enable: u32,
    dma_control: u32,
}

impl Falcon {
    /// A falcon with the memory sizes in its HW_CONFIG register.
    pub fn new(hw_config: u32) -> Self {
        let code = HW_CONFIG::CODE.get(hw_config) as usize * 64;
        let data = HW_CONFIG::DATA.get(hw_config) as usize * 64;
        Self {
            code: vec![0; code],
            data: vec![0; data],
            code_port: Port::default(),
            data_port: Port::default(),
            tag: 0,
            uploaded: false,
            running: false,
            interrupts: 0,
            interrupt_enable: 0,
            access_enable: 0,
            dma_control: 0,
        }
    }

    /// Back to the state after reset. Real memories keep their content; a driver cannot rely on it.
    pub fn reset(&mut self) {
        self.code.fill(0);
        self.data.fill(0);
        self.code_port = Port::default();
        self.data_port = Port::default();
        self.tag = 0;
        self.uploaded = false;
        self.running = false;
        self.interrupts = 0;
        self.interrupt_enable = 0;
        self.access_enable = 0;
        self.dma_control = 0;
    }

    /// Reads the register at `offset` from the falcon's base.
    pub fn read(&mut self, offset: u32) -> u32 {
        match offset {
            INTR => self.interrupts,
            INTR_EN => self.interrupt_enable,
            ACCESS_EN => self.access_enable,
            CPU_CONTROL if self.running => 0,
            CPU_CONTROL => CPU_CONTROL::HALTED.mask(),
            // Scrubbing is always complete.
            DMA_CONTROL => self.dma_control & !SCRUBBING,
            CODE_INDEX => self.code_port.index,
            CODE_DATA => {
                let word = self.code.get(self.code_port.word()).copied().unwrap_or(0);
                self.code_port.advance(CODE_INDEX::INCREMENT_ON_READ);
                word
            }
            CODE_TAG => self.tag,
            DATA_INDEX => self.data_port.index,
            DATA_DATA => {
                let word = self.data.get(self.data_port.word()).copied().unwrap_or(0);
                self.data_port.advance(CODE_INDEX::INCREMENT_ON_READ);
                word
            }
            _ => 0,
        }
    }

    /// Writes the register at `offset` from the falcon's base.
    pub fn write(&mut self, offset: u32, word: Word) -> Option<FalconEvent> {
        match offset {
            INTR_SET => {
                self.interrupts |= word.bits();
                return Some(FalconEvent::Interrupt(word.bits()));
            }
            INTR_CLEAR => self.interrupts &= !word.bits(),
            INTR_EN_SET => self.interrupt_enable |= word.bits(),
            INTR_EN_CLEAR => self.interrupt_enable &= !word.bits(),
            ACCESS_EN => self.access_enable = word.merge(self.access_enable),
            CPU_CONTROL => return self.control(word.bits()),
            DMA_CONTROL => self.dma_control = word.merge(self.dma_control),
            CODE_INDEX => self.code_port.index = word.merge(self.code_port.index),
            CODE_DATA => {
                if let Some(place) = self.code.get_mut(self.code_port.word()) {
                    *place = word.merge(*place);
                    self.uploaded = true;
                }
                self.code_port.advance(CODE_INDEX::INCREMENT_ON_WRITE);
            }
            CODE_TAG => self.tag = word.merge(self.tag),
            DATA_INDEX => self.data_port.index = word.merge(self.data_port.index),
            DATA_DATA => {
                if let Some(place) = self.data.get_mut(self.data_port.word()) {
                    *place = word.merge(*place);
                }
                self.data_port.advance(CODE_INDEX::INCREMENT_ON_WRITE);
            }
            _ => {}
        }
        None
    }

    /// True when the core runs firmware.
    pub const fn running(&self) -> bool {
        self.running
    }

    /// Starts the core as another falcon's firmware does.
    pub const fn start(&mut self) {
        self.running = self.uploaded;
    }

    /// True when the falcon takes both methods and context switches from the FIFO.
    pub const fn takes_channels(&self) -> bool {
        ACCESS_EN::CHSW.is_set(self.access_enable) && ACCESS_EN::FIFO.is_set(self.access_enable)
    }

    /// Interrupts that the containing unit has dealt with.
    pub const fn acknowledge(&mut self, interrupts: u32) {
        self.interrupts &= !interrupts;
    }

    fn control(&mut self, command: u32) -> Option<FalconEvent> {
        if !CPU_CONTROL::START.is_set(command) || !self.uploaded || self.running {
            return None;
        }
        self.running = true;
        Some(FalconEvent::Started)
    }
}

/// State of a [`Falcon`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FalconState {
    /// Code memory.
    pub code: Words,
    /// Data memory.
    pub data: Words,
    /// Where the port to code memory is.
    pub code_index: u32,
    /// Where the port to data memory is.
    pub data_index: u32,
    /// CODE_TAG.
    pub code_tag: u32,
    /// Code was written.
    pub uploaded: bool,
    /// The core runs.
    pub running: bool,
    /// INTR.
    pub intr: u32,
    /// INTR_EN.
    pub intr_en: u32,
    /// ACCESS_EN.
    pub access_en: u32,
    /// DMA_CONTROL.
    pub dma_control: u32,
}

impl Falcon {
    /// The state to save.
    pub fn state(&self) -> FalconState {
        let Self {
            code,
            data,
            code_port: Port { index: code_index },
            data_port: Port { index: data_index },
            tag,
            uploaded,
            running,
            interrupts,
            interrupt_enable,
            access_enable,
            dma_control,
        } = self;
        FalconState {
            code: Words::of(code),
            data: Words::of(data),
            code_index: *code_index,
            data_index: *data_index,
            code_tag: *tag,
            uploaded: *uploaded,
            running: *running,
            intr: *interrupts,
            intr_en: *interrupt_enable,
            access_en: *access_enable,
            dma_control: *dma_control,
        }
    }

    /// A falcon with the memory sizes in its HW_CONFIG register, in a saved state.
    ///
    /// # Errors
    /// Its memories have wrong sizes, or it runs, or has code, without an upload.
    pub fn from_state(state: &FalconState, hw_config: u32) -> Result<Self, StateError> {
        let check = Check("falcon");
        let fresh = Self::new(hw_config);
        let code = state.code.memory(check, "code", fresh.code.len())?;
        let data = state.data.memory(check, "data", fresh.data.len())?;
        check.that(state.uploaded || (!state.running && state.code.0.is_empty()), || {
            "it has code, or runs, and none was uploaded".to_owned()
        })?;
        Ok(Self {
            code,
            data,
            code_port: Port { index: state.code_index },
            data_port: Port { index: state.data_index },
            tag: state.code_tag,
            uploaded: state.uploaded,
            running: state.running,
            interrupts: state.intr,
            interrupt_enable: state.intr_en,
            access_enable: state.access_en,
            dma_control: state.dma_control,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: u32 = 0x1040;

    #[test]
    fn upload_port_advances_and_data_reads_back() {
        let mut falcon = Falcon::new(CONFIG);
        falcon.write(DATA_INDEX, Word::full(CODE_INDEX::INCREMENT_ON_WRITE.mask() | 0x10));
        for value in [1, 2, 3] {
            falcon.write(DATA_DATA, Word::full(value));
        }
        falcon.write(DATA_INDEX, Word::full(CODE_INDEX::INCREMENT_ON_READ.mask() | 0x14));
        assert_eq!([falcon.read(DATA_DATA), falcon.read(DATA_DATA), falcon.read(DATA_DATA)], [2, 3, 0]);
        assert_eq!(falcon.read(DATA_INDEX) & POSITION, 0x20);
    }

    #[test]
    fn core_without_code_stays_halted() {
        let mut falcon = Falcon::new(CONFIG);
        assert_eq!(falcon.write(CPU_CONTROL, Word::full(CPU_CONTROL::START.mask())), None);
        assert_eq!((falcon.running(), falcon.read(CPU_CONTROL)), (false, CPU_CONTROL::HALTED.mask()));
    }

    #[test]
    fn core_with_code_starts_once() {
        let mut falcon = Falcon::new(CONFIG);
        falcon.write(CODE_INDEX, Word::full(CODE_INDEX::INCREMENT_ON_WRITE.mask()));
        falcon.write(CODE_DATA, Word::full(0xf4));
        assert_eq!(
            falcon.write(CPU_CONTROL, Word::full(CPU_CONTROL::START.mask())),
            Some(FalconEvent::Started)
        );
        assert_eq!(falcon.write(CPU_CONTROL, Word::full(CPU_CONTROL::START.mask())), None);
        assert!(falcon.running());
        falcon.reset();
        assert!(!falcon.running() && !falcon.uploaded);
    }

    #[test]
    fn words_beyond_the_memory_are_dropped() {
        let mut falcon = Falcon::new(CONFIG);
        falcon.write(DATA_INDEX, Word::full(CODE_INDEX::INCREMENT_ON_WRITE.mask() | POSITION));
        falcon.write(DATA_DATA, Word::full(7));
        falcon.write(DATA_DATA, Word::full(8));
        falcon.write(DATA_INDEX, Word::full(0));
        assert_eq!(falcon.read(DATA_DATA), 8);
        falcon.write(CODE_INDEX, Word::full(0x00ff_fff0));
        falcon.write(CODE_DATA, Word::full(1));
        assert!(!falcon.uploaded);
    }
}
