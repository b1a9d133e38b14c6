//! How long each VM had each engine, by a recording of the aggregator.

use std::collections::BTreeMap;

use super::event::Event;

/// Time by engine and VM.
#[derive(Clone, Debug, Default)]
pub struct Turns {
    /// The VM that has an engine, and since when.
    now: BTreeMap<String, (String, u64)>,
    sums: BTreeMap<(String, String), u64>,
    last: u64,
}

impl Turns {
    /// Counts an entry.
    pub fn add(&mut self, nanos: u64, event: &Event) {
        self.last = self.last.max(nanos);
        if let Event::Switch { engine, to } = event {
            let before = self.now.insert(engine.clone(), (to.clone(), nanos));
            if let Some((vm, since)) = before.filter(|(vm, _)| !vm.is_empty()) {
                let sum = self.sums.entry((engine.clone(), vm)).or_default();
                *sum = sum.saturating_add(nanos.saturating_sub(since));
            }
        }
    }

    /// Nanoseconds by engine and VM until the last entry.
    pub fn sums(&self) -> BTreeMap<(String, String), u64> {
        let mut sums = self.sums.clone();
        for (engine, (vm, since)) in self.now.iter().filter(|(_, (vm, _))| !vm.is_empty()) {
            let sum = sums.entry((engine.clone(), vm.clone())).or_default();
            *sum = sum.saturating_add(self.last.saturating_sub(*since));
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_turn_lasts_until_the_next_or_the_end() {
        let mut turns = Turns::default();
        let switch = |engine: &str, to: &str| Event::Switch { engine: engine.to_owned(), to: to.to_owned() };
        for (nanos, event) in [
            (10, switch("graphics", "vm1")),
            (15, switch("copy0", "vm2")),
            (30, switch("graphics", "")),
            (40, switch("graphics", "vm2")),
            (45, switch("graphics", "vm1")),
            (50, Event::Reset),
        ] {
            turns.add(nanos, &event);
        }
        let sums = turns.sums();
        let of = |engine: &str, vm: &str| sums.get(&(engine.to_owned(), vm.to_owned())).copied();
        assert_eq!((of("graphics", "vm1"), of("graphics", "vm2")), (Some(25), Some(5)));
        assert_eq!((of("copy0", "vm2"), of("graphics", "")), (Some(35), None));
    }
}
