//! MMU fault records: one for each unit that can fault, kept until the driver frees it.
//!
//! In hardware the faulting engine stands still until its record is read. Engines here go on with other
//! channels, so that a further fault of the same unit waits in a queue and appears when the record is freed.
//! A channel is stopped by its fault: the queue is bounded by the number of channels.
//!
//! The MMU knows pages, not bytes: the address of a record has its low 12 bits clear.

use std::collections::VecDeque;

use gpuvmk_chip::AccessKind;
use gpuvmk_chip::addr::PAGE_SIZE;
use gpuvmk_chip::channel_event::{FaultUnit, MmuFault};
use gpuvmk_chip::gf100::CHANNELS;
use gpuvmk_chip::gf100::engines::ids;
use gpuvmk_chip::gf100::regs::pfifo::NV_PFIFO_MMU_FAULT_INFO::CLIENT;
use gpuvmk_chip::gf100::regs::pfifo::*;
use gpuvmk_chip::registers::Reg;
use gpuvmk_mmio_trap::access::Word;
use gpuvmk_saved_state::{Check, StateError};
use serde::{Deserialize, Serialize};

/// The access came through the hub (and not from inside a GPC).
const HUB: u32 = NV_PFIFO_MMU_FAULT_INFO::HUB.mask();
/// The access was a store.
const WRITE: u32 = NV_PFIFO_MMU_FAULT_INFO::WRITE.mask();

/// The registers of a fault, as a driver reads them; also its saved state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// NV_PFIFO_MMU_FAULT_INST.
    pub instance: u32,
    /// NV_PFIFO_MMU_FAULT_VA_LO and _HI.
    pub address: u64,
    /// NV_PFIFO_MMU_FAULT_INFO.
    pub info: u32,
}

/// The records of all units.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    occupied: u32,
    records: [Record; 32],
    waiting: VecDeque<(u32, Record)>,
}

/// Fault unit and hub client of an access, in the numbering of the fault registers. What an engine that this
/// chip does not have did is shown as the host unit's.
fn numbers(fault: &MmuFault) -> (u32, u32) {
    let bar_client = match fault.access {
        AccessKind::Read => CLIENT::BAR_READ,
        AccessKind::Write => CLIENT::BAR_WRITE,
    };
    let host = (NV_PFIFO_MMU_FAULT_ID::HOST.low(), CLIENT::PFIFO);
    match fault.unit {
        FaultUnit::Engine(engine) => ids(engine).map_or(host, |ids| (ids.fault_unit, ids.client)),
        FaultUnit::Host => host,
        FaultUnit::Bar1 => (NV_PFIFO_MMU_FAULT_ID::BAR1.low(), bar_client),
        FaultUnit::Bar3 => (NV_PFIFO_MMU_FAULT_ID::BAR3.low(), bar_client),
    }
}

const fn record(fault: &MmuFault, instance: u32, client: u32) -> Record {
    let write = match fault.access {
        AccessKind::Read => 0,
        AccessKind::Write => WRITE,
    };
    let reason = NV_PFIFO_MMU_FAULT_INFO::REASON.of(fault.reason as u32);
    let info = reason | CLIENT.of(client) | HUB | write;
    Record { instance, address: fault.address.0 & !(PAGE_SIZE - 1), info }
}

impl Faults {
    /// Notes a fault; it waits where the unit's record is taken.
    pub fn raise(&mut self, fault: &MmuFault, instance: u32) {
        let (unit, client) = numbers(fault);
        let record = record(fault, instance, client);
        if self.is_free(unit) {
            self.put(unit, record);
        } else if self.waiting.len() < usize::from(CHANNELS) {
            self.waiting.push_back((unit, record));
        }
    }

    /// Notes a fault that may be lost where the unit's record is taken (the CPU's own accesses).
    pub fn raise_if_free(&mut self, fault: &MmuFault, instance: u32) {
        let (unit, client) = numbers(fault);
        if self.is_free(unit) {
            self.put(unit, record(fault, instance, client));
        }
    }

    /// Notes a fault that the driver asked for.
    pub fn pretend(&mut self, unit: u32, instance: u32) {
        let unit = unit % NV_PFIFO_MMU_FAULT_INST.count;
        if self.is_free(unit) {
            self.put(unit, Record { instance, address: 0, info: HUB });
        }
    }

    /// True while a record waits to be read.
    pub const fn pending(&self) -> bool {
        self.occupied != 0
    }

    /// Reads a register of the records.
    pub fn read(&self, reg: Reg) -> Option<u32> {
        if reg == NV_PFIFO_MMU_FAULT_ID {
            return Some(self.occupied);
        }
        let of = |number: u32| self.records.get(number as usize).copied().unwrap_or_default();
        let low = |address: u64| u32::try_from(address & 0xffff_ffff).unwrap_or(0);
        let instance = NV_PFIFO_MMU_FAULT_INST.index_of(reg).map(|unit| of(unit).instance);
        let va_lo = || NV_PFIFO_MMU_FAULT_VA_LO.index_of(reg).map(|unit| low(of(unit).address));
        let va_hi = || NV_PFIFO_MMU_FAULT_VA_HI.index_of(reg).map(|unit| low(of(unit).address >> 32));
        let info = || NV_PFIFO_MMU_FAULT_INFO.index_of(reg).map(|unit| of(unit).info);
        instance.or_else(va_lo).or_else(va_hi).or_else(info)
    }

    /// Writes a register of the records; false when it is none.
    pub fn write(&mut self, reg: Reg, word: Word) -> bool {
        if reg == NV_PFIFO_MMU_FAULT_ID {
            self.occupied &= !word.bits();
            self.admit();
            return true;
        }
        self.read(reg).is_some()
    }

    const fn is_free(&self, unit: u32) -> bool {
        self.occupied & 1 << unit == 0
    }

    fn put(&mut self, unit: u32, record: Record) {
        if let Some(place) = self.records.get_mut(unit as usize) {
            *place = record;
            self.occupied |= 1 << unit;
        }
    }

    /// Lets waiting faults into records that are free now, in their order.
    fn admit(&mut self) {
        let mut still = VecDeque::new();
        while let Some((unit, record)) = self.waiting.pop_front() {
            if self.is_free(unit) {
                self.put(unit, record);
            } else {
                still.push_back((unit, record));
            }
        }
        self.waiting = still;
    }
}

/// State of [`Faults`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultsState {
    /// NV_PFIFO_MMU_FAULT_ID.
    pub fault_id: u32,
    /// Records by unit.
    pub records: [Record; 32],
    /// Units and records that wait until the unit's is free.
    pub waiting: Vec<(u32, Record)>,
}

impl Faults {
    /// The state to save.
    pub fn state(&self) -> FaultsState {
        let Self { occupied, records, waiting } = self;
        FaultsState { fault_id: *occupied, records: *records, waiting: waiting.iter().copied().collect() }
    }

    /// Records in a saved state.
    ///
    /// # Errors
    /// A record names bytes, or waits for one that is free, or more wait than there are channels.
    pub fn from_state(state: &FaultsState) -> Result<Self, StateError> {
        let check = Check("faults");
        check.at_most("waiting", state.waiting.len(), usize::from(CHANNELS))?;
        for Record { address, .. } in
            state.records.iter().chain(state.waiting.iter().map(|(_, record)| record))
        {
            check.that(address.is_multiple_of(PAGE_SIZE), || {
                format!("a fault is at {address:#x}, inside a page")
            })?;
        }
        for (unit, _) in &state.waiting {
            let is_taken = state.fault_id.checked_shr(*unit).is_some_and(|bits| bits & 1 != 0);
            check.that(is_taken, || format!("a fault of unit {unit} waits, whose record is free"))?;
        }
        Ok(Self {
            occupied: state.fault_id,
            records: state.records,
            waiting: state.waiting.iter().copied().collect(),
        })
    }
}
