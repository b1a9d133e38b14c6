//! Rounds step by step, with two or three VMs.

use super::super::tests::{ms, view};
use super::*;

/// VMs that have half of the engine each, and what they used so far in milliseconds.
fn at(rounds: &mut Rounds, now: u64, vms: [(bool, u64); 2]) -> Decision {
    let [first, second] = vms;
    let vms = [view(1, first.0, first.1), view(2, second.0, second.1)];
    rounds.decide_by_parts(ms(now), &vms, ms(2), ms(4), |_| ms(2))
}

fn only(vm: u32, after: u64) -> Decision {
    Decision { admission: Admission::Only(TenantId(vm)), review_after: Some(ms(after)) }
}

fn nobody(after: u64) -> Decision {
    Decision { admission: Admission::Nobody, review_after: Some(ms(after)) }
}

#[test]
fn large_budgets_are_used_in_turns() {
    let mut rounds = Rounds::default();
    let mut used = [0; 3];
    let mut order = Vec::new();
    for turn in 0..8 {
        let vms = [1, 2, 3].map(|vm| view(vm, true, used[vm as usize - 1]));
        let budget = |view: &VmView| if view.vm.0 == 1 { ms(4) } else { ms(2) };
        let decision = rounds.decide_by_parts(ms(2 * turn), &vms, ms(2), ms(8), budget);
        let Admission::Only(vm) = decision.admission else { panic!("{decision:?}") };
        used[vm.0 as usize - 1] += 2;
        order.push(vm.0);
    }
    assert_eq!(order, [1, 2, 3, 1, 2, 3, 1, 1]);
}

#[test]
fn overrun_shortens_the_debtors_next_turn_and_is_given_back_to_whose_turn_it_was() {
    let mut rounds = Rounds::default();
    assert_eq!(at(&mut rounds, 0, [(true, 0), (true, 0)]), only(1, 2));
    assert_eq!(at(&mut rounds, 2, [(true, 2), (true, 0)]), only(2, 2));

    // VM 1 runs on for one of the two milliseconds: VM 2's turn is that much longer.
    assert_eq!(at(&mut rounds, 4, [(true, 3), (true, 1)]), only(2, 1));
    assert_eq!(at(&mut rounds, 5, [(true, 3), (true, 2)]), only(1, 1));
    assert_eq!(at(&mut rounds, 6, [(true, 4), (true, 2)]), only(2, 2));
}

#[test]
fn long_overrun_costs_whole_rounds() {
    let mut rounds = Rounds::default();
    at(&mut rounds, 0, [(true, 0), (true, 0)]);
    at(&mut rounds, 2, [(true, 2), (true, 0)]);

    // VM 1 runs on for six milliseconds: what it has of three rounds.
    assert_eq!(at(&mut rounds, 8, [(true, 8), (true, 0)]).admission, Admission::Only(TenantId(2)));
    let then = [10, 12, 14, 16].map(|now| at(&mut rounds, now, [(true, 8), (true, now - 8)]).admission);

    assert_eq!(then, [2, 2, 2, 1].map(|vm| Admission::Only(TenantId(vm))));
}

#[test]
fn overrun_is_paid_also_where_nobody_lost_by_it() {
    let mut rounds = Rounds::default();
    at(&mut rounds, 0, [(true, 0), (false, 0)]);

    assert_eq!(at(&mut rounds, 2, [(true, 2), (false, 0)]), nobody(2));
    assert_eq!(at(&mut rounds, 4, [(true, 3), (false, 0)]), only(1, 1));
    assert_eq!(at(&mut rounds, 5, [(true, 4), (false, 0)]), nobody(3));
}

#[test]
fn what_is_accounted_late_is_no_overrun() {
    let mut rounds = Rounds::default();
    at(&mut rounds, 0, [(true, 0), (true, 0)]);

    // One of VM 1's two milliseconds is accounted when its turn is over.
    assert_eq!(at(&mut rounds, 2, [(true, 1), (true, 0)]), only(2, 2));
    assert_eq!(at(&mut rounds, 3, [(true, 2), (true, 1)]), only(2, 1));
    assert_eq!(at(&mut rounds, 4, [(true, 2), (true, 2)]), only(1, 2));
}

#[test]
fn late_look_shortens_the_next_turn_of_who_gained_by_it() {
    let mut rounds = Rounds::default();
    at(&mut rounds, 0, [(true, 0), (true, 0)]);

    assert_eq!(at(&mut rounds, 3, [(true, 3), (true, 0)]), only(2, 2));
    assert_eq!(at(&mut rounds, 5, [(true, 3), (true, 2)]), only(1, 1));
}

#[test]
fn vm_that_wants_little_goes_first_and_is_limited_as_all_are() {
    let mut rounds = Rounds::default();
    let mut at = |now, used: [u64; 3], ready| {
        let vms = [view(1, true, used[0]), view(2, ready, used[1]), view(3, true, used[2])];
        rounds.decide_by_parts(ms(now), &vms, ms(4), ms(12), |_| ms(4)).admission
    };
    let only = |vm| Admission::Only(TenantId(vm));
    assert_eq!(at(0, [0, 0, 0], false), only(1));
    assert_eq!(at(4, [4, 0, 0], true), only(2));
    // It keeps its turn for a moment, which counts as used.
    assert_eq!(at(5, [4, 1, 0], false), only(2));
    assert_eq!(at(6, [4, 1, 0], false), only(3));
    assert_eq!(at(10, [4, 1, 4], true), only(2));
    // It has used its budget now, whatever it wants.
    assert_eq!(at(12, [4, 3, 4], true), only(1));
    assert_eq!(at(16, [8, 3, 4], true), only(3));
}

#[test]
fn who_wants_nothing_saves_nothing_for_later() {
    let mut rounds = Rounds::default();
    for now in 0..8 {
        at(&mut rounds, now, [(now % 4 < 2, 2 * (now / 4) + (now % 4).min(2)), (false, 0)]);
    }
    assert_eq!(at(&mut rounds, 8, [(true, 4), (true, 0)]), only(2, 2));
    assert_eq!(at(&mut rounds, 10, [(true, 4), (true, 2)]), only(1, 2));
}

#[test]
fn time_that_nobody_used_is_lost_to_all() {
    let mut rounds = Rounds::default();
    // Each turn loses half of its time: no VM can use more than half of its budgets, and none saves the rest.
    let mut turns = Vec::new();
    for turn in 0..40 {
        let used = [turn / 2 + turn % 2, turn / 2];
        turns.push(at(&mut rounds, 2 * turn, [(true, used[0]), (true, used[1])]).admission);
    }
    let of = |vm| turns.iter().filter(|turn| **turn == Admission::Only(TenantId(vm))).count();
    assert_eq!((of(1), of(2)), (20, 20));
    assert!(rounds.book.rows.iter().all(|row| row.state.left <= nanos(ms(4))), "{rounds:?}");
}

#[test]
fn nothing_ticks_while_nobody_has_work() {
    let mut rounds = Rounds::default();
    at(&mut rounds, 0, [(true, 0), (true, 0)]);

    assert_eq!(at(&mut rounds, 1, [(false, 1), (false, 0)]), UNLIMITED);
}
