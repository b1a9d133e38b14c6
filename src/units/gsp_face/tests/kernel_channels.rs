//! Channels of a driver's kernel, which go on by themselves.

use std::time::{Duration, Instant};

use super::driver::{CHANNEL, DIRECTORY, Driver};
use super::*;
use gpuvmk_chip::gh100::methods::host;
use gpuvmk_chip::gmmu::{Gmmu, Level, Pde, Pte};
use gpuvmk_chip::stream::{DMA::SEC_OP, RingEntry, header};
use gpuvmk_chip::{Aperture, PhysicalAddress};

const USERD: u64 = 0x10_0000;
/// A page with a ring, its commands and semaphores behind it.
const PAGE: u64 = 0x2_0060_0000;
const COMMANDS: u64 = 0x400;
const AWAITED: u64 = 0x800;
const DONE: u64 = 0x810;
const PAGE_VRAM: u64 = 0x60_0000;
const TABLES: u64 = 0x50_0000;

const fn vram(address: u64) -> PhysicalAddress {
    PhysicalAddress { aperture: Aperture::Vram, address }
}

fn map(gpu: &Gpu) {
    let format = Gmmu::V3;
    let mut table = DIRECTORY;
    let levels = [Level::Pd4, Level::Pd3, Level::Pd2, Level::Pd1];
    for (level, next) in levels.into_iter().zip((TABLES..).step_by(0x1000)) {
        let entry = format.encode_pde(Pde::Table(vram(next)));
        gpu.back.put_vram(table + 8 * format.index(level, PAGE), &entry.to_le_bytes());
        table = next;
    }
    let small = TABLES + 0x8000;
    let entry = format.encode_tables(Pde::Invalid, Pde::Table(vram(small)));
    gpu.back.put_vram(table + 16 * format.index(Level::Pd0, PAGE), &entry.to_le_bytes());
    let entry = Pte { target: vram(PAGE_VRAM), read_only: false, privileged: false, kind: 6 };
    let entry = format.encode_page(entry).to_le_bytes();
    gpu.back.put_vram(small + 8 * format.index(Level::Small, PAGE), &entry);
}

fn put(gpu: &Gpu, offset: u64, words: &[u32]) {
    let raw: Vec<_> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    gpu.back.put_vram(PAGE_VRAM + offset, &raw);
}

fn semaphore(offset: u64, payload: u32, execute: u32) -> Vec<u32> {
    let (low, high) = ((PAGE + offset) as u32, ((PAGE + offset) >> 32) as u32);
    vec![header(SEC_OP::INC_METHOD, 0, host::SEM_ADDR_LO, 5), low, high, payload, 0, execute]
}

/// A driver with a channel that waits for a semaphore, behind which it writes another.
fn waits(gpu: &Gpu) -> Driver<'_> {
    let mut driver = Driver::booted(gpu);
    driver.speak_nvidia();
    driver.open();
    map(gpu);
    driver.kernel_channel(7, USERD, PAGE);
    let commands = [semaphore(AWAITED, 3, 0), semaphore(DONE, 9, 1)].concat();
    put(gpu, COMMANDS, &commands);
    let entry = RingEntry::segment(PAGE + COMMANDS, commands.len() as u32);
    put(gpu, 0, &[entry as u32, (entry >> 32) as u32]);
    gpu.back.put_vram(USERD + 0x8c, &1u32.to_le_bytes());
    gpu.wr(0xbb_0090, 1 << 16 | 7);
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(gpu.back.vram_word(PAGE_VRAM + DONE), 0, "what is waited for has not come");
    driver
}

/// Writes what is waited for.
fn end_the_wait(gpu: &Gpu) {
    put(gpu, AWAITED, &[3]);
    let start = Instant::now();
    while gpu.back.vram_word(PAGE_VRAM + DONE) != 9 {
        assert!(start.elapsed() < Duration::from_secs(20), "the wait is not over");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn wait_is_over_without_another_doorbell_and_the_thread_ends_with_the_function() {
    let gpu = Gpu::new();
    let mut driver = waits(&gpu);
    end_the_wait(&gpu);
    driver.free(CHANNEL + 7);
    drop(gpu);
}

#[test]
fn wait_goes_on_in_the_function_that_is_restored() {
    let gpu = Gpu::new();
    let _ = waits(&gpu);
    gpu.back.calls();
    let restored = gpu.restored();
    drop(gpu);
    end_the_wait(&restored);
}
