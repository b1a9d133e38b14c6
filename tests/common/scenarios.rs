//! What a driver may expect of any GF100, native or mediated: each function brings one up and proves it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
#![allow(clippy::cast_possible_truncation, reason = "numbers of a test are small")]
#![allow(dead_code, reason = "each test uses a part of the scenarios")]

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use gpuvmk::chip::Engine;
use gpuvmk::chip::gf100::regs::{pfifo, pmc};
use gpuvmk::pci::PciFunction;

use crate::tiny_driver::{Space, TinyDriver, pattern, system, vram, wait_until};

/// Virtual addresses of buffers.
const VA_A: u64 = 0x1000_0000;
const VA_B: u64 = 0x1100_0000;
const VA_C: u64 = 0x1_2000_0000;
/// Virtual address of the first channel's ring; others follow at steps of 1 MiB.
const VA_RING: u64 = 0x0080_0000;
/// Bus address of system memory.
const IOVA: u64 = 0x8000_0000;
/// Bytes of a buffer.
pub const SIZE: u64 = 0x4_0000;

pub const ENGINES: [Engine; 3] = [Engine::Graphics, Engine::COPY0, Engine::COPY1];

fn ring_va(id: u16) -> u64 {
    VA_RING + u64::from(id) * 0x10_0000
}

/// Maps system memory, VRAM, and system memory again: A in system memory, B in VRAM, C in system memory.
fn buffers(driver: &mut TinyDriver, space: &mut Space, ram: u64) {
    let middle = driver.alloc(SIZE, 0x1000);
    driver.map(space, VA_A, system(ram), SIZE);
    driver.map(space, VA_B, vram(middle), SIZE);
    driver.map(space, VA_C, system(ram + SIZE), SIZE);
    driver.flush(space);
}

/// System memory to VRAM and back on each engine, with an interrupt at the end.
pub fn copies_on_every_engine(function: Arc<dyn PciFunction>) {
    let mut driver = TinyDriver::bring_up(function);
    let ram = driver.system_ram(IOVA, 2 * SIZE);
    let mut space = driver.new_space();
    buffers(&mut driver, &mut space, IOVA);
    for (id, engine) in (1u16..).zip(ENGINES) {
        let mut channel = driver.new_channel(&mut space, id, engine, ring_va(id));
        let expected = pattern(id as u8, SIZE as usize);
        ram.memory.write(0, &expected).unwrap();
        driver.messages.0.store(0, Ordering::SeqCst);
        driver.rearm();

        driver.set_object(&mut channel);
        driver.copy(&mut channel, VA_A, VA_B, SIZE);
        driver.copy(&mut channel, VA_B, VA_C, SIZE);
        driver.finish(&channel);

        let mut copied = vec![0; SIZE as usize];
        ram.memory.read(SIZE, &mut copied).unwrap();
        assert!(copied == expected, "{engine:?} moved other bytes");
        wait_until("a message", || driver.messages.0.load(Ordering::SeqCst) > 0);
        acknowledge(&driver);
    }
}

/// Copies one after the other: the end of each is one message.
pub fn copies_that_end_with_a_message(function: Arc<dyn PciFunction>, times: u32) {
    let mut driver = TinyDriver::bring_up(function);
    driver.system_ram(IOVA, 2 * SIZE);
    let mut space = driver.new_space();
    buffers(&mut driver, &mut space, IOVA);
    let mut channel = driver.new_channel(&mut space, 1, Engine::COPY0, ring_va(1));
    driver.set_object(&mut channel);
    driver.finish(&channel);
    for round in 0..times {
        acknowledge(&driver);
        // What came for the work before has arrived, and is handled.
        std::thread::sleep(Duration::from_millis(1));
        acknowledge(&driver);
        driver.messages.0.store(0, Ordering::SeqCst);
        driver.copy(&mut channel, VA_A, VA_B, SIZE);
        driver.finish(&channel);
        wait_until("a message", || driver.messages.0.load(Ordering::SeqCst) > 0);
        let pending = driver.read(pfifo::NV_PFIFO_INTR_ENGINE_ID);
        assert_eq!(pending, 1 << 4, "round {round}: copy engine 0 asked for it");
        assert_eq!(driver.messages.0.load(Ordering::SeqCst), 1, "round {round}");
    }
}

/// Zeros on the graphics engine, which take longer than a host unit waits, and end with the engine's own
/// message.
pub fn long_fills_that_end_with_a_message(function: Arc<dyn PciFunction>, times: u32) {
    const LINE: u64 = 0x1_0000;
    const FILLED: u64 = 128 * LINE;
    let mut driver = TinyDriver::bring_up(function);
    driver.system_ram(IOVA, LINE);
    let mut space = driver.new_space();
    let target = driver.alloc(FILLED, 0x1000);
    driver.map(&mut space, VA_A, system(IOVA), LINE);
    driver.map(&mut space, VA_C, vram(target), FILLED);
    driver.flush(&space);
    let mut channel = driver.new_channel(&mut space, 1, Engine::Graphics, ring_va(1));
    driver.set_object(&mut channel);
    for round in 0..times {
        driver.write_vram_u32(target + FILLED - 4, round + 1);
        driver.messages.0.store(0, Ordering::SeqCst);
        driver.rearm();
        driver.fill(&mut channel, VA_A, VA_C, LINE as u32, (FILLED / LINE) as u32);
        wait_until("the fill", || driver.read_vram_u32(target + FILLED - 4) == 0);
        wait_until("a message", || driver.messages.0.load(Ordering::SeqCst) > 0);
        acknowledge(&driver);
    }
}

/// Clears what is pending, as a handler does.
fn acknowledge(driver: &TinyDriver) {
    for number in 0..16 {
        driver.write(pfifo::NV_PFIFO_INTR_ENGINE.at(number), u32::MAX);
    }
    driver.write(pfifo::NV_PFIFO_INTR_RUNLIST, u32::MAX);
    driver.rearm();
}

/// A copy from nowhere: its channel faults, the other goes on, and the record names the address.
pub fn fault_stops_its_channel_only(function: Arc<dyn PciFunction>) {
    let mut driver = TinyDriver::bring_up(function);
    let ram = driver.system_ram(IOVA, 2 * SIZE);
    let mut space = driver.new_space();
    buffers(&mut driver, &mut space, IOVA);
    let mut bad = driver.new_channel(&mut space, 1, Engine::COPY0, ring_va(1));
    let mut good = driver.new_channel(&mut space, 2, Engine::COPY1, ring_va(2));
    driver.set_object(&mut bad);
    driver.set_object(&mut good);

    driver.copy(&mut bad, 0x3f_0000_0000, VA_B, 0x1000);

    wait_until("the fault", || driver.read(pfifo::NV_PFIFO_INTR_0) & 1 << 28 != 0);
    assert_ne!(driver.read(pmc::NV_PMC_INTR) & 1 << 8, 0);
    let units = driver.read(pfifo::NV_PFIFO_MMU_FAULT_ID);
    let unit = units.trailing_zeros();
    assert_eq!(driver.read(pfifo::NV_PFIFO_MMU_FAULT_VA_HI.at(unit)), 0x3f);
    assert_eq!(
        u64::from(driver.read(pfifo::NV_PFIFO_MMU_FAULT_INST.at(unit))) << 12,
        bad.instance,
        "the record names the guest's own instance block"
    );
    driver.write(pfifo::NV_PFIFO_MMU_FAULT_ID, units);
    assert!(!driver.fence_passed(&bad));

    let expected = pattern(7, SIZE as usize);
    ram.memory.write(0, &expected).unwrap();
    driver.copy(&mut good, VA_A, VA_C, SIZE);
    driver.finish(&good);
    let mut copied = vec![0; SIZE as usize];
    ram.memory.read(SIZE, &mut copied).unwrap();
    assert!(copied == expected);

    // Recovery as nouveau does it, and the number is of use again.
    driver.unbind(1);
    let mut again = driver.new_channel(&mut space, 1, Engine::COPY0, ring_va(8));
    driver.set_object(&mut again);
    driver.copy(&mut again, VA_C, VA_B, SIZE);
    driver.finish(&again);
}

/// Remaps a page: after the flush the engine reads the new one, and an unmapped page faults.
pub fn flush_changes_what_engines_reach(function: Arc<dyn PciFunction>) {
    let mut driver = TinyDriver::bring_up(function);
    let ram = driver.system_ram(IOVA, 2 * SIZE);
    let mut space = driver.new_space();
    buffers(&mut driver, &mut space, IOVA);
    let mut channel = driver.new_channel(&mut space, 3, Engine::COPY0, ring_va(3));
    driver.set_object(&mut channel);
    let (first, second) = (driver.alloc(0x1000, 0x1000), driver.alloc(0x1000, 0x1000));
    driver.write_vram(first, &[0x11; 0x1000]);
    driver.write_vram(second, &[0x22; 0x1000]);
    let page = 0x2000_0000;

    for (target, byte) in [(first, 0x11), (second, 0x22), (first, 0x11)] {
        driver.map(&mut space, page, vram(target), 0x1000);
        driver.flush(&space);
        driver.copy(&mut channel, page, VA_C, 0x1000);
        driver.finish(&channel);
        let mut copied = [0; 0x1000];
        ram.memory.read(SIZE, &mut copied).unwrap();
        assert_eq!(copied, [byte; 0x1000]);
    }

    driver.write_pte(&mut space, page, 0);
    driver.flush(&space);
    driver.copy(&mut channel, page, VA_C, 0x1000);
    wait_until("the fault", || driver.read(pfifo::NV_PFIFO_INTR_0) & 1 << 28 != 0);
}

/// The same channel number, one after the other, with other rings and spaces.
pub fn channel_number_is_used_again(function: Arc<dyn PciFunction>) {
    let mut driver = TinyDriver::bring_up(function);
    let ram = driver.system_ram(IOVA, 2 * SIZE);
    for (round, engine) in (0u8..).zip(ENGINES.into_iter().chain(ENGINES)) {
        let mut space = driver.new_space();
        buffers(&mut driver, &mut space, IOVA);
        let mut channel = driver.new_channel(&mut space, 5, engine, ring_va(u16::from(round)));
        let expected = pattern(0x40 + round, SIZE as usize);
        ram.memory.write(0, &expected).unwrap();
        driver.set_object(&mut channel);
        driver.copy(&mut channel, VA_A, VA_B, SIZE);
        driver.copy(&mut channel, VA_B, VA_C, SIZE);
        driver.finish(&channel);
        let mut copied = vec![0; SIZE as usize];
        ram.memory.read(SIZE, &mut copied).unwrap();
        assert!(copied == expected, "round {round}");
        driver.unbind(5);
    }
}

/// Context pointers that are written while the channel runs, as Linux 6.1 does it.
pub fn context_pointer_is_written_while_the_channel_runs(function: Arc<dyn PciFunction>) {
    let mut driver = TinyDriver::bring_up(function);
    let ram = driver.system_ram(IOVA, 2 * SIZE);
    let mut space = driver.new_space();
    buffers(&mut driver, &mut space, IOVA);
    for (id, engine) in (1u16..).zip(ENGINES) {
        let mut channel = driver.new_channel_61(&mut space, id, engine, ring_va(id));
        let expected = pattern(0x80 + id as u8, SIZE as usize);
        ram.memory.write(0, &expected).unwrap();
        // Hardware looks at a channel that was just listed: what is meant here is one that it found idle.
        std::thread::sleep(Duration::from_millis(30));
        driver.set_object(&mut channel);
        driver.copy(&mut channel, VA_A, VA_C, SIZE);
        driver.finish(&channel);
        let mut copied = vec![0; SIZE as usize];
        ram.memory.read(SIZE, &mut copied).unwrap();
        assert!(copied == expected, "{engine:?} moved other bytes");
    }
}

/// Everything, a function reset with work in the ring, and everything again.
pub fn reset_and_again(function: Arc<dyn PciFunction>) {
    for _ in 0..3 {
        copies_on_every_engine(function.clone());
        function.dma_unmap_all();
    }
    let mut driver = TinyDriver::bring_up(function.clone());
    let mut space = driver.new_space();
    let mut channel = driver.new_channel(&mut space, 1, Engine::Graphics, ring_va(1));
    driver.set_object(&mut channel);
    driver.fence(&mut channel);
    function.reset();
    assert_eq!(driver.read(pmc::NV_PMC_ENABLE), 0);
    copies_on_every_engine(function);
}

/// Functions that work at the same time, again and again.
pub fn work_at_once<F: PciFunction + 'static>(functions: &[Arc<F>]) {
    std::thread::scope(|scope| {
        for function in functions {
            scope.spawn(|| {
                for _ in 0..3 {
                    copies_on_every_engine(function.clone());
                    function.dma_unmap_all();
                    channel_number_is_used_again(function.clone());
                    function.dma_unmap_all();
                }
            });
        }
    });
}
