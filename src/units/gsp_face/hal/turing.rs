//! Turing: a bootloader loads FWSEC, GSP has an older core, and the MMU no pages of 512 MiB.

use super::common::MIB_SHIFT;
use super::falcon_chips::{self, PROCESSOR};
use super::{Descriptor, GspProcessor, Hal, VramSize};
use gpuvmk_chip::gsp::regs::turing::gsp_core::NV_PGSP_RISCV_CORE_SWITCH_RISCV_STATUS as STATUS;
use gpuvmk_chip::gsp::regs::turing::vram_size::NV_PFB_PRI_MMU_LOCAL_MEMORY_RANGE as RANGE;
use gpuvmk_chip::gsp::{self as chip, GspChip};
use gpuvmk_gsp::hal::GspHal;
use gpuvmk_mmio_trap::aperture::gmmu::Gmmu;

/// A chip of the family.
const fn row(chip: &GspChip, gsp: &'static GspHal) -> Hal {
    Hal {
        processor: GspProcessor {
            retrigger: None,
            core: STATUS,
            active: STATUS::ACTIVE_STAT,
            halted: None,
            ..PROCESSOR
        },
        mmu: Gmmu::V2,
        vram: VramSize { register: RANGE, value: number_and_scale },
        ..falcon_chips::row(chip, gsp, Descriptor::V2, 3)
    }
}

/// NV_PFB_PRI_MMU_LOCAL_MEMORY_RANGE of so many bytes of VRAM: whole steps of a size that leaves the number
/// in its field.
fn number_and_scale(vram: u64) -> u32 {
    let mebibytes = vram >> MIB_SHIFT;
    let most = u64::from(RANGE::LOWER_MAG.get(u32::MAX));
    let scale = (0..=RANGE::LOWER_SCALE.get(u32::MAX)).find(|scale| mebibytes >> scale <= most);
    scale.map_or(u32::MAX, |scale| {
        // At most six bits.
        let number = u32::try_from(mebibytes >> scale).unwrap_or(u32::MAX);
        RANGE::LOWER_MAG.of(number) | RANGE::LOWER_SCALE.of(scale)
    })
}

/// TU102.
pub static TU102: Hal = row(&chip::TU102, &gpuvmk_gsp::hal::TU102);
/// TU104.
pub static TU104: Hal = row(&chip::TU104, &gpuvmk_gsp::hal::TU104);
/// TU106.
pub static TU106: Hal = row(&chip::TU106, &gpuvmk_gsp::hal::TU106);
/// TU117.
pub static TU117: Hal = row(&chip::TU117, &gpuvmk_gsp::hal::TU117);
/// TU116.
pub static TU116: Hal = row(&chip::TU116, &gpuvmk_gsp::hal::TU116);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_back_as_drivers_compute_them() {
        for mebibytes in [64u64, 128, 4096, 6144, 11 * 1024, 24 * 1024, 64 * 1024] {
            let register = number_and_scale(mebibytes << 20);
            let (number, scale) = ((register >> 4) & 0x3f, register & 0xf);
            assert_eq!(u64::from(number) << (scale + 20), mebibytes << 20);
        }
        // A size that the register cannot tell is told as a smaller one.
        assert_eq!(number_and_scale(100 << 20), 50 << 4 | 1);
        assert_eq!(number_and_scale(101 << 20), 50 << 4 | 1);
    }
}
