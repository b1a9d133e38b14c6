//! PMU: a falcon with message rings. The firmware is not interpreted: once started it reports where its rings
//! are, and takes every message without an answer. Nothing in a driver's start-up sends one; clock changes
//! would, and there are no clocks to change.

use super::effect::{Effect, ReadResult};
use super::falcon::{Falcon, FalconEvent, FalconState};
use super::idle::{Activity, COUNTERS, CounterChange, IdleCounterState, IdleCounters, IdleRegister};
use gpuvmk_chip::gf100::regs::pmu::*;
use gpuvmk_chip::registers::Reg;
use gpuvmk_mmio_trap::access::Word;
use gpuvmk_saved_state::StateError;
use serde::{Deserialize, Serialize};

const BASE: u32 = NV_PPMU_INTR_SET.0;

/// Size and place in data memory of the ring towards the firmware.
const RING_TO_PMU: u32 = NV_PPMU_RING_TO_PMU::SIZE.of(0x80) | NV_PPMU_RING_TO_PMU::BASE.of(0x600);
/// Size and place of the ring towards the host.
const RING_TO_HOST: u32 = NV_PPMU_RING_TO_HOST::SIZE.of(0x80) | NV_PPMU_RING_TO_HOST::BASE.of(0x700);

/// PMU's state.
#[derive(Clone, Debug)]
pub struct Pmu {
    falcon: Falcon,
    queue: u32,
    pub(super) idle: IdleCounters,
}

impl Pmu {
    /// A PMU with the falcon of the register table.
    pub fn new(hw_config: u32) -> Self {
        Self { falcon: Falcon::new(hw_config), queue: 0, idle: IdleCounters::default() }
    }

    /// Back to the state after reset.
    pub fn reset(&mut self) {
        self.falcon.reset();
        self.queue = 0;
        self.idle = IdleCounters::default();
    }

    /// Reads a register.
    pub fn read(&mut self, reg: Reg) -> ReadResult {
        let told = |value| if self.falcon.running() { value } else { 0 };
        ReadResult::Value(match IdleRegister::of(reg) {
            Some(IdleRegister::Status) => return ReadResult::IdleStatus,
            Some(IdleRegister::Count(counter)) => return ReadResult::IdleCount(counter),
            Some(IdleRegister::Mask(counter)) => self.idle.mask(counter),
            Some(IdleRegister::Ctrl(counter)) => self.idle.ctrl(counter),
            None => match reg {
                NV_PPMU_RING_TO_PMU => told(RING_TO_PMU),
                NV_PPMU_RING_TO_HOST => told(RING_TO_HOST),
                // The firmware reads as fast as the host writes.
                NV_PPMU_QUEUE_HEAD | NV_PPMU_QUEUE_TAIL => self.queue,
                Reg(offset) => self.falcon.read(offset.wrapping_sub(BASE)),
            },
        })
    }

    /// Writes a register.
    pub fn write(&mut self, reg: Reg, word: Word, effects: &mut Vec<Effect>) {
        let mut change = |counter, change| effects.push(Effect::IdleCounter(counter, change));
        match IdleRegister::of(reg) {
            Some(IdleRegister::Status) => {}
            Some(IdleRegister::Mask(counter)) => change(counter, CounterChange::Mask(word)),
            Some(IdleRegister::Ctrl(counter)) => change(counter, CounterChange::Ctrl(word)),
            Some(IdleRegister::Count(counter)) => change(counter, CounterChange::Count(word)),
            None => match reg {
                NV_PPMU_QUEUE_HEAD => self.queue = word.merge(self.queue),
                NV_PPMU_QUEUE_TAIL | NV_PPMU_RING_TO_PMU | NV_PPMU_RING_TO_HOST => {}
                Reg(offset) => match self.falcon.write(offset.wrapping_sub(BASE), word) {
                    Some(FalconEvent::Started | FalconEvent::Interrupt(_)) | None => {}
                },
            },
        }
    }
}

/// State of [`Pmu`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PmuState {
    /// Its falcon.
    pub falcon: FalconState,
    /// NV_PPMU_QUEUE_HEAD.
    pub queue_head: u32,
    /// Idle counters.
    pub idle: [IdleCounterState; COUNTERS],
}

impl Pmu {
    /// The state to save, at the engines' given activity.
    pub fn state(&self, activity: &Activity) -> PmuState {
        let Self { falcon, queue, idle } = self;
        PmuState { falcon: falcon.state(), queue_head: *queue, idle: idle.state(activity) }
    }

    /// A PMU with the falcon of the register table, in a saved state, which goes on from when the engines
    /// have done so much.
    ///
    /// # Errors
    /// See [`Falcon::from_state`].
    pub fn from_state(state: &PmuState, hw_config: u32, activity: &Activity) -> Result<Self, StateError> {
        let PmuState { falcon, queue_head, idle } = state;
        Ok(Self {
            falcon: Falcon::from_state(falcon, hw_config).map_err(|error| error.within("PMU"))?,
            queue: *queue_head,
            idle: IdleCounters::from_state(idle, activity),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_appear_when_the_firmware_was_started() {
        let mut pmu = Pmu::new(0x1040);
        assert_eq!(pmu.read(NV_PPMU_RING_TO_PMU), ReadResult::Value(0));
        pmu.write(NV_PPMU_CODE_INDEX, Word::full(1 << 24), &mut Vec::new());
        pmu.write(NV_PPMU_CODE_DATA, Word::full(0xf8), &mut Vec::new());
        pmu.write(NV_PPMU_CPU_CONTROL, Word::full(2), &mut Vec::new());
        assert_eq!(pmu.read(NV_PPMU_RING_TO_PMU), ReadResult::Value(RING_TO_PMU));
        assert_eq!(pmu.read(NV_PPMU_RING_TO_HOST), ReadResult::Value(RING_TO_HOST));
    }

    #[test]
    fn messages_are_taken_at_once() {
        let mut pmu = Pmu::new(0x1040);
        pmu.write(NV_PPMU_QUEUE_HEAD, Word::full(3), &mut Vec::new());
        assert_eq!(pmu.read(NV_PPMU_QUEUE_TAIL), ReadResult::Value(3));
    }
}
