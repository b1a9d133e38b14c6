//! All registers of a vGPU at a moment.

use gpuvmk::pci::{PciFunction, Region};
use gpuvmk::vgpu::Vgpu;

/// Bytes of BAR0.
const BAR0: u64 = 16 << 20;
/// PRAMIN shows VRAM.
const PRAMIN: std::ops::Range<u64> = 0x70_0000..0x80_0000;
/// Bytes that are read at a time. An access of any size is as many of registers, and is counted and reported
/// once, which else takes most of the time.
const PAGE: usize = 0x1000;

/// BAR0 word by word, with zeroes in place of PRAMIN and of registers that tell the time.
pub fn registers(vgpu: &Vgpu, is_clock: impl Fn(u64) -> bool) -> Vec<u32> {
    let mut bytes = [0; PAGE];
    let mut words = Vec::with_capacity(BAR0 as usize / 4);
    for page in (0..BAR0).step_by(PAGE) {
        if PRAMIN.contains(&page) {
            bytes.fill(0);
        } else {
            vgpu.read(Region::Bar(0), page, &mut bytes).unwrap();
        }
        for (at, word) in (page..).step_by(4).zip(bytes.as_chunks().0) {
            words.push(if is_clock(at) { 0 } else { u32::from_le_bytes(*word) });
        }
    }
    words
}
