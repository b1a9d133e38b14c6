//! Programs that tell which of a warp's groups runs first, and in what state the others are meanwhile.
//!
//! A convergence barrier that nobody waits by is a number that all groups of a warp share: each takes a
//! ticket, and leaves the next one.

use super::assembler::{Assembler, FREE, LANE, Label};
use super::control as c;
use super::states;
use crate::template as t;

/// The barrier that has the next ticket.
const TICKETS: u8 = 12;
const VALUE: u8 = FREE;
const NEXT: u8 = FREE + 1;
const WHERE: u8 = FREE + 2;
const RETURN: u8 = FREE + 4;
const SUM: u8 = FREE + 6;
const ONE: u8 = FREE + 7;
const COUNT: u8 = FREE + 8;
const ZERO: u8 = FREE + 9;

pub(super) fn begin(asm: &mut Assembler) {
    asm.put(t::move_immediate(ZERO, 0));
    asm.put(t::move_immediate(ONE, 1));
    asm.put(c::write_state(TICKETS, ZERO));
    asm.put(t::wait());
}

/// Takes a ticket.
fn take(asm: &mut Assembler) {
    asm.get(c::read_state(VALUE, TICKETS));
    asm.put(t::multiply_add(NEXT, VALUE, 1, ONE));
    asm.put(c::write_state(TICKETS, NEXT));
    asm.put(t::wait());
}

/// The same, stored with the stack of groups that did not go on.
pub(super) fn ticket(asm: &mut Assembler, what: &str) {
    take(asm);
    asm.store(&format!("{what}: ticket"), VALUE);
    states::stack(asm, &format!("{what}: "));
}

fn end(asm: &mut Assembler) {
    asm.put(c::write_state(TICKETS, ZERO));
    asm.put(t::wait());
    states::stack(asm, "end: ");
}

/// A branch forward, and one back.
pub(super) fn branch(asm: &mut Assembler) {
    begin(asm);
    let (other, met) = (asm.label(), asm.label());
    asm.near(c::meet_at(0), met);
    asm.near_if(1, c::branch(), other);
    ticket(asm, "goes on");
    asm.near(c::branch(), met);
    asm.place(other);
    ticket(asm, "forward");
    asm.place(met);
    asm.put(c::meet(0));

    let (other, over, met) = (asm.label(), asm.label(), asm.label());
    asm.near(c::meet_at(1), met);
    asm.near(c::branch(), over);
    asm.place(other);
    ticket(asm, "back");
    asm.near(c::branch(), met);
    asm.place(over);
    asm.near_if(0, c::branch(), other);
    ticket(asm, "goes on from there");
    asm.place(met);
    asm.put(c::meet(1));
    end(asm);
}

/// Branches within branches: eight groups, and a barrier for each branch, since groups that are apart may not
/// share one.
pub(super) fn nested(asm: &mut Assembler) {
    fn level(asm: &mut Assembler, depth: u8, number: u8, path: &str) {
        if depth == 3 {
            ticket(asm, path);
            return;
        }
        let (other, met) = (asm.label(), asm.label());
        asm.near(c::meet_at(number), met);
        asm.near_if(depth, c::branch(), other);
        level(asm, depth + 1, 2 * number + 1, &format!("{path}n"));
        asm.near(c::branch(), met);
        asm.place(other);
        level(asm, depth + 1, 2 * number + 2, &format!("{path}y"));
        asm.place(met);
        asm.put(c::meet(number));
        states::stack(asm, &format!("{path}met: "));
    }
    begin(asm);
    level(asm, 0, 0, "");
    end(asm);
}

/// Three groups that do not meet in between.
pub(super) fn in_a_row(asm: &mut Assembler) {
    begin(asm);
    let met = asm.label();
    let others: Vec<Label> = (0..3).map(|_| asm.label()).collect();
    asm.near(c::meet_at(0), met);
    for (predicate, other) in (0..3).zip(&others) {
        asm.near_if(predicate, c::branch(), *other);
        states::stack(asm, &format!("behind branch {predicate}: "));
    }
    ticket(asm, "none");
    asm.near(c::branch(), met);
    for (predicate, other) in others.iter().enumerate() {
        asm.place(*other);
        ticket(asm, &format!("by {predicate}"));
        asm.near(c::branch(), met);
    }
    asm.place(met);
    asm.put(c::meet(0));
    end(asm);
}

/// A table of four places, and calls and returns of two groups.
pub(super) fn places(asm: &mut Assembler) {
    begin(asm);
    let (first, met) = (asm.label(), asm.label());
    let fourth: Vec<Label> = (0..4).map(|_| asm.label()).collect();
    asm.near(c::meet_at(0), met);
    asm.put(t::and_immediate(WHERE, LANE, 3));
    asm.put(t::multiply_add(WHERE, WHERE, 16, ZERO));
    asm.put(t::move_immediate(WHERE + 1, 0));
    asm.near(c::branch_by(WHERE), first);
    asm.place(first);
    fourth.iter().for_each(|place| asm.near(c::branch(), *place));
    for (index, place) in fourth.iter().enumerate() {
        asm.place(*place);
        ticket(asm, &format!("place {index}"));
        asm.near(c::branch(), met);
    }
    asm.place(met);
    asm.put(c::meet(0));

    let (one, other, over, met) = (asm.label(), asm.label(), asm.label(), asm.label());
    let (back_one, back_other) = (asm.label(), asm.label());
    asm.near(c::address_of(WHERE), one);
    asm.near_if(0, c::address_of(WHERE), other);
    asm.near(c::address_of(RETURN), back_one);
    asm.near_if(1, c::address_of(RETURN), back_other);
    asm.near(c::meet_at(1), met);
    asm.put(c::call(WHERE));
    for (name, back) in [("back", back_one), ("back at another", back_other)] {
        asm.place(back);
        ticket(asm, name);
        asm.near(c::branch(), met);
    }
    for (name, function) in [("one", one), ("other", other)] {
        asm.place(function);
        ticket(asm, name);
        asm.put(c::back_to(RETURN));
    }
    asm.place(over);
    asm.place(met);
    asm.put(c::meet(1));
    end(asm);
}

/// Calls and jumps under a guard.
pub(super) fn guarded(asm: &mut Assembler) {
    begin(asm);
    let (function, met, there) = (asm.label(), asm.label(), asm.label());
    let at = asm.address(there);
    asm.near(c::meet_at(0), met);
    asm.near_if(1, c::call_near(), function);
    ticket(asm, "not called");
    asm.near(c::branch(), met);
    asm.place(function);
    ticket(asm, "called");
    asm.place(met);
    asm.put(c::meet(0));
    let met = asm.label();
    asm.near(c::meet_at(0), met);
    asm.put_if(2, c::jump_by_constant(at));
    ticket(asm, "did not jump");
    asm.near(c::branch(), met);
    asm.place(there);
    ticket(asm, "jumped");
    asm.place(met);
    asm.put(c::meet(0));
    end(asm);
}

/// YIELD of two groups.
pub(super) fn yields(asm: &mut Assembler) {
    begin(asm);
    let (other, met) = (asm.label(), asm.label());
    asm.near(c::meet_at(0), met);
    asm.near_if(1, c::branch(), other);
    ticket(asm, "goes on");
    asm.put(c::give_way());
    ticket(asm, "goes on later");
    states::all(asm, "goes on later: ");
    asm.near(c::branch(), met);
    asm.place(other);
    ticket(asm, "branched");
    states::all(asm, "branched: ");
    asm.put(c::give_way());
    ticket(asm, "branched later");
    asm.place(met);
    asm.put(c::meet(0));
    end(asm);
}

/// A loop that lanes leave one after the other: the tickets of each lane's turns, a digit each.
pub(super) fn turns(asm: &mut Assembler) {
    begin(asm);
    let (again, met) = (asm.label(), asm.label());
    asm.put(t::move_immediate(SUM, 0));
    asm.put(t::and_immediate(COUNT, LANE, 3));
    asm.put(t::move_immediate(WHERE, u32::MAX));
    asm.near(c::meet_at(0), met);
    asm.place(again);
    take(asm);
    asm.put(t::multiply_add(SUM, SUM, 16, VALUE));
    asm.put(t::differ(4, COUNT, ZERO));
    asm.put(t::multiply_add(COUNT, COUNT, 1, WHERE));
    asm.near_if(4, c::branch(), again);
    ticket(asm, "left");
    asm.place(met);
    asm.put(c::meet(0));
    asm.store("turns", SUM);
    end(asm);
}

/// Groups that wait at two barriers, while a third one looks.
pub(super) fn waiting(asm: &mut Assembler) {
    begin(asm);
    let (rest, looks, inner, outer) = (asm.label(), asm.label(), asm.label(), asm.label());
    asm.near(c::meet_at(5), outer);
    asm.near_if(0, c::branch(), rest);
    ticket(asm, "waits at B5");
    asm.near(c::branch(), outer);
    asm.place(rest);
    asm.near(c::meet_at(10), inner);
    asm.near_if(1, c::branch(), looks);
    ticket(asm, "waits at B10");
    asm.near(c::branch(), inner);
    asm.place(looks);
    ticket(asm, "looks");
    states::all(asm, "looks: ");
    for number in [5, 10] {
        asm.get(c::read_state(VALUE, number));
        asm.store(&format!("looks: B{number}"), VALUE);
    }
    asm.place(inner);
    asm.put(c::meet(10));
    states::all(asm, "inner: ");
    asm.place(outer);
    asm.put(c::meet(5));
    end(asm);
}

/// Groups that wait at WARPSYNC, while another one looks.
pub(super) fn gathering(asm: &mut Assembler) {
    begin(asm);
    asm.put(t::move_immediate(COUNT, u32::MAX));
    for (name, word) in [("all", c::gather_all()), ("by a mask", c::gather(COUNT))] {
        let (looks, met) = (asm.label(), asm.label());
        asm.near_if(0, c::branch(), looks);
        ticket(asm, &format!("waits, {name}"));
        asm.near(c::branch(), met);
        asm.place(looks);
        ticket(asm, &format!("looks, {name}"));
        states::all(asm, &format!("looks, {name}: "));
        asm.place(met);
        asm.put(word);
        ticket(asm, &format!("gathered, {name}"));
    }
    end(asm);
}

/// A group that has ended, while another one looks.
pub(super) fn ending(asm: &mut Assembler) {
    begin(asm);
    let looks = asm.label();
    asm.near_if(0, c::branch(), looks);
    ticket(asm, "ends");
    asm.put(c::end());
    asm.place(looks);
    ticket(asm, "looks");
    states::all(asm, "looks: ");
    end(asm);
}

/// BRA.DIV under a guard, of all lanes and of those of one branch.
pub(super) fn divergent(asm: &mut Assembler) {
    const UNIFORM: u8 = 4;
    fn ask(asm: &mut Assembler, what: &str) {
        let there = asm.label();
        asm.put(t::move_immediate(SUM, 1));
        asm.near_if(1, c::branch_if_divergent(UNIFORM), there);
        asm.put(t::move_immediate(SUM, 2));
        asm.place(there);
        asm.put(t::wait());
        asm.store(what, SUM);
        states::stack(asm, what);
    }
    begin(asm);
    asm.put(t::uniform_immediate(UNIFORM, u32::MAX));
    asm.put(t::wait());
    let (there, met) = (asm.label(), asm.label());
    asm.near(c::meet_at(0), met);
    ask(asm, "all under P1");
    asm.near_if(0, c::branch(), there);
    ask(asm, "even lanes under P1");
    asm.near(c::branch(), met);
    asm.place(there);
    ask(asm, "odd lanes under P1");
    asm.place(met);
    asm.put(c::meet(0));
    // Lanes that have ended are no part of a mask.
    asm.put_if(2, c::end());
    let there = asm.label();
    asm.put(t::move_immediate(SUM, 1));
    asm.near(c::branch_if_divergent(UNIFORM), there);
    asm.put(t::move_immediate(SUM, 2));
    asm.place(there);
    asm.store("some have ended", SUM);
    end(asm);
}
