//! Plays what a stock driver did to a card ([`crate::init_script`]).

use std::time::Duration;

use super::bus::Bus;
use crate::GpuError;
use crate::init_script::{Script, Section, Step};
use gpuvmk_chip::gf100::regs::pmc::NV_PMC_BOOT_0;
use gpuvmk_pci::Region;

/// How long a register may take to have the value that it had then. Memory training takes the longest.
const PATIENCE: Duration = Duration::from_secs(2);
/// Configuration space: vendor and device.
const IDENTITY: u64 = 0;

/// An error if a script was made from another kind of card.
pub(super) fn check(bus: &Bus, script: &Script) -> Result<(), GpuError> {
    let boot_0 = bus.read(NV_PMC_BOOT_0)?;
    let device = bus.read_at(Region::Config, IDENTITY)? >> 16;
    if boot_0 == script.boot_0 && device == u32::from(script.device) {
        return Ok(());
    }
    Err(GpuError::Invalid(format!(
        "the initialisation was recorded on device {:#06x} with NV_PMC_BOOT_0 {:#010x}; this card is {device:#06x} with {boot_0:#010x}",
        script.device, script.boot_0
    )))
}

/// Plays a section; false if the script has none.
pub(super) fn play(bus: &Bus, script: Option<&Script>, section: Section) -> Result<bool, GpuError> {
    let Some(steps) = script.and_then(|script| script.section(section)) else { return Ok(false) };
    for step in steps {
        match *step {
            Step::Write { reg, value } => bus.write(reg, value)?,
            Step::Wait { reg, mask, value } => {
                let what = "a register of the recorded initialisation";
                bus.poll_for(reg, what, PATIENCE, |now| now & mask == value & mask)?;
            }
        }
    }
    Ok(true)
}
