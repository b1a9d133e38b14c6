//! Programs with convergence barriers, whose registers are read, written, saved and restored.

use gpuvmk_isa::warp_state::MACTIVE;

use super::assembler::{Assembler, FREE, LANE};
use super::control as c;
use crate::template as t;

const VALUE: u8 = FREE;
const SAVED: u8 = FREE + 1;
const SUM: u8 = FREE + 2;
const RETURN: u8 = FREE + 4;

fn barrier(asm: &mut Assembler, of: &str, number: u8) {
    asm.get(c::read_state(VALUE, number));
    asm.store(&format!("{of}B{number}"), VALUE);
}

fn active(asm: &mut Assembler, of: &str) {
    asm.get(c::read_state(VALUE, MACTIVE));
    asm.store(&format!("{of}MACTIVE"), VALUE);
}

/// All sixteen at once.
pub(super) fn nested(asm: &mut Assembler) {
    let ends: Vec<_> = (0..16).map(|_| asm.label()).collect();
    for (number, end) in (0..16).zip(&ends) {
        asm.near(c::meet_at(number), *end);
    }
    for number in 0..16 {
        barrier(asm, "set: ", number);
    }
    for (number, end) in (0..16).zip(&ends).rev() {
        asm.place(*end);
        asm.put(c::meet(number));
    }
    for number in 0..16 {
        barrier(asm, "after: ", number);
    }
}

/// Barriers of two groups, within one of all.
pub(super) fn in_branches(asm: &mut Assembler) {
    let (other, end) = (asm.label(), asm.label());
    asm.near(c::meet_at(0), end);
    asm.near_if(0, c::branch(), other);
    for (first, of) in [(1, "one: "), (2, "other: ")] {
        let (skip, met) = (asm.label(), asm.label());
        asm.near(c::meet_at(first), met);
        barrier(asm, of, first);
        asm.near_if(1, c::branch(), skip);
        active(asm, &format!("{of}within: "));
        asm.place(skip);
        asm.place(met);
        asm.put(c::meet(first));
        active(asm, of);
        barrier(asm, of, 0);
        if first == 1 {
            asm.near(c::branch(), end);
            asm.place(other);
        }
    }
    asm.place(end);
    asm.put(c::meet(0));
    active(asm, "all: ");
    for number in 0..3 {
        barrier(asm, "all: ", number);
    }
}

/// BMOV.32.CLEAR, and what is restored.
pub(super) fn taken(asm: &mut Assembler) {
    let end = asm.label();
    asm.near(c::meet_at(6), end);
    asm.get(c::take_barrier(SAVED, 6));
    asm.store("taken", SAVED);
    barrier(asm, "cleared: ", 6);
    asm.put(c::write_state(6, SAVED));
    barrier(asm, "restored: ", 6);
    asm.near_if(0, c::branch(), end);
    active(asm, "some: ");
    asm.place(end);
    asm.put(c::meet(6));
    active(asm, "all: ");
    // Taken under a guard.
    let end = asm.label();
    asm.near(c::meet_at(7), end);
    asm.put(t::move_immediate(SAVED, 0x55aa));
    asm.get(c::take_barrier(SAVED, 7).with(t::GUARD, 1));
    asm.store("taken under P1", SAVED);
    barrier(asm, "cleared under P1: ", 7);
    asm.get(c::read_state(VALUE, MACTIVE));
    asm.put(c::write_state(7, VALUE));
    asm.place(end);
    asm.put(c::meet(7));
}

/// BREAK of some lanes, which do not wait.
pub(super) fn left(asm: &mut Assembler) {
    let (out, end) = (asm.label(), asm.label());
    asm.near(c::meet_at(3), end);
    asm.put_if(1, c::leave(3));
    barrier(asm, "left by P1: ", 3);
    asm.near_if(1, c::branch(), out);
    asm.put(c::give_way());
    asm.place(end);
    asm.put(c::meet(3));
    active(asm, "those that stayed: ");
    barrier(asm, "those that stayed: ", 3);
    asm.place(out);
    asm.put(c::gather_all());
    active(asm, "all: ");
}

/// Lanes that end within a region.
pub(super) fn ended(asm: &mut Assembler) {
    let end = asm.label();
    asm.near(c::meet_at(1), end);
    asm.put_if(2, c::end());
    barrier(asm, "some have ended: ", 1);
    asm.near_if(0, c::branch(), end);
    active(asm, "some: ");
    asm.place(end);
    asm.put(c::meet(1));
    active(asm, "all: ");
    barrier(asm, "all: ", 1);
}

/// A mask that is written after BSSY's was taken.
pub(super) fn written(asm: &mut Assembler) {
    let (other, end) = (asm.label(), asm.label());
    asm.near(c::meet_at(4), end);
    asm.get(c::take_barrier(VALUE, 4));
    asm.get(c::read_state(SAVED, MACTIVE));
    asm.put(c::write_state(4, SAVED));
    asm.put(t::wait());
    asm.near_if(2, c::branch(), other);
    barrier(asm, "one: ", 4);
    asm.near(c::branch(), end);
    asm.place(other);
    active(asm, "other: ");
    asm.place(end);
    asm.put(c::meet(4));
    active(asm, "all: ");
    barrier(asm, "all: ", 4);
}

/// Values that nobody waits by: lanes have different ones, and some write under a guard.
pub(super) fn values(asm: &mut Assembler) {
    asm.put(t::multiply_add(SAVED, LANE, 0x0101, LANE));
    for (number, guard) in [(5, 7), (8, 1), (9, 9), (10, 2), (15, 15)] {
        asm.put(t::move_immediate(VALUE, 0x00c0_ffee));
        asm.put(c::write_state(number, VALUE));
        asm.put(t::wait());
        asm.put_if(guard, c::write_state(number, SAVED));
        asm.put(t::wait());
        barrier(asm, &format!("guard {guard}: "), number);
    }
    asm.put(t::move_immediate(VALUE, 0));
    for number in [5, 8, 9, 10, 15] {
        asm.put(c::write_state(number, VALUE));
    }
    asm.put(t::wait());
}

/// A function that saves a barrier, has it for itself, and restores it, called by some lanes that others wait
/// for at the same barrier: as compiled recursion does.
pub(super) fn saved(asm: &mut Assembler) {
    let (function, met, end) = (asm.label(), asm.label(), asm.label());
    let (second, over) = (asm.label(), asm.label());
    asm.put(t::move_immediate(SUM, 1));
    asm.near(c::meet_at(6), met);
    asm.near_if(8, c::branch(), met);
    asm.near(c::address_of(RETURN), second);
    asm.near(c::call_near(), function);
    asm.place(second);
    barrier(asm, "after the call: ", 6);
    asm.place(met);
    asm.put(c::meet(6));
    active(asm, "all: ");
    asm.store("sum", SUM);
    asm.near(c::branch(), over);

    asm.place(function);
    asm.get(c::take_barrier(SAVED, 6));
    asm.store("saved", SAVED);
    asm.near(c::meet_at(6), end);
    barrier(asm, "within: ", 6);
    asm.near_if(2, c::branch(), end);
    active(asm, "within: ");
    asm.put(t::multiply_add(SUM, SUM, 5, LANE));
    asm.place(end);
    asm.put(c::meet(6));
    active(asm, "before the end: ");
    asm.put(c::write_state(6, SAVED));
    asm.put(t::wait());
    asm.put(t::multiply_add(SUM, SUM, 7, LANE));
    asm.put(c::back_to(RETURN));
    asm.place(over);
}
