//! Programs that read a warp's words: which lanes run, have ended, and in what state each is.

use gpuvmk_isa::warp_state::{FIRST, MACTIVE, MEXITED, OPT_STACK, THREAD_STATE_LAST};

use super::assembler::{Assembler, FREE, LANE};
use super::control as c;
use crate::template as t;

const VALUE: u8 = FREE;
const MASK: u8 = FREE + 1;

/// Stores a word.
fn word(asm: &mut Assembler, of: &str, name: &str, number: u8) {
    asm.get(c::read_state(VALUE, number));
    asm.store(&format!("{of}{name}"), VALUE);
}

/// Stores which lanes run, and which have ended.
fn lanes(asm: &mut Assembler, of: &str) {
    word(asm, of, "MACTIVE", MACTIVE);
    word(asm, of, "MEXITED", MEXITED);
}

/// Stores the word about groups that did not go on.
pub(super) fn stack(asm: &mut Assembler, of: &str) {
    word(asm, of, "OPT_STACK", OPT_STACK);
}

/// Stores all words that NVIDIA's code reads outside of its trap handler.
pub(super) fn all(asm: &mut Assembler, of: &str) {
    lanes(asm, of);
    for (index, number) in (FIRST..=THREAD_STATE_LAST).enumerate() {
        word(asm, of, &format!("THREAD_STATE_ENUM.{index}"), number);
    }
    stack(asm, of);
}

/// All lanes run.
pub(super) fn together(asm: &mut Assembler) {
    all(asm, "");
}

/// Some have ended.
pub(super) fn after_exit(asm: &mut Assembler) {
    asm.put_if(1, c::end());
    all(asm, "");
    asm.put_if(8, c::end());
    all(asm, "after another: ");
}

/// Two groups, and all of them afterwards.
pub(super) fn in_branches(asm: &mut Assembler) {
    let (other, end) = (asm.label(), asm.label());
    asm.near(c::meet_at(0), end);
    asm.near_if(1, c::branch(), other);
    all(asm, "one: ");
    asm.near(c::branch(), end);
    asm.place(other);
    all(asm, "other: ");
    asm.place(end);
    asm.put(c::meet(0));
    all(asm, "all: ");
}

/// Two groups, of one of which half ends.
pub(super) fn exit_in_branch(asm: &mut Assembler) {
    let (other, end) = (asm.label(), asm.label());
    asm.near(c::meet_at(0), end);
    asm.near_if(0, c::branch(), other);
    asm.put_if(1, c::end());
    lanes(asm, "those that stay: ");
    asm.near(c::branch(), end);
    asm.place(other);
    lanes(asm, "the others: ");
    asm.place(end);
    asm.put(c::meet(0));
    all(asm, "all: ");
}

/// Lanes leave a loop one after the other.
pub(super) fn in_loop(asm: &mut Assembler) {
    let (again, end) = (asm.label(), asm.label());
    let (count, sum, zero, less) = (FREE + 2, FREE + 3, FREE + 4, FREE + 5);
    asm.put(t::move_immediate(zero, 0));
    asm.put(t::move_immediate(less, u32::MAX));
    asm.put(t::move_immediate(sum, 0));
    asm.put(t::and_immediate(count, LANE, 7));
    asm.near(c::meet_at(2), end);
    asm.place(again);
    asm.get(c::read_state(VALUE, MACTIVE));
    asm.store("MACTIVE of its last turn", VALUE);
    asm.put(t::multiply_add(sum, sum, 3, VALUE));
    asm.put(t::differ(4, count, zero));
    asm.put(t::multiply_add(count, count, 1, less));
    asm.near_if(4, c::branch(), again);
    asm.place(end);
    asm.put(c::meet(2));
    asm.store("sum of masks", sum);
    all(asm, "");
}

/// Reads under a guard.
pub(super) fn guarded(asm: &mut Assembler) {
    for (name, number) in [("MACTIVE", MACTIVE), ("MEXITED", MEXITED)] {
        asm.put(t::move_immediate(VALUE, 0x1234_5678));
        asm.get(c::read_state(VALUE, number).with(t::GUARD, 1));
        asm.store(&format!("{name} under P1"), VALUE);
        asm.put(t::move_immediate(VALUE, 0x1234_5678));
        asm.get(c::read_state(VALUE, number).with(t::GUARD, 15));
        asm.store(&format!("{name} under none"), VALUE);
    }
}

/// As NVIDIA's start of a cooperative grid does: all lanes run that have not ended.
pub(super) fn lanes_written(asm: &mut Assembler) {
    asm.get(c::read_state(VALUE, MACTIVE));
    asm.put(c::write_state_by_quads(MACTIVE, VALUE));
    asm.put(t::wait());
    all(asm, "by quads: ");
    asm.get(c::read_state(VALUE, MEXITED));
    asm.put(t::invert(MASK, VALUE));
    asm.put(c::write_state(MACTIVE, MASK));
    asm.put(t::wait());
    all(asm, "those that have not ended: ");
}

/// WARPSYNC of two groups that went different ways.
pub(super) fn gathered(asm: &mut Assembler) {
    let end = asm.label();
    asm.put(t::move_immediate(MASK, u32::MAX));
    asm.near_if(1, c::branch(), end);
    lanes(asm, "some: ");
    asm.place(end);
    asm.put(c::gather_all());
    all(asm, "all: ");
    let end = asm.label();
    asm.near_if(10, c::branch(), end);
    lanes(asm, "some by a mask: ");
    asm.place(end);
    asm.put(c::gather(MASK));
    lanes(asm, "all by a mask: ");
}
