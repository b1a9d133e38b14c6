//! The registers of a GH100 that a driver touches when GSP firmware manages the chip: the complete list, unit
//! by unit, with NVIDIA's names. There are few: everything else is asked of the firmware by messages.
//!
//! Sources are NVIDIA's open-gpu-kernel-modules (`swref/published/hopper/gh100` and, for registers that did
//! not change, the chips before) and what nouveau does; which of them a driver touches was observed on
//! running guests. What no table lists behaves as scratch, of the guest's own.

pub mod board;
pub mod fsp;
pub mod gsp;
pub mod host;
pub mod timer;
pub mod vfn;
pub mod windows;

use std::sync::LazyLock;

use crate::register_index::RegisterIndex;
use crate::registers::{Reg, RegisterDef};

/// All tables, by unit.
pub const TABLES: &[&[RegisterDef]] =
    &[host::TABLE, timer::TABLE, gsp::TABLE, fsp::TABLE, vfn::TABLE, windows::TABLE, board::TABLE];

static INDEX: LazyLock<RegisterIndex> = LazyLock::new(|| RegisterIndex::new(TABLES));

/// The tables by offset.
pub fn index() -> &'static RegisterIndex {
    &INDEX
}

/// The declaration that covers a register.
pub fn definition(reg: Reg) -> Option<&'static RegisterDef> {
    INDEX.definition(reg)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gf100;
    use crate::registers::Policy;

    #[test]
    fn constants_of_the_chip_are_the_ones_in_the_tables() {
        let boot = definition(host::NV_PMC_BOOT_0).unwrap();
        assert_eq!((boot.reset, boot.policy), (crate::gh100::BOOT_0, Policy::Constant));
    }

    #[test]
    fn time_registers_lie_where_they_always_did() {
        assert_eq!(timer::NV_PTIMER_TIME_0, gf100::regs::ptimer::NV_PTIMER_TIME_0);
        assert_eq!(timer::NV_PTIMER_TIME_1, gf100::regs::ptimer::NV_PTIMER_TIME_1);
    }

    #[test]
    fn lookup_finds_single_registers_and_families() {
        let name = |offset| definition(Reg(offset)).map(|d| d.name);
        assert_eq!(name(0x110c00), Some("NV_PGSP_QUEUE_HEAD"));
        assert_eq!(name(0xb8101c), Some("NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF"));
        assert_eq!(name(0xbb0090), Some("NV_VIRTUAL_FUNCTION_DOORBELL"));
        assert_eq!(name(0x92000), None);
    }
}
