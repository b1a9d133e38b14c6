//! What chips that falcons boot have in common: GSP's registers, the window to VRAM, page tables of version
//! 2.

use super::{Boot, Descriptor, FalconBoot, GspProcessor, Hal, Pramin, common};
use gpuvmk_chip::gsp::GspChip;
use gpuvmk_chip::gsp::falcon::GSP_BASE;
use gpuvmk_chip::gsp::regs::{falcon_boot::*, gsp_core::*, gsp_queues::*, pfalcon::*, windows::*};
use gpuvmk_gsp::hal::GspHal;
use gpuvmk_mmio_trap::aperture::gmmu::Gmmu;

/// GSP, from GA102 on.
pub(super) const PROCESSOR: GspProcessor = GspProcessor {
    irqsclr: reg(GSP_BASE, NV_PFALCON_FALCON_IRQSCLR),
    irqstat: reg(GSP_BASE, NV_PFALCON_FALCON_IRQSTAT),
    event: NV_PFALCON_FALCON_IRQSTAT::SWGEN0,
    mailbox: [reg(GSP_BASE, NV_PFALCON_FALCON_MAILBOX0), reg(GSP_BASE, NV_PFALCON_FALCON_MAILBOX1)],
    unloaded: NV_PFALCON_FALCON_MAILBOX0::DATA::UNLOADED,
    lockdown: None,
    retrigger: Some((NV_PGSP_FALCON_INTR_RETRIGGER, NV_PGSP_FALCON_INTR_RETRIGGER::TRIGGER)),
    core: NV_PGSP_RISCV_CPUCTL,
    active: NV_PGSP_RISCV_CPUCTL::ACTIVE_STAT,
    halted: Some(NV_PGSP_RISCV_CPUCTL::HALTED),
    commands: NV_PGSP_QUEUE_HEAD.at(0),
};

/// A chip of Ampere or Ada. Turing differs in some registers.
pub(super) const fn row(chip: &GspChip, gsp: &'static GspHal, fwsec: Descriptor, link_speed: u8) -> Hal {
    Hal {
        name: chip.name,
        registers: chip.index,
        pci: common::pci(chip, link_speed),
        boot: Boot::Falcons(FalconBoot { fwsec }),
        processor: PROCESSOR,
        interrupts: common::INTERRUPTS,
        gsp,
        doorbell: common::DOORBELL,
        user_page: common::USER_PAGE,
        pramin: Pramin {
            window: NV_PRAMIN,
            register: NV_PBUS_BAR0_WINDOW,
            base: NV_PBUS_BAR0_WINDOW::BASE,
            shift: 16,
        },
        invalidation: common::INVALIDATION,
        mmu: Gmmu::V2Ampere,
        timer: common::TIMER,
        vram: common::VRAM,
    }
}
