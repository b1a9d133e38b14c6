//! The saved state of both falcons.

use gpuvmk_saved_state::{Check, StateError};
use serde::{Deserialize, Serialize};

use super::super::super::hal::FalconBoot;
use super::super::vbios;
use super::Falcons;
use super::error::Unit;
use super::falcon::{Falcon, FalconState};
use super::fwsec::Wpr2;

/// State of [`Falcons`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FalconsState {
    /// GSP's falcon.
    pub gsp: FalconState,
    /// SEC2's falcon.
    pub sec2: FalconState,
    /// SEC2's NV_PFALCON_FALCON_MAILBOX0 and 1.
    pub sec2_mailbox: [u32; 2],
    /// NV_PFB_PRI_MMU_WPR2_ADDR_LO.
    pub wpr2_addr_lo: u32,
    /// NV_PFB_PRI_MMU_WPR2_ADDR_HI.
    pub wpr2_addr_hi: u32,
    /// The booter has loaded GSP, and not unloaded it.
    pub loaded: bool,
    /// Error of FWSEC's command FRTS.
    pub frts_error: u16,
    /// Error of FWSEC's command SB.
    pub sb_error: u16,
}

impl Falcons {
    /// The state to save. The VBIOS is the chip's.
    pub fn state(&self) -> FalconsState {
        let Self { descriptor: _, vbios: _, gsp, sec2, mailboxes, wpr2, loaded, frts_error, sb_error } = self;
        FalconsState {
            gsp: gsp.state(),
            sec2: sec2.state(),
            sec2_mailbox: *mailboxes,
            wpr2_addr_lo: wpr2.low,
            wpr2_addr_hi: wpr2.high,
            loaded: *loaded,
            frts_error: *frts_error,
            sb_error: *sb_error,
        }
    }

    /// Both in a saved state.
    ///
    /// # Errors
    /// A falcon refuses its state, the region is none, or GSP is loaded without one.
    pub fn from_state(state: &FalconsState, boot: FalconBoot, device_id: u16) -> Result<Self, StateError> {
        let check = Check("falcons");
        let wpr2 = Wpr2 { low: state.wpr2_addr_lo, high: state.wpr2_addr_hi };
        check.that(wpr2.is_sound(), || format!("WPR2 is from {:#x} to {:#x}", wpr2.low, wpr2.high))?;
        check.that(wpr2.is_set() || !state.loaded, || "GSP is loaded without WPR2".to_owned())?;
        Ok(Self {
            descriptor: boot.fwsec,
            vbios: vbios::build(device_id, boot.fwsec),
            gsp: Falcon::from_state(&state.gsp, Unit::Gsp)?,
            sec2: Falcon::from_state(&state.sec2, Unit::Sec2)?,
            mailboxes: state.sec2_mailbox,
            wpr2,
            loaded: state.loaded,
            frts_error: state.frts_error,
            sb_error: state.sb_error,
        })
    }
}
