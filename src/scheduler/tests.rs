use super::policy::{Fifo, RoundRobin};
use super::*;

const A: TenantId = TenantId(1);
const B: TenantId = TenantId(2);

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn host(n: u16) -> HostChannel {
    HostChannel(n)
}

/// VM A with channel 1, VM B with channel 2.
fn two_vms(policy: Box<dyn Policy>) -> Scheduler {
    let mut scheduler = Scheduler::new(policy);
    for (vm, channel) in [(A, host(1)), (B, host(2))] {
        scheduler.add_vm(vm, 100);
        scheduler.add_channel(channel, vm);
        scheduler.set_list(vm, vec![channel]);
    }
    scheduler
}

#[test]
fn fifo_rings_at_once_and_lists_everybody() {
    let mut scheduler = two_vms(Box::new(Fifo));

    assert_eq!(scheduler.doorbell(host(1), 1), Gate::Ring);
    assert_eq!(scheduler.doorbell(host(2), 1), Gate::Ring);
    assert_eq!(scheduler.runlist(), [host(1), host(2)]);
}

#[test]
fn doorbell_of_an_unknown_channel_is_held() {
    let mut scheduler = two_vms(Box::new(Fifo));

    assert_eq!(scheduler.doorbell(host(9), 1), Gate::Hold);
    assert_eq!(scheduler.next_due(ms(0)), None);
}

#[test]
fn nothing_is_due_while_nobody_is_busy() {
    let mut scheduler = two_vms(Box::new(RoundRobin::default()));
    assert_eq!(scheduler.next_due(ms(7)), None);

    scheduler.doorbell(host(1), 4);
    scheduler.note_activity(ms(7));
    scheduler.decide(ms(7));
    assert_eq!(scheduler.next_due(ms(7)), Some(ms(8)));
    for t in [8, 9] {
        scheduler.sample(ms(t), &[None], |_| Some(4));
    }
    scheduler.decide(ms(9));

    assert_eq!(scheduler.next_due(ms(9)), None);
}

#[test]
fn second_busy_vm_waits_and_is_rung_in_its_turn() {
    let mut scheduler = two_vms(Box::new(RoundRobin::default()));
    assert_eq!(scheduler.doorbell(host(1), 1), Gate::Hold);
    assert_eq!(scheduler.decide(ms(0)).unwrap().ring, [(host(1), 1)]);

    assert_eq!(scheduler.doorbell(host(2), 5), Gate::Hold);
    let meet = scheduler.decide(ms(1)).unwrap();
    let turn = scheduler.decide(ms(4)).unwrap();

    assert_eq!(meet, Change { runlist: vec![host(1)], preempt: vec![], ring: vec![] });
    assert_eq!(turn, Change { runlist: vec![host(2)], preempt: vec![host(1)], ring: vec![(host(2), 5)] });
}

#[test]
fn time_is_accounted_to_the_vm_whose_channel_runs() {
    let mut scheduler = two_vms(Box::new(Fifo));
    scheduler.doorbell(host(1), 1);
    scheduler.doorbell(host(2), 1);
    scheduler.note_activity(ms(0));

    scheduler.sample(ms(1), &[Some(host(1)), Some(host(2))], |_| Some(0));
    scheduler.sample(ms(2), &[Some(host(1)), None], |_| Some(0));

    assert_eq!((scheduler.used(A), scheduler.used(B)), (ms(2), ms(1)));
    assert_eq!(scheduler.used_by_all(), ms(3));
}

#[test]
fn pauses_are_not_accounted() {
    let mut scheduler = two_vms(Box::new(Fifo));
    scheduler.doorbell(host(1), 1);
    scheduler.note_activity(ms(0));
    for t in [1, 2] {
        scheduler.sample(ms(t), &[None], |_| Some(1));
    }

    scheduler.doorbell(host(1), 2);
    scheduler.note_activity(ms(500));
    scheduler.sample(ms(501), &[Some(host(1))], |_| Some(1));

    assert_eq!(scheduler.used(A), ms(1));
}

#[test]
fn removed_channel_leaves_list_and_work_behind() {
    let mut scheduler = two_vms(Box::new(RoundRobin::default()));
    scheduler.doorbell(host(1), 1);

    scheduler.remove_channel(host(1));

    assert_eq!(scheduler.runlist(), [host(2)]);
    assert_eq!(scheduler.next_due(ms(0)), None);
}
