use super::*;
use crate::machine::settings::{EffectiveSettings, Order};
use gpuvmk_chip::addr::GuestChannel;

fn order(vm: Option<&str>, settings: &[&str]) -> Order {
    Order { vm: vm.map(str::to_owned), settings: settings.iter().map(|text| (*text).to_owned()).collect() }
}

#[test]
fn settings_of_a_vm_hold_at_once_and_show() {
    let (mut machine, ..) = two_tenants();

    let in_force = machine.set(&order(Some("a"), &["weight=300", "cap=40"]), T0).unwrap();

    let EffectiveSettings::Vm { vm, share, paused: false } = in_force else { panic!("{in_force:?}") };
    assert_eq!((vm.as_str(), share.weight, share.cap), ("a", 300, Some(40)));
    let status = machine.status("soft");
    let shown = status.tenant("a").unwrap().share.unwrap();
    assert_eq!(shown, share);
}

#[test]
fn one_wrong_setting_leaves_all_as_they_were() {
    let (mut machine, _fake, a, _b) = two_tenants();
    let before = machine.scheduler.share(a);

    for (wrong, why) in [("cap=0", "1 to 100"), ("weigth=5", "weight=1..10000"), ("budget=20001", "period")] {
        let error = machine.set(&order(Some("a"), &["weight=300", wrong]), T0).unwrap_err();
        assert!(error.0.contains(why), "{error}");
    }

    assert_eq!(machine.scheduler.share(a), before);
}

#[test]
fn monitor_is_told_to_its_vm_once_all_settings_are_good() {
    let (mut machine, _fake, a, _b) = two_tenants();
    let told = |machine: &mut Machine| {
        let outputs = outputs(machine).into_iter();
        outputs.filter(|output| matches!(output, Output::Event(..))).collect::<Vec<_>>()
    };

    for (wrong, why) in [
        ("display=8000x8000", "display=8000x8000: a screen of 8000x8000 has a side"),
        ("display=large", "or display=off"),
        ("weight=0", "weight"),
    ] {
        let error = machine.set(&order(Some("a"), &["display=1024x768", wrong]), T0).unwrap_err();
        assert!(error.0.contains(why), "{error}");
        assert_eq!(told(&mut machine), []);
    }
    machine.set(&order(Some("a"), &["display=1024x768"]), T0).unwrap();
    assert_eq!(told(&mut machine), [Output::Event(a, Event::Monitor(Some((1024, 768))))]);
    machine.set(&order(Some("a"), &["display=off"]), T0).unwrap();
    assert_eq!(told(&mut machine), [Output::Event(a, Event::Monitor(None))]);
}

#[test]
fn unknown_vm_is_refused_with_those_that_are_there() {
    let (mut machine, _fake, ..) = two_tenants();

    let error = machine.set(&order(Some("c"), &["weight=1"]), T0).unwrap_err();

    assert_eq!(error.0, "No VM named c is connected; a, b");
}

#[test]
fn policy_changes_while_vms_are_there() {
    let (mut machine, _fake, ..) = two_tenants();

    let in_force = machine.set(&order(None, &["policy=best-effort", "slice=4000"]), T0).unwrap();

    let slice_us = Some(4000);
    assert_eq!(
        in_force,
        EffectiveSettings::Gpu { policy: "best-effort", slice_us, period_us: None, draining: false }
    );
    assert_eq!(machine.status("soft").gpu.policy, "best-effort");
    assert!(machine.set(&order(None, &["policy=none"]), T0).is_err());
}

#[test]
fn part_of_the_memory_is_the_part_of_the_gpu_unless_another_is_wanted() {
    let (mut machine, _fake, ..) = two_tenants();
    let half = machine.hardware.info.tenant_vram_size / 4 / MIB * MIB;
    let wanted = Hello { vram: half, ..hello("c") };
    let c = machine.admit(&wanted, T0).unwrap().tenant;
    let other = Hello { share: Share { fixed: Some(7), ..Share::default() }, ..hello("d") };
    let d = machine.admit(&other, T0).unwrap().tenant;

    let fixed = |id| machine.scheduler.share(id).unwrap().fixed;
    assert!(fixed(c).is_some_and(|percent| (20..=25).contains(&percent)), "{:?}", fixed(c));
    assert_eq!(fixed(d), Some(7));
}

#[test]
fn paused_vm_waits_and_goes_on_where_it_was() {
    let (mut machine, fake, a, b) = two_tenants();
    let ring = |machine: &mut Machine, tenant, gp_put| {
        machine.doorbell(tenant, Doorbell { channel: GuestChannel(0), gp_put }, 0, T0);
    };
    machine.set(&order(Some("a"), &["paused=yes"]), T0).unwrap();
    ring(&mut machine, a, 1);
    ring(&mut machine, b, 1);
    assert_eq!(fake.state().rung.len(), 1, "only the other's doorbell");
    assert!(machine.status("fake").tenants[0].paused);

    machine.set(&order(Some("a"), &["paused=no"]), T0).unwrap();
    assert_eq!(fake.state().rung.len(), 2);
    let error = machine.set(&order(Some("a"), &["paused=maybe"]), T0).unwrap_err();
    assert!(error.to_string().contains("paused is yes or no"), "{error}");
}

#[test]
fn gpu_that_is_drained_admits_nobody_and_those_who_are_there_stay() {
    let (mut machine, _fake, a, _) = two_tenants();
    machine.set(&order(None, &["draining=yes"]), T0).unwrap();
    let refusal = machine.admit(&hello("late"), T0).unwrap_err();

    assert!(refusal.message.contains("gpuvmk drain --undo"), "{refusal:?}");
    assert_eq!(machine.worth_waiting(&hello("late"), &refusal, T0), Wait::No);
    let status = machine.status("fake");
    assert!(status.gpu.draining && status.gpu.types.iter().all(|one| one.available_instances == 0));
    done(&mut machine, a, Request::CreateSpace(SpaceId(5)));

    machine.set(&order(None, &["draining=no"]), T0).unwrap();
    assert!(machine.admit(&hello("late"), T0).is_ok());
}
