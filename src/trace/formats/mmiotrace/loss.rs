//! Lines with which the kernel tells that a capture is not whole. A ring buffer that overflowed shows in one
//! of several ways, by which of ftrace's files was read and how.

/// The text before the counts in the head of ftrace's file `trace`.
const COUNTS: &str = "# entries-in-buffer/entries-written: ";

/// How many events a line says are lost; `None` if it tells of no loss. Where the kernel does not know how
/// many, it is one: that many at least.
pub(super) fn lost(line: &str) -> Option<u64> {
    pipe(line).or_else(|| processor(line)).or_else(|| head(line)).or_else(|| too_big(line))
}

/// `MARK 0.000000 Lost 12 events.`: mmiotrace's own, at the next read of `trace_pipe`. A mark of a user has a
/// time.
fn pipe(line: &str) -> Option<u64> {
    line.strip_prefix("MARK 0.000000 Lost ")?.strip_suffix(" events.").and_then(count)
}

/// `CPU:0 [LOST 4521 EVENTS]` and `CPU:0 [LOST EVENTS]`: ftrace's, before the first event of that processor
/// that is left.
fn processor(line: &str) -> Option<u64> {
    let (processor, what) = line.strip_prefix("CPU:")?.split_once(' ')?;
    count(processor)?;
    match what.strip_prefix("[LOST ")?.strip_suffix("EVENTS]")? {
        "" => Some(1),
        number => number.strip_suffix(' ').and_then(count),
    }
}

/// `# entries-in-buffer/entries-written: 5/8   #P:1`: ftrace's, where `trace` is read instead of
/// `trace_pipe`.
fn head(line: &str) -> Option<u64> {
    let (left, written) = line.strip_prefix(COUNTS)?.split_once('/')?;
    let written = written.split(' ').next()?;
    count(written)?.checked_sub(count(left)?).filter(|lost| *lost > 0)
}

/// `[LINE TOO BIG]`: ftrace's, in the place of one event.
fn too_big(line: &str) -> Option<u64> {
    (line == "[LINE TOO BIG]").then_some(1)
}

/// A decimal number as the kernel writes it.
fn count(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // More than fits is a loss all the same.
    plain.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_in_which_the_kernel_tells_a_loss_counts() {
        for (line, events) in [
            ("MARK 0.000000 Lost 12 events.", 12),
            ("CPU:0 [LOST 4521 EVENTS]", 4521),
            ("CPU:127 [LOST 1 EVENTS]", 1),
            ("CPU:2 [LOST EVENTS]", 1),
            ("CPU:2 [LOST 99999999999999999999999 EVENTS]", u64::MAX),
            ("# entries-in-buffer/entries-written: 5/8   #P:1", 3),
            ("[LINE TOO BIG]", 1),
        ] {
            assert_eq!(lost(line), Some(events), "{line}");
        }
    }

    #[test]
    fn what_only_looks_like_a_loss_is_none() {
        for line in [
            "MARK 12.000001 Lost 12 events.",
            "MARK 12.000001 CPU:0 [LOST 3 EVENTS]",
            "MARK 0.000000 Lost -1 events.",
            "CPU:0 [LOST  EVENTS]",
            "CPU:x [LOST 3 EVENTS]",
            "CPU:0 [LOST 3 EVENTS] ",
            "# entries-in-buffer/entries-written: 8/8   #P:1",
            "# entries-in-buffer/entries-written: 9/8   #P:1",
            "# tracer: mmiotrace",
            "",
        ] {
            assert_eq!(lost(line), None, "{line}");
        }
    }
}
