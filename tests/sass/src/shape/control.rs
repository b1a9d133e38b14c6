//! Instructions of control flow, by their fields. Those that name a label have distance 0 here.

use gpuvmk_isa::Word;

use crate::template::{WAIT, a, b, d, word};

/// The condition beside the guard: always.
const WHEN: u128 = 7 << 87;
/// .NOINC of calls, .NODEC of returns.
const NO_COUNT: u128 = 1 << 86;

fn barrier(number: u8) -> u128 {
    u128::from(number) << 16 | WHEN
}

fn state(number: u8) -> u128 {
    u128::from(number) << 24
}

/// BRA label.
pub(super) fn branch() -> Word {
    word(0x947, WHEN, WAIT)
}

/// BRA.U label.
pub(super) fn branch_if_all() -> Word {
    word(0x947, WHEN | 1 << 32, WAIT)
}

/// BRA.U.ANY label.
pub(super) fn branch_if_any() -> Word {
    word(0x947, WHEN | 1 << 32 | 1 << 84, WAIT)
}

/// BRA.DIV ur, label.
pub(super) fn branch_if_divergent(uniform: u8) -> Word {
    word(0x947, a(uniform) | 2 << 32 | 1 << 91 | WHEN, WAIT)
}

/// BRA.CONV ur, label.
pub(super) fn branch_if_converged(uniform: u8) -> Word {
    word(0x947, a(uniform) | 3 << 32 | 1 << 91 | WHEN, WAIT)
}

/// BRX a, label: the label's distance is added to a pair of registers.
pub(super) fn branch_by(register: u8) -> Word {
    word(0x949, a(register) | WHEN, WAIT)
}

/// BRXU ua, label.
pub(super) fn branch_by_uniform(register: u8) -> Word {
    word(0x958, a(register) | 1 << 91 | WHEN, WAIT)
}

/// JMP c\[0\]\[offset\].
pub(super) fn jump_by_constant(offset: u16) -> Word {
    word(0xb4a, u128::from(offset) << 38 | WHEN, WAIT)
}

/// BSSY b, label.
pub(super) fn meet_at(number: u8) -> Word {
    word(0x945, barrier(number), WAIT)
}

/// BSYNC b.
pub(super) fn meet(number: u8) -> Word {
    word(0x941, barrier(number), WAIT)
}

/// BREAK b.
pub(super) fn leave(number: u8) -> Word {
    word(0x942, barrier(number), WAIT)
}

/// WARPSYNC a.
pub(super) fn gather(register: u8) -> Word {
    word(0x348, a(register) | WHEN, WAIT)
}

/// WARPSYNC.ALL.
pub(super) fn gather_all() -> Word {
    word(0x948, WHEN, WAIT)
}

/// YIELD.
pub(super) fn give_way() -> Word {
    word(0x946, WHEN, WAIT)
}

/// NANOSLEEP 100.
pub(super) fn sleep() -> Word {
    word(0x95d, 100 << 32 | WHEN, WAIT)
}

/// BMOV.32 d, barrier or word of the warp's state.
pub(super) fn read_state(to: u8, number: u8) -> Word {
    word(0x355, d(to) | state(number), WAIT)
}

/// BMOV.32.CLEAR d, barrier.
pub(super) fn take_barrier(to: u8, number: u8) -> Word {
    Word(read_state(to, number).0 | 1 << 84)
}

/// BMOV.32 barrier or word of the warp's state, b.
pub(super) fn write_state(number: u8, from: u8) -> Word {
    word(0x356, b(from) | state(number), WAIT)
}

/// BMOV.32.PQUAD word of the warp's state, b.
pub(super) fn write_state_by_quads(number: u8, from: u8) -> Word {
    Word(write_state(number, from).0 | 1 << 84)
}

/// LEPC d.
pub(super) fn here(to: u8) -> Word {
    word(0x34e, d(to), WAIT)
}

/// LEPC d, label.
pub(super) fn address_of(to: u8) -> Word {
    word(0x94e, d(to), WAIT)
}

/// CALL.ABS.NOINC a.
pub(super) fn call(register: u8) -> Word {
    word(0x343, a(register) | WHEN | NO_COUNT, WAIT)
}

/// CALL.ABS.NOINC label.
pub(super) fn call_at() -> Word {
    word(0x943, WHEN | NO_COUNT, WAIT)
}

/// CALL.REL.NOINC label.
pub(super) fn call_near() -> Word {
    word(0x944, WHEN | NO_COUNT, WAIT)
}

/// RET.REL.NODEC a, label: the label is the program's first instruction for an address, so that it is 0.
pub(super) fn back(register: u8) -> Word {
    word(0x950, a(register) | WHEN | NO_COUNT, WAIT)
}

/// RET.ABS.NODEC a, 0.
pub(super) fn back_to(register: u8) -> Word {
    word(0x950, a(register) | WHEN | NO_COUNT | 1 << 85, WAIT)
}

/// EXIT.
pub(super) fn end() -> Word {
    word(0x94d, WHEN, WAIT)
}
