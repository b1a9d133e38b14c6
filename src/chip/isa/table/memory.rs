//! Memory: loads, stores, atomics, constants.

use crate::dsl::*;
use crate::row::{Field, Memory, Slot};

const E: Field = flag(K::E, 72);
/// Order and scope from Ampere on.
const ORDER: Field = f(K::Order, 77, 4);
const TYPE: Field = f(K::AccessType, 73, 3);
const EVICT: Field = f(K::Eviction, 84, 3).codes(&[0, 1, 2, 3, 4, 5]);
/// A pair with a descriptor at a bit.
const fn desc(lo: u8) -> Slot {
    memory(Memory { wide: Some(90), descriptor: Some(lo), ..PLAIN })
}
/// Shared memory, with a stride.
const SHARED: Slot = memory(Memory { stride: Some(bits(78, 2)), ..PLAIN });
/// Shared memory with a uniform register at a bit.
const fn shared(lo: u8) -> Slot {
    memory(Memory { stride: Some(bits(78, 2)), uniform: Some(lo), ..PLAIN })
}
/// Bit 76: the uniform register is a descriptor.
const DESC: &[(crate::Bits, u64)] = &[(bits(76, 1), 1)];

pub(crate) static ROWS: &[Row] = &[
    row(O::Ldg, 0x1981, SM80, WHOLE, &[PD0.show(Show::Used), D, desc(32)], &[E, EVICT, TYPE, ORDER])
        .fixed(DESC),
    row(O::Stg, 0x1986, SM80, WHOLE, &[desc(64), reg(Role::Data, 32)], &[E, EVICT, TYPE, ORDER]).fixed(DESC),
    row(
        O::Redg,
        0x198e,
        (crate::Arch::Sm90, crate::Arch::Sm90),
        WHOLE,
        &[desc(64), reg(Role::Data, 32)],
        &[E, EVICT, f(K::AtomicOp, 87, 3), f(K::AtomicType, 73, 3), ORDER],
    )
    .fixed(&[(bits(71, 1), 1)]),
    row(O::Lds, 0x984, ALL, WHOLE, &[D, SHARED], &[TYPE]),
    row(O::Lds, 0x1984, SM80, WHOLE, &[D, shared(32)], &[TYPE]),
    row(O::Sts, 0x388, ALL, WHOLE, &[SHARED, reg(Role::Data, 32)], &[TYPE]),
    row(O::Sts, 0x1988, SM80, WHOLE, &[shared(64), reg(Role::Data, 32)], &[TYPE]),
    row(
        O::AtomsCas,
        0x38d,
        ALL,
        WHOLE,
        &[D, SHARED, reg(Role::Data, 32), reg(Role::C, 64)],
        &[f(K::CasMode, 87, 2).codes(&[0, 255, 255, 1]), f(K::AtomicType, 73, 3)],
    )
    .named("ATOMS"),
    row(O::Ldc, 0xb82, ALL, WHOLE, &[D, any(Role::Address, SlotKind::ConstMemory)], &[TYPE]),
    row(O::Uldc, 0xab9, TO90, WHOLE, &[UD, any(Role::Address, SlotKind::ConstPlain)], &[TYPE]),
];
