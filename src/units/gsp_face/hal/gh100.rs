//! Hopper: FSP boots GSP, page tables are of version 3.
//!
//! Offsets and fields are those of [`gpuvmk_chip::gsp::regs`], whose tables say where they are known from.

use super::{
    Boot, Doorbell, FspBoot, GspProcessor, Hal, InterruptTree, Invalidation, Pci, Pramin, Timer, VramSize,
};
use gpuvmk_chip::addr::PAGE_SHIFT;
use gpuvmk_chip::gsp as chip;
use gpuvmk_chip::gsp::fsp::COT_VERSION;
use gpuvmk_chip::gsp::regs::{
    gsp::*, gsp_core::*, gsp_queues::*, timer::*, vfn::*, vram_size::*, windows::*, xal::*,
};
use gpuvmk_mmio_trap::aperture::gmmu::Gmmu;

/// log2 of the bytes of a MiB.
const MIB_SHIFT: u32 = 20;

/// GH100.
pub static GH100: Hal = Hal {
    name: chip::GH100.name,
    registers: chip::GH100.index,
    pci: Pci {
        device_id: chip::GH100.device_id,
        revision: 0xa1,
        subsystem: 0x16c1,
        bar0_size: 16 << 20,
        bar1_size: 256 << 20,
        bar3_size: 32 << 20,
        link_speed: 5,
    },
    boot: Boot::Fsp(FspBoot { message_version: COT_VERSION }),
    processor: GspProcessor {
        irqsclr: NV_PGSP_FALCON_IRQSCLR,
        irqstat: NV_PGSP_FALCON_IRQSTAT,
        event: NV_PGSP_FALCON_IRQSTAT::SWGEN0,
        mailbox: [NV_PGSP_FALCON_MAILBOX0, NV_PGSP_FALCON_MAILBOX1],
        unloaded: NV_PGSP_FALCON_MAILBOX0::DATA::UNLOADED,
        lockdown: Some((NV_PGSP_FALCON_HWCFG2, NV_PGSP_FALCON_HWCFG2::RISCV_BR_PRIV_LOCKDOWN)),
        retrigger: Some((NV_PGSP_FALCON_INTR_RETRIGGER, NV_PGSP_FALCON_INTR_RETRIGGER::TRIGGER)),
        core: NV_PGSP_RISCV_CPUCTL,
        active: NV_PGSP_RISCV_CPUCTL::ACTIVE_STAT,
        halted: NV_PGSP_RISCV_CPUCTL::HALTED,
        commands: NV_PGSP_QUEUE_HEAD.at(0),
    },
    interrupts: InterruptTree {
        leaf: NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF,
        leaf_enable_set: NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF_EN_SET,
        leaf_enable_clear: NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF_EN_CLEAR,
        top: NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_TOP,
        top_enable_set: NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_TOP_EN_SET,
        top_enable_clear: NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_TOP_EN_CLEAR,
    },
    gsp: &gpuvmk_gsp::hal::GH100,
    doorbell: Doorbell {
        register: NV_VIRTUAL_FUNCTION_DOORBELL,
        runlist: NV_VIRTUAL_FUNCTION_DOORBELL::RUNLIST,
        chid: NV_VIRTUAL_FUNCTION_DOORBELL::CHID,
        required: 0,
    },
    pramin: Pramin {
        window: NV_PRAMIN,
        register: NV_XAL_EP_BAR0_WINDOW,
        base: NV_XAL_EP_BAR0_WINDOW::BASE,
        shift: 16,
    },
    invalidation: Invalidation {
        pdb: NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE_PDB,
        pdb_system: NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE_PDB::APERTURE,
        pdb_address: NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE_PDB::ADDR,
        pdb_shift: PAGE_SHIFT,
        upper_pdb: NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE_UPPER_PDB,
        upper_address: NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE_UPPER_PDB::ADDR,
        upper_shift: 40,
        command: NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE,
        trigger: NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE::TRIGGER,
        hub_only: NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE::HUBTLB_ONLY,
    },
    mmu: Gmmu::V3,
    timer: Timer {
        low: NV_PTIMER_TIME_0,
        high: NV_PTIMER_TIME_1,
        user_low: NV_VIRTUAL_FUNCTION_TIME_0,
        user_high: NV_VIRTUAL_FUNCTION_TIME_1,
    },
    vram: VramSize { register: NV_PGC6_AON_SECURE_SCRATCH_GROUP_42, value: mebibytes },
};

/// NV_PGC6_AON_SECURE_SCRATCH_GROUP_42 of so many bytes of VRAM.
fn mebibytes(vram: u64) -> u32 {
    u32::try_from(vram >> MIB_SHIFT).unwrap_or(u32::MAX)
}
