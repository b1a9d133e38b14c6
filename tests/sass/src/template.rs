//! The instructions around the random ones, by their fields.

use gpuvmk_isa::{Bits, Control, Word};

/// The predicate that is always true, as guard.
const ALWAYS: u128 = 7 << 12;

/// The register that reads zero.
const RZ: u128 = 255;

/// Scheduling that suits everything: 15 cycles, no scoreboard; and what waits for all scoreboards.
const SLOW: u32 = 15 | 7 << 5 | 7 << 8;
pub(crate) const WAIT: u32 = SLOW | 0x3f << 11;

/// Bit 110 to 112: the scoreboard that is set while the result is not there.
pub(crate) fn sets(scoreboard: u32) -> u32 {
    SLOW & !(7 << 5) | (scoreboard & 7) << 5
}

pub(crate) fn word(opcode: u128, fields: u128, control: u32) -> Word {
    Word(opcode | ALWAYS | fields).with_control(Control(control))
}

pub(crate) fn d(register: u8) -> u128 {
    u128::from(register) << 16
}

pub(crate) fn a(register: u8) -> u128 {
    u128::from(register) << 24
}

pub(crate) fn b(register: u8) -> u128 {
    u128::from(register) << 32
}

pub(crate) fn c(register: u8) -> u128 {
    u128::from(register) << 64
}

pub(crate) fn immediate(value: u32) -> u128 {
    u128::from(value) << 32
}

/// S2R d, SR_TID.X.
pub(crate) fn thread(register: u8) -> Word {
    word(0x919, d(register) | 0x21 << 72, sets(0))
}

/// S2R d, a special register.
pub(crate) fn special(register: u8, number: u8) -> Word {
    word(0x919, d(register) | u128::from(number) << 72, sets(0))
}

/// S2R d, SR_CTAID.X.
pub(crate) fn block(register: u8) -> Word {
    word(0x919, d(register) | 0x25 << 72, sets(0))
}

/// LDC.64 d, c\[0\]\[offset\].
pub(crate) fn constant_pair(register: u8, offset: u16) -> Word {
    word(0xb82, d(register) | RZ << 24 | u128::from(offset) << 38 | 5 << 73, sets(0))
}

/// IMAD d, a, value, c.
pub(crate) fn multiply_add(to: u8, from: u8, value: u32, plus: u8) -> Word {
    word(0x824, d(to) | a(from) | immediate(value) | c(plus) | 7 << 81 | 0xf << 87, WAIT)
}

/// IMAD.WIDE.U32 d, a, value, c.
pub(crate) fn wide_multiply_add(to: u8, from: u8, value: u32, plus: u8) -> Word {
    word(0x825, d(to) | a(from) | immediate(value) | c(plus) | 7 << 81 | 0xf << 87, WAIT)
}

/// LDG.E.128 d, \[a.64 + offset\], with the descriptor 0 in UR60.
pub(crate) fn load(to: u8, from: u8, offset: u32) -> Word {
    let address = a(from) | u128::from(DESCRIPTOR) << 32 | u128::from(offset & 0xff_ffff) << 40;
    word(0x1981 & 0xfff, d(to) | address | 1 << 91 | 1 << 90 | LDG_MODE, sets(0))
}

/// Bit 113 to 115: the scoreboard that is set while operands are not read yet.
const READS: u32 = WAIT & !(7 << 8) | 1 << 8;

/// The same scheduling with a scoreboard that is set while operands are not read yet.
pub(crate) fn reads(control: u32) -> u32 {
    control & !(7 << 8) | 1 << 8
}

/// STG.E.128 \[a.64 + offset\], b.
pub(crate) fn store_four(at: u8, offset: u32, from: u8) -> Word {
    Word(store(at, offset, from).0 & !(7 << 73) | FOUR)
}

/// .128, where loads and stores have their width.
const FOUR: u128 = 6 << 73;

fn at(register: u8, offset: u32) -> u128 {
    a(register) | u128::from(offset & 0xff_ffff) << 40
}

/// STS.128 \[a + offset\], b.
pub(crate) fn store_shared(to: u8, offset: u32, from: u8) -> Word {
    word(0x388, at(to, offset) | b(from) | FOUR, READS)
}

/// LDS.128 d, \[a + offset\].
pub(crate) fn load_shared(to: u8, from: u8, offset: u32) -> Word {
    word(0x984, d(to) | at(from, offset) | FOUR, sets(0))
}

/// STL.128 \[a + offset\], b.
pub(crate) fn store_local(to: u8, offset: u32, from: u8) -> Word {
    word(0x387, at(to, offset) | b(from) | FOUR | NORMAL, READS)
}

/// LDL.128 d, \[a + offset\].
pub(crate) fn load_local(to: u8, from: u8, offset: u32) -> Word {
    word(0x983, d(to) | at(from, offset) | FOUR | NORMAL, sets(0))
}

/// LDGDEPBAR; DEPBAR.LE SB0, 0x0: all copies to shared memory have ended.
pub(crate) fn copied() -> Vec<Word> {
    vec![word(0x9af, 0, sets(0)), word(0x91a, 1 << 47, WAIT), wait()]
}

/// The eviction that a compiler asks for in local memory.
const NORMAL: u128 = 1 << 84;

/// LOP3.LUT d, a, mask, RZ, 0xc0, !PT.
pub(crate) fn and_immediate(to: u8, from: u8, mask: u32) -> Word {
    word(0x812, d(to) | a(from) | immediate(mask) | c(255) | 0xc0 << 72 | 7 << 81 | 0xf << 87, WAIT)
}

/// STG.E \[a.64 + offset\], b.
pub(crate) fn store(at: u8, offset: u32, from: u8) -> Word {
    let address = a(at) | u128::from(DESCRIPTOR) << 64 | u128::from(offset & 0xff_ffff) << 40;
    word(0x986, address | b(from) | 1 << 91 | 1 << 90 | STG_MODE, READS)
}

/// The uniform register pair with the memory descriptor. It is 0.
const DESCRIPTOR: u8 = 60;

/// .E, .128 for loads, bit 76 (a descriptor), no predicate; as a compiler writes them.
const LDG_MODE: u128 = 0xc1e_1d00 << 64 & !(0xff << 64) & !(3 << 90);
const STG_MODE: u128 = 0xc10_1900 << 64 & !(0xff << 64) & !(3 << 90);

/// ULDC d, c\[0\]\[offset\].
pub(crate) fn uniform_constant(register: u8, offset: u16) -> Word {
    word(0xab9, d(register) | u128::from(offset) << 38 | 4 << 73, WAIT)
}

/// ISETP.NE.U32.AND p, PT, a, b, PT.
pub(crate) fn differ(predicate: u8, one: u8, other: u8) -> Word {
    let to = u128::from(predicate) << 81 | 7 << 84;
    word(0x20c, a(one) | b(other) | to | 7 << 87 | 5 << 76 | 7 << 68, WAIT)
}

/// The same with what has a bit of `mask` in a register.
pub(crate) fn has_bit(predicate: u8, register: u8, mask: u32) -> Word {
    // LOP3.LUT p, RZ, a, mask, RZ, 0xc0, !PT
    let to = u128::from(predicate) << 81;
    word(0x812, RZ << 16 | a(register) | immediate(mask) | c(255) | 0xc0 << 72 | to | 0xf << 87, WAIT)
}

/// P2R d, PR, RZ, 0x7f: all predicates.
pub(crate) fn predicates(to: u8) -> Word {
    word(0x803, d(to) | RZ << 24 | immediate(0x7f), WAIT)
}

/// UISETP.NE.U32.AND up, UPT, ua, ub, UPT.
pub(crate) fn uniform_differ(predicate: u8, one: u8, other: u8) -> Word {
    let to = u128::from(predicate) << 81 | 7 << 84;
    let fields = a(one) | b(other) | to | 7 << 87 | 5 << 76 | 7 << 68 | 1 << 91;
    word(0x28c, fields, WAIT)
}

/// USEL ud, URZ, 1, !up: 1 if the predicate is true.
pub(crate) fn uniform_predicate_bit(to: u8, predicate: u8) -> Word {
    let fields = d(to) | a(63) | immediate(1) | u128::from(predicate) << 87 | 1 << 90 | 1 << 91;
    word(0x887, fields, WAIT)
}

/// UMOV ud, ua.
pub(crate) fn uniform_move(to: u8, from: u8) -> Word {
    word(0xc82, d(to) | b(from) | 1 << 91, WAIT)
}

/// MOV d, value.
pub(crate) fn move_immediate(to: u8, value: u32) -> Word {
    word(0x802, d(to) | immediate(value) | 0xf << 72, WAIT)
}

/// LOP3.LUT d, a, 0xffffffff, RZ, 0x3c, !PT: all bits of a the other way round.
pub(crate) fn invert(to: u8, from: u8) -> Word {
    word(0x812, d(to) | a(from) | immediate(u32::MAX) | c(255) | 0x3c << 72 | 7 << 81 | 0xf << 87, WAIT)
}

/// IADD3 d, p, a, -b, RZ and IADD3.X d, a, ~b, RZ, p, !PT: the difference of two pairs of registers.
pub(crate) fn wide_difference(to: u8, from: u8, less: u8, carry: u8) -> [Word; 2] {
    let fields = |half: u8| d(to + half) | a(from + half) | b(less + half) | 1 << 63 | c(255) | 0xf << 77;
    let carry = u128::from(carry);
    let low = carry << 81 | 7 << 84 | 0xf << 87;
    let high = 1 << 74 | 7 << 81 | 7 << 84 | carry << 87;
    [word(0x210, fields(0) | low, WAIT), word(0x210, fields(1) | high, WAIT)]
}

/// UMOV ud, value.
pub(crate) fn uniform_immediate(to: u8, value: u32) -> Word {
    word(0x882, d(to) | immediate(value), WAIT)
}

/// MOV d, b.
pub(crate) fn move_register(to: u8, from: u8) -> Word {
    word(0x202, d(to) | b(from) | 0xf << 72, WAIT)
}

/// MOV d, ur.
pub(crate) fn from_uniform(to: u8, uniform: u8) -> Word {
    word(0xc02, d(to) | b(uniform) | 0xf << 72 | 1 << 91, WAIT)
}

/// NOP.
pub(crate) fn nop(control: u32) -> Word {
    word(0x918, 0, control)
}

/// NOP that waits for all scoreboards.
pub(crate) fn wait() -> Word {
    nop(WAIT)
}

/// EXIT.
pub(crate) fn exit() -> Word {
    word(0x94d, 7 << 87, WAIT)
}

/// BRA to itself, which stands behind the last instruction.
pub(crate) fn stay() -> Word {
    Word(0xffff_fffc_00fc_7947 | 0x0383_ffff << 64).with_control(Control(WAIT))
}

/// Bits of an instruction's guard.
pub(crate) const GUARD: Bits = Bits { lo: 12, len: 4 };
