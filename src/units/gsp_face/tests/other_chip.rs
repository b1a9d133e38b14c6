//! A chip that never was: each place that a [`Hal`] names is another one than GH100's. A driver that goes by
//! these places alone finds everything, so no unit has an offset, a shift or a count of its own.

pub(super) mod chip;

use super::RAM;
use super::driver::Driver;
use super::gsp_queues::LIBOS;
use super::memory::BAR1_ROOT;
use super::*;
use chip::regs::*;
use chip::{CHIP, GSP_STALL};
use gpuvmk_backend::testing::BackCall;
use gpuvmk_backend::{FlushScope, InterruptInterest};
use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_chip::channel_event::{ChannelStop, StopCause};
use gpuvmk_chip::{Aperture, Engine, EngineSet, PhysicalAddress};
use gpuvmk_pci::DirectMap;

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
fn identity_and_sizes_are_the_chips() {
    let gpu = gpu();
    assert_eq!(gpu.config_rd(0), 0x1234_10de);
    assert_eq!(gpu.config_rd(8) & 0xff, 0xb2);
    assert_eq!(gpu.config_rd(0x2c), 0x4321_10de);
    assert_eq!(gpu.config_rd(0x80 + 0xc) & 0xf, 3);
    assert_eq!((gpu.config_rd(0x100), gpu.config_rd(0x58) & 0xff), (0x0002_0001, 5));
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
    gpu.config_wr(0x5a, &[1, 0]);
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
