//! The row of the chip that never was, and its registers.

use std::sync::LazyLock;

use crate::gsp_face::hal::{
    Boot, Doorbell, FspBoot, GspProcessor, Hal, InterruptTree, Invalidation, Pci, PciCapabilities, Pramin,
    Timer, VramSize,
};
use gpuvmk_chip::register_index::RegisterIndex;
use gpuvmk_chip::{Chip, Engine, TextureClusters};
use gpuvmk_gsp::hal::{GH100, GspHal, Vectors};
use gpuvmk_mmio_trap::aperture::gmmu::Gmmu;

pub mod regs {
    gpuvmk_chip::registers! {
        unit "TEST", source "a chip of these tests";
        /// Identity.
        ID @ 0x000000, reset 0x1230_0042, Constant, {};
        /// Identity, once more.
        ID_AGAIN @ 0x000a00, reset 0x77, Constant, {};
        /// Where PRAMIN looks.
        WINDOW @ 0x001700, reset 0, Handler, { 11:4 BASE };
        /// VRAM, as a number and a scale.
        VRAM_SIZE @ 0x100ce0, reset 0, Handler, { 9:4 MAG, 3:0 SCALE };
        /// Clears pending interrupts.
        IRQ_CLEAR @ 0x200000, reset 0, Handler, {};
        /// Interrupts pending.
        IRQ @ 0x200010, reset 0, Handler, { 2:2 EVENT };
        /// Mailboxes.
        MAILBOX[2; 0x100] @ 0x200100, reset 0, Handler, {};
        /// The core.
        CORE @ 0x201240, reset 0, Handler, { 1:1 HALTED, 0:0 ACTIVE };
        /// Commands.
        COMMANDS @ 0x202000, reset 0, Handler, {};
        /// Leaves.
        LEAF[8; 0x10] @ 0x301000, reset 0, Handler, {};
        /// Enables.
        LEAF_SET[8; 0x10] @ 0x301004, reset 0, Handler, {};
        /// Disables.
        LEAF_CLEAR[8; 0x10] @ 0x301008, reset 0, Handler, {};
        /// Top.
        TOP @ 0x302000, reset 0, Handler, {};
        /// Enables.
        TOP_SET @ 0x302004, reset 0, Handler, {};
        /// Disables.
        TOP_CLEAR @ 0x302008, reset 0, Handler, {};
        /// Raises a vector.
        RAISE @ 0x302010, reset 0, Handler, { 15:8 VECTOR };
        /// Page directory.
        PDB @ 0x400200, reset 0, Handler, { 31:8 ADDRESS, 0:0 SYSTEM };
        /// Page directory.
        UPPER_PDB @ 0x400300, reset 0, Handler, { 7:0 ADDRESS };
        /// Invalidation.
        INVALIDATE @ 0x400100, reset 0, Handler, { 1:1 HUB_ONLY, 0:0 TRIGGER };
        /// Time.
        TIME_LOW @ 0x402000, reset 0, Handler, {};
        /// Time.
        TIME_HIGH @ 0x402008, reset 0, Handler, {};
        /// Doorbell.
        DOORBELL @ 0x500010, reset 0, Handler, { 31:31 REQUIRED, 28:23 RUNLIST, 9:0 CHID };
        /// Time for user mode.
        USER_TIME_LOW @ 0x500020, reset 0, Handler, {};
        /// Time for user mode.
        USER_TIME_HIGH @ 0x500024, reset 0, Handler, {};
        /// The window.
        PRAMIN[0x4000; 4] @ 0x580000, reset 0, Handler, {};
    }
}

use regs::*;

static INDEX: LazyLock<RegisterIndex> =
    LazyLock::new(|| RegisterIndex::new(&[TABLE, gpuvmk_chip::gsp::regs::fsp::TABLE]));

/// Vector of GSP's own interrupt.
pub const GSP_STALL: u32 = 5;

/// The row.
pub static CHIP: Hal = Hal {
    name: "TEST1",
    registers: || &INDEX,
    pci: Pci {
        device_id: 0x1234,
        revision: 0xb2,
        subsystem: 0x4321,
        bar0_size: 16 << 20,
        bar1_size: 64 << 20,
        bar3_size: 16 << 20,
        link_speed: 3,
        capabilities: PciCapabilities {
            power: 0x50,
            msi: 0x58,
            pcie: 0x80,
            bar1_size: None,
            errors: Some(0x100),
        },
    },
    boot: Boot::Fsp(FspBoot { message_version: 2 }),
    processor: GspProcessor {
        irqsclr: IRQ_CLEAR,
        irqstat: IRQ,
        event: IRQ::EVENT,
        mailbox: [MAILBOX.at(0), MAILBOX.at(1)],
        unloaded: 0x51,
        lockdown: None,
        retrigger: None,
        core: CORE,
        active: CORE::ACTIVE,
        halted: Some(CORE::HALTED),
        commands: COMMANDS,
    },
    interrupts: InterruptTree {
        leaf: LEAF,
        leaf_enable_set: LEAF_SET,
        leaf_enable_clear: LEAF_CLEAR,
        top: TOP,
        top_enable_set: TOP_SET,
        top_enable_clear: TOP_CLEAR,
        trigger: (RAISE, RAISE::VECTOR),
    },
    gsp: &OTHER_GSP,
    doorbell: Doorbell {
        register: DOORBELL,
        runlist: DOORBELL::RUNLIST,
        chid: DOORBELL::CHID,
        required: DOORBELL::REQUIRED.mask(),
    },
    user_page: 0x7000,
    pramin: Pramin { window: PRAMIN, register: WINDOW, base: WINDOW::BASE, shift: 20 },
    invalidation: Invalidation {
        pdb: PDB,
        pdb_system: PDB::SYSTEM,
        pdb_address: PDB::ADDRESS,
        pdb_shift: 12,
        upper_pdb: UPPER_PDB,
        upper_address: UPPER_PDB::ADDRESS,
        upper_shift: 36,
        command: INVALIDATE,
        trigger: INVALIDATE::TRIGGER,
        hub_only: INVALIDATE::HUB_ONLY,
    },
    mmu: Gmmu::V2,
    timer: Timer { low: TIME_LOW, high: TIME_HIGH, user_low: USER_TIME_LOW, user_high: USER_TIME_HIGH },
    vram: VramSize { register: VRAM_SIZE, value: mag_and_scale },
};

static OTHER_GSP: GspHal = GspHal {
    name: "Virtual GX100",
    short_name: "GX100",
    chip: Chip::GH100,
    mmu: Gmmu::V2,
    channels_per_runlist: 512,
    non_wpr_heap: 2 << 20,
    display: None,
    display_vectors: GH100.display_vectors,
    cpu_sequencer: false,
    graphics: TextureClusters::of(&[1]),
    vectors: Vectors { gsp_stall: GSP_STALL, non_stall, memory: 0x20 },
    multiprocessor: GH100.multiprocessor,
    memory: GH100.memory,
};

/// From the end of the last leaf down.
fn non_stall(engine: Engine) -> u32 {
    8 * 32 - 1 - u32::from(engine.place())
}

fn mag_and_scale(vram: u64) -> u32 {
    let scale = (vram >> 20).trailing_zeros();
    VRAM_SIZE::MAG.of((vram >> (20 + scale)) as u32) | VRAM_SIZE::SCALE.of(scale)
}
