//! Which repetitions count: those with the GPU's clocks up, by a yardstick that was timed before and after.

use serde_json::Value;

use super::middle;

/// How much longer than the shortest of all a yardstick may take, beside a repetition that counts.
const MORE: f64 = 0.02;

/// What counts of a program's repetitions.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Steady {
    /// The middle of them, in microseconds.
    pub(super) us: Option<f64>,
    /// Repetitions that do not count.
    pub(super) left_out: u64,
}

impl Steady {
    /// Why there is no figure; `None`: there is one, or nothing was measured.
    pub(super) fn why_none(&self, whose: &str) -> Option<String> {
        (self.us.is_none() && self.left_out > 0)
            .then(|| format!("{whose}: the GPU's clocks were not up in any of {} repetitions", self.left_out))
    }
}

/// The shortest yardstick of these tables.
pub(super) fn best<'a>(tables: impl Iterator<Item = &'a Value>) -> Option<f64> {
    let rows = tables.filter_map(Value::as_object).flat_map(|table| table.values());
    rows.flat_map(yards).flatten().flatten().min_by(f64::total_cmp)
}

/// A row's yardsticks, repetition by repetition.
fn yards(row: &Value) -> Vec<Option<[f64; 2]>> {
    let pair = |pair: &Value| Some([pair.get(0)?.as_f64()?, pair.get(1)?.as_f64()?]);
    row.get("yards_us").and_then(Value::as_array).into_iter().flatten().map(pair).collect()
}

/// What counts of the repetitions in a program's rows. Those without yardsticks, or of copies, do.
pub(super) fn steady(rows: &[&Value], best: Option<f64>) -> Steady {
    let (mut times, mut left_out) = (Vec::new(), 0);
    for row in rows {
        left_out += row.get("left_out").and_then(Value::as_u64).unwrap_or(0);
        let all = row.get("all_gpu_us").and_then(Value::as_array).into_iter().flatten();
        let mut yards = yards(row).into_iter();
        for time in all.filter_map(Value::as_f64).filter(|time| *time > 0.0) {
            let is_near = |yard: f64| best.is_none_or(|best| yard <= best * (1.0 + MORE));
            match yards.next().flatten() {
                Some(yards) if !yards.into_iter().all(is_near) => left_out += 1,
                _ => times.push(time),
            }
        }
    }
    Steady { us: middle(times), left_out }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn repetitions_count_whose_yardsticks_are_near_the_best_of_all() {
        let slow = json!({ "all_gpu_us": [9.0, 3.0, 9.5], "yards_us": [[50, 9], [9.1, 9.0], [9, 50]], "left_out": 2 });
        let fast = json!({ "all_gpu_us": [4.0], "yards_us": [[9.0, 9.1]], "left_out": 0 });
        let (one, two) = (json!({ "LUD": slow }), json!({ "LUD": fast }));
        let all = best([&one, &two].into_iter());
        assert_eq!(all, Some(9.0));
        assert_eq!(steady(&[&slow, &fast], all), Steady { us: Some(3.5), left_out: 4 });
        // Nothing is left where the other side was faster.
        let none = steady(&[&slow], Some(5.0));
        assert_eq!(none, Steady { us: None, left_out: 5 });
        assert!(none.why_none("guest").is_some_and(|why| why.starts_with("guest") && why.contains(" 5 ")));
    }

    #[test]
    fn copies_have_no_yardsticks_and_count() {
        let copies = json!({ "all_gpu_us": [4.0, 6.0], "yards_us": [null, null] });
        assert_eq!(steady(&[&copies], Some(1.0)), Steady { us: Some(5.0), left_out: 0 });
        assert_eq!(steady(&[], None).why_none("native"), None);
    }
}
