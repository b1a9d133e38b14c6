//! How long the aggregator's thread was at each kind of thing at a time, as its status tells.

use std::collections::BTreeMap;

use gpuvmk_control_client::{StepTable, StepTimes};
use serde_json::{Value, json};

/// By kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Steps(StepTable);

impl Steps {
    /// What an aggregator says.
    pub fn of(table: &StepTable) -> Self {
        Self(table.clone())
    }

    /// What came since `before`; the longest is that of the aggregator's whole life if it came since, and
    /// else 0: not known.
    pub fn since(mut self, before: &Self) -> Self {
        for (kind, times) in &mut self.0 {
            let before = before.0.get(kind).copied().unwrap_or_default();
            times.count -= before.count;
            times.over_20us -= before.over_20us;
            times.over_200us -= before.over_200us;
            times.over_2ms -= before.over_2ms;
            if times.longest_ns == before.longest_ns {
                times.longest_ns = 0;
            }
        }
        self
    }

    /// Kinds with steps that took longer than 20 us, in words.
    pub fn long(&self) -> Option<String> {
        let long = self.0.iter().filter(|(_, times)| times.over_20us > 0).map(|(kind, times)| {
            let longest = match times.longest_ns {
                0 => String::new(),
                #[expect(clippy::cast_precision_loss, reason = "Shown")]
                nanos => format!(" ({:.2} ms at most)", nanos as f64 / 1e6),
            };
            let StepTimes { count, over_20us, over_200us, over_2ms, .. } = times;
            format!("{kind} {over_20us}, {over_200us} and {over_2ms} of {count}{longest}")
        });
        let long: Vec<_> = long.collect();
        (!long.is_empty()).then(|| long.join(", "))
    }

    /// Kinds with such steps.
    pub fn to_json(&self) -> Value {
        let long: BTreeMap<_, _> = self.0.iter().filter(|(_, times)| times.over_20us > 0).collect();
        json!(long)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_has_what_came_since() {
        let times = |count: u64, over_20us: u64, longest_ns: u64| {
            let times = StepTimes { count, over_20us, longest_ns, ..StepTimes::default() };
            Steps::of(&StepTable::from([("hello".into(), times)]))
        };
        let before = times(5, 1, 300_000);
        let after = times(7, 2, 300_000).since(&before);
        assert_eq!(after.long().unwrap(), "hello 1, 0 and 0 of 2");
        let longer = times(9, 3, 1_500_000).since(&before);
        assert_eq!(longer.long().unwrap(), "hello 2, 0 and 0 of 4 (1.50 ms at most)");
        assert_eq!(before.clone().since(&before).long(), None);
    }
}
