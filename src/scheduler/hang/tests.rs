//! Samples of made-up hardware, and what the watchdog says of them.

use super::*;

const A: HostChannel = HostChannel(1);
const B: HostChannel = HostChannel(2);
const GR: Engine = Engine::Graphics;
const MS: Duration = Duration::from_millis(1);

fn limits() -> HangLimits {
    HangLimits {
        hold: MS * 100,
        preempt: MS * 200,
        progress: Some(MS * 5000),
        acquire: Some(MS * 3000),
        ..HangLimits::default()
    }
}

fn channel(channel: HostChannel, gp_get: u32) -> Watched {
    let vm = TenantId(u32::from(channel.0));
    Watched { channel, vm, engines: EngineSet::GRAPHICS, gp_get, admitted: true }
}

/// Samples every millisecond until there is a verdict, or until `end`; when it came.
fn watch(
    dog: &mut Watchdog,
    from: u32,
    end: u32,
    runs: impl Fn(u32) -> Option<HostChannel>,
    channels: impl Fn(u32) -> Vec<Watched>,
) -> Option<(u32, Verdict)> {
    (from..end).find_map(|at| {
        dog.observe(MS * at, &[(GR, runs(at))], &channels(at)).first().map(|verdict| (at, *verdict))
    })
}

#[test]
fn channel_that_does_not_leave_is_asked_and_then_hung() {
    let mut dog = Watchdog::new(limits());
    let both = |_| vec![channel(A, 0), channel(B, 0)];

    let asked = watch(&mut dog, 0, 1000, |_| Some(A), both);
    let hung = watch(&mut dog, 101, 1000, |_| Some(A), both);

    assert_eq!(asked, Some((100, Verdict::Ask(A))));
    let hang = Hang { channel: A, vm: TenantId(1), engine: GR, reason: Reason::Unpreemptible };
    assert_eq!(hung, Some((300, Verdict::Hung(hang))));
    assert_eq!(watch(&mut dog, 301, 1000, |_| Some(A), both), None, "it is told once");
}

#[test]
fn channel_that_leaves_when_asked_goes_on_with_its_work() {
    let mut dog = Watchdog::new(limits());
    let both = |_| vec![channel(A, 0), channel(B, 0)];
    assert_eq!(watch(&mut dog, 0, 1000, |_| Some(A), both), Some((100, Verdict::Ask(A))));
    watch(&mut dog, 101, 290, |_| Some(A), both);

    dog.left(A);

    assert_eq!(watch(&mut dog, 290, 310, |_| Some(B), both), None);
    assert_eq!(watch(&mut dog, 310, 409, |_| Some(A), both), None, "its time begins anew");
}

/// A driver that guesses takes a channel with long work for the holder all the time, while another one's
/// short work is done in between.
#[test]
fn channel_beside_one_that_gets_on_is_not_asked() {
    let served = |every: u32| {
        let mut dog = Watchdog::new(limits());
        watch(&mut dog, 0, 1000, |_| Some(A), |at| vec![channel(A, at / 10), channel(B, at / every)])
    };
    assert_eq!(served(1), None);
    assert_eq!(served(99), None);
    assert_eq!(served(101), Some((100, Verdict::Ask(A))), "it waited for too long");
}

#[test]
fn channels_that_take_turns_hang_only_by_their_own_limit() {
    let mut dog = Watchdog::new(limits());
    let both = |at: u32| vec![channel(A, 0), channel(B, at / 50)];

    let hung = watch(&mut dog, 0, 20_000, |at| Some(if at / 10 % 2 == 0 { A } else { B }), both);

    // A had the engine for half of the time.
    let Some((at, Verdict::Hung(hang))) = hung else { panic!("{hung:?}") };
    assert_eq!((hang.channel, hang.reason), (A, Reason::NoProgress));
    assert!((9_900..10_100).contains(&at), "{at}");
}

#[test]
fn channel_alone_may_hold_its_engine_until_its_limit() {
    let mut dog = Watchdog::new(limits());
    let hung = watch(&mut dog, 0, 20_000, |_| Some(A), |_| vec![channel(A, 0)]);
    assert!(matches!(hung, Some((5000, Verdict::Hung(Hang { reason: Reason::NoProgress, .. })))), "{hung:?}");

    let mut dog = Watchdog::new(HangLimits { progress: None, ..limits() });
    assert_eq!(watch(&mut dog, 0, 20_000, |_| Some(A), |_| vec![channel(A, 0)]), None);
}

#[test]
fn own_channels_of_a_vm_do_not_make_it_hang() {
    let mut dog = Watchdog::new(limits());
    let both = |_| vec![channel(A, 0), Watched { vm: TenantId(1), ..channel(B, 0) }];
    assert_eq!(watch(&mut dog, 0, 2000, |_| Some(A), both), None);
}

#[test]
fn one_that_wants_another_engine_or_is_not_admitted_waits_for_nobody() {
    for other in
        [Watched { engines: EngineSet::COPY1, ..channel(B, 0) }, Watched { admitted: false, ..channel(B, 0) }]
    {
        let mut dog = Watchdog::new(limits());
        assert_eq!(watch(&mut dog, 0, 2000, |_| Some(A), |_| vec![channel(A, 0), other]), None);
    }
}

#[test]
fn acquire_that_nobody_releases_is_hung_after_its_limit() {
    let mut dog = Watchdog::new(limits());
    let hung = watch(&mut dog, 0, 20_000, |_| None, |_| vec![channel(A, 7)]);
    assert!(
        matches!(hung, Some((3000, Verdict::Hung(Hang { reason: Reason::StuckAcquire, .. })))),
        "{hung:?}"
    );
}

#[test]
fn time_in_which_a_channel_may_not_run_is_not_its_own() {
    let mut dog = Watchdog::new(limits());
    let barred = |_| vec![Watched { admitted: false, ..channel(A, 0) }];
    assert_eq!(watch(&mut dog, 0, 20_000, |_| None, barred), None);
}

#[test]
fn progress_of_the_ring_begins_all_limits_anew() {
    let mut dog = Watchdog::new(limits());
    let moves = |at: u32| vec![channel(A, at / 2500)];
    assert_eq!(watch(&mut dog, 0, 20_000, |_| None, moves), None);
    assert_eq!(watch(&mut dog, 20_000, 40_000, |_| Some(A), moves), None);
}

#[test]
fn pause_of_the_machine_is_no_hang() {
    let mut dog = Watchdog::new(limits());
    let both = [channel(A, 0), channel(B, 0)];
    for minute in 0..4 {
        let now = Duration::from_secs(60 * minute);
        assert_eq!(dog.observe(now, &[(GR, Some(A))], &both).len(), usize::from(minute == 2));
    }
}

#[test]
fn what_the_scheduler_asks_counts_as_asked() {
    let mut dog = Watchdog::new(limits());
    let alone = |_| vec![Watched { admitted: false, ..channel(A, 0) }];
    watch(&mut dog, 0, 10, |_| Some(A), alone);

    dog.note_preemption(A);

    let hung = watch(&mut dog, 10, 1000, |_| Some(A), alone);
    assert!(
        matches!(hung, Some((209, Verdict::Hung(Hang { reason: Reason::Unpreemptible, .. })))),
        "{hung:?}"
    );
}

#[test]
fn watches_end_with_the_work() {
    let mut dog = Watchdog::new(limits());
    watch(&mut dog, 0, 100, |_| Some(A), |_| vec![channel(A, 0), channel(B, 0)]);
    dog.observe(MS * 100, &[(GR, None)], &[channel(B, 0)]);
    assert_eq!(dog.watches.len(), 1);
    dog.rest();
    assert_eq!(dog.watches.len(), 0);
}
