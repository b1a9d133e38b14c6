//! A PBDMA unit's registers: the command that it refused, and its interrupt.
//!
//! A further refusal while one is reported waits, as the unit would stand still in hardware. The queue is
//! bounded by the number of channels: a channel is stopped by its error.

use std::collections::VecDeque;

use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_chip::channel_event::HostError;
use gpuvmk_chip::gf100::CHANNELS;
use gpuvmk_chip::gf100::regs::pfifo::*;
use gpuvmk_chip::registers::Reg;
use gpuvmk_mmio_trap::access::Word;
use gpuvmk_saved_state::{Check, StateError};
use serde::{Deserialize, Serialize};

/// NV_PPBDMA_METHOD0: a method is being executed.
const VALID: u32 = NV_PPBDMA_METHOD0::VALID.mask();

/// A PBDMA unit's state.
#[derive(Clone, Debug, Default)]
pub struct Pbdma {
    interrupts: u32,
    enable: u32,
    method: u32,
    data: u32,
    channel: u32,
    waiting: VecDeque<(GuestChannel, HostError)>,
}

impl Pbdma {
    /// Notes a refused command of a channel.
    pub fn raise(&mut self, channel: GuestChannel, error: HostError) {
        if self.interrupts == 0 {
            self.put(channel, error);
        } else if self.waiting.len() < usize::from(CHANNELS) {
            self.waiting.push_back((channel, error));
        }
    }

    /// True while an enabled interrupt is pending.
    pub const fn pending(&self) -> bool {
        self.interrupts & self.enable != 0
    }

    /// Reads a register of unit `number`.
    pub fn read(&self, number: u32, reg: Reg) -> Option<u32> {
        let is = |family: gpuvmk_chip::registers::RegArray| family.at(number) == reg;
        if is(NV_PPBDMA_METHOD0) {
            Some(self.method)
        } else if is(NV_PPBDMA_DATA0) {
            Some(self.data)
        } else if is(NV_PPBDMA_INTR_0) {
            Some(self.interrupts)
        } else if is(NV_PPBDMA_INTR_EN_0) {
            Some(self.enable)
        } else if is(NV_PPBDMA_CHANNEL) {
            Some(self.channel)
        } else {
            None
        }
    }

    /// Writes a register of unit `number`; false when it is none of it.
    pub fn write(&mut self, number: u32, reg: Reg, word: Word) -> bool {
        let is = |family: gpuvmk_chip::registers::RegArray| family.at(number) == reg;
        if is(NV_PPBDMA_METHOD0) {
            self.method = word.merge(self.method);
        } else if is(NV_PPBDMA_DATA0) {
            self.data = word.merge(self.data);
        } else if is(NV_PPBDMA_INTR_0) {
            self.interrupts &= !word.bits();
            if self.interrupts == 0
                && let Some((channel, error)) = self.waiting.pop_front()
            {
                self.put(channel, error);
            }
        } else if is(NV_PPBDMA_INTR_EN_0) {
            self.enable = word.merge(self.enable);
        } else {
            return is(NV_PPBDMA_CHANNEL);
        }
        true
    }

    fn put(&mut self, channel: GuestChannel, error: HostError) {
        self.interrupts |= error.status;
        self.method = VALID | error.method;
        self.data = error.data;
        self.channel = u32::from(channel.0);
    }
}

/// State of a [`Pbdma`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PbdmaState {
    /// NV_PPBDMA_INTR_0.
    pub intr_0: u32,
    /// NV_PPBDMA_INTR_EN_0.
    pub intr_en_0: u32,
    /// NV_PPBDMA_METHOD0.
    pub method0: u32,
    /// NV_PPBDMA_DATA0.
    pub data0: u32,
    /// NV_PPBDMA_CHANNEL.
    pub channel: u32,
    /// Refusals that wait until the one before was cleared, and whose they are.
    pub waiting: Vec<(GuestChannel, HostError)>,
}

impl Pbdma {
    /// The state to save.
    pub fn state(&self) -> PbdmaState {
        let Self { interrupts, enable, method, data, channel, waiting } = self;
        PbdmaState {
            intr_0: *interrupts,
            intr_en_0: *enable,
            method0: *method,
            data0: *data,
            channel: *channel,
            waiting: waiting.iter().copied().collect(),
        }
    }

    /// A unit in a saved state.
    ///
    /// # Errors
    /// It names no channel, or more refusals wait than there are channels.
    pub fn from_state(state: &PbdmaState) -> Result<Self, StateError> {
        let check = Check("PBDMA");
        check.bits("NV_PPBDMA_CHANNEL", state.channel, u32::from(u16::MAX))?;
        check.at_most("waiting", state.waiting.len(), usize::from(CHANNELS))?;
        Ok(Self {
            interrupts: state.intr_0,
            enable: state.intr_en_0,
            method: state.method0,
            data: state.data0,
            channel: state.channel,
            waiting: state.waiting.iter().copied().collect(),
        })
    }
}
