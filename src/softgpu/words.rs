//! Reads little-endian words of memory.

/// The 64 bits at `offset` of a block; 0 beyond its end.
pub(crate) fn read_u64(block: &[u8], offset: u64) -> u64 {
    let word = usize::try_from(offset).ok().and_then(|offset| block.get(offset..)?.first_chunk());
    word.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// The 32 bits at `offset` of a block; 0 beyond its end.
pub(crate) fn read_u32(block: &[u8], offset: u64) -> u32 {
    let word = usize::try_from(offset).ok().and_then(|offset| block.get(offset..)?.first_chunk());
    word.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// The low and the high word of a value.
pub(crate) fn halves(value: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
    [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])]
}
