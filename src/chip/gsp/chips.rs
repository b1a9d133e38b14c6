//! The chips: names, identities, registers.

use std::sync::LazyLock;

use super::regs::{self, Table, identity};
use crate::register_index::RegisterIndex;
use crate::registers::RegisterDef;

/// A chip, as far as its registers tell.
#[derive(Debug)]
pub struct GspChip {
    /// Name as users write it in configuration files.
    pub name: &'static str,
    /// Value of NV_PMC_BOOT_0.
    pub boot_0: u32,
    /// PCI device id of an ordinary card. Drivers derive the marketing name from it.
    pub device_id: u16,
    /// All tables, by unit.
    pub tables: &'static [Table],
    /// The tables by offset.
    pub index: fn() -> &'static RegisterIndex,
}

/// The value of NV_PMC_BOOT_0 of a chipset: revision a1.
const fn boot_0(chipset: u32) -> u32 {
    identity::NV_PMC_BOOT_0::ARCHITECTURE.of(chipset >> 4)
        | identity::NV_PMC_BOOT_0::IMPLEMENTATION.of(chipset & 0xf)
        | identity::NV_PMC_BOOT_0::MAJOR_REVISION.of(0xa)
        | identity::NV_PMC_BOOT_0::MINOR_REVISION.of(0x1)
}

/// Declares chips: chipset and PCI device id, with the list of registers of the family.
macro_rules! chips {
    ($($(#[doc = $doc:literal])+ $name:ident = $chipset:literal, $device_id:literal, $family:ident;)+) => {
        $(
            $(#[doc = $doc])+
            pub static $name: GspChip = {
                static IDENTITY: [RegisterDef; identity::COUNT] = identity::table(boot_0($chipset));
                static TABLES: [Table; regs::$family.len()] =
                    regs::with_identity(&IDENTITY, regs::$family);
                static INDEX: LazyLock<RegisterIndex> = LazyLock::new(|| RegisterIndex::new(&TABLES));
                GspChip {
                    name: stringify!($name),
                    boot_0: boot_0($chipset),
                    device_id: $device_id,
                    tables: &TABLES,
                    index: || &INDEX,
                }
            };
        )+

        /// All chips, oldest first.
        pub const ALL: &[&GspChip] = &[$(&$name),+];
    };
}

// Chipsets: nouveau nvkm/engine/device/base.c. Device ids: those that Mesa has names for.
chips! {
    /// Turing, RTX 2080 Ti.
    TU102 = 0x162, 0x1e04, TURING;
    /// Turing, RTX 2080.
    TU104 = 0x164, 0x1e82, TURING;
    /// Turing, RTX 2060.
    TU106 = 0x166, 0x1f08, TURING;
    /// Turing, GTX 1650.
    TU117 = 0x167, 0x1f82, TURING;
    /// Turing, GTX 1660.
    TU116 = 0x168, 0x2184, TURING;
    /// Ampere, RTX 3090.
    GA102 = 0x172, 0x2204, AMPERE;
    /// Ampere, RTX 3080 Ti of notebooks.
    GA103 = 0x173, 0x2420, AMPERE;
    /// Ampere, RTX 3070.
    GA104 = 0x174, 0x2484, AMPERE;
    /// Ampere, RTX 3060.
    GA106 = 0x176, 0x2503, AMPERE;
    /// Ampere, RTX 3050.
    GA107 = 0x177, 0x2582, AMPERE;
    /// Hopper, H100 PCIe.
    GH100 = 0x180, 0x2330, HOPPER;
    /// Ada, RTX 4090.
    AD102 = 0x192, 0x2684, AMPERE;
    /// Ada, RTX 4080.
    AD103 = 0x193, 0x2704, AMPERE;
    /// Ada, RTX 4070.
    AD104 = 0x194, 0x2786, AMPERE;
    /// Ada, RTX 4060 Ti.
    AD106 = 0x196, 0x2803, AMPERE;
    /// Ada, RTX 4060.
    AD107 = 0x197, 0x2882, AMPERE;
    /// Blackwell, RTX 5090.
    GB202 = 0x1b2, 0x2b85, BLACKWELL;
    /// Blackwell, RTX 5070 Ti.
    GB203 = 0x1b3, 0x2c05, BLACKWELL;
    /// Blackwell, RTX 5070.
    GB205 = 0x1b5, 0x2f04, BLACKWELL;
    /// Blackwell, RTX 5060 Ti.
    GB206 = 0x1b6, 0x2d04, BLACKWELL;
    /// Blackwell, RTX 5050.
    GB207 = 0x1b7, 0x2d83, BLACKWELL;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registers::{Policy, Reg};

    #[test]
    fn identities_are_those_that_drivers_know() {
        assert_eq!((AD104.boot_0, GH100.boot_0, TU116.boot_0), (0x1940_00a1, 0x1800_00a1, 0x1680_00a1));
        for chip in ALL {
            let boot_0 = (chip.index)().definition(identity::NV_PMC_BOOT_0).unwrap();
            assert_eq!((boot_0.reset, boot_0.policy), (chip.boot_0, Policy::Constant), "{}", chip.name);
        }
    }

    #[test]
    fn older_chips_come_first_and_no_two_are_equal() {
        assert!(ALL[..10].is_sorted_by_key(|chip| chip.boot_0));
        for (place, chip) in ALL.iter().enumerate() {
            let same = |other: &&&GspChip| other.boot_0 == chip.boot_0 || other.device_id == chip.device_id;
            assert_eq!(ALL[..place].iter().find(same).map(|chip| chip.name), None, "{}", chip.name);
        }
    }

    #[test]
    fn lookup_finds_single_registers_and_families() {
        let name = |offset| (GH100.index)().definition(Reg(offset)).map(|d| d.name);
        assert_eq!(name(0x110c00), Some("NV_PGSP_QUEUE_HEAD"));
        assert_eq!(name(0xb8101c), Some("NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF"));
        assert_eq!(name(0xbb0090), Some("NV_VIRTUAL_FUNCTION_DOORBELL"));
        assert_eq!(name(0x92000), None);
    }
}
