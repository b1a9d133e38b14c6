//! PFIFO's saved state.

use gpuvmk_chip::Engine;
use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_chip::gf100::regs::pfifo::*;
use gpuvmk_chip::gf100::{CHANNELS, PBDMAS, engines};
use gpuvmk_saved_state::{Check, StateError};
use serde::{Deserialize, Serialize};

use super::fault::{Faults, FaultsState};
use super::hang::Hangs;
use super::pbdma::{Pbdma, PbdmaState};
use super::{Channel, Pfifo};

/// State of [`Pfifo`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PfifoState {
    /// NV_PFIFO_ENABLE.
    pub enable: u32,
    /// NV_PFIFO_PBDMA_ENABLE.
    pub pbdma_enable: u32,
    /// NV_PFIFO_INTR_0, of which what does not follow other registers.
    pub intr_0: u32,
    /// NV_PFIFO_INTR_EN_0.
    pub intr_en_0: u32,
    /// NV_PFIFO_USERD_POLL.
    pub userd_poll: u32,
    /// NV_PFIFO_RUNLIST_BASE.
    pub runlist_base: u32,
    /// NV_PFIFO_RUNLIST.
    pub runlist: u32,
    /// NV_PFIFO_INTR_RUNLIST.
    pub intr_runlist: u32,
    /// NV_PFIFO_SCHED_DISABLE.
    pub sched_disable: u32,
    /// The channel in NV_PFIFO_PREEMPT.
    pub preempt: u32,
    /// NV_PFIFO_INTR_ENGINE.
    pub intr_engine: [u32; 16],
    /// NV_PFIFO_INTR_ENGINE_EN.
    pub intr_engine_en: u32,
    /// NV_PFIFO_MMU_FAULT_TRIGGER.
    pub mmu_fault_trigger: [u32; 8],
    /// Fault records.
    pub faults: FaultsState,
    /// Channels that hang, with their engines.
    pub hangs: Vec<(Engine, GuestChannel)>,
    /// Every channel's registers.
    pub channels: Vec<Channel>,
    /// PBDMA units.
    pub pbdmas: Vec<PbdmaState>,
}

impl Pfifo {
    /// The state to save.
    pub fn state(&self) -> PfifoState {
        let Self {
            enable,
            pbdma_enable,
            latched,
            interrupt_enable,
            poll,
            runlist_base,
            runlist,
            runlist_events,
            sched_disable,
            preempt,
            engine_events,
            engine_event_enable,
            triggers,
            faults,
            hangs,
            channels,
            pbdmas,
        } = self;
        PfifoState {
            enable: *enable,
            pbdma_enable: *pbdma_enable,
            intr_0: *latched,
            intr_en_0: *interrupt_enable,
            userd_poll: *poll,
            runlist_base: *runlist_base,
            runlist: *runlist,
            intr_runlist: *runlist_events,
            sched_disable: *sched_disable,
            preempt: *preempt,
            intr_engine: *engine_events,
            intr_engine_en: *engine_event_enable,
            mmu_fault_trigger: *triggers,
            faults: faults.state(),
            hangs: hangs.state(),
            channels: channels.clone(),
            pbdmas: pbdmas.iter().map(Pbdma::state).collect(),
        }
    }

    /// PFIFO in a saved state.
    ///
    /// # Errors
    /// A register has bits that do not stick, or that nothing sets; there is another number of channels or
    /// PBDMA units; or see [`Faults::from_state`], [`Hangs::from_state`], [`Pbdma::from_state`].
    pub fn from_state(state: &PfifoState) -> Result<Self, StateError> {
        let check = Check("PFIFO");
        check.bits("NV_PFIFO_ENABLE", state.enable, NV_PFIFO_ENABLE::ENABLE.mask())?;
        check.bits("NV_PFIFO_PBDMA_ENABLE", state.pbdma_enable, NV_PFIFO_PBDMA_ENABLE::PBDMA.mask())?;
        check.bits("NV_PFIFO_INTR_0", state.intr_0, NV_PFIFO_INTR_0::SCHED_ERROR.mask())?;
        check.bits("NV_PFIFO_INTR_RUNLIST", state.intr_runlist, NV_PFIFO_INTR_RUNLIST::IDLE.mask())?;
        check.bits("NV_PFIFO_PREEMPT", state.preempt, NV_PFIFO_PREEMPT::CHID.mask())?;
        for (events, number) in state.intr_engine.iter().zip(0..) {
            let has_engine = engines::by_number(number).is_some();
            let allowed = if has_engine { NV_PFIFO_INTR_ENGINE::NON_STALL.mask() } else { 0 };
            check.bits("NV_PFIFO_INTR_ENGINE", *events, allowed)?;
        }
        check.exactly("channels", state.channels.len(), usize::from(CHANNELS))?;
        check.exactly("pbdmas", state.pbdmas.len(), usize::from(PBDMAS))?;
        let inside = |error: StateError| error.within("PFIFO");
        Ok(Self {
            enable: state.enable,
            pbdma_enable: state.pbdma_enable,
            latched: state.intr_0,
            interrupt_enable: state.intr_en_0,
            poll: state.userd_poll,
            runlist_base: state.runlist_base,
            runlist: state.runlist,
            runlist_events: state.intr_runlist,
            sched_disable: state.sched_disable,
            preempt: state.preempt,
            engine_events: state.intr_engine,
            engine_event_enable: state.intr_engine_en,
            triggers: state.mmu_fault_trigger,
            faults: Faults::from_state(&state.faults).map_err(inside)?,
            hangs: Hangs::from_state(&state.hangs).map_err(inside)?,
            channels: state.channels.clone(),
            pbdmas: state.pbdmas.iter().map(Pbdma::from_state).collect::<Result<_, _>>().map_err(inside)?,
        })
    }
}
