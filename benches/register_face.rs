//! What one trapped access costs in the register face, without any transport.
//!
//! `cargo bench --bench register_face`. A driver's start-up makes some 230,000 BAR3 and 150,000 PRAMIN writes
//! and some 8,500 register accesses.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a benchmark that cannot be set up has failed")]

use std::hint::black_box;
use std::sync::Arc;

use divan::Bencher;
use gpuvmk::chip::gf100::mmu::{Pde, Pte};
use gpuvmk::chip::{Aperture, PhysicalAddress};
use gpuvmk::pci::{PciFunction, Region};
use gpuvmk::softgpu::Core;
use gpuvmk::units::gf100::{Gf100Config, Gf100Function};

fn main() {
    divan::main();
}

type Gpu = Gf100Function<Core>;

fn bare() -> Gpu {
    let core = Arc::new(Core::new(64 << 20).expect("software GPU"));
    Gf100Function::new(core, Gf100Config::default()).expect("function")
}

fn wr(gpu: &Gpu, offset: u64, value: u32) {
    gpu.write(Region::Bar(0), offset, &value.to_le_bytes()).expect("register");
}

/// A function whose BAR1 and BAR3 map 16 MiB by small pages.
fn translated() -> Gpu {
    const INSTANCE: u64 = 0x1_0000;
    const DIRECTORY: u64 = 0x2_0000;
    const TABLE: u64 = 0x4_0000;
    let gpu = bare();
    let vram = |address| PhysicalAddress { aperture: Aperture::Vram, address };
    let put = |address: u64, value: u64| {
        gpu.write(Region::Bar(1), address, &value.to_le_bytes()).expect("VRAM");
    };
    put(INSTANCE + 0x200, DIRECTORY);
    put(INSTANCE + 0x208, (16 << 20) - 1);
    put(DIRECTORY, Pde { large: None, small: Some(vram(TABLE)) }.encode());
    for page in 0..4096 {
        let target = vram((32 << 20) + (page << 12));
        put(TABLE + page * 8, Pte { target, read_only: false, privileged: false, kind: 0 }.encode());
    }
    wr(&gpu, 0x1704, 0x8000_0010);
    wr(&gpu, 0x1714, 0x8000_0010);
    gpu
}

#[divan::bench(args = [4, 8])]
fn bar3_write(bencher: Bencher, size: usize) {
    let gpu = translated();
    let mut at = 0u64;
    bencher.bench_local(|| {
        at = (at + 8) & 0x7f_ffff;
        gpu.write(Region::Bar(3), at, black_box(&[0x5a; 8][..size])).expect("BAR3");
    });
}

#[divan::bench]
fn bar1_read(bencher: Bencher) {
    let gpu = translated();
    let mut data = [0; 4];
    bencher.bench_local(|| gpu.read(Region::Bar(1), black_box(0x1234), &mut data).expect("BAR1"));
}

#[divan::bench]
fn pramin_write(bencher: Bencher) {
    let gpu = bare();
    wr(&gpu, 0x1700, 0x10);
    let mut at = 0u64;
    bencher.bench_local(|| {
        at = (at + 4) & 0xf_ffff;
        gpu.write(Region::Bar(0), 0x70_0000 + at, black_box(&[0; 4])).expect("PRAMIN");
    });
}

#[divan::bench(args = [0x40_4158u64, 0x00_0140, 0x10_0c80])]
fn register_read(bencher: Bencher, offset: u64) {
    let gpu = bare();
    wr(&gpu, 0x200, u32::MAX);
    let mut data = [0; 4];
    bencher.bench_local(|| gpu.read(Region::Bar(0), black_box(offset), &mut data).expect("register"));
}

#[divan::bench(args = [0x40_4158u64, 0x00_0140])]
fn register_write(bencher: Bencher, offset: u64) {
    let gpu = bare();
    wr(&gpu, 0x200, u32::MAX);
    bencher.bench_local(|| gpu.write(Region::Bar(0), black_box(offset), &[0; 4]).expect("register"));
}
