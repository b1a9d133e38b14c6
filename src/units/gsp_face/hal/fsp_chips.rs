//! What chips that FSP boots have in common: GSP's registers, and the window to VRAM.

use super::{GspProcessor, Pramin};
use gpuvmk_chip::gsp::regs::{gsp::*, gsp_core::*, gsp_queues::*, windows::*, xal::*};

/// GSP.
pub(super) const PROCESSOR: GspProcessor = GspProcessor {
    irqsclr: NV_PGSP_FALCON_IRQSCLR,
    irqstat: NV_PGSP_FALCON_IRQSTAT,
    event: NV_PGSP_FALCON_IRQSTAT::SWGEN0,
    mailbox: [NV_PGSP_FALCON_MAILBOX0, NV_PGSP_FALCON_MAILBOX1],
    unloaded: NV_PGSP_FALCON_MAILBOX0::DATA::UNLOADED,
    lockdown: Some((NV_PGSP_FALCON_HWCFG2, NV_PGSP_FALCON_HWCFG2::RISCV_BR_PRIV_LOCKDOWN)),
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
