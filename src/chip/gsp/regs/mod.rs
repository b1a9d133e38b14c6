//! The registers that a driver touches when GSP firmware manages the chip, unit by unit, with NVIDIA's names.
//! There are few: everything else is asked of the firmware by messages.
//!
//! A table serves all chips whose family lists it: [`TURING`] to [`BLACKWELL`] are the lists. Where families
//! differ, a register is in a table of its own, and nowhere twice. What no list of a chip has behaves as
//! scratch, of the guest's own.
//!
//! Sources are NVIDIA's open-gpu-kernel-modules (`swref/published`) and what nouveau and nova-core do; which
//! of them a driver touches was observed on running guests.

pub mod ampere;
pub mod blackwell;
pub mod board;
pub mod display;
pub mod falcon_boot;
pub mod faults;
pub mod fsp;
pub mod gsp;
pub mod gsp_core;
pub mod gsp_queues;
pub mod hopper;
pub mod host;
pub mod identity;
pub mod pfalcon;
pub mod timer;
pub mod turing;
pub mod vfn;
pub mod vram_size;
pub mod windows;
pub mod xal;

use super::falcon::{GSP_BASE, SEC2_BASE};
use crate::registers::RegisterDef;

/// A table.
pub type Table = &'static [RegisterDef];

/// Where the identity of a chip goes in its family's list.
const IDENTITY: Table = &[];

static GSP_FALCON: [RegisterDef; pfalcon::TABLE.len()] = pfalcon::at(pfalcon::TABLE, GSP_BASE, "GSP FALCON");
static SEC2_FALCON: [RegisterDef; pfalcon::TABLE.len()] =
    pfalcon::at(pfalcon::TABLE, SEC2_BASE, "SEC2 FALCON");
static GSP_FALCON2: [RegisterDef; pfalcon::second::TABLE.len()] =
    pfalcon::at(pfalcon::second::TABLE, GSP_BASE, "GSP FALCON2");
static SEC2_FALCON2: [RegisterDef; pfalcon::second::TABLE.len()] =
    pfalcon::at(pfalcon::second::TABLE, SEC2_BASE, "SEC2 FALCON2");

/// Turing.
pub const TURING: [Table; 13] = [
    IDENTITY,
    host::TABLE,
    timer::TABLE,
    falcon_boot::TABLE,
    falcon_boot::prom::TABLE,
    turing::fuse::TABLE,
    turing::vram_size::TABLE,
    &GSP_FALCON,
    turing::gsp_core::TABLE,
    gsp_queues::TABLE,
    &SEC2_FALCON,
    vfn::TABLE,
    windows::TABLE,
];

/// Ampere (GA10x) and Ada.
pub const AMPERE: [Table; 16] = [
    IDENTITY,
    host::TABLE,
    timer::TABLE,
    falcon_boot::TABLE,
    falcon_boot::prom::TABLE,
    display::TABLE,
    ampere::fuse::TABLE,
    vram_size::TABLE,
    &GSP_FALCON,
    &GSP_FALCON2,
    gsp_core::TABLE,
    gsp_queues::TABLE,
    &SEC2_FALCON,
    &SEC2_FALCON2,
    vfn::TABLE,
    windows::TABLE,
];

/// Hopper.
pub const HOPPER: [Table; 15] = [
    IDENTITY,
    host::TABLE,
    hopper::host::TABLE,
    hopper::scratch::TABLE,
    xal::TABLE,
    vram_size::TABLE,
    timer::TABLE,
    gsp::TABLE,
    gsp_core::TABLE,
    gsp_queues::TABLE,
    fsp::TABLE,
    vfn::TABLE,
    faults::TABLE,
    windows::TABLE,
    board::TABLE,
];

/// Blackwell (GB20x).
pub const BLACKWELL: [Table; 14] = [
    IDENTITY,
    host::TABLE,
    blackwell::host::TABLE,
    xal::TABLE,
    vram_size::TABLE,
    timer::TABLE,
    gsp::TABLE,
    gsp_core::TABLE,
    gsp_queues::TABLE,
    fsp::TABLE,
    vfn::TABLE,
    faults::TABLE,
    windows::TABLE,
    board::TABLE,
];

/// A family's list with the identity of one of its chips.
pub(super) const fn with_identity<const COUNT: usize>(
    identity: Table,
    family: [Table; COUNT],
) -> [Table; COUNT] {
    let mut all = family;
    all[0] = identity;
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gf100;

    #[test]
    fn time_registers_lie_where_they_always_did() {
        assert_eq!(timer::NV_PTIMER_TIME_0, gf100::regs::ptimer::NV_PTIMER_TIME_0);
        assert_eq!(timer::NV_PTIMER_TIME_1, gf100::regs::ptimer::NV_PTIMER_TIME_1);
    }

    #[test]
    fn the_window_to_vram_lies_where_fermi_had_it() {
        assert_eq!(falcon_boot::NV_PBUS_BAR0_WINDOW, gf100::regs::pbus::NV_PBUS_BAR0_WINDOW);
    }

    #[test]
    fn falcons_have_their_registers_at_their_bases() {
        let place = |table: &[RegisterDef], name| {
            table.iter().find(|entry| entry.name == name).map(|entry| entry.offset)
        };
        assert_eq!(place(&GSP_FALCON, "NV_PFALCON_FALCON_CPUCTL"), Some(0x11_0100));
        assert_eq!(place(&SEC2_FALCON, "NV_PFALCON_FALCON_CPUCTL"), Some(0x84_0100));
        assert_eq!(place(&SEC2_FALCON2, "NV_PRISCV_RISCV_BCR_CTRL"), Some(0x84_1668));
    }
}
