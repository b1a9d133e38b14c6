//! Programs that have local memory at both its ends: from address 0 on, and up to 2^24.

use super::assembler::{Assembler, FREE, LANE, THREAD};
use crate::template as t;

/// Four registers each.
const VALUES: u8 = FREE + 4;
const OTHERS: u8 = FREE + 8;
const LOADED: u8 = FREE + 12;
/// With addresses.
const BASE: u8 = FREE;
const ZERO: u8 = 255;

/// Bytes at each end.
const LOW: u32 = 0x40;
const HIGH: u32 = 0x80;

fn values(asm: &mut Assembler) {
    asm.local(LOW, HIGH);
    for index in 0..4 {
        asm.put(t::multiply_add(VALUES + index, THREAD, 0x10_0001 + u32::from(index), LANE));
        asm.put(t::multiply_add(OTHERS + index, THREAD, 0x7001 + u32::from(index), LANE));
    }
}

fn load(asm: &mut Assembler, what: &str, base: u8, offset: u32) {
    asm.get(t::load_local(LOADED, base, offset));
    for index in 0..4 {
        asm.store(&format!("{what}, word {index}"), LOADED + index);
    }
}

/// Stores to offsets below 0, and to the same addresses in a register.
pub(super) fn negative(asm: &mut Assembler) {
    values(asm);
    asm.put(t::store_local(ZERO, 0x40_u32.wrapping_neg(), VALUES));
    asm.put(t::store_local(ZERO, 0x10, OTHERS));
    asm.put(t::wait());
    load(asm, "[-0x40]", ZERO, 0x40_u32.wrapping_neg());
    load(asm, "[0x10]", ZERO, 0x10);
    asm.put(t::move_immediate(BASE, 0x00ff_ffc0));
    load(asm, "[0xffffc0]", BASE, 0);
    asm.put(t::store_local(BASE, 0x10, OTHERS));
    asm.put(t::wait());
    load(asm, "[-0x30]", ZERO, 0x30_u32.wrapping_neg());
    asm.put(t::move_immediate(BASE, 0x00ff_ff80));
    asm.put(t::store_local(BASE, 0, OTHERS));
    asm.put(t::store_local(BASE, 0x70, VALUES));
    asm.put(t::wait());
    load(asm, "[-0x80]", ZERO, 0x80_u32.wrapping_neg());
    load(asm, "[-0x10]", ZERO, 0x10_u32.wrapping_neg());
    asm.put(t::move_immediate(BASE, 0x20));
    asm.put(t::store_local(BASE, 0x20_u32.wrapping_neg(), VALUES));
    asm.put(t::wait());
    load(asm, "[0x20-0x20]", BASE, 0x20_u32.wrapping_neg());
    load(asm, "[0]", ZERO, 0);
    load(asm, "[0x10] again", ZERO, 0x10);
}

/// Addresses of 32 bits below 0, in a register.
pub(super) fn below(asm: &mut Assembler) {
    values(asm);
    asm.put(t::store_local(ZERO, 0x40_u32.wrapping_neg(), VALUES));
    asm.put(t::move_immediate(BASE, 0x40_u32.wrapping_neg()));
    asm.put(t::wait());
    load(asm, "[0xffffffc0]", BASE, 0);
    asm.put(t::move_immediate(BASE, 0x20));
    load(asm, "[0x20-0x60]", BASE, 0x60_u32.wrapping_neg());
}
