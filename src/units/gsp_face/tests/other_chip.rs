//! A chip that never was: each place that a [`Hal`] names is another one than GH100's. A driver that goes by
//! these places alone finds everything, so no unit has an offset, a shift or a count of its own.

use super::RAM;
use std::sync::LazyLock;

use super::driver::Driver;
use super::gsp_queues::LIBOS;
use super::memory::BAR1_ROOT;
use super::*;
use crate::gsp_face::hal::{
    self, Boot, Doorbell, FspBoot, GspProcessor, Hal, InterruptTree, Invalidation, Pci, Pramin, Timer,
    VramSize,
};
use gpuvmk_backend::testing::BackCall;
use gpuvmk_backend::{FlushScope, InterruptInterest};
use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_chip::channel_event::{ChannelStop, StopCause};
use gpuvmk_chip::register_index::RegisterIndex;
use gpuvmk_chip::registers::Field;
use gpuvmk_chip::{Aperture, Engine, EngineSet, PhysicalAddress};
use gpuvmk_gsp::hal::{GraphicsUnits, GspHal, Vectors};
use gpuvmk_mmio_trap::aperture::gmmu::Gmmu;
use gpuvmk_pci::DirectMap;

mod regs {
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

const GSP_STALL: u32 = 5;

static CHIP: Hal = Hal {
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
    },
    gsp: &OTHER_GSP,
    doorbell: Doorbell {
        register: DOORBELL,
        runlist: DOORBELL::RUNLIST,
        chid: DOORBELL::CHID,
        required: DOORBELL::REQUIRED.mask(),
    },
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
    chip: "GH100",
    mmu: Gmmu::V2,
    channels_per_runlist: 512,
    non_wpr_heap: 2 << 20,
    display: None,
    cpu_sequencer: false,
    vectors: Vectors { gsp_stall: GSP_STALL, non_stall },
    graphics: GraphicsUnits { tpcs: &[1] },
};

/// From the end of the last leaf down.
fn non_stall(engine: Engine) -> u32 {
    8 * 32 - 1 - u32::from(engine.place())
}

fn mag_and_scale(vram: u64) -> u32 {
    let scale = (vram >> 20).trailing_zeros();
    VRAM_SIZE::MAG.of((vram >> (20 + scale)) as u32) | VRAM_SIZE::SCALE.of(scale)
}

fn gpu() -> Gpu {
    Gpu::of(&CHIP, VRAM)
}

impl Gpu {
    fn set(&self, reg: Reg, value: u32) {
        self.wr(reg.0, value);
    }
}

/// The value of the doorbell for a channel of runlist 1.
fn token(chid: u32) -> u32 {
    1 << 31 | 1 << 23 | chid
}

#[test]
fn rows_keep_the_rules() {
    for hal in hal::ALL.into_iter().chain([&CHIP]) {
        assert_eq!((hal.registers)().overlaps(), [], "{}", hal.name);
        rules(hal);
    }
}

#[test]
fn files_that_serve_every_chip_name_registers_of_none() {
    let room = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("gsp_face");
    let mut files = 0;
    for folder in [".", "core", "registers"] {
        for entry in std::fs::read_dir(room.join(folder)).unwrap().map(Result::unwrap) {
            if entry.path().extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(entry.path()).unwrap();
                let production = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
                assert!(!production.contains("gsp::regs"), "{}", entry.path().display());
                files += 1;
            }
        }
    }
    assert!(files > 15, "{files} files were looked at");
}

/// What holds for each row.
fn rules(hal: &Hal) {
    assert_eq!(hal.mmu, hal.gsp.mmu, "{}: the face and GSP agree on page tables", hal.name);
    let index = (hal.registers)();
    let is_handled = |reg: Reg| {
        let definition = index.definition(reg).unwrap();
        assert_eq!(definition.policy, gpuvmk_chip::registers::Policy::Handler, "{}", definition.name);
        assert_ne!(hal.role(reg), hal::Role::Other, "{}", definition.name);
    };
    let InterruptTree { leaf, leaf_enable_set, leaf_enable_clear, top, top_enable_set, top_enable_clear } =
        hal.interrupts;
    for family in [leaf, leaf_enable_set, leaf_enable_clear] {
        assert_eq!(family.count as usize, hal.interrupts.leaves());
        (0..family.count).for_each(|leaf| is_handled(family.at(leaf)));
    }
    let GspProcessor { irqsclr, irqstat, mailbox, lockdown, retrigger, core, commands, .. } = hal.processor;
    let [first, second] = mailbox;
    let optional = [lockdown, retrigger].into_iter().flatten().map(|(reg, _)| reg);
    let Timer { low, high, user_low, user_high } = hal.timer;
    let Invalidation { pdb, upper_pdb, command, .. } = hal.invalidation;
    [top, top_enable_set, top_enable_clear, irqsclr, irqstat, first, second, core, commands, low, high]
        .into_iter()
        .chain([user_low, user_high, pdb, upper_pdb, command])
        .chain([hal.doorbell.register, hal.pramin.register, hal.vram.register])
        .chain(optional)
        .for_each(is_handled);
    // The first page is memory: none of its registers can have behaviour.
    for definition in (0..0x1000).step_by(4).filter_map(|offset| index.definition(Reg(offset))) {
        assert_ne!(definition.policy, gpuvmk_chip::registers::Policy::Handler, "{}", definition.name);
    }
    // A token's parts fit in its numbers.
    let widest = Field::new(15, 0).mask();
    for part in [hal.doorbell.runlist, hal.doorbell.chid] {
        assert!(part.get(u32::MAX) <= widest);
        assert_eq!(part.mask() & hal.doorbell.required, 0);
    }
    for vector in Engine::ALL.map(hal.gsp.vectors.non_stall).into_iter().chain([hal.gsp.vectors.gsp_stall]) {
        assert!((vector as usize) < 32 * hal.interrupts.leaves());
    }
}

#[test]
fn identity_and_sizes_are_the_chips() {
    let gpu = gpu();
    assert_eq!(gpu.config_rd(0), 0x1234_10de);
    assert_eq!(gpu.config_rd(8) & 0xff, 0xb2);
    assert_eq!(gpu.config_rd(0x2c), 0x4321_10de);
    assert_eq!(gpu.config_rd(0x78 + 0xc) & 0xf, 3);
    assert_eq!((gpu.reg(ID), gpu.reg(ID_AGAIN)), (0x1230_0042, 0x77));
    let sizes = gpu.function.regions().map(|info| info.size);
    assert_eq!(sizes, [16 << 20, 64 << 20, 0, 16 << 20, 0, 0, 0, 4096]);
    assert_eq!(gpu.reg(VRAM_SIZE), 1 << 4 | 6, "64 MiB");
}

#[test]
fn gsp_boots_by_a_message_of_the_chips_version_and_shows_it_in_the_chips_registers() {
    let gpu = gpu();
    let driver = Driver::prepared(&gpu);
    driver.send_fsp_version(RAM, 1);
    assert_eq!(driver.fsp_answer()[4], 0xa0);
    assert_eq!(gpu.reg(CORE), 2);
    assert_eq!(driver.boot(RAM + LIBOS), 0);
    assert_eq!(gpu.reg(CORE), 1);
    let mut driver = driver;
    driver.receive().unwrap();
    driver.unload(false);
    assert_eq!((gpu.reg(MAILBOX.at(0)), gpu.reg(CORE)), (0x51, 2));
}

#[test]
fn doorbell_rings_at_its_place_with_its_tokens() {
    let gpu = gpu();
    let mut driver = Driver::booted(&gpu);
    driver.open();
    driver.channel(3, 0x10_0000);
    gpu.back.calls();
    gpu.back.put_vram(0x10_0000 + 0x8c, &5u32.to_le_bytes());
    gpu.wr(GH100.doorbell.register.0, 1 << 16 | 3);
    assert_eq!(gpu.back.calls(), []);
    gpu.set(DOORBELL, token(3) & !(1 << 31));
    assert_eq!((gpu.back.calls(), gpu.function.counters().bad_doorbells), (vec![], 1));
    gpu.set(DOORBELL, token(3));
    assert_eq!(gpu.back.calls(), [BackCall::Doorbell(0, 5)]);
    let (region, offset) = (Region::Bar(0), u64::from(DOORBELL.0));
    let write = gpuvmk_pci::CoalescableWrite { region, offset, value: token(3) };
    assert_eq!(gpu.function.coalescable_writes(), [write]);
    assert!(gpu.function.is_posted(region, offset, 4));
    assert!(!gpu.function.is_posted(region, GH100.doorbell.register.0.into(), 4));
}

#[test]
fn tree_of_eight_leaves_interrupts_with_the_chips_vectors() {
    let gpu = gpu();
    let sink = Arc::new(Sink::default());
    gpu.function.connect_interrupts(Some(sink.clone()));
    gpu.config_wr(4, &[6, 0]);
    gpu.config_wr(0x6a, &[1, 0]);
    gpu.set(LEAF_SET.at(7), 3 << 30);
    gpu.set(TOP_SET, 1 << 3);
    let both = EngineSet::GRAPHICS | EngineSet::COPY0;
    assert_eq!(gpu.back.ends.interest(), Some(InterruptInterest::Message(both)));
    gpu.back.events().non_stall(Engine::COPY0);
    assert_eq!(sink.taken(), [Signal::Message]);
    assert_eq!((gpu.reg(TOP), gpu.reg(LEAF.at(7))), (1 << 3, 1 << 30));
    gpu.set(TOP_CLEAR, 1 << 3);
    gpu.set(LEAF.at(7), 1 << 30);
    gpu.set(TOP_SET, 1 << 3);
    assert_eq!((sink.taken(), gpu.reg(TOP)), (vec![], 0));
    // What the driver has masked is brought when it looks, in the chip's own registers.
    gpu.set(LEAF_CLEAR.at(7), u32::MAX);
    assert_eq!(gpu.back.ends.interest(), Some(InterruptInterest::Masked));
    gpu.back.ends.keep(Engine::Graphics);
    assert_eq!(gpu.reg(LEAF.at(7)), 1 << 31);

    // GSP's events: pending in the processor and in the tree, until they are acknowledged.
    gpu.set(LEAF_SET.at(0), 1 << GSP_STALL);
    gpu.set(TOP_SET, 1);
    let mut driver = Driver::booted(&gpu);
    driver.open();
    driver.channel(3, 0x10_0000);
    sink.taken();
    gpu.back.events().stopped(ChannelStop::new(GuestChannel(0), StopCause::Manager(31)));
    assert_eq!((gpu.reg(IRQ), gpu.reg(LEAF.at(0))), (4, 1 << GSP_STALL));
    assert_eq!(sink.taken(), [Signal::Message]);
    gpu.set(IRQ_CLEAR, 4);
    assert_eq!((gpu.reg(IRQ), gpu.reg(LEAF.at(0)), gpu.reg(TOP)), (0, 0, 0));
}

#[test]
fn window_moves_in_steps_of_the_chip() {
    let gpu = gpu();
    gpu.set(WINDOW, 3 << 4 | 0xf);
    gpu.wr(0x58_0004, 0x1122_3344);
    assert_eq!(gpu.back.vram_word(0x30_0004), 0x1122_3344);
    gpu.wr(0x10_fd40, 0x10);
    assert_eq!(gpu.rd(0x58_0004), 0x1122_3344, "GH100's register is nobody's here");
    gpu.wr(0x70_0000, 7);
    assert_eq!(gpu.back.vram_word(0), 0);
}

#[test]
fn invalidation_takes_its_directory_from_the_chips_fields() {
    let gpu = gpu();
    let vram = |address| PhysicalAddress { aperture: Aperture::Vram, address };
    gpu.set(PDB, 0x123 << 8);
    gpu.set(UPPER_PDB, 0xf02);
    gpu.set(INVALIDATE, 2);
    assert_eq!((gpu.back.calls(), gpu.reg(INVALIDATE), gpu.reg(UPPER_PDB)), (vec![], 2, 2));
    gpu.set(INVALIDATE, 3);
    let page_directory = vram(2 << 36 | 0x12_3000);
    let call = |page_directory, hub_only| [BackCall::Flush(FlushScope { page_directory, hub_only })];
    assert_eq!(gpu.back.calls(), call(page_directory, true));
    assert_eq!(gpu.reg(INVALIDATE), 2);
    gpu.set(PDB, 0x123 << 8 | 1);
    gpu.set(INVALIDATE, 1);
    let page_directory = PhysicalAddress { aperture: Aperture::SystemCoherent, ..page_directory };
    assert_eq!(gpu.back.calls(), call(page_directory, false));
    // Those of the BARs stay here.
    gpu.set(PDB, (BAR1_ROOT >> 12 << 8) as u32);
    gpu.set(UPPER_PDB, 0);
    gpu.set(INVALIDATE, 1);
    assert_eq!(gpu.back.calls(), []);
}

#[test]
fn time_is_set_and_read_at_its_places() {
    let gpu = gpu();
    gpu.set(TIME_HIGH, 2);
    gpu.set(TIME_LOW, 0x40);
    gpu.set(USER_TIME_LOW, 0x1000);
    gpu.clock.advance(0x100);
    assert_eq!((gpu.reg(TIME_HIGH), gpu.reg(TIME_LOW)), (2, 0x140));
    assert_eq!((gpu.reg(USER_TIME_HIGH), gpu.reg(USER_TIME_LOW)), (2, 0x140));
}

#[test]
fn state_is_the_chips() {
    let gpu = gpu();
    let mut driver = Driver::booted(&gpu);
    driver.open();
    driver.channel(3, 0x10_0000);
    gpu.set(WINDOW, 3 << 4);
    gpu.set(LEAF_SET.at(7), 1);
    gpu.set(UPPER_PDB, 2);
    gpu.back.calls();
    let gpu = gpu.restored();
    gpu.wr(0x58_0004, 7);
    assert_eq!((gpu.back.vram_word(0x30_0004), gpu.reg(LEAF_SET.at(7)), gpu.reg(UPPER_PDB)), (7, 1, 2));
    gpu.set(DOORBELL, token(3));
    assert_eq!(gpu.back.calls(), [BackCall::Doorbell(0, 0)]);

    let mut state = gpu.function.state();
    state.registers.vfn.leaf[8] = 1;
    gpu.back.disconnect();
    let config = GspFaceConfig { clock: gpu.clock.clone(), ..GspFaceConfig::of(&CHIP) };
    let refused = GspFunction::from_state(gpu.back.clone(), config, &state).unwrap_err().to_string();
    assert!(refused.contains("TEST1.VFN"), "{refused}");
    assert!(refused.ends_with("there are vectors behind the 8 leaves of the tree"), "{refused}");
}
