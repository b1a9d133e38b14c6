//! PFIFO: channels, runlist, preemption and the FIFO's interrupts.
//!
//! The upper bits of NV_PFIFO_INTR_0 follow the registers below it (fault records, PBDMA units, runlist and
//! non-stall events) and are cleared there. A runlist commit and a preemption are carried out by the back;
//! the commit is complete when it returns, the preemption is polled.
//!
//! Not modelled: errors of binding and of channel switches (the back never makes any), and timeslice
//! settings.

pub mod fault;
mod hang;
pub mod pbdma;
mod state;

use super::effect::{Effect, ReadResult};
use super::pbus::target_and_page;
use fault::Faults;
use gpuvmk_chip::addr::{GuestChannel, PAGE_SHIFT};
use gpuvmk_chip::channel_event::{Hang, HangKind, HostError, MmuFault};
use gpuvmk_chip::gf100::regs::pfifo::*;
use gpuvmk_chip::gf100::{CHANNELS, PBDMAS, engines};
use gpuvmk_chip::registers::Reg;
use gpuvmk_chip::{Engine, PhysicalAddress};
use gpuvmk_mmio_trap::access::Word;
use hang::Hangs;
use pbdma::Pbdma;
pub use state::PfifoState;

/// NV_PFIFO_INTR_0: non-stall events.
const NON_STALL: u32 = NV_PFIFO_INTR_0::NON_STALL.mask();
/// NV_PFIFO_INTR_ENGINE bit of such a method, and its enable.
const NON_STALL_EVENT: u32 = NV_PFIFO_INTR_ENGINE::NON_STALL.mask();
/// NV_PFIFO_INTR_0: runlist events.
const RUNLIST: u32 = NV_PFIFO_INTR_0::RUNLIST.mask();
/// NV_PFIFO_INTR_0: PBDMA units.
const PBDMA: u32 = NV_PFIFO_INTR_0::PBDMA.mask();
/// NV_PFIFO_INTR_0: MMU faults.
const MMU_FAULT: u32 = NV_PFIFO_INTR_0::MMU_FAULT.mask();
/// NV_PFIFO_INTR_0: the scheduler gave up.
const SCHED_ERROR: u32 = NV_PFIFO_INTR_0::SCHED_ERROR.mask();
/// NV_PFIFO_INTR_RUNLIST: the commit is complete.
const RUNLIST_DONE: u32 = NV_PFIFO_INTR_RUNLIST::IDLE.mask();
/// NV_PFIFO_CHAN_INST: the channel is bound.
const BOUND: u32 = NV_PFIFO_CHAN_INST::VALID.mask();
/// NV_PFIFO_CHAN_STATE: the channel may run.
const START: u32 = NV_PFIFO_CHAN_STATE::ENABLE.mask();
/// NV_PFIFO_USERD_POLL: stores there are doorbells.
const POLL_ENABLE: u32 = NV_PFIFO_USERD_POLL::ENABLE.mask();
/// NV_PFIFO_MMU_FAULT_TRIGGER: pretend a fault.
const TRIGGER: u32 = NV_PFIFO_MMU_FAULT_TRIGGER::TRIGGER.mask();

/// A channel's registers; also what is saved of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Channel {
    /// NV_PFIFO_CHAN_INST.
    pub instance: u32,
    /// NV_PFIFO_CHAN_STATE.
    pub state: u32,
}

/// PFIFO's state.
#[derive(Clone, Debug)]
pub struct Pfifo {
    enable: u32,
    pbdma_enable: u32,
    latched: u32,
    interrupt_enable: u32,
    poll: u32,
    runlist_base: u32,
    runlist: u32,
    runlist_events: u32,
    sched_disable: u32,
    preempt: u32,
    engine_events: [u32; 16],
    engine_event_enable: u32,
    triggers: [u32; 8],
    faults: Faults,
    hangs: Hangs,
    channels: Vec<Channel>,
    pbdmas: Vec<Pbdma>,
}

impl Default for Pfifo {
    fn default() -> Self {
        Self {
            enable: 0,
            pbdma_enable: 0,
            latched: 0,
            interrupt_enable: 0,
            poll: 0,
            runlist_base: 0,
            runlist: 0,
            runlist_events: 0,
            sched_disable: 0,
            preempt: 0,
            engine_events: [0; 16],
            engine_event_enable: 0,
            triggers: [0; 8],
            faults: Faults::default(),
            hangs: Hangs::default(),
            channels: vec![Channel::default(); usize::from(CHANNELS)],
            pbdmas: vec![Pbdma::default(); usize::from(PBDMAS)],
        }
    }
}

impl Pfifo {
    /// Back to the state after reset; bound channels are unbound.
    pub fn reset(&mut self, effects: &mut Vec<Effect>) {
        for (channel, number) in self.channels.iter().zip(0u16..) {
            if channel.instance & BOUND != 0 {
                effects.push(Effect::BindChannel(GuestChannel(number), None));
            }
        }
        if self.sched_disable != 0 {
            effects.push(Effect::BlockRunlist(false));
        }
        *self = Self::default();
    }

    /// The interrupt enables, and the events of engines.
    #[cfg(any(test, feature = "testing"))]
    pub fn interrupt_state(&self) -> impl std::fmt::Debug + '_ {
        (self.interrupt_enable, self.engine_event_enable, self.engine_events)
    }

    /// Reads a register.
    pub fn read(&self, reg: Reg) -> ReadResult {
        if let Some(number) = NV_PFIFO_ENGINE_STATUS.index_of(reg) {
            let Some(engine) = engines::by_number(number) else { return ReadResult::Value(0) };
            return self.hangs.status(engine).map_or(ReadResult::EngineStatus(engine), ReadResult::Value);
        }
        if reg == NV_PFIFO_PREEMPT {
            return ReadResult::PreemptStatus(self.preempt);
        }
        ReadResult::Value(self.read_value(reg))
    }

    fn read_value(&self, reg: Reg) -> u32 {
        let channel = |number: u32| self.channels.get(number as usize).copied().unwrap_or_default();
        if let Some(number) = NV_PFIFO_CHAN_INST.index_of(reg) {
            return channel(number).instance;
        }
        if let Some(number) = NV_PFIFO_CHAN_STATE.index_of(reg) {
            return channel(number).state;
        }
        if let Some(number) = NV_PFIFO_INTR_ENGINE.index_of(reg) {
            return self.engine_events.get(number as usize).copied().unwrap_or(0);
        }
        if let Some(number) = NV_PFIFO_MMU_FAULT_TRIGGER.index_of(reg) {
            return self.triggers.get(number as usize).copied().unwrap_or(0);
        }
        if let Some(value) = self.faults.read(reg) {
            return value;
        }
        if let Some(value) = self.pbdmas.iter().zip(0..).find_map(|(unit, number)| unit.read(number, reg)) {
            return value;
        }
        match reg {
            NV_PFIFO_INTR_0 => self.interrupts(),
            NV_PFIFO_INTR_EN_0 => self.interrupt_enable,
            NV_PFIFO_ENABLE => self.enable,
            NV_PFIFO_PBDMA_ENABLE => self.pbdma_enable,
            NV_PFIFO_USERD_POLL => self.poll,
            NV_PFIFO_RUNLIST_BASE => self.runlist_base,
            NV_PFIFO_RUNLIST => self.runlist,
            NV_PFIFO_INTR_PBDMA_ID => self.pbdma_events(),
            NV_PFIFO_INTR_ENGINE_ID => self.engine_event_mask(),
            NV_PFIFO_INTR_ENGINE_EN => self.engine_event_enable,
            NV_PFIFO_SCHED_ERROR => self.hangs.code(),
            NV_PFIFO_SCHED_DISABLE => self.sched_disable,
            NV_PFIFO_INTR_RUNLIST => self.runlist_events,
            _ => 0,
        }
    }

    /// Writes a register.
    pub fn write(&mut self, reg: Reg, word: Word, effects: &mut Vec<Effect>) {
        if let Some(number) = NV_PFIFO_CHAN_INST.index_of(reg) {
            self.bind(number, word, effects);
        } else if let Some(number) = NV_PFIFO_CHAN_STATE.index_of(reg) {
            self.start(number, word, effects);
        } else if let Some(number) = NV_PFIFO_INTR_ENGINE.index_of(reg) {
            if let Some(events) = self.engine_events.get_mut(number as usize) {
                *events &= !word.bits();
            }
        } else if let Some(number) = NV_PFIFO_MMU_FAULT_TRIGGER.index_of(reg) {
            self.trigger(number, word, effects);
        } else if !self.faults.write(reg, word)
            && !self.pbdmas.iter_mut().zip(0..).any(|(unit, number)| unit.write(number, reg, word))
        {
            self.write_single(reg, word, effects);
        }
    }

    fn write_single(&mut self, reg: Reg, word: Word, effects: &mut Vec<Effect>) {
        match reg {
            NV_PFIFO_INTR_0 => self.latched &= !word.bits(),
            NV_PFIFO_INTR_EN_0 => {
                self.interrupt_enable = word.merge(self.interrupt_enable);
                effects.push(Effect::UpdateInterest);
            }
            NV_PFIFO_ENABLE => self.enable = word.merge(self.enable) & NV_PFIFO_ENABLE::ENABLE.mask(),
            NV_PFIFO_PBDMA_ENABLE => {
                self.pbdma_enable = word.merge(self.pbdma_enable) & NV_PFIFO_PBDMA_ENABLE::PBDMA.mask();
            }
            NV_PFIFO_USERD_POLL => self.poll = word.merge(self.poll),
            NV_PFIFO_RUNLIST_BASE => self.runlist_base = word.merge(self.runlist_base),
            NV_PFIFO_RUNLIST => {
                self.runlist = word.merge(self.runlist);
                let list = target_and_page(self.runlist_base);
                effects.push(Effect::CommitRunlist(list, NV_PFIFO_RUNLIST::LENGTH.get(self.runlist)));
            }
            NV_PFIFO_INTR_ENGINE_EN => {
                self.engine_event_enable = word.merge(self.engine_event_enable);
                effects.push(Effect::UpdateInterest);
            }
            NV_PFIFO_SCHED_DISABLE => {
                let before = self.sched_disable != 0;
                self.sched_disable = word.merge(self.sched_disable);
                if before != (self.sched_disable != 0) {
                    effects.push(Effect::BlockRunlist(self.sched_disable != 0));
                }
            }
            NV_PFIFO_PREEMPT => {
                self.preempt = word.merge(self.preempt) & NV_PFIFO_PREEMPT::CHID.mask();
                effects
                    .extend(u16::try_from(self.preempt).map(|number| Effect::Preempt(GuestChannel(number))));
            }
            NV_PFIFO_INTR_RUNLIST => self.runlist_events &= !word.bits(),
            _ => {}
        }
    }

    fn bind(&mut self, number: u32, word: Word, effects: &mut Vec<Effect>) {
        let Some(channel) = self.channels.get_mut(number as usize) else { return };
        channel.instance = word.merge(channel.instance);
        let instance = bound(channel.instance);
        self.settle(number);
        effects
            .extend(u16::try_from(number).map(|number| Effect::BindChannel(GuestChannel(number), instance)));
    }

    fn start(&mut self, number: u32, word: Word, effects: &mut Vec<Effect>) {
        let Some(channel) = self.channels.get_mut(number as usize) else { return };
        channel.state = word.merge(channel.state);
        let enabled = channel.state & START != 0;
        if !enabled {
            self.settle(number);
        }
        effects
            .extend(u16::try_from(number).map(|number| Effect::EnableChannel(GuestChannel(number), enabled)));
    }

    fn trigger(&mut self, number: u32, word: Word, effects: &mut Vec<Effect>) {
        let Some(trigger) = self.triggers.get_mut(number as usize) else { return };
        let before = *trigger;
        *trigger = word.merge(before);
        if *trigger & !before & TRIGGER != 0
            && let Some(engine) = engines::by_number(number)
        {
            if let Some(channel) = self.hangs.on(engine) {
                let unit = NV_PFIFO_MMU_FAULT_TRIGGER::UNIT.get(*trigger);
                return self.triggered_fault(unit, Some(channel));
            }
            let unit = NV_PFIFO_MMU_FAULT_TRIGGER::UNIT.get(*trigger);
            effects.push(Effect::TriggerFault { engine, unit });
        }
    }

    /// True when the FIFO as a whole is enabled.
    pub const fn enabled(&self) -> bool {
        NV_PFIFO_ENABLE::ENABLE.is_set(self.enable)
    }

    /// Offset in BAR1 of the USERD poll area, where it is set up.
    pub fn poll_area(&self) -> Option<u64> {
        (self.poll & POLL_ENABLE != 0)
            .then(|| u64::from(NV_PFIFO_USERD_POLL::BAR1_ADDR.get(self.poll)) << PAGE_SHIFT)
    }

    /// Page directories' owners: the instance blocks of all bound channels.
    pub fn instances(&self) -> impl Iterator<Item = PhysicalAddress> + '_ {
        self.channels.iter().filter_map(|channel| bound(channel.instance))
    }

    /// Instance block (address >> 12) of a channel, 0 where it has none.
    pub fn instance_page(&self, channel: GuestChannel) -> u32 {
        self.channels
            .get(usize::from(channel.0))
            .map_or(0, |channel| NV_PFIFO_CHAN_INST::PTR.get(channel.instance))
    }

    /// The back has taken the runlist.
    pub const fn runlist_done(&mut self) {
        self.runlist_events |= RUNLIST_DONE;
    }

    /// True if a register shows that a method asked for an interrupt, whatever is masked, or takes that away.
    pub fn shows_non_stall(reg: Reg) -> bool {
        matches!(reg, NV_PFIFO_INTR_0 | NV_PFIFO_INTR_ENGINE_ID)
            || NV_PFIFO_INTR_ENGINE.index_of(reg).is_some()
    }

    /// True if writes to a register change whether a method that asks for an interrupt gets one.
    pub const fn masks_non_stall(reg: Reg) -> bool {
        matches!(reg, NV_PFIFO_INTR_EN_0 | NV_PFIFO_INTR_ENGINE_EN)
    }

    /// True if a method that asks for an interrupt gets one.
    pub const fn tells_non_stall(&self) -> bool {
        self.interrupt_enable & NON_STALL != 0 && self.engine_event_enable & NON_STALL_EVENT != 0
    }

    /// A method asked for an interrupt.
    pub fn non_stall(&mut self, engine: Engine) {
        let events = engines::ids(engine).and_then(|ids| self.engine_events.get_mut(usize::from(ids.number)));
        if let Some(events) = events {
            *events |= NON_STALL_EVENT;
        }
    }

    /// The MMU refused an engine's access, on behalf of a channel or of none.
    pub fn mmu_fault(&mut self, channel: Option<GuestChannel>, fault: &MmuFault) {
        let instance = channel.map_or(0, |channel| self.instance_page(channel));
        self.faults.raise(fault, instance);
    }

    /// The MMU refused an access through a BAR.
    pub fn window_fault(&mut self, fault: &MmuFault, instance_page: u32) {
        self.faults.raise_if_free(fault, instance_page);
    }

    /// The driver asked for a fault of `unit`, whose engine serves `channel`.
    pub fn triggered_fault(&mut self, unit: u32, channel: Option<GuestChannel>) {
        let instance = channel.map_or(0, |channel| self.instance_page(channel));
        self.faults.pretend(unit, instance);
    }

    /// The host took a channel off because it made no progress.
    pub fn hung(&mut self, channel: GuestChannel, hang: Hang) {
        match hang.kind {
            HangKind::Engine => {
                if self.hangs.push(hang.engine, channel) {
                    self.latched |= SCHED_ERROR;
                }
            }
            HangKind::Acquire => {
                let status = NV_PPBDMA_INTR_0::ACQUIRE.mask();
                self.host_error(channel, HostError { pbdma: 0, status, method: 0, data: 0 });
            }
        }
    }

    /// The driver is done with a channel that hung, if it did.
    fn settle(&mut self, channel: u32) {
        if u16::try_from(channel).is_ok_and(|channel| self.hangs.remove(GuestChannel(channel))) {
            self.latched |= SCHED_ERROR;
        }
    }

    /// A PBDMA unit refused a command of a channel.
    pub fn host_error(&mut self, channel: GuestChannel, error: HostError) {
        if let Some(unit) = self.pbdmas.get_mut(usize::from(error.pbdma)) {
            unit.raise(channel, error);
        }
    }

    /// True while an enabled interrupt is pending.
    pub fn pending(&self) -> bool {
        self.interrupts() & self.interrupt_enable != 0
    }

    fn interrupts(&self) -> u32 {
        let mut bits = self.latched;
        // The enable has a bit for each of the four events that an engine can have.
        let non_stall = self.engine_events.iter().any(|events| events & self.engine_event_enable != 0);
        for (level, bit) in [
            (non_stall, NON_STALL),
            (self.runlist_events != 0, RUNLIST),
            (self.pbdma_events() != 0, PBDMA),
            (self.faults.pending(), MMU_FAULT),
        ] {
            if level {
                bits |= bit;
            }
        }
        bits
    }

    fn engine_event_mask(&self) -> u32 {
        let bits = self.engine_events.iter().zip(0..);
        bits.fold(0, |mask, (events, number)| if *events == 0 { mask } else { mask | 1u32 << number })
    }

    fn pbdma_events(&self) -> u32 {
        let bits = self.pbdmas.iter().zip(0..);
        bits.fold(0, |mask, (unit, number)| if unit.pending() { mask | 1u32 << number } else { mask })
    }
}

fn bound(instance: u32) -> Option<PhysicalAddress> {
    (instance & BOUND != 0).then(|| target_and_page(instance))
}

#[cfg(test)]
mod tests;
