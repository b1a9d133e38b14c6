//! PRAMIN, BAR1 and BAR3 over page tables that are written as a driver writes them, and doorbells.

use super::fake::Call;
use super::*;
use gpuvmk_chip::gf100::mmu::{Pde, Pte};
use gpuvmk_chip::{Aperture, PhysicalAddress};
use gpuvmk_pci::{DirectMap, SharedRegions};

const fn vram(address: u64) -> PhysicalAddress {
    PhysicalAddress { aperture: Aperture::Vram, address }
}

fn pte(address: u64) -> u64 {
    Pte { target: vram(address), read_only: false, privileged: false, kind: 0 }.encode()
}

/// VRAM layout of these tests. A directory has 64 KiB.
const INSTANCE: u64 = 0x10_0000;
const DIRECTORY: u64 = 0x11_0000;
const SMALL: u64 = 0x12_0000;

impl Gpu {
    /// Writes through PRAMIN, as drivers do before BAR3 is up.
    fn pramin_wr64(&self, address: u64, value: u64) {
        self.wr(0x1700, (address >> 16) as u32);
        let offset = 0x70_0000 + (address & 0xffff);
        self.function.write(Region::Bar(0), offset, &value.to_le_bytes()).unwrap();
    }

    /// An address space of 16 MiB that maps page 0 to 2 MiB and page 1 to 3 MiB.
    fn build_tables(&self) {
        self.pramin_wr64(INSTANCE + 0x200, DIRECTORY);
        self.pramin_wr64(INSTANCE + 0x208, 0xff_ffff);
        self.pramin_wr64(DIRECTORY, Pde { large: None, small: Some(vram(SMALL)) }.encode());
        self.pramin_wr64(SMALL, pte(0x20_0000));
        self.pramin_wr64(SMALL + 8, pte(0x30_0000));
    }

    fn enable_bars(&self) {
        self.build_tables();
        self.wr(0x1714, 0x8000_0000 | (INSTANCE >> 12) as u32);
        self.wr(0x1704, 0x8000_0000 | (INSTANCE >> 12) as u32);
    }

    fn flush(&self) {
        self.wr(0x100cb8, ((DIRECTORY >> 12) << 4) as u32);
        self.wr(0x100cbc, 0x8000_0005);
    }

    fn fifo_with_doorbells(&self) {
        self.wr(0x200, 0x100);
        self.wr(0x2200, 1);
        self.wr(0x2254, 0x1000_0000);
    }
}

#[test]
fn pramin_window_moves_over_vram() {
    let gpu = Gpu::new();
    gpu.wr(0x1700, 0x1f);
    gpu.wr(0x70_0000 + 0x0f_fffc, 0x1122_3344);
    assert_eq!(gpu.back.get(0x1f_0000 + 0x0f_fffc), 0x1122_3344);
    gpu.wr(0x1700, 0x20);
    assert_eq!(gpu.rd(0x70_0000 + 0x0e_fffc), 0x1122_3344);
    gpu.wr(0x1700, 0xff_ffff);
    gpu.wr(0x70_0000, 1);
    assert_eq!(gpu.rd(0x70_0000), u32::MAX);
}

#[test]
fn bars_show_vram_until_translation_is_on() {
    let gpu = Gpu::new();
    gpu.bar_wr(1, 0x1000, 0xaabb_ccdd);
    assert_eq!(gpu.back.get(0x1000), 0xaabb_ccdd);
    gpu.enable_bars();
    assert_eq!(gpu.bar_rd(1, 0x1000), gpu.back.get(0x30_0000));
    gpu.wr(0x1704, 0);
    assert_eq!(gpu.bar_rd(1, 0x1000), 0xaabb_ccdd);
}

#[test]
fn both_bars_go_through_their_tables_with_all_sizes() {
    let gpu = Gpu::new();
    gpu.enable_bars();
    gpu.bar_wr(3, 0x10, 0x0403_0201);
    gpu.function.write(Region::Bar(3), 0x0ffc, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    gpu.function.write(Region::Bar(3), 0x21, &[9]).unwrap();
    assert_eq!(gpu.back.get(0x20_0010), 0x0403_0201);
    assert_eq!((gpu.back.get(0x20_0ffc), gpu.back.get(0x30_0000)), (0x0403_0201, 0x0807_0605));
    assert_eq!(gpu.back.get(0x20_0020), 0x0900);
    let mut wide = [0; 8];
    gpu.function.read(Region::Bar(1), 0x0ffc, &mut wide).unwrap();
    assert_eq!(wide, [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn changed_table_is_seen_after_the_flush_only() {
    let gpu = Gpu::new();
    gpu.enable_bars();
    gpu.bar_wr(3, 0, 1);
    gpu.pramin_wr64(SMALL, pte(0x40_0000));
    gpu.bar_wr(3, 0, 2);
    assert_eq!((gpu.back.get(0x20_0000), gpu.back.get(0x40_0000)), (2, 0));
    gpu.flush();
    gpu.bar_wr(3, 0, 3);
    assert_eq!((gpu.back.get(0x20_0000), gpu.back.get(0x40_0000)), (2, 3));
}

#[test]
fn access_without_translation_reads_ones_and_is_reported() {
    let gpu = Gpu::new();
    gpu.enable_bars();
    gpu.wr(0x200, 0x100);
    assert_eq!(gpu.bar_rd(1, 0x2000), u32::MAX);
    gpu.bar_wr(3, 0x3000, 5);
    assert_eq!(gpu.rd(0x259c), 1 << 4 | 1 << 5);
    assert_eq!((gpu.rd(0x2840), gpu.rd(0x2844), gpu.rd(0x284c)), (0x100, 0x2000, 0x742));
    assert_eq!((gpu.rd(0x2854), gpu.rd(0x285c)), (0x3000, 0x8c2));
    assert!(gpu.function.take_counters_changed() && !gpu.function.take_counters_changed());
    assert_eq!(gpu.function.driver_counters().face.window_faults, 2);
    gpu.bar_wr(3, 0x3000, 5);
    assert!(gpu.function.take_counters_changed() && !gpu.function.take_counters_changed());
    gpu.rd(0x259c);
    assert!(!gpu.function.take_counters_changed());
    gpu.rd(0x0f_0ff0);
    assert!(gpu.function.take_counters_changed());
    assert_eq!(gpu.function.counters().unlisted_reads, 1);
}

#[test]
fn store_to_gp_put_is_a_doorbell_after_the_memory_write() {
    let gpu = Gpu::new();
    gpu.enable_bars();
    gpu.fifo_with_doorbells();
    gpu.back.calls();
    gpu.bar_wr(1, 0x1000 + 0x8c, 7);
    assert_eq!(gpu.back.calls(), [Call::Doorbell(1, 7)]);
    assert_eq!(gpu.back.get(0x30_008c), 7);
    gpu.bar_wr(1, 0x1000 + 0x88, 9);
    gpu.bar_wr(3, 0x1000 + 0x8c, 9);
    assert_eq!(gpu.back.calls(), []);
    gpu.function.write(Region::Bar(1), 0x88, &[0, 0, 0, 0, 3, 0, 0, 0]).unwrap();
    assert_eq!(gpu.back.calls(), [Call::Doorbell(0, 3)]);
}

#[test]
fn nobody_waits_for_a_doorbell() {
    let gpu = Gpu::new();
    let posted = |offset, size| gpu.function.is_posted(Region::Bar(1), offset, size);
    assert!(!posted(0x8c, 4));
    gpu.fifo_with_doorbells();
    let (first, last) = (0x8c, 127 * 0x1000 + 0x8c);
    assert!(posted(first, 4) && posted(last, 4));
    assert!(!posted(first - 4, 4) && !posted(first + 4, 4) && !posted(first, 8) && !posted(last + 0x1000, 4));
    assert!(!gpu.function.is_posted(Region::Bar(3), first, 4));
}

#[test]
fn doorbell_needs_poll_area_enabled_fifo_and_translation() {
    let gpu = Gpu::new();
    gpu.enable_bars();
    gpu.wr(0x200, 0x100);
    gpu.wr(0x2254, 0x1000_0000);
    gpu.back.calls();
    gpu.bar_wr(1, 0x8c, 1);
    gpu.wr(0x2200, 1);
    gpu.wr(0x2254, 0);
    gpu.bar_wr(1, 0x8c, 1);
    gpu.wr(0x2254, 0x1000_0000);
    gpu.bar_wr(1, 0x2000 + 0x8c, 1);
    let doorbells = gpu.back.calls().into_iter().filter(|call| matches!(call, Call::Doorbell(..))).count();
    assert_eq!(doorbells, 0);
    gpu.bar_wr(1, 0x8c, 1);
    assert_eq!(gpu.back.calls(), [Call::Doorbell(0, 1)]);
    gpu.bar_wr(1, 128 * 0x1000 + 0x8c, 1);
    assert_eq!(gpu.back.calls(), []);
}

#[test]
fn share_follows_bar1_translation_and_merges_runs() {
    let gpu = Gpu::new();
    gpu.enable_bars();
    gpu.pramin_wr64(SMALL + 16, pte(0x30_1000));
    gpu.back.calls();
    gpu.function.share(Region::Bar(1), 0, 0x3000).unwrap();
    assert_eq!(gpu.back.calls(), [Call::Share(0x20_0000, 0x1000), Call::Share(0x30_0000, 0x2000)]);
    assert!(gpu.function.share(Region::Bar(1), 0, 0x4000).is_err());
    assert!(gpu.function.share(Region::Bar(1), 1, 0x1000).is_err());
    assert!(gpu.function.share(Region::Bar(3), 0, 0x1000).is_err());
    assert!(gpu.function.share(Region::Bar(1), u64::MAX - 0xfff, 0x1000).is_err());
}
