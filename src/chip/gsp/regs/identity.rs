//! Which chip it is: the only registers whose values differ from chip to chip of a family.

use crate::registers::RegisterDef;

crate::registers! {
    unit "IDENTITY", source "open-gpu-kernel-modules hopper/gh100 dev_pmc.h; nouveau nvkm/engine/device/base.c; nova-core regs.rs";
    /// Chip identification. Drivers read it in each interrupt, too.
    NV_PMC_BOOT_0 @ 0x000000, reset 0, Constant, { 28:24 ARCHITECTURE, 23:20 IMPLEMENTATION, 7:4 MAJOR_REVISION, 3:0 MINOR_REVISION };
    /// Whether this is a virtual function (which drivers refuse), and endianness. A physical, little-endian
    /// one.
    NV_PMC_BOOT_1 @ 0x000004, reset 0, Constant, { 17:16 VGPU, 0:0 ENDIAN };
    /// Chip identification, in fields that have room for more chips.
    NV_PMC_BOOT_42 @ 0x000a00, reset 0, Constant, { 29:24 ARCHITECTURE, 23:20 IMPLEMENTATION, 19:16 MAJOR_REVISION, 15:12 MINOR_REVISION };
}

/// Registers of this unit.
pub const COUNT: usize = TABLE.len();

/// The registers of the chip whose NV_PMC_BOOT_0 is `boot_0`.
pub const fn table(boot_0: u32) -> [RegisterDef; COUNT] {
    let boot_42 = NV_PMC_BOOT_42::ARCHITECTURE.of(NV_PMC_BOOT_0::ARCHITECTURE.get(boot_0))
        | NV_PMC_BOOT_42::IMPLEMENTATION.of(NV_PMC_BOOT_0::IMPLEMENTATION.get(boot_0))
        | NV_PMC_BOOT_42::MAJOR_REVISION.of(NV_PMC_BOOT_0::MAJOR_REVISION.get(boot_0))
        | NV_PMC_BOOT_42::MINOR_REVISION.of(NV_PMC_BOOT_0::MINOR_REVISION.get(boot_0));
    let (zero, one, forty_two) = (TABLE[0], TABLE[1], TABLE[2]);
    [RegisterDef { reset: boot_0, ..zero }, one, RegisterDef { reset: boot_42, ..forty_two }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_identifications_say_the_same() {
        let [boot_0, _, boot_42] = table(0x1940_00a1);
        assert_eq!((boot_0.reset, boot_42.reset), (0x1940_00a1, 0x194a_1000));
    }
}
