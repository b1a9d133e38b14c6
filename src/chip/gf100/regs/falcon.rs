//! Registers that every falcon microcontroller has, as offsets from the falcon's base. The units that contain
//! falcons (PMU, PCE0, PCE1, FECS, GPCCS) list them at their absolute places.

/// Interrupts to raise.
pub const INTR_SET: u32 = 0x000;
/// Interrupts to clear.
pub const INTR_CLEAR: u32 = 0x004;
/// Interrupts pending.
pub const INTR: u32 = 0x008;
/// Interrupts to enable.
pub const INTR_EN_SET: u32 = 0x010;
/// Interrupts to disable.
pub const INTR_EN_CLEAR: u32 = 0x014;
/// Interrupts enabled.
pub const INTR_EN: u32 = 0x018;
/// Where each interrupt goes.
pub const INTR_DISPATCH: u32 = 0x01c;
/// Which FIFO and context-switch requests the falcon takes.
pub const ACCESS_EN: u32 = 0x048;
/// Busy parts of the falcon.
pub const IDLE_STATE: u32 = 0x04c;
/// Instance block of the channel that the falcon serves.
pub const CHANNEL_CURRENT: u32 = 0x050;
/// Which copy engine this falcon drives.
pub const UNIT_INDEX: u32 = 0x084;
/// Start, halt and reset of the core.
pub const CPU_CONTROL: u32 = 0x100;
/// Entry point of the code.
pub const ENTRY: u32 = 0x104;
/// Sizes of code and data memory.
pub const HW_CONFIG: u32 = 0x108;
/// Scrubbing and DMA state.
pub const DMA_CONTROL: u32 = 0x10c;
/// Core version.
pub const HW_CONFIG_2: u32 = 0x12c;
/// Code memory: position of the upload port (bits 23:2), auto-increment on write (24) and on read (25).
pub const CODE_INDEX: u32 = 0x180;
/// Code memory: word at the position.
pub const CODE_DATA: u32 = 0x184;
/// Code memory: virtual page of the 256 bytes at the position.
pub const CODE_TAG: u32 = 0x188;
/// Data memory: position of the upload port, in the same form.
pub const DATA_INDEX: u32 = 0x1c0;
/// Data memory: word at the position.
pub const DATA_DATA: u32 = 0x1c4;

crate::fields! {
    /// Fields of [`ACCESS_EN`](const@ACCESS_EN).
    ACCESS_EN { 1:1 CHSW, 0:0 FIFO }
    /// Fields of [`CPU_CONTROL`](const@CPU_CONTROL).
    CPU_CONTROL { 4:4 HALTED, 1:1 START }
    /// Fields of [`HW_CONFIG`](const@HW_CONFIG), in units of 256 bytes.
    HW_CONFIG { 17:9 DATA, 8:0 CODE }
    /// Fields of [`DMA_CONTROL`](const@DMA_CONTROL).
    DMA_CONTROL { 2:2 CODE_SCRUB, 1:1 DATA_SCRUB, 0:0 BLOCK }
    /// Fields of [`CODE_INDEX`](const@CODE_INDEX) and [`DATA_INDEX`]. The position is in words.
    CODE_INDEX { 25:25 INCREMENT_ON_READ, 24:24 INCREMENT_ON_WRITE, 23:2 ADDR }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gf100::regs::{definition, fecs, gpccs, pce0, pce1, pmu};
    use crate::registers::{Field, Reg};

    #[test]
    fn every_falcon_has_these_fields() {
        let bases = [
            fecs::NV_PGRAPH_PRI_FECS_INTR_SET,
            gpccs::NV_PGRAPH_PRI_GPCCS_INTR_SET,
            pce0::NV_PCE0_INTR_SET,
            pce1::NV_PCE1_INTR_SET,
            pmu::NV_PPMU_INTR_SET,
        ];
        let index = [CODE_INDEX::INCREMENT_ON_READ, CODE_INDEX::INCREMENT_ON_WRITE, CODE_INDEX::ADDR];
        let words: [(u32, &[Field]); 6] = [
            (ACCESS_EN, &[ACCESS_EN::CHSW, ACCESS_EN::FIFO]),
            (CPU_CONTROL, &[CPU_CONTROL::HALTED, CPU_CONTROL::START]),
            (HW_CONFIG, &[HW_CONFIG::DATA, HW_CONFIG::CODE]),
            (DMA_CONTROL, &[DMA_CONTROL::CODE_SCRUB, DMA_CONTROL::DATA_SCRUB, DMA_CONTROL::BLOCK]),
            (CODE_INDEX, &index),
            (DATA_INDEX, &index),
        ];
        for base in bases {
            for (offset, fields) in words {
                let declared = definition(Reg(base.0 + offset)).unwrap();
                let declared_fields: Vec<_> = declared
                    .fields
                    .iter()
                    .map(|field| Field::new(field.high.into(), field.low.into()))
                    .collect();
                assert_eq!(declared_fields, fields, "{}", declared.name);
            }
        }
    }
}
