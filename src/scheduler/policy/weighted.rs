//! `weighted`: whoever wants the engine gets it in proportion to his weight, and no more than his cap.
//!
//! **Whose idea.** Start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996), as Linux's CFS and disk schedulers use
//! it. Each VM has a virtual time that grows by what it used divided by its weight; the one whose virtual time is
//! earliest has the next turn. Use is what counts, so who overruns a turn, or ends it early, is neither better nor
//! worse off. A VM that slept starts one turn behind the others at the most: sleep saves nothing beyond that.
//!
//! A `cap` is a bucket that fills at that percentage of time and holds two turns; an empty one keeps its VM from the
//! engine until there is half a turn in it, also while others are idle.
//!
//! **When.** The policy to choose when nothing else is asked for: fair for any mix, all time is used, a VM that seldom
//! wants something has it at once. **When not.** When a VM must not be faster because others rest (`fixed-share`), or
//! needs so much in each period (`deadline`).
//!
//! Turns are as long as NVIDIA's, unless the operator says otherwise.

use std::time::Duration;

use super::book::{Book, nanos, time};
use super::{Admission, Decision, Policy, SHORTEST, Settings, VmView, slice};
use crate::addr::TenantId;

/// Virtual nanoseconds for each nanosecond of use at weight 1.
const SCALE: u64 = 1_000_000;

/// What is kept of a VM.
#[derive(Clone, Copy, Debug)]
struct Vm {
    /// Its virtual time.
    time: u128,
    /// True when it was ready at the last decision.
    ready: bool,
    /// Nanoseconds in its bucket.
    bucket: i64,
    /// Its bucket ran empty and has not filled enough since.
    empty: bool,
    /// When its last turn began. Looks miss most of very short work, so virtual times may be equal for long.
    served: Option<Duration>,
}

/// The present turn.
#[derive(Clone, Copy, Debug)]
struct Turn {
    vm: TenantId,
    since: Duration,
    /// What was accounted of it.
    got: Duration,
}

impl Turn {
    /// What has passed and is not accounted yet.
    fn open(&self, now: Duration) -> Duration {
        now.saturating_sub(self.since).saturating_sub(self.got)
    }
}

/// The policy.
#[derive(Debug)]
pub struct Weighted {
    settings: Settings,
    book: Book<Vm>,
    turn: Option<Turn>,
    /// Virtual time that everybody with work has reached.
    floor: u128,
    last: Option<Duration>,
}

impl Weighted {
    /// A policy with these settings.
    pub fn new(settings: &Settings) -> Self {
        Self { settings: *settings, book: Book::default(), turn: None, floor: 0, last: None }
    }

    /// Charges what was used, fills buckets, and sets those forward who slept.
    fn update(&mut self, now: Duration, vms: &[VmView], turn: Duration) {
        let passed = now.saturating_sub(self.last.replace(now).unwrap_or(now));
        let floor = self.floor;
        let full = nanos(turn);
        self.book.update(vms, |_| Vm { time: floor, ready: false, bucket: full, empty: false, served: None });
        for (row, view) in self.book.rows.iter_mut().zip(vms) {
            let vm = &mut row.state;
            vm.time = vm.time.saturating_add(stretch(row.grown, view));
            if let Some(cap) = view.share.cap {
                let filled = vm.bucket.saturating_sub(nanos(row.grown)).saturating_add(fill(passed, cap));
                vm.bucket = filled.min(full.saturating_mul(2));
                vm.empty = vm.bucket <= 0 || (vm.empty && vm.bucket < full / 2);
            } else {
                (vm.bucket, vm.empty) = (full, false);
            }
            if let Some(turn) = self.turn.as_mut().filter(|turn| turn.vm == row.vm) {
                turn.got = turn.got.saturating_add(row.grown);
            }
        }
        let compete = |(row, view): &(&super::book::Row<Vm>, &VmView)| view.ready && !row.state.empty;
        let earliest = self.book.rows.iter().zip(vms).filter(compete).filter(|(row, _)| row.state.ready);
        self.floor = earliest.map(|(row, _)| row.state.time).min().unwrap_or(self.floor).max(self.floor);
        for (row, view) in self.book.rows.iter_mut().zip(vms) {
            let vm = &mut row.state;
            let competes = view.ready && !vm.empty;
            if competes && !vm.ready {
                vm.time = vm.time.max(self.floor.saturating_sub(stretch(turn, view)));
            }
            vm.ready = competes;
        }
    }
}

impl Policy for Weighted {
    fn name(&self) -> &'static str {
        "weighted"
    }

    fn arbitrates(&self) -> bool {
        true
    }

    fn decide(&mut self, now: Duration, vms: &[VmView]) -> Decision {
        let length = slice(&self.settings, vms.len());
        self.update(now, vms, length);
        let mut ready = vms.iter().filter(|view| view.ready);
        let (first, more) = (ready.next(), ready.next().is_some());
        let Some(first) = first else {
            self.turn = None;
            return Decision { admission: Admission::All, review_after: None };
        };
        if !more && first.share.cap.is_none() {
            self.turn = None;
            return Decision { admission: Admission::All, review_after: None };
        }
        if let Some(turn) = self.turn
            && let Some(left) = self.left(&turn, now, vms, length)
        {
            return Decision { admission: Admission::Only(turn.vm), review_after: Some(left.max(SHORTEST)) };
        }
        let Some(view) = self.earliest(now, vms) else {
            self.turn = None;
            let filled = self.book.rows.iter().zip(vms).filter_map(|(row, view)| {
                let missing = (nanos(length) / 2).saturating_sub(row.state.bucket);
                view.ready.then(|| time_to_fill(missing, view.share.cap.unwrap_or(100)))
            });
            let soonest = filled.min().unwrap_or(length).max(SHORTEST);
            return Decision { admission: Admission::Nobody, review_after: Some(soonest) };
        };
        let turn = Turn { vm: view.vm, since: now, got: Duration::ZERO };
        self.turn = Some(turn);
        if let Some(row) = self.book.place(turn.vm).and_then(|place| self.book.rows.get_mut(place)) {
            row.state.served = Some(now);
        }
        let left = self.left(&turn, now, vms, length).unwrap_or(length);
        Decision { admission: Admission::Only(turn.vm), review_after: Some(left.max(SHORTEST)) }
    }
}

impl Weighted {
    /// What is left of a turn; `None` when it is over.
    fn left(&self, turn: &Turn, now: Duration, vms: &[VmView], length: Duration) -> Option<Duration> {
        let place = self.book.place(turn.vm)?;
        let (row, view) = (self.book.rows.get(place)?, vms.get(place)?);
        let left = length.saturating_sub(now.saturating_sub(turn.since));
        let left = match view.share.cap {
            Some(_) => left.min(time(row.state.bucket.saturating_sub(nanos(turn.open(now))))),
            None => left,
        };
        (row.state.ready && !left.is_zero()).then_some(left)
    }

    /// Whose virtual time is earliest of those who may have the engine. What has passed of the present turn counts as
    /// used even if it is not accounted yet.
    fn earliest<'a>(&self, now: Duration, vms: &'a [VmView]) -> Option<&'a VmView> {
        let virtual_time = |(row, view): &(&super::book::Row<Vm>, &'a VmView)| {
            let open =
                self.turn.filter(|turn| turn.vm == row.vm).map_or(Duration::ZERO, |turn| turn.open(now));
            (row.state.time.saturating_add(stretch(open, view)), row.state.served)
        };
        let able = self.book.rows.iter().zip(vms).filter(|(row, _)| row.state.ready);
        able.min_by_key(virtual_time).map(|(_, view)| view)
    }
}

/// How much later a VM's virtual time is after this use.
fn stretch(used: Duration, view: &VmView) -> u128 {
    used.as_nanos().saturating_mul(SCALE.into()).checked_div(view.share.weight.into()).unwrap_or(u128::MAX)
}

/// What a bucket gains in a time.
fn fill(passed: Duration, cap: u8) -> i64 {
    nanos(passed).saturating_mul(cap.into()) / 100
}

/// How long a bucket takes to gain so much.
fn time_to_fill(missing: i64, cap: u8) -> Duration {
    time(missing.saturating_mul(100).checked_div(cap.into()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Bench, ms, view};
    use super::*;
    use crate::config::share::Share;

    fn weighted() -> Box<Weighted> {
        Box::new(Weighted::new(&Settings::default()))
    }

    fn near(shares: &[f64], wanted: &[f64]) -> bool {
        shares.iter().zip(wanted).all(|(share, wanted)| (share - wanted).abs() < 0.01)
    }

    #[test]
    fn busy_vms_get_time_by_weight() {
        let shares = Bench::new(weighted(), &[100, 200, 400]).shares(Duration::from_secs(2), |_| true);

        assert!(near(&shares, &[1.0 / 7.0, 2.0 / 7.0, 4.0 / 7.0]), "{shares:?}");
    }

    #[test]
    fn time_of_idle_vms_goes_to_the_others_by_weight() {
        let shares = Bench::new(weighted(), &[100, 200, 400]).shares(Duration::from_secs(2), |vm| vm != 3);

        assert!(near(&shares, &[1.0 / 3.0, 2.0 / 3.0, 0.0]), "{shares:?}");
    }

    #[test]
    fn cap_holds_while_others_are_idle() {
        let cap = |cap| Share { cap, ..Share::default() };
        let alone =
            Bench::with(weighted(), [cap(Some(30)), cap(None)]).shares(Duration::from_secs(2), |vm| vm == 1);
        let both =
            Bench::with(weighted(), [cap(Some(30)), cap(None)]).shares(Duration::from_secs(2), |_| true);

        assert!(near(&alone, &[0.3, 0.0]), "{alone:?}");
        assert!(near(&both, &[0.3, 0.7]), "{both:?}");
    }

    #[test]
    fn vm_alone_without_a_cap_is_not_limited() {
        let decision = weighted().decide(ms(5), &[view(2, false, 0), view(3, true, 0)]);

        assert_eq!(decision, Decision { admission: Admission::All, review_after: None });
    }

    #[test]
    fn vm_that_slept_is_next_but_catches_up_one_turn_only() {
        let mut bench = Bench::new(weighted(), &[100, 100]);
        bench.shares(Duration::from_secs(1), |vm| vm == 1);
        let start = bench.now;

        let turns = bench.turns(start + ms(20), |_| true);

        assert_eq!(turns[0].0, 2);
        assert!(turns.iter().all(|(_, length)| *length <= ms(4)), "{turns:?}");
    }

    #[test]
    fn overrun_is_paid_for_by_waiting() {
        let mut policy = weighted();
        let at = |policy: &mut Weighted, now, first, second| {
            policy.decide(ms(now), &[view(1, true, first), view(2, true, second)]).admission
        };
        assert_eq!(at(&mut policy, 0, 0, 0), Admission::Only(TenantId(1)));

        // VM 1 cannot be interrupted and runs for eight milliseconds.
        let then: Vec<_> = [8, 10, 12, 14].map(|now| at(&mut policy, now, 8, now - 8)).into();

        assert_eq!(then, [Admission::Only(TenantId(2)); 4]);
        assert_eq!(at(&mut policy, 18, 8, 10), Admission::Only(TenantId(1)));
    }

    #[test]
    fn vms_whose_work_is_too_short_to_be_seen_take_turns() {
        let mut policy = weighted();
        let vms = [1, 2, 3].map(|vm| view(vm, true, 0));

        let order: Vec<_> = (0..6).map(|i| policy.decide(ms(2 * i), &vms).admission).collect();

        assert_eq!(order, [1, 2, 3, 1, 2, 3].map(|vm| Admission::Only(TenantId(vm))));
    }

    #[test]
    fn use_that_is_not_accounted_yet_ends_a_turn_all_the_same() {
        let mut policy = weighted();
        policy.decide(ms(0), &[view(1, true, 0), view(2, true, 0)]);

        let decision = policy.decide(ms(2), &[view(1, true, 0), view(2, true, 0)]);

        assert_eq!(decision.admission, Admission::Only(TenantId(2)));
    }
}
