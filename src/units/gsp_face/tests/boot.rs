//! Identification, boot, unload, suspend, reset.

use super::RAM;
use super::driver::Driver;
use super::events::write_fault;
use super::*;
use crate::DriverCounters;
use gpuvmk_backend::testing::BackCall;
use gpuvmk_chip::TextureClusters;
use gpuvmk_chip::channel_event::FaultUnit;
use gpuvmk_chip::gsp::regs::{gsp, gsp_core, vram_size};

#[test]
fn driver_finds_a_gh100() {
    let gpu = Gpu::new();
    assert_eq!(gpu.config_rd(0), 0x2330_10de);
    assert_eq!(gpu.config_rd(8), 0x0302_00a1);
    assert_eq!(gpu.config_rd(0x2c), 0x16c1_10de);
    // Where NVIDIA's own driver takes them from: the speed of the link, BAR1's size, no errors.
    assert_eq!([0x34, 0x40, 0x48, 0x60].map(|at| gpu.config_rd(at) & 0xff), [0x40, 1, 5, 0x10]);
    assert_eq!((gpu.config_rd(0x6c) & 0x3ff, gpu.config_rd(0x70) >> 16 & 0x3ff), (0x105, 0x105));
    assert_eq!((gpu.config_rd(0x13c) >> 8 & 0x3f, gpu.config_rd(0x1bc), gpu.config_rd(0x1c8)), (8, 0, 0));
    assert_eq!((gpu.rd(4), gpu.rd(0)), (0, 0x1800_00a1));
    assert_eq!((gpu.rd(0x10_1000), gpu.rd(0x2_00bc)), (0, 0xff));
    assert_eq!(gpu.reg(vram_size::NV_PGC6_AON_SECURE_SCRATCH_GROUP_42), 64);
    gpu.wr(0x7_0000, 1);
    assert_eq!(gpu.rd(0x7_0000), 0);
}

#[test]
fn regions_are_those_of_the_card() {
    let sizes = Gpu::new().function.regions().map(|info| info.size);
    assert_eq!(sizes, [16 << 20, 256 << 20, 0, 32 << 20, 0, 0, 0, 4096]);
}

#[test]
fn gsp_boots_by_the_message_to_fsp() {
    let gpu = Gpu::new();
    assert_ne!(gpu.reg(gsp::NV_PGSP_FALCON_HWCFG2) & 1 << 13, 0);
    let mut driver = Driver::booted(&gpu);
    assert_eq!(gpu.reg(gsp::NV_PGSP_FALCON_MAILBOX0), 0);
    // NVIDIA's own driver takes zeros for a processor that does not answer yet.
    assert_eq!(gpu.reg(gsp::NV_PGSP_FALCON_HWCFG2), 0x400);
    assert_eq!(gpu.reg(gsp_core::NV_PGSP_RISCV_CPUCTL), 0x80);
    assert_eq!(driver.receive(), None);
    assert_eq!(gpu.function.gsp_counters().events, 1);
}

#[test]
fn doorbell_before_the_boot_is_ignored_and_what_was_queued_is_done_at_boot() {
    let gpu = Gpu::new();
    let mut driver = Driver::prepared(&gpu);
    driver.push(73, &[0; 16]);
    driver.ring();
    driver.ring();
    assert_eq!(gpu.function.gsp_counters().rpcs, 0);
    assert_eq!(driver.boot(RAM + 0x2000), 0);
    assert_eq!(gpu.function.gsp_counters().rpcs, 1);
}

#[test]
fn boot_with_parameters_that_are_not_there_is_refused_by_fsp() {
    let gpu = Gpu::new();
    let driver = Driver::prepared(&gpu);
    for parameters in [0, RAM - 8, RAM + (2 << 20) - 8, u64::MAX - 3] {
        driver.send_fsp(parameters);
        assert_eq!(driver.fsp_answer()[4], 0xa1, "{parameters:#x}");
    }
    // Parameters of zeros are for no firmware that there is.
    driver.send_fsp(RAM + 0x8000);
    assert_eq!(driver.fsp_answer()[4], 0xa1);
    assert_eq!(driver.boot(0), 0x9e);
    assert_eq!(driver.boot(RAM + 0x8000), 0x9e);
    assert_eq!(gpu.function.counters().boot_errors, 7);
    assert_eq!(gpu.reg(gsp_core::NV_PGSP_RISCV_CPUCTL), 0x10);
}

#[test]
fn unloading_halts_the_core_and_takes_the_channels() {
    let gpu = Gpu::new();
    let mut driver = Driver::booted(&gpu);
    driver.open();
    driver.channel(3, 0x10_0000);
    gpu.back.calls();
    driver.unload(false);
    assert_eq!(gpu.reg(gsp::NV_PGSP_FALCON_MAILBOX0), 0x8000_0000);
    assert_eq!(gpu.reg(gsp_core::NV_PGSP_RISCV_CPUCTL) & 0x10, 0x10);
    assert_eq!(gpu.back.calls(), [BackCall::Destroy(0)]);
    drop(driver);
    Driver::booted(&gpu);
}

#[test]
fn resume_keeps_queues_and_channels() {
    let gpu = Gpu::new();
    let mut driver = Driver::booted(&gpu);
    driver.open();
    driver.channel(3, 0x10_0000);
    driver.unload(true);
    assert_eq!(gpu.reg(gsp::NV_PGSP_FALCON_MAILBOX0), 0x8000_0000);
    assert_eq!(driver.boot(0), 0);
    assert_eq!(gpu.reg(gsp_core::NV_PGSP_RISCV_CPUCTL), 0x80);
    assert_eq!(driver.receive().unwrap().function, 0x1001);
    gpu.back.calls();
    gpu.wr(0xbb_0090, 1 << 16 | 3);
    assert_eq!(gpu.back.calls(), [BackCall::Doorbell(0, 0)]);
}

#[test]
fn operators_learn_of_what_is_new_and_of_all_boots() {
    let gpu = Gpu::new();
    let news = || gpu.function.take_counters_changed().then(|| gpu.function.driver_counters());
    assert_eq!(news(), Some(DriverCounters::default()));
    assert_eq!(news(), None);
    let mut driver = Driver::booted(&gpu);
    driver.open();
    let asked = news().unwrap();
    assert_eq!((asked.gsp.rpcs, asked.gsp.refused()), (gpu.function.gsp_counters().rpcs, 0));
    assert!(asked.gsp.rpcs > 3 && asked.gsp.events == 1);
    gpu.rd(0x0f_0ff0);
    assert_eq!(news().map(|news| news.face.unlisted_reads), Some(1));
    gpu.wr(0xbb_0090, 1 << 16 | 3);
    assert_eq!(news().map(|news| news.face.bad_doorbells), Some(1));
    gpu.back.events().fault(write_fault(FaultUnit::Bar1));
    assert_eq!(news().map(|news| news.face.window_faults), Some(1));
    gpu.reg(gsp::NV_PGSP_FALCON_HWCFG2);
    assert_eq!(news(), None);
    drop(driver);

    gpu.function.reset();
    Driver::booted(&gpu).open();
    let both = news().unwrap();
    assert_eq!((both.gsp.rpcs, both.gsp.events), (2 * asked.gsp.rpcs, 2));
    assert_eq!(both.face.bad_doorbells, 1);
}

#[test]
fn function_reset_brings_everything_back() {
    let gpu = Gpu::new();
    let mut driver = Driver::booted(&gpu);
    driver.open();
    driver.channel(3, 0x10_0000);
    gpu.wr(0x10_fd40, 0x12);
    gpu.wr(0x1234, 5);
    gpu.back.calls();
    gpu.config_wr(0x60 + 8 + 1, &[0x80]);
    assert_eq!(gpu.back.calls(), [BackCall::Reset]);
    assert_eq!((gpu.rd(0x10_fd40), gpu.rd(0x1234)), (0, 0));
    assert_eq!(gpu.reg(gsp_core::NV_PGSP_RISCV_CPUCTL), 0x10);
    gpu.wr(0xbb_0090, 1 << 16 | 3);
    assert_eq!(gpu.back.calls(), []);
    assert_eq!(gpu.function.counters().bad_doorbells, 1);
    gpu.function.reset();
    assert_eq!(gpu.back.calls(), [BackCall::Reset]);
    let mut driver = Driver::booted(&gpu);
    driver.open();
}

#[test]
fn back_is_told_how_many_objects_the_driver_has() {
    let gpu = Gpu::new();
    let told = || gpu.back.objects().map(|usage| (usage.used, usage.refused));
    let mut driver = Driver::booted(&gpu);
    assert_eq!(told(), Some((3, 0)), "those of the firmware's own");
    driver.open();
    driver.channel(3, 0x10_0000);
    assert_eq!(told(), Some((3 + 4, 0)));
    gpu.function.reset();
    assert_eq!(told(), Some((0, 0)));
}

#[test]
fn timer_counts_from_what_was_set_and_user_mode_reads_it() {
    let gpu = Gpu::new();
    gpu.wr(0x9410, 2);
    gpu.wr(0x9400, 0x40);
    gpu.clock.advance(0x100);
    assert_eq!((gpu.rd(0x9410), gpu.rd(0x9400)), (2, 0x140));
    assert_eq!((gpu.rd(0xbb_0084), gpu.rd(0xbb_0080)), (2, 0x140));
}

/// A card has fewer than its chip: only its back knows.
#[test]
fn gsp_tells_of_the_clusters_that_the_back_has() {
    let (back, config) = (back(VRAM), GspFaceConfig::of(&GH100));
    assert_eq!(GspFunction::gsp_config(&back, &config).graphics, None, "all that the chip has");

    back.set_texture_clusters(TextureClusters::of(&[9, 7]));

    let graphics = GspFunction::gsp_config(&back, &config).graphics;
    assert_eq!(graphics, Some(TextureClusters::of(&[9, 7])));
}
