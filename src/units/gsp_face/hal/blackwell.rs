//! Blackwell (GB20x): as Hopper, with another message to FSP and other tokens.

use super::{Boot, Doorbell, FspBoot, GH100, Hal, common, fsp_chips};
use gpuvmk_chip::gsp::fsp::COT_VERSION_2;
use gpuvmk_chip::gsp::regs::blackwell::NV_VIRTUAL_FUNCTION_DOORBELL_TOKEN as TOKEN;
use gpuvmk_chip::gsp::{self as chip, GspChip};
use gpuvmk_gsp::hal::GspHal;

/// A chip of the family.
const fn row(chip: &GspChip, gsp: &'static GspHal) -> Hal {
    Hal {
        name: chip.name,
        registers: chip.index,
        pci: fsp_chips::pci(chip),
        boot: Boot::Fsp(FspBoot { message_version: COT_VERSION_2 }),
        gsp,
        doorbell: Doorbell {
            runlist: TOKEN::RUNLIST,
            chid: TOKEN::CHID,
            required: TOKEN::RUNLIST_DOORBELL.mask(),
            ..common::DOORBELL
        },
        ..GH100
    }
}

/// GB202.
pub static GB202: Hal = row(&chip::GB202, &gpuvmk_gsp::hal::GB202);
/// GB203.
pub static GB203: Hal = row(&chip::GB203, &gpuvmk_gsp::hal::GB203);
/// GB205.
pub static GB205: Hal = row(&chip::GB205, &gpuvmk_gsp::hal::GB205);
/// GB206.
pub static GB206: Hal = row(&chip::GB206, &gpuvmk_gsp::hal::GB206);
/// GB207.
pub static GB207: Hal = row(&chip::GB207, &gpuvmk_gsp::hal::GB207);
