//! The engines of a GF100, with the numbers by which each unit knows them.
//!
//! Source: envytools `rnndb/fifo/gf100_pfifo.xml`, docs/hw/pm/pdaemon/counter.rst; nouveau
//! `nvkm/engine/fifo/gf100.c`.

use super::ramin::{COPY0_CONTEXT_LO, COPY1_CONTEXT_LO, GRAPHICS_CONTEXT_LO};
use super::regs::pfifo::NV_PFIFO_MMU_FAULT_ID;
use super::regs::pfifo::NV_PFIFO_MMU_FAULT_INFO::CLIENT;
use super::regs::pmc::NV_PMC_ENABLE;
use super::regs::pmu::NV_PPMU_IDLE_MASK;
use crate::Engine;
use crate::registers::Field;

/// PFIFO's number of the graphics engine, in its registers, in RAMFC and in SET_OBJECT.
pub const GRAPHICS_NUMBER: u8 = 0;
/// PFIFO's number of copy engine 0.
pub const COPY0_NUMBER: u8 = 4;
/// PFIFO's number of copy engine 1.
pub const COPY1_NUMBER: u8 = 5;
/// PFIFO's number for no engine: the driver executes such methods in software.
pub const SOFTWARE_NUMBER: u8 = 0x1f;

/// An engine, with the numbers by which units know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineIds {
    /// The engine.
    pub engine: Engine,
    /// PFIFO's number.
    pub number: u8,
    /// The MMU's number of it, by which it tells faults.
    pub fault_unit: u32,
    /// The hub's number of it, in the information of a fault.
    pub client: u32,
    /// Offset of its context pointer in an instance block.
    pub context: u64,
    /// Its bit in NV_PMC_ENABLE.
    pub enable: Field,
    /// Its bit in NV_PPMU_IDLE_STATUS and in NV_PPMU_IDLE_MASK.
    pub idle: Field,
}

/// All engines.
pub const ENGINES: [EngineIds; 3] = [
    EngineIds {
        engine: Engine::Graphics,
        number: GRAPHICS_NUMBER,
        fault_unit: NV_PFIFO_MMU_FAULT_ID::PGRAPH.low(),
        client: CLIENT::DISPATCH,
        context: GRAPHICS_CONTEXT_LO,
        enable: NV_PMC_ENABLE::PGRAPH,
        idle: NV_PPMU_IDLE_MASK::GR,
    },
    EngineIds {
        engine: Engine::COPY0,
        number: COPY0_NUMBER,
        fault_unit: NV_PFIFO_MMU_FAULT_ID::PCE0.low(),
        client: CLIENT::PCOPY0,
        context: COPY0_CONTEXT_LO,
        enable: NV_PMC_ENABLE::PCE0,
        idle: NV_PPMU_IDLE_MASK::CE0,
    },
    EngineIds {
        engine: Engine::COPY1,
        number: COPY1_NUMBER,
        fault_unit: NV_PFIFO_MMU_FAULT_ID::PCE1.low(),
        client: CLIENT::PCOPY1,
        context: COPY1_CONTEXT_LO,
        enable: NV_PMC_ENABLE::PCE1,
        idle: NV_PPMU_IDLE_MASK::CE1,
    },
];

/// What units know an engine by; `None`: this chip has no such engine.
pub fn ids(engine: Engine) -> Option<&'static EngineIds> {
    const ALL: &[EngineIds] = &ENGINES;
    ALL.iter().find(|ids| ids.engine == engine)
}

/// The engine that PFIFO numbers so.
pub fn by_number(number: u32) -> Option<Engine> {
    ENGINES.iter().find(|ids| u32::from(ids.number) == number).map(|ids| ids.engine)
}

/// The engine whose faults the MMU tells as this unit's.
pub fn by_fault_unit(unit: u32) -> Option<Engine> {
    ENGINES.iter().find(|ids| ids.fault_unit == unit).map(|ids| ids.engine)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gf100::regs::pfifo::NV_PFIFO_INTR_ENGINE_ID;

    #[test]
    fn engines_are_found_by_number_and_their_bits_are_in_their_places() {
        for ids in ENGINES {
            assert_eq!(by_number(ids.number.into()), Some(ids.engine));
            assert_eq!(by_fault_unit(ids.fault_unit), Some(ids.engine));
            assert_eq!(super::ids(ids.engine), Some(&ids));
        }
        assert_eq!(by_number(1), None);
        assert_eq!(ids(Engine::COPY2), None);
        let numbers = ENGINES.map(|ids| u32::from(ids.number));
        let bits =
            [NV_PFIFO_INTR_ENGINE_ID::PGRAPH, NV_PFIFO_INTR_ENGINE_ID::PCE0, NV_PFIFO_INTR_ENGINE_ID::PCE1];
        assert_eq!(numbers, bits.map(Field::low));
    }
}
