//! Programs whose control goes to addresses: calls, jumps, tables, and where an instruction lies.

use gpuvmk_isa::Word;
use gpuvmk_isa::warp_state::MACTIVE;

use super::assembler::{Assembler, FREE, LANE, Label};
use super::control as c;
use super::{AT_CODE, DISTANCE};
use crate::template as t;

const VALUE: u8 = FREE;
const SUM: u8 = FREE + 1;
/// Pairs.
const WHERE: u8 = FREE + 2;
const RETURN: u8 = FREE + 4;
const CODE: u8 = FREE + 6;
const OFFSET: u8 = FREE + 8;

fn active(asm: &mut Assembler, of: &str) {
    asm.get(c::read_state(VALUE, MACTIVE));
    asm.store(&format!("{of}MACTIVE"), VALUE);
}

/// Stores how far an address is from where the code begins.
fn distance(asm: &mut Assembler, what: &str, pair: u8) {
    asm.get(t::constant_pair(CODE, AT_CODE));
    let [low, high] = t::wide_difference(OFFSET, pair, CODE, 6);
    asm.put(low);
    asm.put(high);
    asm.store(&format!("{what}, low"), OFFSET);
    asm.store(&format!("{what}, high"), OFFSET + 1);
}

/// LEPC, with a label and without.
pub(super) fn here(asm: &mut Assembler) {
    let (before, behind) = (asm.label(), asm.label());
    asm.place(before);
    asm.put(c::here(WHERE));
    distance(asm, "here", WHERE);
    asm.near(c::address_of(WHERE), behind);
    distance(asm, "behind", WHERE);
    asm.near(c::address_of(WHERE), before);
    distance(asm, "before", WHERE);
    asm.get(t::constant_pair(WHERE, AT_CODE));
    asm.near_if(1, c::address_of(WHERE), behind);
    distance(asm, "behind under P1", WHERE);
    asm.place(behind);
    asm.put(c::here(WHERE));
    distance(asm, "at its end", WHERE);
}

/// A function that tells by what was called, and goes back to the address in a pair.
fn function(asm: &mut Assembler, at: Label, factor: u32, name: &str) {
    asm.place(at);
    active(asm, name);
    asm.put(t::multiply_add(SUM, SUM, factor, LANE));
    asm.put(c::back_to(RETURN));
}

/// CALL.ABS by a register, which some lanes do.
pub(super) fn call(asm: &mut Assembler) {
    let (one, second, met, over) = (asm.label(), asm.label(), asm.label(), asm.label());
    asm.put(t::move_immediate(SUM, 2));
    asm.near(c::address_of(WHERE), one);
    asm.near(c::address_of(RETURN), second);
    asm.near(c::meet_at(0), met);
    asm.near_if(1, c::branch(), met);
    asm.put(c::call(WHERE));
    asm.place(second);
    active(asm, "after: ");
    asm.place(met);
    asm.put(c::meet(0));
    active(asm, "all: ");
    asm.store("sum", SUM);
    asm.near(c::branch(), over);
    function(asm, one, 3, "within: ");
    asm.place(over);
}

/// CALL.ABS by a register that has another address for some lanes.
pub(super) fn call_each(asm: &mut Assembler) {
    let (one, other, second, over) = (asm.label(), asm.label(), asm.label(), asm.label());
    asm.put(t::move_immediate(SUM, 2));
    asm.near(c::address_of(WHERE), one);
    asm.near_if(0, c::address_of(WHERE), other);
    asm.near(c::address_of(RETURN), second);
    asm.near(c::meet_at(0), second);
    asm.put(c::call(WHERE));
    asm.place(second);
    asm.put(c::meet(0));
    active(asm, "all: ");
    asm.store("sum", SUM);
    asm.near(c::branch(), over);
    function(asm, one, 3, "one: ");
    function(asm, other, 5, "other: ");
    asm.place(over);
}

/// CALL.ABS of an address in the instruction.
pub(super) fn call_at(asm: &mut Assembler) {
    let (one, second, over) = (asm.label(), asm.label(), asm.label());
    asm.put(t::move_immediate(SUM, 2));
    asm.near(c::address_of(RETURN), second);
    asm.near(c::meet_at(0), second);
    asm.far(c::call_at().with(t::GUARD, 1), one);
    active(asm, "not called: ");
    asm.place(second);
    asm.put(c::meet(0));
    active(asm, "all: ");
    asm.store("sum", SUM);
    asm.near(c::branch(), over);
    function(asm, one, 9, "within: ");
    asm.place(over);
}

/// RET.REL to where CALL.REL was, with the distance to the code's begin.
pub(super) fn call_near(asm: &mut Assembler) {
    let (begin, one, second, over) = (asm.label(), asm.label(), asm.label(), asm.label());
    asm.place(begin);
    asm.put(t::move_immediate(SUM, 2));
    asm.distance(RETURN, begin, second);
    asm.near(c::call_near(), one);
    active(asm, "jumped over: ");
    asm.place(second);
    active(asm, "all: ");
    asm.store("sum", SUM);
    asm.near(c::branch(), over);
    asm.place(one);
    active(asm, "within: ");
    asm.put(t::multiply_add(SUM, SUM, 11, LANE));
    asm.near(c::back(RETURN), begin);
    asm.place(over);
}

/// JMP by constant memory, which some lanes do.
pub(super) fn jump(asm: &mut Assembler) {
    let (there, end) = (asm.label(), asm.label());
    let at = asm.address(there);
    asm.put(t::move_immediate(SUM, 2));
    asm.near(c::meet_at(0), end);
    asm.put_if(2, c::jump_by_constant(at));
    active(asm, "not: ");
    asm.put(t::multiply_add(SUM, SUM, 3, LANE));
    asm.near(c::branch(), end);
    asm.place(there);
    active(asm, "there: ");
    asm.put(t::multiply_add(SUM, SUM, 5, LANE));
    asm.place(end);
    asm.put(c::meet(0));
    active(asm, "all: ");
    asm.store("sum", SUM);
}

/// Four places, each of which changes the sum in its way, and goes to the end.
fn places(asm: &mut Assembler, first: Label, end: Label) {
    for (index, factor) in [3, 5, 7, 11].into_iter().enumerate() {
        if index == 0 {
            asm.place(first);
        }
        asm.put(t::multiply_add(SUM, SUM, factor, LANE));
        asm.near(c::branch(), end);
        // Each is as long as the others.
        (2..DISTANCE).for_each(|_| asm.put(t::wait()));
    }
}

/// BRX by a table: each lane has its own of four places.
pub(super) fn table(asm: &mut Assembler) {
    let (first, end) = (asm.label(), asm.label());
    asm.put(t::move_immediate(SUM, 2));
    asm.put(t::and_immediate(WHERE, LANE, 3));
    asm.put(t::move_immediate(VALUE, 0));
    asm.put(t::multiply_add(WHERE, WHERE, DISTANCE * 16, VALUE));
    asm.put(t::move_immediate(WHERE + 1, 0));
    asm.near(c::meet_at(0), end);
    asm.near(c::branch_by(WHERE), first);
    places(asm, first, end);
    asm.place(end);
    asm.put(c::meet(0));
    active(asm, "all: ");
    asm.store("sum", SUM);
}

/// BRXU: a warp has one of four places.
pub(super) fn table_of_warp(asm: &mut Assembler) {
    const UNIFORM: u8 = 4;
    for index in 0..4 {
        let (first, end) = (asm.label(), asm.label());
        asm.put(t::move_immediate(SUM, 2));
        asm.put(t::uniform_immediate(UNIFORM, index * DISTANCE * 16));
        asm.put(t::uniform_immediate(UNIFORM + 1, 0));
        asm.put(t::wait());
        asm.near(c::branch_by_uniform(UNIFORM), first);
        places(asm, first, end);
        asm.place(end);
        asm.store(&format!("sum of place {index}"), SUM);
        active(asm, &format!("place {index}: "));
    }
}

/// BRA.DIV with all lanes, and with those of one branch.
pub(super) fn divergent(asm: &mut Assembler) {
    asked(asm, c::branch_if_divergent);
}

/// The same with BRA.CONV.
pub(super) fn converged(asm: &mut Assembler) {
    asked(asm, c::branch_if_converged);
}

/// A branch that depends on whether all lanes of a mask are there.
fn asked(asm: &mut Assembler, branch: fn(u8) -> Word) {
    const UNIFORM: u8 = 4;
    let ask = |asm: &mut Assembler, what: &str, mask: u32| {
        let there = asm.label();
        asm.put(t::uniform_immediate(UNIFORM, mask));
        asm.put(t::wait());
        asm.put(t::move_immediate(SUM, 1));
        asm.near(branch(UNIFORM), there);
        asm.put(t::move_immediate(SUM, 2));
        asm.place(there);
        asm.store(&format!("{what}, mask {mask:x}"), SUM);
    };
    for mask in [u32::MAX, 0xffff, 0xaaaa_aaaa, 1, 0] {
        ask(asm, "all", mask);
    }
    let end = asm.label();
    asm.near(c::meet_at(0), end);
    asm.near_if(0, c::branch(), end);
    for mask in [u32::MAX, 0x5555, 0x5555_5555, 0xaaaa_aaaa, 1, 2] {
        ask(asm, "even lanes", mask);
    }
    asm.place(end);
    asm.put(c::meet(0));
    ask(asm, "all again", u32::MAX);
}

/// BRA.U.ANY: all go where one wants to.
pub(super) fn any(asm: &mut Assembler) {
    together(asm, c::branch_if_any());
}

/// BRA.U: all go where all want to. NVIDIA's start of a cooperative grid has such.
pub(super) fn uniform(asm: &mut Assembler) {
    together(asm, c::branch_if_all());
}

/// A branch that all lanes take, or none does.
fn together(asm: &mut Assembler, branch: Word) {
    for (what, guard) in [("P0", 0), ("P1", 1), ("PT", 7), ("none", 15)] {
        let there = asm.label();
        asm.put(t::move_immediate(SUM, 1));
        asm.near_if(guard, branch, there);
        asm.put(t::move_immediate(SUM, 2));
        asm.place(there);
        asm.put(c::gather_all());
        asm.store(what, SUM);
    }
    // Of the lanes of one branch, none or one wants to.
    let end = asm.label();
    asm.near(c::meet_at(0), end);
    asm.near_if(0, c::branch(), end);
    for (what, guard) in [("even, P0", 0), ("even, P1", 1)] {
        let there = asm.label();
        asm.put(t::move_immediate(SUM, 1));
        asm.near_if(guard, branch, there);
        asm.put(t::move_immediate(SUM, 2));
        asm.place(there);
        asm.put(t::wait());
        asm.store(what, SUM);
    }
    asm.place(end);
    asm.put(c::meet(0));
    active(asm, "all: ");
}
