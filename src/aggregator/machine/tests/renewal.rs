//! Memory of a tenant that is gone is not reused before no process has it any more.

use super::*;
use gpuvmk_gpu::scrub::SCRUB_PIECE;

#[test]
fn partition_is_taken_from_its_window_when_its_vm_leaves() {
    let (mut machine, fake) = machine();
    let a = machine.admit(&hello("a"), T0).unwrap().tenant;

    machine.leave(a, false, T0);
    settle(&mut machine, T0);

    let renewed = std::mem::take(&mut fake.state().renewed);
    assert!(renewed.iter().all(|(_, size)| *size == SCRUB_PIECE));
    let starts: Vec<u64> = renewed.iter().map(|(start, _)| start.0).collect();
    let pieces: Vec<u64> = (64 * MIB..128 * MIB).step_by(usize::try_from(SCRUB_PIECE).unwrap()).collect();
    assert_eq!(starts, pieces);
    assert_eq!(outputs(&mut machine), [Output::Gone(a)]);
}

#[test]
fn partition_that_somebody_has_kept_is_withheld_and_nobody_looks_all_the_time() {
    let (mut machine, fake) = machine();
    let a = machine.admit(&hello("a"), T0).unwrap().tenant;
    fake.state().held = true;

    machine.leave(a, false, T0);
    settle(&mut machine, T0);

    assert_eq!(machine.status("fake").tenants[0].state, "withheld");
    let due = machine.next_due(T0).unwrap();
    assert!(due >= T0 + Duration::from_millis(20) && due < T0 + SECOND, "{due:?}");
    // The next one gets other memory, and no tenant gets the name.
    let b = machine.admit(&hello("b"), T0).unwrap().tenant;
    assert_eq!(fake.state().owners[&(128 * MIB)].1, Some(b));
    assert!(machine.admit(&hello("a"), T0).is_err());

    fake.state().held = false;
    settle(&mut machine, T0);
    assert_eq!(outputs(&mut machine), [], "it is not looked at again before it is due");
    settle(&mut machine, due);
    assert_eq!(outputs(&mut machine), [Output::Gone(a)]);
    let c = machine.admit(&hello("c"), due).unwrap().tenant;
    assert_eq!(fake.state().owners[&(64 * MIB)].1, Some(c));
}

/// What hardware may still reach is neither renewed nor given away.
#[test]
fn quarantined_partition_stays_as_it_is() {
    let (mut machine, fake) = machine();
    let a = machine.admit(&hello("a"), T0).unwrap().tenant;
    furnish(&mut machine, a);
    fake.state().stuck = true;

    machine.leave(a, false, T0);
    settle(&mut machine, SECOND);

    assert_eq!(fake.state().renewed, []);
}
