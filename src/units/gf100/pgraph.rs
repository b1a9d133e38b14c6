//! PGRAPH's front end: its interrupt, the method that caused it, and its idle state.
//!
//! An error of the engine sets a bit of NV_PGRAPH_INTR and the registers that describe it; the engine stays
//! stopped until the driver allows methods again (the mediator and the software GPU stop the channel, so that
//! the register is stored only). State bundles and method defaults that drivers write by hand are done at
//! once. Registers that lists of context registers set are scratch.
//!
//! A further error while one is reported waits until it was cleared, as the engine would stand still in
//! hardware. The queue is bounded by the number of channels: a channel is stopped by its error.

use std::collections::VecDeque;

use super::effect::{Effect, ReadResult};
use super::fecs::{ContextSwitch, ContextSwitchState};
use gpuvmk_chip::channel_event::GraphicsError;
use gpuvmk_chip::gf100::CHANNELS;
use gpuvmk_chip::gf100::regs::fecs::NV_PGRAPH_PRI_FECS_INTR_SET;
use gpuvmk_chip::gf100::regs::pgraph::*;
use gpuvmk_chip::registers::Reg;
use gpuvmk_mmio_trap::access::Word;
use gpuvmk_saved_state::{Check, StateError};
use serde::{Deserialize, Serialize};

/// First register of FECS.
const CONTROLLERS: u32 = NV_PGRAPH_PRI_FECS_INTR_SET.0;
/// NV_PGRAPH_INTR: a class refused data.
const CLASS_ERROR: u32 = NV_PGRAPH_INTR::CLASS_ERROR.mask();
/// Reason of a class error: an invalid value.
const INVALID_VALUE: u32 = NV_PGRAPH_CLASS_ERROR::CODE.of(NV_PGRAPH_CLASS_ERROR::CODE::INVALID_VALUE);
/// Request bit of the power mode; it clears when the mode is reached.
const POWER_REQUEST: u32 = NV_PGRAPH_PRI_FE_PWR_MODE::REQ_SEND.mask();

/// PGRAPH's state.
#[derive(Clone, Debug)]
pub struct Pgraph {
    /// The context-switch controllers.
    pub controllers: ContextSwitch,
    interrupts: u32,
    interrupt_enable: u32,
    class_error: u32,
    trapped_address: u32,
    trapped_data: u32,
    power_mode: u32,
    objects: [u32; 8],
    waiting: VecDeque<(GraphicsError, u32)>,
}

impl Pgraph {
    /// PGRAPH with these controllers.
    pub const fn new(controllers: ContextSwitch) -> Self {
        Self {
            controllers,
            interrupts: 0,
            interrupt_enable: u32::MAX,
            class_error: 0,
            trapped_address: 0,
            trapped_data: 0,
            power_mode: 0,
            objects: [0; 8],
            waiting: VecDeque::new(),
        }
    }

    /// Back to the state after reset.
    pub fn reset(&mut self) {
        self.controllers.reset();
        self.interrupts = 0;
        self.interrupt_enable = u32::MAX;
        self.class_error = 0;
        self.trapped_address = 0;
        self.trapped_data = 0;
        self.power_mode = 0;
        self.objects = [0; 8];
        self.waiting.clear();
    }

    /// Reads a register.
    pub fn read(&mut self, reg: Reg) -> ReadResult {
        if reg.0 >= CONTROLLERS {
            return ReadResult::Value(self.controllers.read(reg));
        }
        if let Some(number) = NV_PGRAPH_PRI_FE_OBJECT_TABLE.index_of(reg) {
            return ReadResult::Value(self.objects.get(number as usize).copied().unwrap_or(0));
        }
        ReadResult::Value(match reg {
            NV_PGRAPH_INTR => self.interrupts,
            NV_PGRAPH_INTR_EN => self.interrupt_enable,
            NV_PGRAPH_CLASS_ERROR => self.class_error,
            NV_PGRAPH_TRAPPED_ADDR => self.trapped_address,
            NV_PGRAPH_TRAPPED_DATA_LOW => self.trapped_data,
            NV_PGRAPH_PRI_FE_PWR_MODE => self.power_mode,
            NV_PGRAPH_ENGINE_STATUS | NV_PGRAPH_STATUS => return ReadResult::GraphicsBusy,
            _ => 0,
        })
    }

    /// Writes a register.
    pub fn write(&mut self, reg: Reg, word: Word, effects: &mut Vec<Effect>) {
        if reg.0 >= CONTROLLERS {
            self.controllers.write(reg, word, effects);
            return;
        }
        match reg {
            NV_PGRAPH_INTR => {
                self.interrupts &= !word.bits();
                if self.interrupts == 0
                    && let Some((error, instance_page)) = self.waiting.pop_front()
                {
                    self.put(&error, instance_page);
                }
            }
            NV_PGRAPH_INTR_EN => self.interrupt_enable = word.merge(self.interrupt_enable),
            NV_PGRAPH_PRI_FE_PWR_MODE => self.power_mode = word.merge(self.power_mode) & !POWER_REQUEST,
            _ => {}
        }
    }

    /// Describes an error of a channel whose instance block is at `instance_page` (address >> 12).
    pub fn raise(&mut self, error: &GraphicsError, instance_page: u32) {
        if self.interrupts == 0 {
            self.put(error, instance_page);
        } else if self.waiting.len() < usize::from(CHANNELS) {
            self.waiting.push_back((*error, instance_page));
        }
    }

    fn put(&mut self, error: &GraphicsError, instance_page: u32) {
        self.interrupts |= error.status;
        self.class_error = if error.status & CLASS_ERROR == 0 { 0 } else { INVALID_VALUE };
        self.trapped_address = NV_PGRAPH_TRAPPED_ADDR::SUBCH.of(error.subchannel.into())
            | u32::from(error.method) & NV_PGRAPH_TRAPPED_ADDR::MTHD.mask();
        self.trapped_data = error.data;
        let subchannel = NV_PGRAPH_TRAPPED_ADDR::SUBCH.get(self.trapped_address);
        if let Some(object) = self.objects.get_mut(subchannel as usize) {
            *object = u32::from(error.class);
        }
        self.controllers.set_current(instance_page);
    }

    /// True while an enabled interrupt is pending.
    pub const fn pending(&self) -> bool {
        self.interrupts & self.interrupt_enable != 0
    }
}

/// State of [`Pgraph`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PgraphState {
    /// The context-switch controllers.
    pub controllers: ContextSwitchState,
    /// NV_PGRAPH_INTR.
    pub intr: u32,
    /// NV_PGRAPH_INTR_EN.
    pub intr_en: u32,
    /// NV_PGRAPH_CLASS_ERROR.
    pub class_error: u32,
    /// NV_PGRAPH_TRAPPED_ADDR.
    pub trapped_addr: u32,
    /// NV_PGRAPH_TRAPPED_DATA_LOW.
    pub trapped_data_low: u32,
    /// NV_PGRAPH_PRI_FE_PWR_MODE.
    pub pwr_mode: u32,
    /// NV_PGRAPH_PRI_FE_OBJECT_TABLE.
    pub object_table: [u32; 8],
    /// Errors that wait until the one before was cleared, with pages of instance blocks.
    pub waiting: Vec<(GraphicsError, u32)>,
}

impl Pgraph {
    /// The state to save.
    pub fn state(&self) -> PgraphState {
        let Self {
            controllers,
            interrupts,
            interrupt_enable,
            class_error,
            trapped_address,
            trapped_data,
            power_mode,
            objects,
            waiting,
        } = self;
        PgraphState {
            controllers: controllers.state(),
            intr: *interrupts,
            intr_en: *interrupt_enable,
            class_error: *class_error,
            trapped_addr: *trapped_address,
            trapped_data_low: *trapped_data,
            pwr_mode: *power_mode,
            object_table: *objects,
            waiting: waiting.iter().copied().collect(),
        }
    }

    /// PGRAPH with the falcons of the register tables, in a saved state.
    ///
    /// # Errors
    /// A register has bits that no error sets, more errors wait than there are channels, or see
    /// [`ContextSwitch::from_state`].
    pub fn from_state(state: &PgraphState, fecs_config: u32, gpccs_config: u32) -> Result<Self, StateError> {
        let check = Check("PGRAPH");
        check.that([0, INVALID_VALUE].contains(&state.class_error), || {
            format!("NV_PGRAPH_CLASS_ERROR is {:#x}", state.class_error)
        })?;
        let method = NV_PGRAPH_TRAPPED_ADDR::SUBCH.mask() | NV_PGRAPH_TRAPPED_ADDR::MTHD.mask();
        check.bits("NV_PGRAPH_TRAPPED_ADDR", state.trapped_addr, method)?;
        check.bits("NV_PGRAPH_PRI_FE_PWR_MODE", state.pwr_mode, !POWER_REQUEST)?;
        for object in state.object_table {
            check.bits("NV_PGRAPH_PRI_FE_OBJECT_TABLE", object, u32::from(u16::MAX))?;
        }
        check.at_most("waiting", state.waiting.len(), usize::from(CHANNELS))?;
        let controllers = ContextSwitch::from_state(&state.controllers, fecs_config, gpccs_config);
        Ok(Self {
            controllers: controllers.map_err(|error| error.within("PGRAPH"))?,
            interrupts: state.intr,
            interrupt_enable: state.intr_en,
            class_error: state.class_error,
            trapped_address: state.trapped_addr,
            trapped_data: state.trapped_data_low,
            power_mode: state.pwr_mode,
            objects: state.object_table,
            waiting: state.waiting.iter().copied().collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuvmk_chip::gf100::regs::fecs::NV_PGRAPH_PRI_FECS_CURRENT_CTX;

    fn unit() -> Pgraph {
        Pgraph::new(ContextSwitch::new(0x1040, 0x1040))
    }

    fn value(result: ReadResult) -> u32 {
        match result {
            ReadResult::Value(value) => value,
            other => panic!("{other:?} is no value"),
        }
    }

    #[test]
    fn error_is_described_and_cleared_by_ones() {
        let mut unit = unit();
        let error =
            GraphicsError { status: 0x10, subchannel: 2, class: 0x9039, method: 0x0304, data: 0xdead };
        unit.raise(&error, 0x1234);
        unit.raise(&GraphicsError { data: 1, ..error }, 0x1235);
        assert!(unit.pending());
        assert_eq!(value(unit.read(NV_PGRAPH_TRAPPED_ADDR)), 2 << 16 | 0x304);
        assert_eq!(value(unit.read(NV_PGRAPH_TRAPPED_DATA_LOW)), 0xdead);
        assert_eq!(value(unit.read(NV_PGRAPH_PRI_FE_OBJECT_TABLE.at(2))), 0x9039);
        assert_eq!(value(unit.read(NV_PGRAPH_PRI_FECS_CURRENT_CTX)), 0x8000_1234);
        unit.write(NV_PGRAPH_INTR, Word::full(0x10), &mut Vec::new());
        assert_eq!(value(unit.read(NV_PGRAPH_TRAPPED_DATA_LOW)), 1);
        unit.write(NV_PGRAPH_INTR, Word::full(0x10), &mut Vec::new());
        assert!(!unit.pending());
    }

    #[test]
    fn power_request_is_granted_at_once() {
        let mut unit = unit();
        unit.write(NV_PGRAPH_PRI_FE_PWR_MODE, Word::full(0x12), &mut Vec::new());
        assert_eq!(value(unit.read(NV_PGRAPH_PRI_FE_PWR_MODE)), 2);
    }
}
