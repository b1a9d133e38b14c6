//! Compares a result with what it should be, word by word.

use anyhow::{Result, ensure};

/// An error that says how much is wrong and where it begins, unless `found` is as `expected` says.
pub fn words(found: &[u32], expected: impl Fn(usize) -> u32) -> Result<()> {
    let wrong = || found.iter().enumerate().filter(|(index, word)| expected(*index) != **word);
    if let Some((index, word)) = wrong().next() {
        let (count, all, right) = (wrong().count(), found.len(), expected(index));
        ensure!(
            count == 0,
            "{count} of {all} words are wrong, the first at {index}: {word:#010x} in place of {right:#010x}"
        );
    }
    Ok(())
}

/// A pattern in which neither neighbours nor blocks repeat.
pub fn pattern(index: usize) -> u32 {
    // CAST: buffers here have fewer than 2^32 words.
    #[expect(clippy::cast_possible_truncation, reason = "buffers here have fewer than 2^32 words")]
    let index = index as u32;
    index.wrapping_mul(0x9e37_79b1) ^ index >> 15
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_wrong_word_and_their_number_are_told() {
        let message = words(&[0, 1, 9, 9], |index| u32::try_from(index).unwrap()).unwrap_err().to_string();
        assert_eq!(message, "2 of 4 words are wrong, the first at 2: 0x00000009 in place of 0x00000002");
    }

    #[test]
    fn pattern_does_not_repeat_after_a_block() {
        assert_ne!(pattern(0), pattern(1));
        assert_ne!(pattern(0), pattern(1 << 20));
    }
}
