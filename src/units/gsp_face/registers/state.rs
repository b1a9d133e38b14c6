//! The saved state of all registers.

use std::sync::Arc;

use gpuvmk_chip::EngineSet;
use gpuvmk_mmio_trap::register_file::{RegisterFile, RegisterFileState};
use gpuvmk_pci::config_space::{ConfigSpace, ConfigSpaceState};
use gpuvmk_saved_state::{Check, StateError};
use serde::{Deserialize, Serialize};

use super::super::boot::falcons::FalconsState;
use super::super::boot::fsp::FspState;
use super::super::boot::{BootState, BootUnit};
use super::super::falcon::{GspFalcon, GspFalconState};
use super::super::hal::{Hal, Roles};
use super::super::invalidate::{MmuInvalidate, MmuInvalidateState};
use super::super::vfn::{Vfn, VfnState};
use super::Registers;
use crate::interrupt::{InterruptOutput, InterruptOutputState};
use crate::ptimer::{Ptimer, PtimerState};

/// State of [`Registers`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegistersState {
    /// Registers without behaviour.
    pub file: RegisterFileState,
    /// PTIMER.
    pub ptimer: PtimerState,
    /// The GSP processor.
    pub gsp: GspFalconState,
    /// FSP, where it boots GSP.
    pub fsp: Option<FspState>,
    /// The falcons, where they boot GSP. Since version 2.
    #[serde(default)]
    pub falcons: Option<FalconsState>,
    /// The interrupt tree.
    pub vfn: VfnState,
    /// The MMU's invalidation.
    pub invalidate: MmuInvalidateState,
    /// Where PRAMIN looks: NV_XAL_EP_BAR0_WINDOW or NV_PBUS_BAR0_WINDOW.
    pub bar0_window: u32,
    /// Configuration space.
    pub config: ConfigSpaceState,
    /// The interrupt output.
    pub output: InterruptOutputState,
    /// Size of VRAM in the registers, in bytes.
    pub vram: u64,
    /// Steps of the boot that were refused, by FSP or by falcons.
    pub fsp_errors: u64,
}

impl Registers {
    /// The state to save, at the clock's time `now`.
    pub fn state(&self, now: u64) -> RegistersState {
        let Self {
            hal: _,
            // The row's.
            roles: _,
            file,
            ptimer,
            gsp,
            boot,
            vfn,
            invalidate,
            window,
            config,
            // What configuration space says.
            control: _,
            output,
            vram,
            // The back's.
            engines: _,
            boot_errors,
        } = self;
        let BootState { fsp, falcons } = boot.state();
        RegistersState {
            file: file.state(),
            ptimer: ptimer.state(now),
            gsp: gsp.state(),
            fsp,
            falcons,
            vfn: vfn.state(),
            invalidate: invalidate.state(),
            bar0_window: *window,
            config: config.state(),
            output: output.state(),
            vram: *vram,
            fsp_errors: *boot_errors,
        }
    }

    /// Units in a saved state, with that configuration space, size of VRAM and engines, that go on when the
    /// clock says `now`.
    ///
    /// # Errors
    /// A unit refuses its state, or the size of VRAM was another one.
    pub fn from_state(
        state: &RegistersState,
        hal: &'static Hal,
        config: ConfigSpace,
        (vram, engines): (u64, EngineSet),
        now: u64,
    ) -> Result<Self, StateError> {
        Check("registers")
            .that(state.vram == vram, || format!("VRAM had {:#x} bytes, and has {vram:#x}", state.vram))?;
        let config = ConfigSpace::from_state(&state.config, config)?;
        let control = config.control();
        let boot = BootState { fsp: state.fsp.clone(), falcons: state.falcons.clone() };
        Ok(Self {
            hal,
            roles: Arc::new(Roles::new(hal)),
            file: RegisterFile::from_state(&state.file, (hal.registers)())?,
            ptimer: Ptimer::from_state(&state.ptimer, now)?,
            gsp: GspFalcon::from_state(&state.gsp, &hal.processor)?,
            boot: BootUnit::from_state(&boot, hal)?,
            vfn: Vfn::from_state(&state.vfn, &hal.interrupts)?,
            invalidate: MmuInvalidate::from_state(&state.invalidate, &hal.invalidation)?,
            window: state.bar0_window,
            output: InterruptOutput::from_state(&state.output, &control)?,
            config,
            control,
            vram,
            engines,
            boot_errors: state.fsp_errors,
        })
    }
}
