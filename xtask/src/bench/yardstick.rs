//! How fast this machine is now: what a program costs is told by it, since seconds say more of the machine
//! than of the program.

use std::hint::black_box;
use std::time::Duration;

use anyhow::{Context, Result};

/// Bytes of the work.
const BYTES: usize = 64 << 20;

/// Processor time of a fixed piece of work: FNV-1a over 64 MiB, each step of which needs the last one's
/// result. The least of three.
pub(super) fn processor_time() -> Result<Duration> {
    let bytes = vec![7; BYTES];
    let mut least = Duration::MAX;
    for _ in 0..3 {
        let before = of_this_thread()?;
        black_box(hash(black_box(&bytes)));
        least = least.min(of_this_thread()?.saturating_sub(before));
    }
    Ok(least)
}

fn hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

fn of_this_thread() -> Result<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")
        .context("The kernel does not count processor time")?;
    let nanos = text.split_whitespace().next().and_then(|nanos| nanos.parse().ok());
    Ok(Duration::from_nanos(nanos.context("The kernel's count of processor time makes no sense")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_is_the_one_that_is_named() {
        assert_eq!(hash(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash(b"a"), 0xaf63_dc4c_8601_ec8c);
    }
}
