//! What chips that FSP boots have in common: configuration space, GSP's registers, and the window to VRAM.

use super::{GspProcessor, Lockdown, Pci, PciCapabilities, Pramin, common};
use gpuvmk_chip::gsp::GspChip;
use gpuvmk_chip::gsp::regs::{gsp::*, gsp_core::*, gsp_queues::*, windows::*, xal::*};

/// A card of a chip. Places of capabilities: open-gpu-kernel-modules hopper/gh100 `dev_xtl_ep_pcfg_gpu.h`,
/// whose registers of BAR1's size and of errors are parts of capabilities.
pub(super) const fn pci(chip: &GspChip) -> Pci {
    let capabilities =
        PciCapabilities { power: 0x40, msi: 0x48, pcie: 0x60, bar1_size: Some(0x134), errors: Some(0x1b8) };
    Pci { capabilities, ..common::pci(chip, 5) }
}

/// GSP.
pub(super) const PROCESSOR: GspProcessor = GspProcessor {
    irqsclr: NV_PGSP_FALCON_IRQSCLR,
    irqstat: NV_PGSP_FALCON_IRQSTAT,
    event: NV_PGSP_FALCON_IRQSTAT::SWGEN0,
    mailbox: [NV_PGSP_FALCON_MAILBOX0, NV_PGSP_FALCON_MAILBOX1],
    unloaded: NV_PGSP_FALCON_MAILBOX0::DATA::UNLOADED,
    lockdown: Some(Lockdown {
        register: NV_PGSP_FALCON_HWCFG2,
        locked: NV_PGSP_FALCON_HWCFG2::RISCV_BR_PRIV_LOCKDOWN,
        always: NV_PGSP_FALCON_HWCFG2::RISCV.mask(),
    }),
    retrigger: Some((NV_PGSP_FALCON_INTR_RETRIGGER, NV_PGSP_FALCON_INTR_RETRIGGER::TRIGGER)),
    core: NV_PGSP_RISCV_CPUCTL,
    active: NV_PGSP_RISCV_CPUCTL::ACTIVE_STAT,
    halted: Some(NV_PGSP_RISCV_CPUCTL::HALTED),
    commands: NV_PGSP_QUEUE_HEAD.at(0),
};

/// The window.
pub(super) const PRAMIN: Pramin = Pramin {
    window: NV_PRAMIN,
    register: NV_XAL_EP_BAR0_WINDOW,
    base: NV_XAL_EP_BAR0_WINDOW::BASE,
    shift: 16,
};
