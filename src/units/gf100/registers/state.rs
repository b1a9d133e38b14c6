//! The saved state of all registers.

use gpuvmk_chip::gf100::regs::{self, fecs, gpccs, pce0, pce1, pmu};
use gpuvmk_mmio_trap::register_file::{RegisterFile, RegisterFileState};
use gpuvmk_pci::config_space::{ConfigSpace, ConfigSpaceState};
use gpuvmk_saved_state::{Check, StateError};
use serde::{Deserialize, Serialize};

use super::super::falcon::FalconState;
use super::super::falcon_config;
use super::super::idle::Activity;
use super::super::pbus::{Pbus, PbusState};
use super::super::pce::Pce;
use super::super::pfb::{Pfb, PfbState};
use super::super::pfifo::{Pfifo, PfifoState};
use super::super::pgraph::{Pgraph, PgraphState};
use super::super::pmc::{Pmc, PmcState};
use super::super::pmu::{Pmu, PmuState};
use super::Registers;
use crate::interrupt::{InterruptOutput, InterruptOutputState};
use crate::ptimer::{Ptimer, PtimerState};
use gpuvmk_backend::FifoState;

/// State of [`Registers`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegistersState {
    /// Registers without behaviour.
    pub file: RegisterFileState,
    /// PMC.
    pub pmc: PmcState,
    /// PBUS.
    pub pbus: PbusState,
    /// PTIMER.
    pub ptimer: PtimerState,
    /// PFB.
    pub pfb: PfbState,
    /// PFIFO.
    pub pfifo: PfifoState,
    /// PGRAPH.
    pub pgraph: PgraphState,
    /// PMU.
    pub pmu: PmuState,
    /// The falcons of the copy engines.
    pub pce: [FalconState; 2],
    /// Configuration space.
    pub config: ConfigSpaceState,
    /// The interrupt output.
    pub output: InterruptOutputState,
    /// Size of VRAM in the registers, in bytes.
    pub vram: u64,
}

impl Registers {
    /// The state to save, at the engines' given activity.
    pub fn state(&self, activity: &Activity) -> RegistersState {
        let Self {
            file,
            pmc,
            pbus,
            ptimer,
            pfb,
            pfifo,
            pgraph,
            pmu,
            pce,
            config,
            // What configuration space says.
            control: _,
            output,
            vram,
            // Derived from the registers, at each write.
            told: _,
        } = self;
        RegistersState {
            file: file.state(),
            pmc: pmc.state(),
            pbus: pbus.state(),
            ptimer: ptimer.state(activity.now()),
            pfb: pfb.state(),
            pfifo: pfifo.state(),
            pgraph: pgraph.state(),
            pmu: pmu.state(activity),
            pce: pce.each_ref().map(Pce::state),
            config: config.state(),
            output: output.state(),
            vram: *vram,
        }
    }

    /// Units in a saved state, with that configuration space and size of VRAM, that go on from when the
    /// engines have done so much.
    ///
    /// # Errors
    /// A unit refuses its state, or the size of VRAM was another one.
    pub fn from_state(
        state: &RegistersState,
        config: ConfigSpace,
        vram: u64,
        activity: &Activity,
    ) -> Result<Self, StateError> {
        Check("registers")
            .that(state.vram == vram, || format!("VRAM had {:#x} bytes, and has {vram:#x}", state.vram))?;
        let config = ConfigSpace::from_state(&state.config, config)?;
        let control = config.control();
        let [pce0, pce1] = &state.pce;
        let (base0, base1) = (pce0::NV_PCE0_INTR_SET.0, pce1::NV_PCE1_INTR_SET.0);
        let pce0 = Pce::from_state(pce0, base0, falcon_config(pce0::NV_PCE0_HW_CONFIG));
        let pce1 = Pce::from_state(pce1, base1, falcon_config(pce1::NV_PCE1_HW_CONFIG));
        let mut units = Self {
            file: RegisterFile::from_state(&state.file, regs::index())?,
            pmc: Pmc::from_state(&state.pmc)?,
            pbus: Pbus::from_state(&state.pbus),
            ptimer: Ptimer::from_state(&state.ptimer, activity.now())?,
            pfb: Pfb::from_state(&state.pfb)?,
            pfifo: Pfifo::from_state(&state.pfifo)?,
            pgraph: Pgraph::from_state(
                &state.pgraph,
                falcon_config(fecs::NV_PGRAPH_PRI_FECS_HW_CONFIG),
                falcon_config(gpccs::NV_PGRAPH_PRI_GPCCS_HW_CONFIG),
            )?,
            pmu: Pmu::from_state(&state.pmu, falcon_config(pmu::NV_PPMU_HW_CONFIG), activity)?,
            pce: [pce0.map_err(|error| error.within("PCE0"))?, pce1.map_err(|error| error.within("PCE1"))?],
            output: InterruptOutput::from_state(&state.output, &control)?,
            config,
            control,
            vram,
            told: FifoState::default(),
        };
        units.told = units.fifo_state();
        Ok(units)
    }
}
