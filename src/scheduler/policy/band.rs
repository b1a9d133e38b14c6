//! `band`: credit, and beside it the part of the engine's time that each VM really had.
//!
//! **Whose idea.** The bandwidth-aware non-preemptive device scheduler of Gdev (Kato and others, USENIX ATC
//! 2012), as GPUvm changed it (Suzuki and others, USENIX ATC 2014). Credit alone is unfair where pieces of
//! work differ in length and cannot be interrupted. So VMs are in three classes: *under* (has credit and had
//! less than its part), *in band* (has credit and had more than its part, because others did not want
//! theirs), *over* (no credit). The first class with work runs first. A VM loses its place in the line only
//! if it is out of credit *and* had more than its part. And one that had less than its part and has just
//! ended its work gets a chance to bring more (500 us) before the engine goes to one that had more: a program
//! that waits for each result would otherwise lose its turn every time.
//!
//! **When.** A mix of short and long work, with hardware that does not preempt or seldom does. **When not.**
//! Where all are busy with much work each, the chances to bring more only cost; `weighted` is as fair and
//! wastes nothing.
//!
//! Parts follow `weight`; what a VM had is measured over the present and the last period. Each engine is
//! counted by itself, copies too.

use std::time::Duration;

use super::credit::{Credits, weights};
use super::vm_table::VmTable;
use super::{Admission, Decision, Policy, SHORTEST, Settings, VmView, slice};
use gpuvmk_chip::addr::TenantId;

/// How long a VM that had less than its part may take to bring more work (Gdev, GPUvm).
const CHANCE: Duration = Duration::from_micros(500);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Under,
    Band,
    Over,
}

#[derive(Clone, Copy, Debug)]
struct Turn {
    vm: TenantId,
    since: Duration,
    /// Until when it may bring more work, once it had none.
    chance: Option<Duration>,
}

/// A VM's use when the last period ended, and the one before.
type Marks = [Duration; 2];

/// The policy; see the module.
#[derive(Debug)]
pub struct Band {
    settings: Settings,
    credits: Credits,
    marks: VmTable<Marks>,
    turn: Option<Turn>,
}

/// VMs' recent use, against each one's part.
struct Measure {
    had: Vec<Duration>,
    sum: Duration,
    weights: u64,
}

impl Measure {
    /// True when a VM had more than its part. As long as no VM had anything, all had.
    fn is_over(&self, place: usize, vms: &[VmView]) -> bool {
        let weight = vms.get(place).map_or(0, |view| view.share.weight);
        let had = self.had(place).as_nanos().saturating_mul(self.weights.into());
        self.sum.is_zero() || had > self.sum.as_nanos().saturating_mul(weight.into())
    }

    fn had(&self, place: usize) -> Duration {
        self.had.get(place).copied().unwrap_or_default()
    }
}

impl Band {
    /// A policy with these settings.
    pub fn new(settings: &Settings) -> Self {
        Self { settings: *settings, credits: Credits::new(settings), marks: VmTable::default(), turn: None }
    }

    fn measure(&mut self, now: Duration, vms: &[VmView]) -> Measure {
        let renewed = self.credits.update(now, vms);
        self.marks.update(vms, |view| [view.used; 2]);
        let mut had = Vec::with_capacity(vms.len());
        for (row, view) in self.marks.rows.iter_mut().zip(vms) {
            had.push(view.used.saturating_sub(row.state[1]));
            if renewed {
                row.state = [view.used, row.state[0]];
            }
        }
        let sum = had.iter().fold(Duration::ZERO, |sum, had| sum.saturating_add(*had));
        Measure { had, sum, weights: weights(vms) }
    }

    fn class(&self, place: usize, measure: &Measure, vms: &[VmView]) -> Class {
        if self.credits.left(place) < 0 {
            Class::Over
        } else if measure.is_over(place, vms) {
            Class::Band
        } else {
            Class::Under
        }
    }
}

impl Policy for Band {
    fn name(&self) -> &'static str {
        "band"
    }

    fn arbitrates(&self) -> bool {
        true
    }

    fn decide(&mut self, now: Duration, vms: &[VmView]) -> Decision {
        let measure = self.measure(now, vms);
        let is_ready = |place: usize| vms.get(place).is_some_and(|view| view.ready);
        let alone = vms.iter().filter(|view| view.ready).nth(1).is_none();
        let length = slice(&self.settings, vms.len());
        let current = self.turn.and_then(|turn| Some((self.credits.book.place(turn.vm)?, turn)));
        if let Some((place, turn)) = current {
            let rest = length.saturating_sub(now.saturating_sub(turn.since));
            if is_ready(place) && !rest.is_zero() {
                self.turn = Some(Turn { chance: None, ..turn });
                return give(turn.vm, rest, alone);
            }
            let may_lose_place = turn.chance.is_none();
            if may_lose_place && self.credits.left(place) < 0 && measure.is_over(place, vms) {
                self.credits.move_to_the_end(place);
            }
        }
        let by_class = |place: &usize| (self.class(*place, &measure, vms), self.credits.line(*place));
        let next = (0..vms.len()).filter(|place| is_ready(*place)).min_by_key(by_class);
        let Some((next, view)) = next.and_then(|place| Some((place, vms.get(place)?))) else {
            self.turn = None;
            return Decision { admission: Admission::All, review_after: None };
        };
        if let Some((place, turn)) = current
            && !is_ready(place)
            && measure.is_over(next, vms)
            && !measure.is_over(place, vms)
            && measure.had(next) > measure.had(place)
        {
            let until = turn.chance.unwrap_or(now.saturating_add(CHANCE));
            if now < until {
                self.turn = Some(Turn { chance: Some(until), ..turn });
                let rest = until.saturating_sub(now).max(SHORTEST);
                return Decision { admission: Admission::Only(turn.vm), review_after: Some(rest) };
            }
        }
        self.turn = Some(Turn { vm: view.vm, since: now, chance: None });
        give(view.vm, length, alone)
    }
}

fn give(vm: TenantId, length: Duration, alone: bool) -> Decision {
    if alone {
        Decision { admission: Admission::All, review_after: None }
    } else {
        Decision { admission: Admission::Only(vm), review_after: Some(length.max(SHORTEST)) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Bench, ms, view};
    use super::*;

    fn band() -> Band {
        Band::new(&Settings::default())
    }

    #[test]
    fn busy_vms_get_parts_by_weight() {
        let mut bench = Bench::new(Box::new(band()), &[100, 100, 200]);

        let shares = bench.shares(Duration::from_secs(3), |_| true);

        assert!(shares.iter().zip([0.25, 0.25, 0.5]).all(|(a, b)| (a - b).abs() < 0.02), "{shares:?}");
    }

    #[test]
    fn vm_that_had_less_gets_a_chance_to_bring_more_work() {
        let mut policy = band();
        // VM 1 had 8 of 10 ms; VM 2 has just ended its work.
        policy.decide(ms(0), &[view(1, true, 0), view(2, false, 0)]);
        policy.decide(ms(8), &[view(1, false, 8), view(2, true, 0)]);

        let chance = policy.decide(ms(10), &[view(1, true, 8), view(2, false, 2)]);
        let over = policy.decide(ms(10) + CHANCE, &[view(1, true, 8), view(2, false, 2)]);

        assert_eq!(chance, Decision { admission: Admission::Only(TenantId(2)), review_after: Some(CHANCE) });
        assert_eq!(over.admission, Admission::All);
    }

    #[test]
    fn vm_that_had_more_waits_while_one_that_had_less_has_work() {
        let mut policy = band();
        policy.decide(ms(0), &[view(1, true, 0), view(2, false, 0)]);
        policy.decide(ms(20), &[view(1, true, 20), view(2, false, 0)]);

        let orders: Vec<_> = (0..5)
            .map(|i| policy.decide(ms(22 + 2 * i), &[view(1, true, 20), view(2, true, 2 * i)]).admission)
            .collect();

        assert_eq!(orders, [Admission::Only(TenantId(2)); 5]);
    }

    #[test]
    fn nobody_waits_for_a_vm_that_had_more() {
        let mut policy = band();
        policy.decide(ms(0), &[view(1, true, 0), view(2, false, 0)]);

        let decision = policy.decide(ms(8), &[view(1, false, 8), view(2, true, 0)]);

        assert_eq!(decision, Decision { admission: Admission::All, review_after: None });
    }
}
