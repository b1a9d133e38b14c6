//! The words of a warp's state: lanes that are hidden while others call a function.

use gpuvmk_isa::warp_state::{FIRST, MACTIVE, MEXITED, OPT_STACK};

use crate::warp::{Wait, Warp};

fn warp(threads: u32) -> Warp {
    let mut warp = Warp::default();
    warp.start(16, 0x1000, threads, 0);
    warp
}

#[test]
fn lanes_that_count_as_ended_do_not_run_until_they_are_back() {
    let mut warp = warp(32);
    warp.branch(0x2000, 0x0000_00ff);
    assert!(warp.set_word(MEXITED, 0xffff_ff00));
    assert_eq!(warp.word(MEXITED), Some(0xffff_ff00));
    warp.rotate();
    assert_eq!(warp.group.mask, 0xff, "nobody else may run");
    // Those that are left go different ways, and meet again.
    warp.branch(0x3000, 0x0f);
    warp.park(Wait::Lanes(0xff));
    assert_eq!(warp.group.mask, 0xf0);
    warp.park(Wait::Lanes(0xff));
    assert!(warp.is_split() || warp.group.mask == 0xff);
    let running = warp.group.mask;
    assert!(!warp.set_word(MEXITED, running), "lanes that run do not end by it");
    warp.exit(running);
    assert!(warp.set_word(MEXITED, running));
    warp.exit(warp.group.mask);
    assert_eq!(warp.group.mask, 0xffff_ff00, "the others are back");
    assert_eq!(warp.group.pc, 0x1000);
}

#[test]
fn who_waits_among_hidden_lanes_is_left_alone() {
    let mut warp = warp(32);
    *warp.barrier(3) = 0xff;
    warp.branch(0x2000, 0x0f);
    warp.park(Wait::Convergence(3));
    warp.branch(0x3000, 0xff00);
    assert!(warp.set_word(MEXITED, !0xff00));
    warp.exit(0);
    assert_eq!(warp.group.mask, 0xff00);
    assert!(warp.set_word(MEXITED, 0));
    assert_eq!(warp.word(MACTIVE), Some(0xff00));
}

#[test]
fn nothing_ends_or_begins_by_a_word() {
    let mut warp = warp(8);
    assert_eq!(warp.word(MEXITED), Some(0xffff_ff00));
    assert!(warp.set_word(MACTIVE, !0xffff_ff00));
    assert!(warp.set_word(MACTIVE, u32::MAX), "lanes that there are not do not run");
    assert!(!warp.set_word(MACTIVE, 0x0f));
    assert!(!warp.set_word(MEXITED, 0), "lanes that there are not cannot come back");
    assert_eq!(warp.word(99), None);
    assert!(!warp.set_word(99, 0));
    assert!(warp.set_word(OPT_STACK, 7));
    assert_eq!(warp.word(OPT_STACK), Some(0), "nobody has to go on");
    warp.start(16, 0, 32, 0);
    warp.part(0x2000, 0xcccc_cccc);
    assert_eq!((warp.word(OPT_STACK), warp.word(MEXITED)), (Some(0x0200_0002), Some(0)));
    warp.give_way();
    assert_eq!((warp.word(OPT_STACK), warp.word(FIRST + 1)), (Some(0), Some(0x3333_3333)));
}

#[test]
fn a_barrier_that_a_call_uses_for_others_leaves_those_waiting_that_it_was_for() {
    let mut warp = warp(32);
    *warp.barrier(6) = 0xff;
    warp.branch(0x2000, 0x0f);
    warp.park(Wait::Convergence(6));
    warp.branch(0x3000, 0xf0);
    // Its lanes call a function, which saves the barrier, has it for themselves, and restores it.
    let saved = *warp.barrier(6);
    *warp.barrier(6) = 0x30;
    warp.branch(0x3010, 0x10);
    warp.park(Wait::Convergence(6));
    warp.branch(0x3020, 0x20);
    warp.park(Wait::Convergence(6));
    assert_eq!(warp.group.mask & 0x0f, 0, "those before wait still");
    *warp.barrier(6) = saved;
    let mut left = 0xf0_u32;
    while left != 0 {
        let mask = warp.group.mask & left;
        assert_ne!(mask, 0, "{left:x} did not run");
        left &= !mask;
        warp.branch(0x4000, mask);
        warp.park(Wait::Convergence(6));
    }
    let mut seen = warp.group.mask;
    while seen & 0xff != 0xff {
        let before = seen;
        warp.rotate();
        seen |= warp.group.mask;
        assert_ne!(before, seen, "{seen:x} of all run");
    }
}

#[test]
fn states_tell_who_runs_and_at_which_barrier_others_wait() {
    let mut warp = warp(16);
    let states =
        |warp: &mut Warp| -> Vec<u32> { (0..5).map(|bit| warp.word(FIRST + bit).unwrap()).collect() };
    assert_eq!(states(&mut warp), [0xffff, 0, 0, 0, 0]);
    *warp.barrier(5) = 0xffff;
    warp.branch(0x2000, 0x00f0);
    warp.park(Wait::Convergence(5));
    assert_eq!(states(&mut warp), [0xffff, 0, 0x00f0, 0, 0x00f0]);
    warp.exit(0x0003);
    assert_eq!(states(&mut warp), [0xfffc, 0, 0x00f0, 0, 0x00f0]);
    assert!(warp.set_word(FIRST, 0xffff));
    warp.park(Wait::Convergence(5));
    assert_eq!(states(&mut warp), [0xfffc, 0, 0, 0, 0]);
    assert_eq!(*warp.barrier(5), 0, "who has met at a barrier leaves nothing in it");
}

#[test]
fn nobody_waits_at_a_barrier_for_lanes_that_have_yielded() {
    let mut warp = warp(16);
    warp.set_barrier(2);
    warp.branch(0x2000, 0x000f);
    warp.meet(2);
    assert_eq!(warp.group.mask, 0xfff0, "others have yet to come");
    warp.branch(0x3000, 0x0ff0);
    warp.give_way();
    assert_eq!(warp.group.mask, 0xf000, "who can run does before those wait no more");
    warp.give_way();
    assert_eq!((warp.group.mask, warp.group.pc), (0x000f, 0x2000));
    warp.exit(0x000f);
    assert_eq!(warp.group.mask, 0x0ff0, "who has yielded first");
    warp.meet(2);
    assert_eq!(warp.group.mask, 0x0ff0, "it goes on");
    warp.set_barrier(2);
    warp.give_way();
    assert_eq!(warp.group.mask, 0xf000);
    warp.meet(2);
    assert_eq!(warp.group.mask, 0xf000, "the barrier is that of others now");
}

#[test]
fn who_is_alone_and_yields_goes_on() {
    let mut warp = warp(4);
    warp.give_way();
    assert_eq!((warp.group.mask, warp.word(FIRST + 1)), (0xf, Some(0)));
}
