//! Pages as words.

/// Bytes of zeros.
pub fn buffer(size: u64) -> Vec<u8> {
    vec![0; usize::try_from(size).unwrap_or(0)]
}

/// The words that differ: where, what they were, and what they are.
pub fn changed_words<'a>(before: &'a [u8], after: &'a [u8]) -> impl Iterator<Item = (u64, u32, u32)> + 'a {
    let (before, after) = (before.as_chunks::<4>().0, after.as_chunks::<4>().0);
    let words = (0u64..).step_by(4).zip(before.iter().zip(after));
    let words = words.map(|(at, (was, is))| (at, u32::from_le_bytes(*was), u32::from_le_bytes(*is)));
    words.filter(|(_, was, is)| was != is)
}
