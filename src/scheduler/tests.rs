use super::*;
use gpuvmk_chip::EngineSet;

const A: TenantId = TenantId(1);
const B: TenantId = TenantId(2);
const GRAPHICS: Engine = Engine::Graphics;
const COPY: Engine = Engine::COPY0;

fn us(n: u64) -> Duration {
    Duration::from_micros(n)
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn host(n: u16) -> HostChannel {
    HostChannel(n)
}

/// VM A with channels 1 (graphics) and 11 (copy), VM B with channels 2 and 12.
fn two_vms(kind: PolicyKind) -> Scheduler {
    furnished(Scheduler::seeded(kind, Settings::default(), 7))
}

/// The same, by weight, on a GPU that changes over in 10 us.
fn two_vms_on_a_fast_gpu() -> Scheduler {
    furnished(Scheduler::seeded(PolicyKind::Weighted, Settings::default(), 7).with_switch_time(us(10)))
}

fn furnished(mut scheduler: Scheduler) -> Scheduler {
    for (vm, number) in [(A, 1), (B, 2)] {
        scheduler.add_vm(vm, Share::default()).unwrap();
        scheduler.add_channel(host(number), vm, GRAPHICS.into(), 9);
        scheduler.add_channel(host(number + 10), vm, COPY.into(), 9);
        scheduler.set_list(vm, vec![host(number), host(number + 10)]);
    }
    scheduler
}

/// Looks and decides as often as it is due until `end`; `running` says what engines run at a time.
fn run(
    scheduler: &mut Scheduler,
    end: Duration,
    running: impl Fn(Duration) -> Vec<(Engine, Option<HostChannel>)>,
    fetched: impl Fn(HostChannel) -> u32,
) {
    while let Some(now) = scheduler.next_due().filter(|due| *due < end) {
        if scheduler.sample_due(now) {
            scheduler.sample(now, &running(now), &[], |channel| Some(fetched(channel)));
        }
        if scheduler.decide(now).is_some() {
            scheduler.cut(now, &running(now), &[]);
        }
    }
}

/// Whether channels of `vm` on the engine's list may be on the runlist now.
fn admits(scheduler: &Scheduler, vm: TenantId, engine: Engine) -> bool {
    scheduler.lists.get(&engine).is_none_or(|list| list.admission.admits(vm))
}

#[test]
fn fifo_rings_at_once_and_lists_everybody() {
    let mut scheduler = two_vms(PolicyKind::Fifo);

    assert_eq!(scheduler.doorbell(host(1), 1, ms(0)), Gate::Ring);
    assert_eq!(scheduler.doorbell(host(2), 1, ms(0)), Gate::Ring);
    assert_eq!(scheduler.runlist(), [1, 11, 2, 12].map(host));
}

#[test]
fn doorbell_of_an_unknown_channel_is_held() {
    let mut scheduler = two_vms(PolicyKind::Fifo);

    assert_eq!(scheduler.doorbell(host(9), 1, ms(0)), Gate::Hold);
    assert_eq!(scheduler.next_due(), None);
}

#[test]
fn nothing_is_due_once_nobody_is_busy() {
    let mut scheduler = two_vms(PolicyKind::BestEffort);
    assert_eq!(scheduler.next_due(), None);

    scheduler.doorbell(host(1), 4, ms(7));
    scheduler.decide(ms(7));
    assert!(scheduler.next_due().is_some_and(|due| due >= ms(7) && due <= ms(8)));
    run(&mut scheduler, ms(100), |_| vec![(GRAPHICS, None)], |_| 4);

    assert_eq!(scheduler.next_due(), None);
}

#[test]
fn second_busy_vm_waits_and_is_rung_in_its_turn() {
    let mut scheduler = two_vms(PolicyKind::BestEffort);
    assert_eq!(scheduler.doorbell(host(1), 1, ms(0)), Gate::Decide);
    assert_eq!(scheduler.decide(ms(0)).unwrap().ring, [(host(1), 1)]);

    assert_eq!(scheduler.doorbell(host(2), 5, ms(1)), Gate::Decide);
    let meet = scheduler.decide(ms(1)).unwrap();
    let turn = scheduler.decide(ms(2)).unwrap();

    // The copy engine's list does not matter here.
    let runlist = Some([1, 11, 12].map(host).to_vec());
    let switches = vec![(GRAPHICS, Admission::Only(A))];
    assert_eq!(meet, Change { runlist, switches, ..Change::default() });
    assert_eq!(turn.switches, [(GRAPHICS, Admission::Only(B))]);
    assert_eq!(turn.runlist.unwrap(), [11, 2, 12].map(host));
    assert_eq!((turn.preempt, turn.ring), (vec![host(1)], vec![(host(2), 5)]));
    let waits = scheduler.accounts(B).next().unwrap().1.wait_summary();
    assert!((990_000..=1_010_000).contains(&waits.p99), "{waits:?}");
}

#[test]
fn later_doorbells_of_one_who_waits_need_no_decision() {
    let mut scheduler = two_vms(PolicyKind::BestEffort);
    for (channel, at) in [(1, 0), (2, 1)] {
        scheduler.doorbell(host(channel), 1, ms(at));
        scheduler.decide(ms(at));
    }

    assert_eq!(scheduler.doorbell(host(2), 2, ms(1)), Gate::Hold);
    assert_eq!(scheduler.decide(ms(2)).unwrap().ring, [(host(2), 2)]);
}

#[test]
fn engines_are_shared_apart_from_each_other() {
    let mut scheduler = two_vms(PolicyKind::BestEffort);
    scheduler.doorbell(host(1), 1, ms(0));
    scheduler.decide(ms(0));
    scheduler.doorbell(host(12), 1, ms(0));

    let change = scheduler.decide(ms(0)).unwrap();

    assert_eq!(change, Change { ring: vec![(host(12), 1)], ..Change::default() });
    assert!(admits(&scheduler, A, GRAPHICS) && admits(&scheduler, B, COPY));
}

#[test]
fn time_is_accounted_to_the_vm_and_the_engine() {
    let mut scheduler = two_vms(PolicyKind::Fifo);
    scheduler.doorbell(host(1), 1, ms(0));
    scheduler.doorbell(host(12), 1, ms(0));

    run(
        &mut scheduler,
        ms(101),
        |now| vec![(GRAPHICS, Some(host(1))), (COPY, (now < ms(50)).then_some(host(12)))],
        |_| 0,
    );

    let used = |vm, engine| scheduler.accounts(vm).find(|(e, _)| *e == engine).unwrap().1.used;
    assert!(used(A, GRAPHICS).abs_diff(ms(100)) <= ms(1), "{:?}", used(A, GRAPHICS));
    assert!(used(B, COPY).abs_diff(ms(50)) <= ms(1), "{:?}", used(B, COPY));
    assert_eq!(scheduler.used_by_all(), scheduler.used(A) + scheduler.used(B));
}

#[test]
fn what_a_channel_uses_of_other_engines_is_charged_to_its_list_once() {
    let mut scheduler = two_vms(PolicyKind::Fifo);
    let both = EngineSet::from(GRAPHICS) | EngineSet::from(COPY);
    scheduler.add_channel(host(3), A, both, 9);
    scheduler.doorbell(host(3), 1, ms(0));

    let engines = [(GRAPHICS, Some(host(3))), (COPY, Some(host(3)))];
    scheduler.cut(ms(4), &engines, &[]);
    scheduler.cut(ms(6), &[(GRAPHICS, None), (COPY, Some(host(3)))], &[]);

    let account = |engine| scheduler.accounts(A).find(|(e, _)| *e == engine).unwrap().1;
    assert_eq!((account(GRAPHICS).used, account(COPY).used), (ms(4), ms(6)));
    assert_eq!((account(GRAPHICS).charged, account(COPY).charged), (ms(6), ms(0)));
}

#[test]
fn pauses_are_not_accounted() {
    let mut scheduler = two_vms(PolicyKind::Fifo);
    scheduler.doorbell(host(1), 1, ms(0));
    run(&mut scheduler, ms(10), |_| vec![(GRAPHICS, None)], |_| 1);

    scheduler.doorbell(host(1), 2, ms(500));
    scheduler.cut(ms(501), &[(GRAPHICS, Some(host(1)))], &[]);

    assert_eq!(scheduler.used(A), ms(1));
}

#[test]
fn channel_that_waits_for_a_semaphore_takes_no_turn_and_stays_listed() {
    let mut scheduler = two_vms(PolicyKind::BestEffort);
    for channel in [1, 2] {
        scheduler.doorbell(host(channel), 1, ms(0));
        scheduler.decide(ms(0));
    }
    // A has its engine and leaves it idle; nothing of B runs before it is B's turn.
    let seen = |scheduler: &Scheduler| vec![(GRAPHICS, admits(scheduler, B, GRAPHICS).then_some(host(2)))];
    for t in 1..200 {
        let engines = seen(&scheduler);
        scheduler.sample(us(100 * t), &engines, &[], |_| Some(0));
        scheduler.decide(us(100 * t));
    }

    let waits = scheduler.accounts(A).next().unwrap().1;
    assert!(waits.wanting < ms(6), "it was seen through: {:?}", waits.wanting);
    assert!(scheduler.used(B) > ms(15), "{:?}", scheduler.used(B));
    assert!(scheduler.runlist().contains(&host(1)));
    assert_eq!(scheduler.doorbell(host(1), 2, ms(20)), Gate::Ring, "hardware waits: it may know");

    // The semaphore is released: it runs, and has to wait for its turn as others do.
    scheduler.sample(ms(21), &[(GRAPHICS, Some(host(1)))], &[], |_| Some(0));
    let change = scheduler.decide(ms(21)).unwrap();
    assert!(change.preempt.contains(&host(1)) || change.preempt.contains(&host(2)), "{change:?}");
}

#[test]
fn turn_of_one_who_is_done_ends_at_once_when_hardware_tells() {
    let mut scheduler = two_vms(PolicyKind::BestEffort);
    for channel in [1, 2] {
        scheduler.doorbell(host(channel), 1, ms(0));
        scheduler.decide(ms(0));
    }
    scheduler.sample(us(10), &[(GRAPHICS, Some(host(1)))], &[], |_| Some(0));

    scheduler.work_done();
    let mut looks = 0;
    while !admits(&scheduler, B, GRAPHICS) {
        let now = scheduler.next_due().unwrap();
        assert!(now < us(400), "{now:?}");
        scheduler.sample(now, &[(GRAPHICS, None)], &[], |channel| Some(u32::from(channel == host(1))));
        scheduler.decide(now);
        looks += 1;
    }
    assert!(looks >= 2, "one look may fall between two engines");
}

/// A's channel has fetched everything, no engine works, and there was no notification: looks and decides
/// until B is admitted.
fn until_b_is_admitted(scheduler: &mut Scheduler, mut now: Duration) -> Duration {
    loop {
        scheduler.sample(now, &[(GRAPHICS, None)], &[], |channel| Some(u32::from(channel == host(1))));
        scheduler.decide(now);
        if admits(scheduler, B, GRAPHICS) {
            return now;
        }
        now = scheduler.next_due().unwrap();
    }
}

#[test]
fn who_wakes_up_does_not_wait_long_for_one_whose_end_nobody_told_of() {
    let mut scheduler = two_vms_on_a_fast_gpu();
    assert_eq!(scheduler.doorbell(host(1), 1, ms(0)), Gate::Decide);
    scheduler.decide(ms(0));

    assert_eq!(scheduler.doorbell(host(2), 1, us(500)), Gate::Decide);
    assert!(scheduler.looks_at_wakeups());

    assert!(until_b_is_admitted(&mut scheduler, us(500)) <= us(600));
}

#[test]
fn new_work_of_one_who_counts_as_busy_and_is_off_the_list_brings_a_decision() {
    let mut scheduler = two_vms_on_a_fast_gpu();
    for channel in [2, 1] {
        scheduler.doorbell(host(channel), 1, ms(0));
        scheduler.decide(ms(0));
    }
    // B is done, without a notification, and A has the engine now.
    scheduler.sample(us(100), &[(GRAPHICS, Some(host(1)))], &[], |_| Some(1));
    while !admits(&scheduler, A, GRAPHICS) || admits(&scheduler, B, GRAPHICS) {
        let now = scheduler.next_due().unwrap();
        scheduler.sample(now, &[(GRAPHICS, Some(host(1)))], &[], |_| Some(1));
        scheduler.decide(now);
    }

    assert_eq!(scheduler.doorbell(host(2), 2, ms(8)), Gate::Decide);
    assert_eq!(scheduler.doorbell(host(2), 3, ms(8)), Gate::Hold, "once is enough");
}

#[test]
fn nobody_waits_for_the_turn_of_a_channel_that_has_gone() {
    let mut scheduler = two_vms_on_a_fast_gpu();
    for channel in [1, 2] {
        scheduler.doorbell(host(channel), 1, ms(0));
        scheduler.decide(ms(0));
    }
    scheduler.sample(us(100), &[(GRAPHICS, Some(host(1)))], &[], |_| Some(0));
    assert!(!admits(&scheduler, B, GRAPHICS));

    scheduler.remove_channel(host(1));

    assert!(scheduler.next_due().unwrap() <= us(200));
    scheduler.decide(us(200));
    assert!(admits(&scheduler, B, GRAPHICS));
}

#[test]
fn work_too_short_to_be_seen_has_turns_again_once_it_goes_on() {
    let mut scheduler = two_vms_on_a_fast_gpu();
    scheduler.doorbell(host(2), 1, ms(0));
    scheduler.decide(ms(0));
    // Hardware is slow to begin, which looks like a wait.
    run(&mut scheduler, ms(10), |_| vec![(GRAPHICS, None)], |_| 0);
    scheduler.doorbell(host(1), 1, ms(10));
    scheduler.decide(ms(10));
    assert!(admits(&scheduler, A, GRAPHICS) && admits(&scheduler, B, GRAPHICS), "one waits");

    // It was done between two looks.
    run(&mut scheduler, ms(20), |_| vec![(GRAPHICS, Some(host(1)))], |_| 1);

    assert!(!admits(&scheduler, A, GRAPHICS) || !admits(&scheduler, B, GRAPHICS), "turns are taken");
}

#[test]
fn policy_changes_while_vms_work() {
    let mut scheduler = two_vms(PolicyKind::Fifo);
    for channel in [1, 2] {
        assert_eq!(scheduler.doorbell(host(channel), 1, ms(0)), Gate::Ring);
    }

    scheduler.set_policy(PolicyKind::BestEffort, Settings::default()).unwrap();
    let change = scheduler.decide(ms(1)).unwrap();
    assert_eq!((change.preempt, scheduler.policy()), (vec![host(2)], "best-effort"));

    scheduler.set_policy(PolicyKind::Fifo, Settings::default()).unwrap();
    assert_eq!(scheduler.decide(ms(2)).unwrap().runlist.unwrap(), [1, 11, 2, 12].map(host));
}

#[test]
fn wrong_share_changes_nothing() {
    let mut scheduler = two_vms(PolicyKind::Fifo);

    let refused = scheduler.set_share(A, Share { weight: 0, ..Share::default() });

    assert!(refused.is_err());
    assert_eq!(scheduler.share(A), Some(Share::default()));
}

#[test]
fn removed_channel_leaves_list_and_work_behind() {
    let mut scheduler = two_vms(PolicyKind::BestEffort);
    scheduler.doorbell(host(1), 1, ms(0));

    scheduler.remove_channel(host(1));

    assert_eq!(scheduler.runlist(), [11, 2, 12].map(host));
    assert_eq!(scheduler.next_due(), None);
}
