//! Who waits for lanes that have yielded, or sleep: programs whose groups take a ticket each.

use gpuvmk_isa::Word;
use gpuvmk_isa::warp_state::MACTIVE;

use super::assembler::{Assembler, FREE};
use super::control as c;
use super::orders::{begin, ticket};
use super::states;
use crate::template as t;

const VALUE: u8 = FREE;
const ALL: u8 = FREE + 8;

/// Stores a convergence barrier, and which lanes run.
fn look(asm: &mut Assembler, of: &str, barrier: u8) {
    asm.get(c::read_state(VALUE, barrier));
    asm.store(&format!("{of}: B{barrier}"), VALUE);
    asm.get(c::read_state(VALUE, MACTIVE));
    asm.store(&format!("{of}: MACTIVE"), VALUE);
}

/// A group waits, and the other one gives way.
fn waited(asm: &mut Assembler, way: Word) {
    begin(asm);
    let (other, met) = (asm.label(), asm.label());
    asm.near(c::meet_at(0), met);
    asm.near_if(1, c::branch(), other);
    ticket(asm, "waits");
    asm.near(c::branch(), met);
    asm.place(other);
    ticket(asm, "other");
    asm.put(way);
    ticket(asm, "other goes on");
    states::all(asm, "other goes on: ");
    look(asm, "other goes on", 0);
    asm.place(met);
    asm.put(c::meet(0));
    ticket(asm, "met");
    look(asm, "met", 0);
}

/// YIELD while another group waits at BSYNC.
pub(super) fn while_waited_for(asm: &mut Assembler) {
    waited(asm, c::give_way());
}

/// NANOSLEEP while another group waits at BSYNC.
pub(super) fn sleep_while_waited_for(asm: &mut Assembler) {
    waited(asm, c::sleep());
}

/// Both give way, the one waits, and the other one parts.
fn early(asm: &mut Assembler, way: Word) {
    begin(asm);
    let (other, part, met) = (asm.label(), asm.label(), asm.label());
    asm.near(c::meet_at(0), met);
    asm.near_if(1, c::branch(), other);
    ticket(asm, "one");
    asm.put(way);
    ticket(asm, "one goes on");
    look(asm, "one goes on", 0);
    asm.near(c::branch(), met);
    asm.place(other);
    ticket(asm, "other");
    asm.put(way);
    ticket(asm, "other goes on");
    look(asm, "other goes on", 0);
    asm.near_if(0, c::branch(), part);
    ticket(asm, "half");
    asm.near(c::branch(), met);
    asm.place(part);
    ticket(asm, "other half");
    asm.place(met);
    asm.put(c::meet(0));
    ticket(asm, "met");
    look(asm, "met", 0);
}

/// BSYNC beside lanes that have yielded.
pub(super) fn before(asm: &mut Assembler) {
    early(asm, c::give_way());
}

/// BSYNC beside lanes that sleep.
pub(super) fn sleep_before(asm: &mut Assembler) {
    early(asm, c::sleep());
}

/// One of three groups waits, and the others yield one after the other.
pub(super) fn of_three(asm: &mut Assembler) {
    begin(asm);
    let (rest, third, met) = (asm.label(), asm.label(), asm.label());
    asm.near(c::meet_at(3), met);
    asm.near_if(1, c::branch(), rest);
    ticket(asm, "waits");
    asm.near(c::branch(), met);
    asm.place(rest);
    asm.near_if(2, c::branch(), third);
    ticket(asm, "second");
    asm.put(c::give_way());
    ticket(asm, "second goes on");
    look(asm, "second goes on", 3);
    asm.near(c::branch(), met);
    asm.place(third);
    ticket(asm, "third");
    asm.put(c::give_way());
    ticket(asm, "third goes on");
    look(asm, "third goes on", 3);
    asm.place(met);
    asm.put(c::meet(3));
    ticket(asm, "met");
    look(asm, "met", 3);
}

/// WARPSYNC, of all and of a mask, while others have yielded, or yield.
pub(super) fn gathered(asm: &mut Assembler) {
    begin(asm);
    asm.put(t::move_immediate(ALL, u32::MAX));
    for (name, word) in [("all", c::gather_all()), ("by a mask", c::gather(ALL))] {
        let (other, met) = (asm.label(), asm.label());
        asm.near_if(1, c::branch(), other);
        ticket(asm, &format!("one, {name}"));
        asm.put(c::give_way());
        ticket(asm, &format!("one goes on, {name}"));
        asm.near(c::branch(), met);
        asm.place(other);
        ticket(asm, &format!("other, {name}"));
        asm.put(c::give_way());
        ticket(asm, &format!("other goes on, {name}"));
        asm.put(c::give_way());
        ticket(asm, &format!("other goes on again, {name}"));
        asm.place(met);
        asm.put(word);
        ticket(asm, &format!("met, {name}"));
        look(asm, &format!("met, {name}"), 0);
    }
}

/// A lock by turns: lanes wait at BSYNC of one barrier within another, whose others yield in a loop.
pub(super) fn in_a_loop(asm: &mut Assembler) {
    const COUNT: u8 = FREE + 10;
    const LESS: u8 = FREE + 11;
    const NONE: u8 = FREE + 12;
    begin(asm);
    let (again, inner, outer) = (asm.label(), asm.label(), asm.label());
    asm.put(t::move_immediate(NONE, 0));
    asm.put(t::move_immediate(LESS, u32::MAX));
    asm.put(t::and_immediate(COUNT, super::assembler::LANE, 3));
    asm.near(c::meet_at(0), outer);
    asm.near(c::meet_at(1), inner);
    asm.place(again);
    asm.put(c::give_way());
    asm.put(t::differ(4, COUNT, NONE));
    asm.put(t::multiply_add(COUNT, COUNT, 1, LESS));
    asm.near_if(4, c::branch(), again);
    ticket(asm, "left");
    asm.place(inner);
    asm.put(c::meet(1));
    ticket(asm, "met within");
    look(asm, "met within", 1);
    asm.place(outer);
    asm.put(c::meet(0));
    ticket(asm, "met");
    look(asm, "met", 0);
}
