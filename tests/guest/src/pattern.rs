//! Test contents: bytes that differ by place and by seed, so that a wrong offset or a stale copy shows.

/// `length` bytes of the pattern `seed`, from position `start` on (a multiple of 4).
///
/// Each word is a hash of its position and the seed, so neither a shifted page nor another buffer's page
/// matches.
pub fn bytes(seed: u32, start: usize, length: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(length + 3);
    let mut index = (start / 4) as u64;
    while out.len() < length {
        out.extend_from_slice(&word(seed, index).to_le_bytes());
        index += 1;
    }
    out.truncate(length);
    out
}

fn word(seed: u32, index: u64) -> u32 {
    // A multiply-xor mix (splitmix64's constants): cheap in an emulated processor, and no two places look
    // alike.
    let mut value = index.wrapping_add(u64::from(seed) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    value ^= value >> 31;
    value = value.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let [a, b, c, d, ..] = value.to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

/// Where two equally long runs of bytes first differ, in words for a message.
pub fn difference(found: &[u8], wanted: &[u8]) -> Option<String> {
    if found == wanted {
        return None;
    }
    let at = found.iter().zip(wanted).position(|(one, other)| one != other)?;
    let window = |bytes: &[u8]| -> String {
        bytes.iter().skip(at).take(8).map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
    };
    let wrong = found.iter().zip(wanted).filter(|(one, other)| one != other).count();
    Some(format!(
        "byte {at:#x} of {:#x} differs: {} instead of {} ({wrong} bytes wrong)",
        found.len(),
        window(found),
        window(wanted)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_goes_on_where_it_was_cut() {
        let whole = bytes(5, 0, 64);
        assert_eq!(bytes(5, 32, 32), whole[32..]);
        assert_eq!(bytes(5, 0, 61), whole[..61]);
    }

    #[test]
    fn patterns_differ_by_seed_and_by_page() {
        assert_ne!(bytes(1, 0, 4096), bytes(2, 0, 4096));
        assert_ne!(bytes(1, 0, 4096), bytes(1, 4096, 4096));
    }

    #[test]
    fn difference_names_the_first_wrong_byte() {
        let (wanted, mut found) = (bytes(1, 0, 32), bytes(1, 0, 32));
        assert_eq!(difference(&found, &wanted), None);
        found[9] ^= 1;
        let message = difference(&found, &wanted).unwrap();
        assert!(message.starts_with("byte 0x9 of 0x20") && message.ends_with("(1 bytes wrong)"), "{message}");
    }
}
