//! The register sequence of a stock driver's start-up, with every handshake that it polls.

use super::fake::Call;
use super::*;
use gpuvmk_backend::{Backend, EngineStatus, FifoState, FlushScope};
use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_chip::gf100::regs::{fecs, pgraph};
use gpuvmk_chip::{Aperture, EngineSet, PhysicalAddress};

const fn vram(address: u64) -> PhysicalAddress {
    PhysicalAddress { aperture: Aperture::Vram, address }
}

/// Uploads a few words of code to the falcon at `base`, as drivers do.
fn upload(gpu: &Gpu, base: u32) {
    gpu.wr(base + 0x1c0, 0x0100_0000);
    for word in 0..8 {
        gpu.wr(base + 0x1c4, word);
    }
    gpu.wr(base + 0x180, 0x0100_0000);
    gpu.wr(base + 0x188, 0);
    for word in 0..64 {
        gpu.wr(base + 0x184, 0xf800_0000 | word);
    }
}

/// PFIFO and PGRAPH ready for channels.
pub fn start_engines(gpu: &Gpu) {
    gpu.wr(0x200, 0xffff_ffff);
    gpu.wr(0x204, 7);
    gpu.mask(0x2200, 1, 1);
    upload(gpu, 0x409000);
    upload(gpu, 0x41a000);
    gpu.wr(0x40910c, 0);
    gpu.wr(0x409100, 2);
}

#[test]
fn chip_and_board_identify_themselves() {
    let gpu = Gpu::new();
    assert_eq!(gpu.rd(0x000000), 0x0c00_00a3);
    assert_eq!(gpu.rd(0x000004), 0);
    assert_eq!(gpu.rd(0x101000) & 0x40_0040, 0x40_0040);
    assert_eq!(gpu.rd(0x022500), 1);
    assert_eq!(gpu.rd(0x02240c), 2);
    assert_eq!((gpu.rd(0x000640), gpu.rd(0x000644)), (u32::MAX, u32::MAX));
    assert_eq!(gpu.rd(0x022438), 2);
    assert_eq!(gpu.rd(0x11020c) + gpu.rd(0x11120c), 32);
    assert_eq!(gpu.rd(0x17e8dc) >> 28, 2);
    assert_eq!(gpu.rd(0x121c74), 2);
}

#[test]
fn vbios_is_read_through_prom_and_its_sum_is_zero() {
    let gpu = Gpu::new();
    gpu.wr(0x088050, gpu.rd(0x088050) & !1);
    assert_eq!(gpu.rd(0x300000) & 0xffff, 0xaa55);
    let size = (gpu.rd(0x300000) >> 16 & 0xff) * 512;
    let sum = (0..size / 4).flat_map(|i| gpu.rd(0x300000 + 4 * i).to_le_bytes()).fold(0, u8::wrapping_add);
    assert_eq!(sum, 0);
    assert_eq!(gpu.rd(0x3ffffc), u32::MAX);
}

#[test]
fn configuration_space_is_mirrored_both_ways() {
    let gpu = Gpu::new();
    assert_eq!(gpu.rd(0x088000), 0x06c0_10de);
    assert_eq!(gpu.rd(0x08807c) & 0x20, 0x20);
    gpu.mask(0x088080, 0x100, 0x100);
    let mut control = [0; 2];
    gpu.function.read(Region::Config, 0x80, &mut control).unwrap();
    assert_eq!(u16::from_le_bytes(control) & 0x100, 0x100);
    gpu.config_wr(4, &[6, 0]);
    assert_eq!(gpu.rd(0x088004) & 0xffff, 6);
    gpu.function.write(Region::Bar(0), 0x088004, &[0x02]).unwrap();
    assert_eq!(gpu.rd(0x088004) & 0xffff, 2);
}

#[test]
fn time_advances_with_the_clock() {
    let gpu = Gpu::new();
    gpu.wr(0x9410, 1);
    gpu.wr(0x9400, 0x1a07_debf);
    assert_eq!((gpu.rd(0x9410), gpu.rd(0x9400)), (1, 0x1a07_dea0));
    gpu.clock.advance(1_000_000);
    assert_eq!(gpu.rd(0x9400), (0x1a07_dea0 + 1_000_000) & !0x1f);
}

#[test]
fn flush_and_cache_handshakes_complete() {
    let gpu = Gpu::new();
    for offset in [0x070000, 0x070004, 0x070010] {
        gpu.wr(offset, 1);
        assert_eq!(gpu.rd(offset) & 3, 0);
    }
    gpu.wr(0x17e8c8, 4);
    for slice in 0..4 {
        assert_eq!(gpu.rd(0x1410c8 + slice / 2 * 0x2000 + slice % 2 * 0x400), 0);
    }
    gpu.mask(0x121c4c, 0x3f, 2);
    assert_eq!(gpu.rd(0x121c4c) & 0x3f, 0);
}

#[test]
fn tlb_flush_handshake_reaches_the_back() {
    let gpu = Gpu::new();
    assert_ne!(gpu.rd(0x100c80) & 0x00ff_0000, 0);
    gpu.wr(0x100cb8, 0x001f_df70);
    gpu.wr(0x100cbc, 0x8000_0001);
    assert_ne!(gpu.rd(0x100c80) & 0x8000, 0);
    let scope = FlushScope { page_directory: vram(0x1fdf_7000), hub_only: false };
    assert_eq!(gpu.back.calls(), [Call::Flush(scope)]);
}

#[test]
fn flush_of_everything_names_the_directories_of_bound_channels_once() {
    let gpu = Gpu::new();
    gpu.wr(0x200, 0x100);
    for (instance, directory) in [(0x1000u64, 0x9000u64), (0x2000, 0x9000), (0x3000, 0xa000)] {
        gpu.back.put(instance + 0x200, directory);
        let channel = (instance >> 12) as u32;
        gpu.wr(0x3000 + 8 * channel, 0xc000_0000 | channel);
    }
    gpu.back.calls();
    gpu.wr(0x100cbc, 0x8000_0003);
    let flush = |directory| Call::Flush(FlushScope { page_directory: vram(directory), hub_only: false });
    assert_eq!(gpu.back.calls(), [flush(0x9000), flush(0xa000)]);
}

#[test]
fn pmu_firmware_handshake_completes() {
    let gpu = Gpu::new();
    gpu.mask(0x200, 0x2000, 0);
    gpu.mask(0x200, 0x2000, 0x2000);
    assert_eq!((gpu.rd(0x10a04c), gpu.rd(0x10a10c) & 6), (0, 0));
    upload(&gpu, 0x10a000);
    gpu.wr(0x10a10c, 0);
    gpu.wr(0x10a104, 0);
    gpu.wr(0x10a100, 2);
    assert_ne!(gpu.rd(0x10a4d0), 0);
    assert_ne!(gpu.rd(0x10a4dc), 0);
}

#[test]
fn fifo_starts_with_three_pbdmas() {
    let gpu = Gpu::new();
    gpu.mask(0x200, 0x100, 0x100);
    gpu.mask(0x204, u32::MAX, u32::MAX);
    assert_eq!(gpu.rd(0x204), 7);
    gpu.mask(0x2200, 1, 1);
    let expected = FifoState { enabled: true, pbdma_mask: 7, ..FifoState::default() };
    assert_eq!(gpu.back.calls().last(), Some(&Call::FifoState(expected)));
}

#[test]
fn graphics_is_ready_only_after_both_firmwares_were_uploaded_and_started() {
    let gpu = Gpu::new();
    gpu.wr(0x200, 0x1100);
    assert_eq!(gpu.rd(0x409604) & 0x1f, 1);
    assert_eq!(gpu.rd(0x502608) & 0x1f, 2);
    assert_eq!(gpu.rd(0x40912c) & 0xf, 3);
    upload(&gpu, 0x409000);
    gpu.wr(0x409100, 2);
    assert_eq!(gpu.rd(0x409800), 0);
    let gpu = Gpu::new();
    start_engines(&gpu);
    assert_eq!(gpu.rd(0x409800) & 0x8000_0000, 0x8000_0000);
    assert_eq!(gpu.rd(0x409804), 0x2000);
    let calls = gpu.back.calls();
    let Some(Call::FifoState(state)) = calls.last() else { panic!("{calls:?}") };
    assert_eq!(state.ready, EngineSet::GRAPHICS);
}

#[test]
fn firmware_lists_are_appended_through_the_data_port() {
    let gpu = Gpu::new();
    gpu.wr(0x200, 0x1000);
    gpu.wr(0x4091c0, 0x0100_0000);
    gpu.wr(0x4091c4, 0x300);
    gpu.wr(0x4091c4, 0x304);
    gpu.wr(0x4091c0, 0x0200_0000);
    assert_eq!((gpu.rd(0x4091c4), gpu.rd(0x4091c4)), (0x300, 0x304));
}

#[test]
fn golden_context_sequence_binds_and_saves() {
    let gpu = Gpu::new();
    start_engines(&gpu);
    gpu.back.calls();
    gpu.wr(0x404170, 0x12);
    assert_eq!(gpu.rd(0x404170) & 0x10, 0);
    gpu.wr(0x409614, 0x70);
    gpu.mask(0x409614, 0x700, 0x700);
    assert_eq!(gpu.rd(0x409614), 0x770);
    gpu.wr(0x40802c, 1);
    gpu.wr(0x409840, 0x8000_0000);
    assert_eq!(gpu.rd(0x409800) & 0x8000_0000, 0);
    gpu.wr(0x409500, 0x8001_fce6);
    gpu.wr(0x409504, 1);
    assert_eq!(gpu.rd(0x409800) & 0x8000_0000, 0x8000_0000);
    gpu.wr(0x400208, 0x8000_0000);
    gpu.wr(0x400204, 0x38);
    gpu.wr(0x400200, 0x1000);
    assert_eq!(gpu.rd(0x400700) & 4, 0);
    gpu.mask(0x409b04, 0x8000_0000, 0);
    gpu.wr(0x409000, 0x100);
    assert_eq!(gpu.rd(0x409b00) & 0x8000_0000, 0);
    let instance = vram(0x1fce_6000);
    assert_eq!(
        gpu.back.calls(),
        [Call::BindGraphics(Some(instance)), Call::SaveGraphics(instance), Call::BindGraphics(None)]
    );
}

#[test]
fn idle_state_follows_the_back() {
    let gpu = Gpu::new();
    gpu.wr(0x200, 0x1100);
    assert_eq!((gpu.rd(0x40060c), gpu.rd(0x400700), gpu.rd(0x2640)), (0, 0, 0));
    *gpu.back.status.lock().unwrap() =
        EngineStatus { channel: Some(GuestChannel(5)), busy: true, switching: false };
    assert_eq!(gpu.reg(pgraph::NV_PGRAPH_ENGINE_STATUS) & 1, 1);
    assert_eq!(gpu.rd(0x2640), 0x1000_0005);
    *gpu.back.status.lock().unwrap() =
        EngineStatus { channel: Some(GuestChannel(5)), busy: true, switching: true };
    assert_ne!(gpu.rd(0x2650) & 0x5000, 0);
    assert_eq!(gpu.rd(0x2644), 0);
}

#[test]
fn channel_is_created_run_and_preempted() {
    let gpu = Gpu::new();
    start_engines(&gpu);
    gpu.back.calls();
    gpu.wr(0x3000 + 8, 0xc001_fc68);
    gpu.wr(0x3004 + 8, 0x001f_0001);
    gpu.wr(0x2270, 0x1fce5);
    gpu.wr(0x2274, 0x01f0_0001);
    assert_eq!(gpu.rd(0x227c) & 0x10_0000, 0);
    gpu.mask(0x3004 + 8, 1, 0);
    *gpu.back.preempting.lock().unwrap() = true;
    gpu.wr(0x2634, 1);
    assert_eq!(gpu.rd(0x2634), 0x10_0001);
    *gpu.back.preempting.lock().unwrap() = false;
    assert_eq!(gpu.rd(0x2634), 1);
    gpu.wr(0x3000 + 8, 0);
    assert_eq!(
        gpu.back.calls(),
        [
            Call::Bind(1, Some(vram(0x1fc6_8000))),
            Call::Enable(1, true),
            Call::Runlist(vram(0x1fce_5000), 1),
            Call::Enable(1, false),
            Call::Preempt(1),
            Call::Bind(1, None),
        ]
    );
}

#[test]
fn copy_engine_firmware_makes_it_ready() {
    let gpu = Gpu::new();
    gpu.wr(0x200, 0xc0);
    assert_eq!(gpu.rd(0x10412c) & 0xf, 3);
    upload(&gpu, 0x105000);
    gpu.wr(0x10510c, 1);
    gpu.wr(0x105104, 0);
    gpu.wr(0x105100, 2);
    gpu.wr(0x105048, 3);
    gpu.wr(0x105084, 1);
    let calls = gpu.back.calls();
    let Some(Call::FifoState(state)) = calls.last() else { panic!("{calls:?}") };
    assert_eq!(state.ready, EngineSet::COPY1);
}

#[test]
fn unit_in_reset_does_not_answer_and_forgets_its_state() {
    let gpu = Gpu::new();
    gpu.wr(0x2254, 0x1000_0000);
    assert_eq!(gpu.rd(0x2254) >> 16, 0xbadf);
    assert_eq!([gpu.rd(0x2100), gpu.rd(0x2140), gpu.rd(0x40_0100)], [0; 3], "nothing is pending in reset");
    start_engines(&gpu);
    gpu.wr(0x3000, 0xc000_0010);
    gpu.wr(0x404154, 0x77);
    gpu.back.calls();
    gpu.mask(0x200, 0x1100, 0);
    let calls = gpu.back.calls();
    assert!(matches!(calls[0], Call::FifoState(FifoState { enabled: false, .. })), "{calls:?}");
    assert_eq!(calls[1..], [Call::Bind(0, None), Call::ResetEngines(EngineSet::GRAPHICS)]);
    gpu.mask(0x200, 0x1100, 0x1100);
    assert_eq!((gpu.rd(0x3000), gpu.rd(0x2200), gpu.rd(0x404154), gpu.rd(0x409800)), (0, 0, 0x400, 0));
}

#[test]
fn vga_ports_take_single_bytes() {
    let gpu = Gpu::new();
    gpu.function.write(Region::Bar(0), 0x6013d4, &[0x1f]).unwrap();
    gpu.function.write(Region::Bar(0), 0x6013d5, &[0x57]).unwrap();
    let mut byte = [0];
    gpu.function.read(Region::Bar(0), 0x6013d5, &mut byte).unwrap();
    assert_eq!((byte, gpu.rd(0x6013d4)), ([0x57], 0x571f));
}

#[test]
fn function_reset_restores_everything() {
    let gpu = Gpu::new();
    start_engines(&gpu);
    gpu.wr(0x1700, 5);
    gpu.wr(0x800000, 7);
    gpu.config_wr(4, &[6, 0]);
    gpu.back.calls();
    gpu.function.reset();
    assert_eq!(gpu.back.calls(), [Call::Reset, Call::FifoState(FifoState::default())]);
    assert_eq!((gpu.rd(0x200), gpu.rd(0x1700), gpu.rd(0x800000), gpu.rd(0x204)), (0, 0, 0, 0));
    assert_eq!(gpu.rd(0x088004) & 0xffff, 0);
    assert_eq!(gpu.rd(fecs::NV_PGRAPH_PRI_FECS_CC_SCRATCH.at(0).0) >> 16, 0xbadf);
}

#[test]
fn function_level_reset_through_configuration_space_resets_the_back() {
    let gpu = Gpu::new();
    start_engines(&gpu);
    gpu.back.calls();
    gpu.config_wr(0x78 + 8, &[0x10, 0xa8]);
    assert_eq!(gpu.back.calls(), [Call::Reset, Call::FifoState(FifoState::default())]);
    assert_eq!(gpu.rd(0x200), 0);
}

#[test]
fn lost_back_reads_as_ones_until_the_function_is_reset() {
    let gpu = Gpu::new();
    gpu.back.events().lost("test");
    gpu.wr(0x1700, 1);
    assert_eq!((gpu.rd(0), gpu.bar_rd(1, 0)), (u32::MAX, u32::MAX));
    let mut vendor = [0; 2];
    gpu.function.read(Region::Config, 0, &mut vendor).unwrap();
    assert_eq!(vendor, [0xde, 0x10]);
    gpu.function.reset();
    assert_eq!((gpu.rd(0), gpu.rd(0x1700)), (0x0c00_00a3, 0));
}

#[test]
fn patch_list_writes_registers_but_starts_nothing() {
    let gpu = Gpu::new();
    start_engines(&gpu);
    gpu.back.calls();
    gpu.back.events().patch_register(0x419e44, 0x1234);
    gpu.back.events().patch_register(0x3000, 0xc000_0001);
    assert_eq!(gpu.rd(0x419e44), 0x1234);
    assert_eq!(gpu.back.calls(), []);
    assert_eq!(gpu.function.counters().dropped_patches, 1);
}

#[test]
fn registers_of_the_probe_are_listed() {
    let gpu = Gpu::new();
    start_engines(&gpu);
    gpu.wr(0x3000, 0xc000_0010);
    assert_eq!(gpu.back.vram_size(), 32 << 20);
    let counters = gpu.function.counters();
    assert_eq!((counters.unlisted_reads, counters.unlisted_writes, counters.refused), (0, 0, 0));
}
