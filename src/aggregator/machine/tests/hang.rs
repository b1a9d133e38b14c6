//! Channels that make no progress, and VMs whose channels do it again and again.

use super::*;
use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_chip::channel_event::{self, ChannelStop, HangKind};
use gpuvmk_scheduler::HangLimits;

const MS: Duration = Duration::from_millis(1);

fn ring(machine: &mut Machine, tenant: TenantId, now: Duration) {
    machine.doorbell(tenant, Doorbell { channel: GuestChannel(0), gp_put: 1 }, 0, now);
}

/// Lets time pass, with every step as it is due, until `until` or `end`; the time then.
fn pass(
    machine: &mut Machine,
    from: Duration,
    end: Duration,
    mut until: impl FnMut(&mut Machine) -> bool,
) -> Duration {
    let mut now = from;
    while now < end && !until(machine) {
        machine.gpu_events(now);
        let more = machine.step(now);
        let due = machine.next_due(now).unwrap_or(end).max(now + MS / 10);
        now = if more { now } else { due.min(end) };
    }
    now
}

/// Two tenants of which the first has work on the engine that it does not leave.
fn hog_and_neighbour(config: HangLimits) -> (Machine, Fake, TenantId, TenantId) {
    let (gpu, fake) = FakeGpu::new();
    let ledger: Arc<dyn OwnershipLedger> = Arc::new(fake.clone());
    let scheduler = Scheduler::new(PolicyKind::Fifo, Settings::default());
    let mut machine = Machine::new(Box::new(gpu), Some(ledger), scheduler).with_hang(config);
    let a = machine.admit(&hello("a"), T0).unwrap().tenant;
    let b = machine.admit(&hello("b"), T0).unwrap().tenant;
    for tenant in [a, b] {
        furnish(&mut machine, tenant);
    }
    let host = host_of(&fake, 64 * MIB);
    let mut state = fake.state();
    (state.yields, state.fetched, state.running) = (false, Some(0), Some(host));
    drop(state);
    for tenant in [a, b] {
        ring(&mut machine, tenant, T0);
    }
    (machine, fake, a, b)
}

fn told(engine: Engine, kind: HangKind) -> Event {
    Event::Stopped(ChannelStop::new(GuestChannel(0), channel_event::Hang { engine, kind }))
}

fn record(machine: &Machine, name: &str) -> (u64, u64, u64) {
    let status = machine.status("fake");
    let tenant = status.tenants.into_iter().find(|tenant| tenant.name == name).unwrap();
    (tenant.hangs, tenant.engine_resets, tenant.hang_penalty_ms)
}

#[test]
fn channel_that_keeps_others_from_its_engine_is_taken_off_and_its_guest_told() {
    let (mut machine, fake, a, b) = hog_and_neighbour(HangLimits::default());
    let host = host_of(&fake, 64 * MIB);

    let asked = pass(&mut machine, T0, SECOND, |_| !fake.state().preempting.is_empty());
    let gone = pass(&mut machine, asked, SECOND, |_| !fake.state().channels.contains_key(&host));

    assert!((MS * 100..MS * 110).contains(&asked), "{asked:?}");
    assert!((MS * 300..MS * 320).contains(&gone), "{gone:?}");
    assert_eq!(fake.state().forced, [host]);
    assert_eq!(fake.state().runlist.len(), 1, "the neighbour stays");
    assert_eq!(outputs(&mut machine), [Output::Event(a, told(Engine::Graphics, HangKind::Engine))]);
    assert_eq!((record(&machine, "a"), record(&machine, "b")), ((1, 1, 0), (0, 0, 0)));
    // Its guest gives it up and makes another one.
    done(&mut machine, a, Request::DestroyChannel(GuestChannel(0)));
    done(&mut machine, a, create_channel(0));
    done(&mut machine, b, Request::Preempt(GuestChannel(0)));
}

#[test]
fn acquire_that_nobody_releases_ends_with_another_word() {
    let config = HangLimits { acquire: Some(MS * 500), ..HangLimits::default() };
    let (mut machine, fake, a, b) = hog_and_neighbour(config);
    fake.state().running = None;
    machine.leave(b, false, T0);
    settle(&mut machine, T0);
    outputs(&mut machine);

    pass(&mut machine, T0, SECOND, |_| false);

    let told_a = Output::Event(a, told(Engine::Graphics, HangKind::Acquire));
    assert_eq!(outputs(&mut machine), [Output::Gone(b), told_a]);
}

#[test]
fn repeated_hangs_hold_their_vm_up_and_nobody_else() {
    let config = HangLimits { penalty: MS * 400, ..HangLimits::default() };
    let (mut machine, fake, a, b) = hog_and_neighbour(config);
    let mut now = pass(&mut machine, T0, SECOND, |_| !fake.state().forced.is_empty());
    done(&mut machine, a, Request::DestroyChannel(GuestChannel(0)));
    done(&mut machine, a, create_channel(0));
    done(&mut machine, a, Request::EnableChannel { channel: GuestChannel(0), enabled: true });
    done(&mut machine, a, Request::SetRunlist(vec![GuestChannel(0)]));
    let second = host_of(&fake, 64 * MIB);
    fake.state().running = Some(second);
    ring(&mut machine, a, now);
    now = pass(&mut machine, now, SECOND, |_| fake.state().forced.len() == 2);
    assert_eq!(record(&machine, "a"), (2, 2, 400));

    // The third channel's work waits.
    fake.state().running = None;
    done(&mut machine, a, Request::DestroyChannel(GuestChannel(0)));
    done(&mut machine, a, create_channel(0));
    done(&mut machine, a, Request::EnableChannel { channel: GuestChannel(0), enabled: true });
    done(&mut machine, a, Request::SetRunlist(vec![GuestChannel(0)]));
    let third = host_of(&fake, 64 * MIB);
    fake.state().rung.clear();
    ring(&mut machine, a, now);
    ring(&mut machine, b, now);
    let rung = |fake: &Fake| fake.state().rung.iter().any(|(channel, _)| *channel == third);
    assert!(!rung(&fake));
    assert!(!fake.state().runlist.contains(&third));
    assert_eq!(fake.state().rung.len(), 1, "the neighbour's doorbell goes through");
    let after = pass(&mut machine, now, now + SECOND, |_| rung(&fake));

    // The time that counts is that of the step before `now`.
    assert!((MS * 398..MS * 410).contains(&(after - now)), "{:?}", after - now);
    assert!(fake.state().runlist.contains(&third));
}

#[test]
fn engine_that_does_not_come_back_costs_its_vm_everything() {
    let (mut machine, fake, a, _) = hog_and_neighbour(HangLimits::default());
    fake.state().stuck = true;

    pass(&mut machine, T0, SECOND, |_| false);

    let status = machine.status("fake");
    assert_eq!(
        status.tenants[0].fail_safe.as_ref().map(|state| state.reason.as_ref()),
        Some("hardware_failed")
    );
    assert_eq!(status.tenants[1].fail_safe, None);
    assert!(outputs(&mut machine).contains(&Output::Event(a, told(Engine::Graphics, HangKind::Engine))));
}
