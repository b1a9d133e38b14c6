//! What gpuvmk's processes count, as their logs have it: `Session ends: ... reads=10 writes=2`, and the like.

/// The sum of the counts `names` over all lines that contain `marker`; `None` if no line has all of them.
pub fn counted(log: &str, marker: &str, names: &[&str]) -> Option<f64> {
    let lines: Vec<Vec<f64>> = log
        .lines()
        .filter(|line| line.contains(marker))
        .filter_map(|line| names.iter().map(|name| count_after(line, name)).collect())
        .collect();
    (!lines.is_empty()).then(|| lines.iter().flatten().sum())
}

/// The number behind `name=`, which stands as a word of its own.
fn count_after(line: &str, name: &str) -> Option<f64> {
    line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "x Session ends: messages=9 reads=10 writes=2 write_batches=1\nother reads=99\n\
                       x Session ends: messages=5 reads=5 writes=1 write_batches=0\n";

    #[test]
    fn counts_of_all_marked_lines_are_added_up() {
        assert_eq!(counted(LOG, "Session ends:", &["reads", "writes"]), Some(18.0));
        assert_eq!(counted(LOG, "Session ends:", &["reads"]), Some(15.0));
    }

    #[test]
    fn missing_lines_and_counts_are_told_from_zero() {
        assert_eq!(counted("nothing", "Session ends:", &["reads"]), None);
        assert_eq!(counted(LOG, "Session ends:", &["batches"]), None, "not a part of another name");
    }
}
