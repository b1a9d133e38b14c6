//! Commands as drivers write them.

use gpuvmk_chip::gf100::methods::m2mf;

pub fn inc(subchannel: u32, method: u16, data: &[u32]) -> Vec<u32> {
    let mut words = vec![1 << 29 | (data.len() as u32) << 16 | subchannel << 13 | u32::from(method) >> 2];
    words.extend(data);
    words
}

pub fn fixed(subchannel: u32, method: u16, data: &[u32]) -> Vec<u32> {
    let mut words = vec![3 << 29 | (data.len() as u32) << 16 | subchannel << 13 | u32::from(method) >> 2];
    words.extend(data);
    words
}

pub fn immediate(subchannel: u32, method: u16, data: u32) -> Vec<u32> {
    vec![4 << 29 | data << 16 | subchannel << 13 | u32::from(method) >> 2]
}

pub fn hi(address: u64) -> u32 {
    (address >> 32) as u32
}

pub fn lo(address: u64) -> u32 {
    address as u32
}

/// Binds M2MF to subchannel 2 and copies lines.
pub fn m2mf_copy(from: u64, to: u64, pitch: u32, length: u32, count: u32) -> Vec<u32> {
    let mut words = inc(2, 0, &[u32::from(m2mf::CLASS)]);
    words.extend(inc(2, m2mf::OFFSET_OUT_HIGH, &[hi(to), lo(to)]));
    words.extend(inc(2, m2mf::OFFSET_IN_HIGH, &[hi(from), lo(from), pitch, pitch, length, count]));
    words.extend(inc(2, m2mf::EXEC, &[m2mf::EXEC::LINEAR_IN.mask() | m2mf::EXEC::LINEAR_OUT.mask()]));
    words
}

/// Binds a copy engine to subchannel 4 and copies lines.
pub fn pcopy_copy(class: u16, from: u64, to: u64, pitch: u32, length: u32, count: u32) -> Vec<u32> {
    let mut words = inc(4, 0, &[u32::from(class)]);
    words.extend(inc(4, 0x30c, &[hi(from), lo(from), hi(to), lo(to), pitch, pitch, length, count]));
    words.extend(inc(4, 0x300, &[0x110]));
    words
}

/// Host semaphore methods.
pub fn semaphore(address: u64, value: u32, operation: u32) -> Vec<u32> {
    inc(0, 0x10, &[hi(address), lo(address), value, operation])
}

/// Bytes that differ everywhere.
pub fn pattern(seed: u32, size: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    (0..size)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state as u8
        })
        .collect()
}
