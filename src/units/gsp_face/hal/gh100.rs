//! Hopper: FSP boots GSP, page tables are of version 3.
//!
//! Offsets and fields are those of [`gpuvmk_chip::gsp::regs`], whose tables say where they are known from.

use super::{Boot, FspBoot, Hal, common, fsp_chips};
use gpuvmk_chip::gsp as chip;
use gpuvmk_chip::gsp::fsp::COT_VERSION;
use gpuvmk_mmio_trap::aperture::gmmu::Gmmu;

/// GH100.
pub static GH100: Hal = Hal {
    name: chip::GH100.name,
    registers: chip::GH100.index,
    pci: fsp_chips::pci(&chip::GH100),
    boot: Boot::Fsp(FspBoot { message_version: COT_VERSION }),
    processor: fsp_chips::PROCESSOR,
    interrupts: common::INTERRUPTS,
    gsp: &gpuvmk_gsp::hal::GH100,
    doorbell: common::DOORBELL,
    user_page: common::USER_PAGE,
    pramin: fsp_chips::PRAMIN,
    invalidation: common::INVALIDATION,
    mmu: Gmmu::V3,
    timer: common::TIMER,
    vram: common::VRAM,
};
