//! Who may come, as what, and what stays of them.

use super::*;
use crate::EntryLimits;
use crate::claimant::Claimant;
use crate::machine::guests::{Guest, GuestList};
use crate::machine::settings::Order;
use gpuvmk_scheduler::Suspension;

const OWN: u32 = 900;
const ALICE: u32 = 1001;
const BOB: u32 = 1002;

fn of_user(uid: u32) -> Claimant {
    Claimant { uid, pid: i32::try_from(uid).unwrap() + 10_000, inside: false, door: None }
}

fn by_door(uid: u32, vm: &str) -> Claimant {
    Claimant { door: Some(vm.to_owned()), ..of_user(uid) }
}

fn without_list() -> (Machine, Fake) {
    let (machine, fake) = machine();
    (machine.with_guests(None, OWN), fake)
}

fn guest(uid: u32) -> Guest {
    let share = Share { weight: 200, cap: Some(50), ..Share::default() };
    let limits = EntryLimits { doorbells: 5000, mappings: 1 << 20, ..EntryLimits::default() };
    Guest { uid: Some(uid), door: false, vram: 64 * MIB, channels: 4, share, limits }
}

/// Alice may be `a`, Bob `b`, and any peer at its socket `c`.
fn with_list() -> (Machine, Fake) {
    let c = Guest { uid: None, door: true, ..guest(0) };
    let list: GuestList = [("a", guest(ALICE)), ("b", guest(BOB)), ("c", c)]
        .map(|(name, guest)| (name.to_owned(), guest))
        .into();
    let (machine, fake) = machine();
    (machine.with_guests(Some(list), OWN), fake)
}

fn small(name: &str) -> Hello {
    Hello { vram: 16 * MIB, channels: 1, ..hello(name) }
}

/// It goes, and its process with it.
fn gone(machine: &mut Machine, tenant: TenantId, now: Duration) {
    machine.leave(tenant, false, now);
    settle(machine, now);
    assert!(machine.tenants.get(tenant).is_none());
}

fn order(vm: &str, setting: &str) -> Order {
    Order { vm: Some(vm.to_owned()), settings: vec![setting.to_owned()] }
}

#[test]
fn one_user_is_one_tenant_whatever_it_calls_itself() {
    let (mut machine, _fake) = without_list();
    machine.admit_from(&small("a"), &of_user(ALICE), T0).unwrap();

    let mut again = of_user(ALICE);
    for number in 0..64 {
        again.pid = 20_000 + number;
        let hello = small(&format!("fresh{number}"));
        let refusal = machine.admit_from(&hello, &again, T0).unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::Name);
        assert!(refusal.message.contains("user 1001 has a VM at this GPU already, a"), "{refusal}");
        assert_eq!(machine.worth_waiting_for(&hello, &again, &refusal, T0), Wait::Briefly);
    }
    assert_eq!(machine.tenants.len(), 1);
    machine.admit_from(&small("b"), &of_user(BOB), T0).unwrap();
}

#[test]
fn one_process_of_the_own_user_has_a_quarter_of_the_places() {
    let (mut machine, _fake) = without_list();
    let vm = |number: usize| Hello { vram: 4 * MIB, channels: 1, ..hello(&format!("vm{number}")) };
    let admitted = (0..64).take_while(|n| machine.admit_from(&vm(*n), &of_user(OWN), T0).is_ok()).count();
    assert_eq!(admitted, 16);

    let refusal = machine.admit_from(&vm(16), &of_user(OWN), T0).unwrap_err();
    assert!(refusal.kind == RefusalKind::Quota && refusal.message.contains("16 VMs"), "{refusal}");
    assert_eq!(machine.worth_waiting_for(&vm(16), &of_user(OWN), &refusal, T0), Wait::No);
}

#[test]
fn stranger_may_not_raise_its_share_and_may_lower_it() {
    let (mut machine, _fake) = without_list();
    for share in [
        Share { weight: 10_000, ..Share::default() },
        Share { fixed: Some(90), ..Share::default() },
        Share { budget: Duration::from_millis(5), ..Share::default() },
    ] {
        let refusal = machine.admit_from(&Hello { share, ..small("a") }, &of_user(ALICE), T0).unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::Quota);
        assert!(refusal.message.contains("without [[vm]] sections"), "{refusal}");
    }
    let share = Share { weight: 50, cap: Some(10), ..Share::default() };
    let tenant = machine.admit_from(&Hello { share, ..small("a") }, &of_user(ALICE), T0).unwrap().tenant;
    let granted = machine.scheduler.share(tenant).unwrap();
    assert_eq!((granted.weight, granted.cap), (50, Some(10)));

    let heavy = Share { weight: 10_000, ..Share::default() };
    let own = machine.admit_from(&Hello { share: heavy, ..small("o") }, &of_user(OWN), T0).unwrap().tenant;
    assert_eq!(machine.scheduler.share(own).unwrap().weight, 10_000, "the own user is trusted with it");
}

#[test]
fn name_that_is_not_on_the_list_or_somebody_elses_is_refused() {
    let (mut machine, _fake) = with_list();
    for (name, claimant, said) in [
        ("x", of_user(ALICE), "user 1001 may be x here; it may be a"),
        ("b", of_user(ALICE), "it may be a"),
        ("a", of_user(OWN), "it may be none at this socket"),
        ("a", Claimant::this_process(), "it may be none"),
        ("c", of_user(ALICE), "it may be a"),
        ("a", by_door(ALICE, "c"), "it may be c"),
        ("b", by_door(BOB, "b"), "it may be none"),
    ] {
        let refusal = machine.admit_from(&hello(name), &claimant, T0).unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::Name, "{name}");
        assert!(refusal.message.contains(said), "{name}: {refusal}");
        assert_eq!(machine.worth_waiting_for(&hello(name), &claimant, &refusal, T0), Wait::No);
    }
    for (name, claimant) in [("a", of_user(ALICE)), ("b", of_user(BOB)), ("c", by_door(77, "c"))] {
        machine.admit_from(&small(name), &claimant, T0).unwrap();
        let refusal = machine.admit_from(&small(name), &claimant, T0).unwrap_err();
        assert!(refusal.message.contains("connected already"), "one tenancy each: {refusal}");
    }
}

#[test]
fn hello_may_ask_for_less_and_not_for_more() {
    let (mut machine, _fake) = with_list();
    let share = |share: Share| Hello { share, ..hello("a") };
    for (hello, said) in [
        (
            Hello { vram: 80 * MIB, ..hello("a") },
            "80 MiB of VRAM are asked for; the GPU's file allows a 64 MiB",
        ),
        (Hello { channels: 5, ..hello("a") }, "5 channels are asked for; the GPU's file allows a 4"),
        (share(Share { weight: 201, ..Share::default() }), "weight 201 is asked for, more than the 200"),
        (share(Share { cap: Some(51), ..Share::default() }), "cap 51 is asked for, more than the 50"),
    ] {
        let refusal = machine.admit_from(&hello, &of_user(ALICE), T0).unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::Quota);
        assert!(refusal.message.contains(said), "{refusal}");
    }

    let most = TenantLimits::default();
    let admitted = machine.admit_from(&Hello { limits: most, ..hello("a") }, &of_user(ALICE), T0).unwrap();
    let granted = machine.scheduler.share(admitted.tenant).unwrap();
    assert_eq!((granted.weight, granted.cap), (200, Some(50)), "what is not said is as granted");
    assert_eq!(admitted.doorbell_rate, 5000);
    assert_eq!(machine.tenants.get(admitted.tenant).unwrap().mapping_quota, 1 << 20);

    let less = TenantLimits { doorbells: 1000, mappings: 4096, ..most };
    let admitted = machine.admit_from(&Hello { limits: less, ..small("b") }, &of_user(BOB), T0).unwrap();
    assert_eq!(admitted.doorbell_rate, 1000);
    assert_eq!(machine.tenants.get(admitted.tenant).unwrap().mapping_quota, 4096);
}

#[test]
fn pause_and_settings_stay_with_whose_vm_it_is() {
    for (mut machine, claimant, next) in [
        (without_list().0, of_user(ALICE), "fresh"),
        (without_list().0, of_user(OWN), "a"),
        (with_list().0, of_user(ALICE), "a"),
    ] {
        let first = machine.admit_from(&small("a"), &claimant, T0).unwrap().tenant;
        machine.set(&order("a", "paused=yes"), T0).unwrap();
        machine.set(&order("a", "weight=1"), T0).unwrap();
        gone(&mut machine, first, T0);

        let again = machine.admit_from(&small(next), &claimant, T0).unwrap().tenant;

        assert!(machine.is_paused(again), "{claimant:?}");
        assert_eq!(machine.scheduler.share(again).unwrap().weight, 1);
        machine.set(&order(next, "paused=no"), T0).unwrap();
        gone(&mut machine, again, T0);
        let third = machine.admit_from(&small("a"), &claimant, T0).unwrap().tenant;
        assert!(!machine.is_paused(third), "an operator ended it");
    }
}

#[test]
fn penalty_for_hangs_is_not_shaken_off() {
    let (mut machine, _fake) = without_list();
    let first = machine.admit_from(&small("a"), &of_user(ALICE), T0).unwrap().tenant;
    for _ in 0..4 {
        let reason = gpuvmk_scheduler::hang::Reason::Unpreemptible;
        machine.charge_hang(first, "a channel", reason, None, false, SECOND);
    }
    gone(&mut machine, first, SECOND);

    let again = machine.admit_from(&small("fresh"), &of_user(ALICE), SECOND).unwrap().tenant;

    assert!(machine.scheduler.suspension(again).contains(Suspension::PENALTY));
    assert_eq!(machine.hangs.record(again).hangs, 4);
    machine.end_penalties(SECOND * 60);
    assert!(!machine.scheduler.suspension(again).contains(Suspension::PENALTY));
    let b = machine.admit_from(&small("b"), &of_user(BOB), SECOND).unwrap().tenant;
    assert!(!machine.scheduler.suspension(b).contains(Suspension::PENALTY), "others do not wait");
}

#[test]
fn fresh_names_do_not_evade_the_rate_of_zeroing() {
    let (mut machine, _fake) = without_list();
    let mut admitted = 0;
    for number in 0..40 {
        let hello = small(&format!("fresh{number}"));
        let Ok(tenant) = machine.admit_from(&hello, &of_user(ALICE), T0) else { break };
        gone(&mut machine, tenant.tenant, T0);
        admitted += 1;
    }
    assert!((4..40).contains(&admitted), "{admitted}");
    let refusal = machine.admit_from(&small("fresh"), &of_user(ALICE), T0).unwrap_err();
    assert!(matches!(
        machine.worth_waiting_for(&small("other"), &of_user(ALICE), &refusal, T0),
        Wait::Until(_)
    ));
    assert!(machine.admit_from(&small("b"), &of_user(BOB), T0).is_ok());
}

#[test]
fn process_that_stays_alive_is_not_waited_for_without_end() {
    let (mut machine, _fake) = without_list();
    let all = Hello { vram: machine.hardware.info.tenant_vram_size, ..small("a") };
    let first = machine.admit_from(&all, &of_user(ALICE), T0).unwrap().tenant;
    machine.leave(first, true, SECOND);
    settle(&mut machine, SECOND);

    let refusal = machine.admit_from(&small("b"), &of_user(BOB), SECOND).unwrap_err();
    let wait = |now| machine.worth_waiting_for(&small("b"), &of_user(BOB), &refusal, now);

    assert_eq!(wait(SECOND), Wait::Until(SECOND * 21));
    assert_eq!(wait(SECOND * 21), Wait::Briefly);
}

#[test]
fn list_changes_while_vms_work() {
    let (mut machine, _fake) = with_list();
    machine.allow_guest("d", guest(77)).unwrap();
    machine.admit_from(&small("d"), &of_user(77), T0).unwrap();
    let a = machine.admit_from(&small("a"), &of_user(ALICE), T0).unwrap().tenant;
    machine.forbid_guest("a").unwrap();
    assert!(machine.tenants.get(a).is_some(), "who is there stays");
    gone(&mut machine, a, T0);
    assert!(machine.admit_from(&small("a"), &of_user(ALICE), T0).is_err());

    assert!(machine.forbid_guest("x").unwrap_err().0.contains("there are b, c, d"));
    let door = Guest { door: true, ..guest(1) };
    assert!(machine.allow_guest("e", door).unwrap_err().0.contains("needs a restart"));
    let (mut machine, _fake) = without_list();
    assert!(machine.allow_guest("e", guest(1)).unwrap_err().0.contains("restart it"));
}

#[test]
fn status_names_the_list_and_whether_names_are_vouched_for() {
    let (mut machine, _fake) = with_list();
    machine.admit_from(&small("a"), &of_user(ALICE), T0).unwrap();
    let status = machine.status("fake");
    assert!(status.tenants[0].vouched && status.tenants[0].uid == ALICE);
    let listed = status.gpu.vms.unwrap();
    assert_eq!(listed[0], guest(ALICE).status("a"));
    assert_eq!(Guest::described(&listed[0]), Ok(guest(ALICE)));

    let (mut machine, _fake) = without_list();
    machine.admit_from(&small("a"), &of_user(ALICE), T0).unwrap();
    let status = machine.status("fake");
    assert!(!status.tenants[0].vouched && status.gpu.vms.is_none());
}
