//! What the policy promises.

use super::super::tests::{Bench, ms, view};
use super::*;
use crate::share::Share;

fn weighted() -> Box<Weighted> {
    Box::new(Weighted::new(&Settings::default(), Duration::MAX))
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
    let both = Bench::with(weighted(), [cap(Some(30)), cap(None)]).shares(Duration::from_secs(2), |_| true);

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

/// Where it costs nothing to change over.
fn cutting() -> Box<dyn Policy> {
    Box::new(Weighted::new(&Settings::default(), Duration::ZERO))
}

fn us(n: u64) -> Duration {
    Duration::from_micros(n)
}

/// An engine that VM 1 always wants, looked at every 50 us. The last VM has work when `wants` says so, which
/// leaves the engine idle for 19 of 20 parts of its time. Returns how long each VM had the engine, and the
/// longest that the last one waited.
fn beside_busy(
    vms: u32,
    total: Duration,
    wants: impl Fn(Duration, Duration) -> bool,
) -> (Vec<Duration>, Duration) {
    const STEP: Duration = Duration::from_micros(50);
    let mut policy = cutting();
    let mut views: Vec<_> = (1..=vms).map(|vm| view(vm, vm < vms, 0)).collect();
    let mut had = vec![Duration::ZERO; views.len()];
    let (mut now, mut waits, mut longest, mut since) =
        (Duration::ZERO, Duration::ZERO, Duration::ZERO, Duration::ZERO);
    while now < total {
        let last = views.last_mut().unwrap();
        if wants(now, since) != last.ready {
            last.ready = !last.ready;
        }
        let ready = last.ready;
        let admitted = policy.decide(now, &views).admission;
        let (len, busy) = (views.len(), views.iter().filter(|view| view.ready).count());
        for (index, view) in views.iter_mut().enumerate().filter(|(_, view)| view.ready) {
            if admitted == Admission::Only(view.vm) || busy == 1 {
                had[index] += STEP;
                view.used += if index + 1 == len { STEP / 20 } else { STEP };
            }
        }
        let waited = ready && admitted != Admission::Only(TenantId(vms)) && admitted != Admission::All;
        waits = if waited { waits + STEP } else { Duration::ZERO };
        since = if ready && !waited { since + STEP } else { since };
        longest = longest.max(waits);
        now += STEP;
    }
    (had, longest)
}

#[test]
fn light_vm_does_not_wait_for_the_end_of_a_turn() {
    // 100 us of the engine every 10 ms.
    let wants = |now: Duration, had: Duration| had < us(100) * u32::try_from(now.as_millis() / 10).unwrap();

    let (had, longest) = beside_busy(2, Duration::from_secs(1), wants);

    assert!(longest <= us(50), "{longest:?}");
    assert!(had[1] >= ms(9), "{had:?}");
}

#[test]
fn who_leaves_the_engine_idle_has_no_more_of_its_time_than_his_weight_says() {
    for vms in [2, 3, 8] {
        let (had, _) = beside_busy(vms, Duration::from_secs(1), |_, _| true);

        let part = had.last().unwrap().as_secs_f64();
        let fair = 1.0 / f64::from(vms);
        assert!(part < fair * 1.1 && part > fair * 0.8, "{part} of {fair}");
    }
}

#[test]
fn turns_of_busy_vms_are_whole() {
    let mut bench = Bench::new(cutting(), &[100, 100, 100]);
    bench.shares(Duration::from_secs(1), |vm| vm == 1);
    let start = bench.now;
    // All three want all the time from now on: after a while none is behind.
    bench.turns(start + ms(100), |_| true);

    let turns = bench.turns(start + ms(200), |_| true);

    let whole = turns.iter().skip(1).rev().skip(1).filter(|(_, length)| *length >= ms(2)).count();
    assert!(whole + 3 >= turns.len(), "{turns:?}");
}

#[test]
fn turns_are_not_cut_where_changing_over_is_dear() {
    let mut policy = Weighted::new(&Settings::default(), us(150));
    let busy = policy.decide(ms(0), &[view(1, true, 0), view(2, false, 0), view(3, true, 0)]);
    let woken = policy.decide(ms(1), &[view(1, true, 1), view(2, true, 0), view(3, true, 0)]);

    assert_eq!(busy.admission, Admission::Only(TenantId(1)));
    assert_eq!(woken, Decision { admission: Admission::Only(TenantId(1)), review_after: Some(ms(1)) });
    assert!(!policy.cuts_turns() && cutting().cuts_turns());
}

#[test]
fn light_vm_is_not_kept_waiting_by_those_who_come_and_go() {
    let mut policy = cutting();
    // VM 1 has had the engine to itself.
    for now in 0..10 {
        policy.decide(ms(now), &[view(1, true, now)]);
    }
    for newcomer in 2..20 {
        let start = ms(10 * u64::from(newcomer));
        let both = |light, used| [view(1, light, 10), view(newcomer, true, used)];
        policy.decide(start, &both(false, 0));
        policy.decide(start + us(100), &both(true, 0));

        let decision = policy.decide(start + us(350), &both(true, 0));

        assert_eq!(decision.admission, Admission::Only(TenantId(1)), "beside VM {newcomer}");
    }
}

#[test]
fn who_wakes_up_waits_for_a_sixteenth_of_a_turn_and_who_has_waited_since_before_for_a_whole_one() {
    let decisions = |wakes: bool| {
        let mut policy = cutting();
        let mut decide = |now, used: [u64; 2], woke| {
            let second = VmView { woke, used: us(used[1]), ..view(2, true, 0) };
            policy.decide(us(now), &[VmView { used: us(used[0]), ..view(1, true, 0) }, second])
        };
        // Both wake up at once; then each has waited since before the other's turn.
        decide(0, [0, 0], false);
        decide(200, [200, 0], false);
        let waited = decide(2100, [200, 1900], false);
        decide(2200, [200, 2000], false);
        // VM 2 was idle in fact, and has new work when they are level.
        let woken = decide(4000, [2000, 2000], wakes);
        (waited.admission, woken, decide(4125, [2125, 2000], false).admission)
    };
    let [first, second] = [1, 2].map(|vm| Admission::Only(TenantId(vm)));

    let (waited, woken, later) = decisions(true);
    assert_eq!((waited, later), (second, second));
    assert_eq!(woken, Decision { admission: first, review_after: Some(us(125)) });
    let (_, level, later) = decisions(false);
    assert_eq!((level, later), (Decision { admission: first, review_after: Some(us(200)) }, first));
}
