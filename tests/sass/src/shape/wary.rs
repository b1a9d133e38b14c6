//! Programs with what only NVIDIA's trap handler does, or its code around a call of a function of its
//! driver's: nobody knows that they end on a GPU.

use gpuvmk_isa::warp_state::{FIRST, MACTIVE, MEXITED, OPT_STACK, THREAD_STATE_LAST};

use super::assembler::{Assembler, FREE, LANE};
use super::control as c;
use super::states;
use crate::template as t;

const VALUE: u8 = FREE;
const ACTIVE: u8 = FREE + 2;
const EXITED: u8 = FREE + 3;
const SUM: u8 = FREE + 4;
/// Registers with what is restored.
const SAVED: u8 = FREE + 8;

/// Reads a trap handler's words.
pub(super) fn of_traps(asm: &mut Assembler) {
    for number in 21..=32 {
        asm.get(c::read_state(VALUE, number));
        asm.store(&format!("word {number}"), VALUE);
    }
}

/// The words that are read and written.
fn kept() -> impl Iterator<Item = (u8, u8)> {
    (FIRST..=THREAD_STATE_LAST).chain([OPT_STACK]).zip(SAVED..)
}

/// Writes words that were read.
pub(super) fn written_back(asm: &mut Assembler) {
    for (number, register) in kept() {
        asm.get(c::read_state(register, number));
    }
    for (number, register) in kept() {
        asm.put(c::write_state(number, register));
        asm.put(t::wait());
    }
    states::all(asm, "");
}

/// Lanes that count as ended while others do something, and come back.
pub(super) fn hidden(asm: &mut Assembler) {
    let (met, end) = (asm.label(), asm.label());
    asm.put(t::has_bit(3, LANE, 0x18));
    asm.put(t::move_immediate(SUM, 1));
    asm.near(c::meet_at(0), end);
    asm.near_if(3, c::branch(), end);
    asm.get(c::read_state(ACTIVE, MACTIVE));
    asm.get(c::read_state(EXITED, MEXITED));
    for (number, register) in kept() {
        asm.get(c::read_state(register, number));
    }
    asm.put(t::invert(VALUE, ACTIVE));
    asm.put(c::write_state(MEXITED, VALUE));
    asm.put(t::wait());
    states::all(asm, "hidden: ");
    asm.near(c::meet_at(1), met);
    asm.near_if(0, c::branch(), met);
    asm.put(t::multiply_add(SUM, SUM, 3, LANE));
    asm.place(met);
    asm.put(c::meet(1));
    asm.put(c::gather_all());
    asm.put(t::multiply_add(SUM, SUM, 5, LANE));
    for (number, register) in kept() {
        asm.put(c::write_state(number, register));
    }
    asm.put(c::write_state(MEXITED, EXITED));
    asm.put(t::wait());
    asm.place(end);
    asm.put(c::meet(0));
    asm.store("sum", SUM);
    states::all(asm, "all: ");
}
