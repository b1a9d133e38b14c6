//! PRAMIN, BAR1 and BAR2 over page tables that are written as a driver writes them, and invalidations.

use super::driver::Driver;
use super::*;
use gpuvmk_backend::FlushScope;
use gpuvmk_backend::testing::BackCall;
use gpuvmk_chip::gmmu::{Gmmu, Pde, Pte};
use gpuvmk_chip::{Aperture, PhysicalAddress};
use gpuvmk_pci::SharedRegions;

const fn vram(address: u64) -> PhysicalAddress {
    PhysicalAddress { aperture: Aperture::Vram, address }
}

/// VRAM layout of these tests: directories from here, a page each, then the table.
const TABLES: u64 = 0x10_0000;
const SMALL: u64 = TABLES + 0x4000;
/// Where the directory of BAR1 is.
pub const BAR1_ROOT: u64 = VRAM - (1 << 20);

fn pte(address: u64) -> [u8; 8] {
    let page = Pte { target: vram(address), read_only: false, privileged: false, kind: 0 };
    Gmmu::V3.encode_page(page).to_le_bytes()
}

fn pde(address: u64) -> u64 {
    Gmmu::V3.encode_pde(Pde::Table(vram(address)))
}

impl Gpu {
    /// Writes through PRAMIN, as drivers do before BAR2 is up.
    fn pramin_wr(&self, address: u64, data: &[u8]) {
        self.wr(0x10_fd40, (address >> 16) as u32);
        self.function.write(Region::Bar(0), 0x70_0000 + (address & 0xffff), data).unwrap();
    }

    /// Tables that map page 0 to 2 MiB and page 1 to 3 MiB; the entry of the root.
    fn build_tables(&self) -> u64 {
        for level in 0..3 {
            let next = TABLES + 0x1000 * (level + 1);
            self.pramin_wr(TABLES + 0x1000 * level, &pde(next).to_le_bytes());
        }
        let dual = Gmmu::V3.encode_tables(Pde::Invalid, Pde::Table(vram(SMALL))).to_le_bytes();
        self.pramin_wr(TABLES + 0x3000, &dual[..8]);
        self.pramin_wr(TABLES + 0x3008, &dual[8..]);
        self.pramin_wr(SMALL, &pte(0x20_0000));
        self.pramin_wr(SMALL + 8, &pte(0x30_0000));
        pde(TABLES)
    }

    fn invalidate(&self, directory: u64, command: u32) {
        self.wr(0xb8_30a0, (directory >> 8) as u32);
        self.wr(0xb8_30a4, 0);
        self.wr(0xb8_30b0, command);
        assert_eq!(self.rd(0xb8_30b0) & 1 << 31, 0);
    }
}

#[test]
fn pramin_window_moves_over_vram() {
    let gpu = Gpu::new();
    gpu.wr(0x10_fd40, 0x1f);
    gpu.wr(0x70_0000 + 0x0f_fffc, 0x1122_3344);
    assert_eq!(gpu.back.vram_word(0x1f_0000 + 0x0f_fffc), 0x1122_3344);
    gpu.wr(0x10_fd40, 0x20);
    assert_eq!(gpu.rd(0x70_0000 + 0x0e_fffc), 0x1122_3344);
    gpu.wr(0x10_fd40, u32::MAX);
    gpu.wr(0x70_0000, 1);
    assert_eq!(gpu.rd(0x70_0000), u32::MAX);
}

/// NVIDIA's own driver rings through a page of BAR1 whose entry says that it is registers: of that kind, in
/// system memory, at the user's page or, for its kernel, at the first.
#[test]
fn page_of_registers_in_bar1_is_the_one_with_the_doorbell_and_no_memory() {
    let gpu = Gpu::new();
    let mut driver = Driver::booted(&gpu);
    driver.open();
    driver.channel(3, 0x18_0000);
    gpu.build_tables();
    let registers = |address, kind| {
        let target = PhysicalAddress { aperture: Aperture::SystemCoherent, address };
        let page = Pte { target, read_only: false, privileged: false, kind };
        Gmmu::V3.encode_page(page).to_le_bytes()
    };
    gpu.pramin_wr(BAR1_ROOT, &pde(TABLES).to_le_bytes());
    for (page, (address, kind)) in (2..).zip([(0x3_0000, 0xf), (0, 0xf), (0x4_0000, 0xf), (RAM, 6)]) {
        gpu.pramin_wr(SMALL + 8 * page, &registers(address, kind));
    }
    gpu.invalidate(BAR1_ROOT, 0x8000_0001);
    gpu.back.put_vram(0x18_0000 + 0x8c, &5u32.to_le_bytes());
    gpu.back.calls();

    for page in [0x2000, 0x3000] {
        gpu.bar_wr(1, page + 0x90, 1 << 16 | 3);
        assert_eq!(gpu.back.calls(), [BackCall::Doorbell(0, 5)]);
        gpu.clock.advance(0x1000);
        assert_eq!(gpu.bar_rd(1, page + 0x80), gpu.rd(0xbb_0080));
    }
    // Nobody is rung for who is not there, as by the register.
    gpu.bar_wr(1, 0x2090, 1 << 16 | 9);
    assert_eq!((gpu.back.calls(), gpu.function.counters().bad_doorbells), (vec![], 1));
    // Other registers are not shown, nor is the page memory for those who map it.
    let faults = gpu.function.counters().window_faults;
    gpu.bar_wr(1, 0x4090, 1 << 16 | 3);
    assert_eq!((gpu.bar_rd(1, 0x4090), gpu.back.calls()), (u32::MAX, vec![]));
    assert_eq!(gpu.function.counters().window_faults, faults + 2);
    let mut shown = Vec::new();
    let direct = gpu.function.direct_map().unwrap();
    direct.show(Region::Bar(1), 0, 0x6000, &mut |window| shown.push((window.offset, window.size)));
    assert!(shown.iter().all(|(offset, _)| !(0x2000..0x5000).contains(offset)), "{shown:x?}");
    gpu.bar_wr(1, 0x5090, 7);
    assert_eq!(gpu.back.ram(0x90, 4), 7u32.to_le_bytes());
}

#[test]
fn bars_show_vram_until_gsp_translates_them() {
    let gpu = Gpu::new();
    gpu.bar_wr(1, 0x1000, 0xaabb_ccdd);
    assert_eq!((gpu.back.vram_word(0x1000), gpu.bar_rd(3, 0x1000)), (0xaabb_ccdd, 0xaabb_ccdd));
    let mut driver = Driver::booted(&gpu);
    assert_eq!(gpu.bar_rd(1, 0x1000), u32::MAX);
    assert_eq!(gpu.bar_rd(3, 0x1000), 0xaabb_ccdd);
    driver.unload(false);
    assert_eq!(gpu.bar_rd(1, 0x1000), 0xaabb_ccdd);
    assert_eq!(gpu.function.counters().window_faults, 1);
}

#[test]
fn both_bars_go_through_their_tables_with_all_sizes() {
    let gpu = Gpu::new();
    let root = gpu.build_tables();
    let mut driver = Driver::booted(&gpu);
    gpu.pramin_wr(BAR1_ROOT, &root.to_le_bytes());
    driver.set_bar2(root);
    gpu.bar_wr(3, 0x10, 0x0403_0201);
    gpu.function.write(Region::Bar(3), 0x0ffc, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    gpu.function.write(Region::Bar(1), 0x21, &[9]).unwrap();
    assert_eq!(gpu.back.vram_word(0x20_0010), 0x0403_0201);
    assert_eq!((gpu.back.vram_word(0x20_0ffc), gpu.back.vram_word(0x30_0000)), (0x0403_0201, 0x0807_0605));
    assert_eq!(gpu.back.vram_word(0x20_0020), 0x0900);
    let mut wide = [0; 8];
    gpu.function.read(Region::Bar(1), 0x0ffc, &mut wide).unwrap();
    assert_eq!(wide, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(gpu.bar_rd(1, 0x2000), u32::MAX);
}

#[test]
fn entry_without_a_table_turns_bar2_back_to_vram() {
    let gpu = Gpu::new();
    let root = gpu.build_tables();
    let mut driver = Driver::booted(&gpu);
    driver.set_bar2(root);
    gpu.bar_wr(3, 0, 7);
    assert_eq!(gpu.back.vram_word(0x20_0000), 7);
    driver.set_bar2(0);
    gpu.bar_wr(3, 0, 8);
    assert_eq!(gpu.back.vram_word(0), 8);
}

#[test]
fn suspend_keeps_the_windows() {
    let gpu = Gpu::new();
    let root = gpu.build_tables();
    let mut driver = Driver::booted(&gpu);
    gpu.pramin_wr(BAR1_ROOT, &root.to_le_bytes());
    driver.set_bar2(root);
    driver.unload(true);
    gpu.bar_wr(3, 0, 1);
    assert_eq!(driver.boot(0), 0);
    gpu.bar_wr(1, 0x1000, 2);
    assert_eq!((gpu.back.vram_word(0x20_0000), gpu.back.vram_word(0x30_0000)), (1, 2));
}

#[test]
fn changed_table_is_seen_after_an_invalidation_only() {
    let gpu = Gpu::new();
    let root = gpu.build_tables();
    let mut driver = Driver::booted(&gpu);
    driver.set_bar2(root);
    gpu.bar_wr(3, 0, 1);
    gpu.pramin_wr(SMALL, &pte(0x40_0000));
    gpu.bar_wr(3, 0, 2);
    assert_eq!((gpu.back.vram_word(0x20_0000), gpu.back.vram_word(0x40_0000)), (2, 0));
    gpu.invalidate(BAR1_ROOT + 0x1000, 0x8000_0007);
    gpu.bar_wr(3, 0, 3);
    assert_eq!((gpu.back.vram_word(0x20_0000), gpu.back.vram_word(0x40_0000)), (2, 3));
}

#[test]
fn invalidation_of_a_users_directory_goes_to_the_back_and_those_of_the_bars_do_not() {
    let gpu = Gpu::new();
    gpu.invalidate(BAR1_ROOT, 0x8000_0007);
    gpu.invalidate(BAR1_ROOT + 0x1000, 0x8000_0007);
    gpu.invalidate(0x12_3000, 0x0000_0001);
    assert_eq!(gpu.back.calls(), []);
    gpu.invalidate(0x12_3000, 0x8000_0001);
    let scope = FlushScope { page_directory: vram(0x12_3000), hub_only: false };
    assert_eq!(gpu.back.calls(), [BackCall::Flush(scope)]);
}

#[test]
fn sharing_gives_the_vram_behind_bar1_in_runs() {
    let gpu = Gpu::new();
    let root = gpu.build_tables();
    Driver::booted(&gpu);
    gpu.pramin_wr(BAR1_ROOT, &root.to_le_bytes());
    gpu.function.share(Region::Bar(1), 0, 0x2000).unwrap();
    assert_eq!(gpu.back.calls(), [BackCall::Share(0x20_0000, 0x1000), BackCall::Share(0x30_0000, 0x1000)]);
    let unsupported = |region, offset, size| {
        let error = gpu.function.share(region, offset, size).unwrap_err();
        error.kind() == std::io::ErrorKind::Unsupported
    };
    assert!(unsupported(Region::Bar(3), 0, 0x1000));
    assert!(unsupported(Region::Bar(1), 0x10, 0x1000));
    assert!(unsupported(Region::Bar(1), 256 << 20, 0x1000));
    assert!(gpu.function.share(Region::Bar(1), 0x2000, 0x1000).is_err());
}
