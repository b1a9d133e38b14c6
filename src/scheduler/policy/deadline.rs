//! `deadline`: a VM that reserves a budget gets that much of the engine in each of its periods; the rest is
//! shared.
//!
//! **Whose idea.** Earliest deadline first with constant-bandwidth servers (Abeni and Buttazzo, RTSS 1998),
//! which Linux's SCHED_DEADLINE uses for threads and TimeGraph's successors for GPUs. A VM's period begins
//! when it gets work; of those with budget left, the one whose period ends first has the engine. A VM that
//! has used up its budget competes for the rest only, until its next period: one VM's overload costs no other
//! VM its reservation. The rest goes round in turns among all with work, reservation or not.
//!
//! **Admission.** Reservations of more than 90 % of an engine's time together are refused, when a VM starts
//! and when an operator changes them. The remaining tenth is for changes of the engine's owner and for work
//! that cannot be interrupted. A piece of such work that is longer than a period's time beside the budget
//! still breaks the promise; a VM's overrun is taken from its next budgets.
//!
//! **When.** Work with a beat: frames, control loops, audio and video, next to work without. **When not.**
//! When no VM can name what it needs; `weighted` then does the same with less to set.

use std::time::Duration;

use super::rounds::Rounds;
use super::vm_table::{VmRow, VmTable, nanos, time};
use super::{Admission, Decision, Policy, SHORTEST, Settings, VmView, slice};
use crate::share::{Rejection, Share};
use gpuvmk_chip::addr::TenantId;

/// Largest sum of reservations of an engine, in thousandths.
const RESERVABLE: u128 = 900;

/// State of a VM.
#[derive(Clone, Copy, Debug, Default)]
struct Vm {
    /// Nanoseconds of budget left in the present period; negative after an overrun.
    left: i64,
    /// End of the present period.
    deadline: Duration,
    /// True when it was ready at the last decision.
    ready: bool,
    /// Its last turn was on its budget, so what it uses is charged there.
    on_budget: bool,
    /// Time that was charged to the reservation so far.
    reserved: Duration,
}

/// The present turn.
#[derive(Clone, Copy, Debug)]
struct Turn {
    vm: TenantId,
    since: Duration,
    got: Duration,
}

/// The policy; see the module.
#[derive(Debug)]
pub struct Deadline {
    settings: Settings,
    book: VmTable<Vm>,
    turn: Option<Turn>,
    /// Turns of what is not reserved.
    rest: Rounds,
}

impl Deadline {
    /// A policy with these settings.
    pub fn new(settings: &Settings) -> Self {
        Self { settings: *settings, book: VmTable::default(), turn: None, rest: Rounds::default() }
    }

    /// Charges what was used and renews budgets.
    fn update(&mut self, now: Duration, vms: &[VmView]) {
        self.book.update(vms, |_| Vm::default());
        for (row, view) in self.book.rows.iter_mut().zip(vms) {
            if row.state.on_budget {
                row.state.left = row.state.left.saturating_sub(nanos(row.grown));
                row.state.reserved = row.state.reserved.saturating_add(row.grown);
            }
            if let Some(turn) = self.turn.as_mut().filter(|turn| turn.vm == row.vm) {
                turn.got = turn.got.saturating_add(row.grown);
            }
            if view.share.budget.is_zero() {
                row.state = Vm { reserved: row.state.reserved, ..Vm::default() };
            } else if view.ready {
                renew(&mut row.state, now, &view.share);
            }
            row.state.ready = view.ready;
        }
    }

    /// Gives out what is not reserved, in turns to all who have work.
    fn of_the_rest(&mut self, now: Duration, vms: &[VmView]) -> Decision {
        let unreserved = |(row, view): (&VmRow<Vm>, &VmView)| VmView {
            used: view.used.saturating_sub(row.state.reserved),
            ..*view
        };
        let views: Vec<_> = self.book.rows.iter().zip(vms).map(unreserved).collect();
        self.rest.decide_by_turns(now, &views, slice(&self.settings, vms.len()))
    }

    /// Time of the present turn that is not accounted yet, if the turn is this VM's.
    fn open(&self, vm: TenantId, now: Duration) -> i64 {
        let turn = self.turn.filter(|turn| turn.vm == vm);
        turn.map_or(0, |turn| nanos(now.saturating_sub(turn.since).saturating_sub(turn.got)))
    }

    /// Budget that a VM can use now.
    fn usable(&self, row: &VmRow<Vm>, now: Duration) -> i64 {
        let open = if row.state.on_budget { self.open(row.vm, now) } else { 0 };
        row.state.left.saturating_sub(open)
    }
}

/// Begins a new period if the last one is over, or if a VM that slept would get more than its part of what is
/// left of it.
fn renew(vm: &mut Vm, now: Duration, share: &Share) {
    let budget = nanos(share.budget);
    if now >= vm.deadline {
        let late = now.saturating_sub(vm.deadline);
        let over = late.as_nanos().checked_div(share.period.as_nanos()).unwrap_or(0).saturating_add(1);
        let over = u32::try_from(over).unwrap_or(u32::MAX);
        // Budgets of past periods are lost, but they pay what was overrun.
        vm.left = vm.left.min(0).saturating_add(budget.saturating_mul(over.into())).min(budget);
        vm.deadline = if vm.ready {
            vm.deadline.saturating_add(share.period.saturating_mul(over))
        } else {
            now.saturating_add(share.period)
        };
    } else if !vm.ready {
        let rest = vm.deadline.saturating_sub(now);
        let earned = u128::try_from(vm.left).unwrap_or(0).saturating_mul(share.period.as_nanos());
        if earned > rest.as_nanos().saturating_mul(share.budget.as_nanos()) {
            vm.left = budget;
            vm.deadline = now.saturating_add(share.period);
        }
    }
    // The operator may have made it smaller.
    vm.left = vm.left.min(budget);
}

impl Policy for Deadline {
    fn name(&self) -> &'static str {
        "deadline"
    }

    fn arbitrates(&self) -> bool {
        true
    }

    fn decide(&mut self, now: Duration, vms: &[VmView]) -> Decision {
        self.update(now, vms);
        let ready = vms.iter().filter(|view| view.ready).count();
        if ready <= 1 {
            self.turn = None;
            self.book.rows.iter_mut().for_each(|row| row.state.on_budget = false);
            return self.of_the_rest(now, vms);
        }
        let with_work = || self.book.rows.iter().filter(|row| row.state.ready);
        let first = with_work()
            .filter(|row| self.usable(row, now) > 0)
            .min_by_key(|row| (row.state.deadline, row.vm))
            .map(|row| (row.vm, time(self.usable(row, now))));
        // A budget that is renewed may change who is first.
        let renewal = with_work()
            .filter(|row| row.state.deadline > now)
            .map(|row| row.state.deadline.saturating_sub(now))
            .min();
        let (vm, length) = match first {
            Some(first) => {
                self.rest.interrupt(now);
                first
            }
            None => match self.of_the_rest(now, vms) {
                Decision { admission: Admission::Only(vm), review_after: Some(length) } => (vm, length),
                decision => return decision,
            },
        };
        let on_budget = first.is_some();
        if self.turn.is_none_or(|turn| turn.vm != vm) {
            self.turn = Some(Turn { vm, since: now, got: Duration::ZERO });
        }
        if let Some(row) = self.book.place(vm).and_then(|place| self.book.rows.get_mut(place))
            && std::mem::replace(&mut row.state.on_budget, on_budget) != on_budget
        {
            self.turn = Some(Turn { vm, since: now, got: Duration::ZERO });
        }
        let review = renewal.map_or(length, |renewal| renewal.min(length)).max(SHORTEST);
        Decision { admission: Admission::Only(vm), review_after: Some(review) }
    }

    fn accepts(&self, others: &[Share], new: &Share) -> Result<(), Rejection> {
        if new.budget.is_zero() {
            return Ok(());
        }
        let taken: u128 = others.iter().map(part).sum();
        if taken.saturating_add(part(new)) > RESERVABLE.saturating_mul(PARTS_OF_A_THOUSANDTH) {
            let free = RESERVABLE.saturating_sub(taken.div_ceil(PARTS_OF_A_THOUSANDTH));
            return Err(Rejection(format!(
                "a budget of {} us in each {} us is more than the {}.{} percent that can still be reserved",
                new.budget.as_micros(),
                new.period.as_micros(),
                free / 10,
                free % 10
            )));
        }
        Ok(())
    }
}

/// Unit of [`part`].
const PARTS_OF_A_THOUSANDTH: u128 = 1000;

/// A VM's reservation of an engine, in millionths.
fn part(share: &Share) -> u128 {
    let budget = share.budget.as_nanos().saturating_mul(1000 * PARTS_OF_A_THOUSANDTH);
    budget.checked_div(share.period.as_nanos()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Bench, ms, view};
    use super::*;

    fn reserving(period: u64, budget: u64) -> Share {
        Share { period: ms(period), budget: ms(budget), ..Share::default() }
    }

    fn deadline() -> Box<Deadline> {
        Box::new(Deadline::new(&Settings::default()))
    }

    #[test]
    fn budgets_are_met_in_every_period_beside_busy_vms() {
        let shares = [reserving(20, 5), reserving(50, 20), Share::default(), Share::default()];
        let mut bench = Bench::with(deadline(), shares);

        for period in 1..=50 {
            let before = bench.vms.clone();
            bench.shares(ms(100), |_| true);
            let used: Vec<_> = bench.vms.iter().zip(before).map(|(now, then)| now.used - then.used).collect();
            assert!(used[0] >= ms(24) && used[1] >= ms(39), "period {period}: {used:?}");
        }
    }

    #[test]
    fn earliest_deadline_is_first_and_the_rest_goes_round() {
        let mut bench = Bench::with(deadline(), [reserving(50, 4), reserving(20, 3), Share::default()]);

        let turns = bench.turns(ms(13), |_| true);

        // Deadlines at 50 and 20, then what is not reserved, in turns of two milliseconds.
        assert_eq!(turns, [(2, ms(3)), (1, ms(4 + 2)), (2, ms(2)), (3, ms(2))]);
    }

    #[test]
    fn unused_reservations_are_used_by_others() {
        let mut bench = Bench::with(deadline(), [reserving(20, 18), Share::default(), Share::default()]);

        let shares = bench.shares(Duration::from_secs(1), |vm| vm != 1);

        assert!(shares[1] > 0.49 && shares[2] > 0.49, "{shares:?}");
    }

    #[test]
    fn overload_of_one_costs_no_other_his_reservation() {
        let mut bench = Bench::with(deadline(), [reserving(10, 4), reserving(10, 4)]);

        let shares = bench.shares(Duration::from_secs(1), |_| true);

        assert!(shares.iter().all(|share| (share - 0.5).abs() < 0.1), "{shares:?}");
    }

    #[test]
    fn overrun_is_taken_from_the_next_budgets() {
        let mut policy = deadline();
        let share = reserving(10, 2);
        let views =
            |first: u64, second: u64| [VmView { share, ..view(1, true, first) }, view(2, true, second)];
        assert_eq!(policy.decide(ms(0), &views(0, 0)).admission, Admission::Only(TenantId(1)));

        // It runs for six instead of two: the budgets of two more periods.
        policy.decide(ms(6), &views(6, 0));
        let firsts: Vec<_> = [10, 20, 30]
            .map(|now| {
                policy.decide(ms(now), &views(6, now - 6));
                policy.usable(&policy.book.rows[0], ms(now)) > 0
            })
            .into();

        assert_eq!(firsts, [false, false, true]);
    }

    #[test]
    fn more_than_nine_tenths_are_refused() {
        let policy = deadline();
        let others = [reserving(10, 5), reserving(100, 20)];

        assert_eq!(policy.accepts(&others, &reserving(10, 2)), Ok(()));
        assert_eq!(policy.accepts(&others, &Share::default()), Ok(()));
        let error = policy.accepts(&others, &reserving(10, 3)).unwrap_err();
        assert_eq!(
            error.0,
            "a budget of 3000 us in each 10000 us is more than the 20.0 percent that can still be reserved"
        );
    }
}
