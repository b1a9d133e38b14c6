//! Memory: loads, stores, atomics, constants.

use crate::Arch;
use crate::dsl::*;
use crate::row::{Field, Memory, Slot};

const E: Field = flag(K::E, 72);
/// Order and scope from Ampere on.
const ORDER: Field = f(K::Order, 77, 4);
/// Scope in two bits and order in two above them, before.
const ORDER75: Field =
    f(K::Order, 77, 4).codes(&[2, 9, 15, 18, 19, 20, 21, 17, 16, 5, 7, 10, 255, 255, 8, 12]);
const TYPE: Field = f(K::AccessType, 73, 3).codes(&[0, 1, 2, 3, 4, 5, 6]);
const EVICT: Field = f(K::Eviction, 84, 3);
const OP4: Field = f(K::AtomicOp, 87, 4).codes(&[0, 1, 2, 3, 4, 5, 6, 7, 8]);
const OP3: Field = f(K::AtomicOp, 87, 3).codes(&[0, 1, 2, 3, 4, 5, 6, 7]);
const ATOMIC: Field = f(K::AtomicType, 73, 3).codes(&[0, 1, 2, 3, 4, 5, 6]);
const ATOMIC_INT: Field = f(K::AtomicType, 73, 3).codes(&[0, 1, 2, 255, 255, 5]);
/// Types of float atomics of Hopper, among them several values beside each other. A fifth bit makes none.
const ATOMIC_FLOAT: Field =
    f(K::AtomicType, 73, 4).high(87, 1).codes(&[4, 8, 9, 7, 10, 11, 255, 255, 255, 3, 12, 13, 14, 15, 16, 6]);
/// What they do.
const FLOAT_OP3: Field = f(K::AtomicOp, 88, 3).codes(&[0, 1, 2]);
const FLOAT_OP2: Field = f(K::AtomicOp, 88, 2).codes(&[0, 1, 2]);
/// Types of float atomics from Blackwell on.
const ATOMIC_FLOAT100: Field = f(K::AtomicType, 73, 4)
    .codes(&[4, 255, 255, 255, 255, 255, 255, 255, 255, 3, 255, 255, 255, 255, 255, 6]);
const CAS_TYPE: Field = f(K::AtomicType, 73, 3).codes(&[0, 1, 2]);
const CAS: Field = f(K::CasMode, 0, 0).codes(&[0]);

const HOPPER: (Arch, Arch) = (Arch::Sm90, Arch::Sm90);
/// Bit 76: the uniform register is a descriptor.
const DESC: &[(crate::Bits, u64)] = &[(bits(76, 1), 1)];
const NO_DESC: &[(crate::Bits, u64)] = &[(bits(76, 1), 0)];
/// Where atomics have that bit.
const DESC90: &[(crate::Bits, u64)] = &[(bits(71, 1), 1)];

/// RZ and PT where atomics with a result have it. Mesa's compiler writes them, NVIDIA's leaves zeros there.
const NO_RESULT: &[(crate::Bits, u64)] = &[(bits(16, 8), 255), (bits(81, 3), 7)];
/// The same of later versions of Mesa.
const NO_REGISTER: &[(crate::Bits, u64)] = &[(bits(16, 8), 255)];

/// A register, a pair with [`E`].
const GLOBAL: Slot = memory(Memory { wide: Some(72), ..PLAIN });
/// With a descriptor at a bit.
const fn desc(lo: u8) -> Slot {
    memory(Memory { wide: Some(90), descriptor: Some(lo), ..PLAIN })
}
/// With a uniform pair at a bit.
const fn plus(lo: u8) -> Slot {
    memory(Memory { wide: Some(90), uniform: Some(lo), ..PLAIN })
}
/// Atomics with a result: their operation is where others have the width.
const ATOM_PLUS: Slot = memory(Memory { wide: Some(70), uniform: Some(64), ..PLAIN });
const ATOM_DESC: Slot = memory(Memory { wide: Some(70), descriptor: Some(64), ..PLAIN });
const ATOM_DESC100: Slot =
    memory(Memory { wide: Some(63), descriptor: Some(64), offset: bits(40, 23), ..PLAIN });
const LOCAL: Slot = memory(PLAIN);
const LOCAL_PLUS: Slot = memory(Memory { uniform: Some(32), ..PLAIN });
/// Shared memory, with a stride.
const SHARED: Slot = memory(Memory { stride: Some(bits(78, 2)), ..PLAIN });
const fn shared(lo: u8) -> Slot {
    memory(Memory { stride: Some(bits(78, 2)), uniform: Some(lo), ..PLAIN })
}
const DATA: Slot = reg(Role::Data, 32);
const SWAP: Slot = reg(Role::C, 64);
const P: Slot = PD0.show(Show::Used);
const LOAD75: &[Field] = &[E, EVICT, TYPE, ORDER75];
const LOAD: &[Field] = &[E, EVICT, TYPE, ORDER];
const ATOM75: &[Field] = &[E, OP4, EVICT, ATOMIC, ORDER75];
const ATOM80: &[Field] = &[E, OP4, EVICT, ATOMIC, ORDER];
const ATOM_INT: &[Field] = &[E, OP4, EVICT, ATOMIC_INT, ORDER];
const ATOM_FLOAT: &[Field] = &[E, FLOAT_OP3, EVICT, ATOMIC_FLOAT, ORDER];
const RED75: &[Field] = &[E, OP3, EVICT, ATOMIC, ORDER75];
const RED80: &[Field] = &[E, OP3, EVICT, ATOMIC, ORDER];
const RED_INT: &[Field] = &[E, OP3, EVICT, ATOMIC_INT, ORDER];
const RED_FLOAT: &[Field] = &[E, FLOAT_OP2, EVICT, ATOMIC_FLOAT, ORDER];
const FLOAT100: &[Field] = &[E, f(K::AtomicOp, 87, 3).codes(&[0, 1, 2]), EVICT, ATOMIC_FLOAT100, ORDER];
const CAS75: &[Field] = &[E, CAS, EVICT, CAS_TYPE, ORDER75];
const CAS80: &[Field] = &[E, CAS, EVICT, CAS_TYPE, ORDER];

pub(crate) static ROWS: &[Row] = &[
    row(O::Ldg, 0x381, SM75, WHOLE, &[P, D, GLOBAL], LOAD75),
    row(O::Ldg, 0x1981, SM75, WHOLE, &[P, D, plus(32)], LOAD75),
    row(O::Ldg, 0x381, SM80, WHOLE, &[P, D, GLOBAL], LOAD),
    row(O::Ldg, 0x1981, SM80, WHOLE, &[P, D, desc(32)], LOAD).fixed(DESC),
    row(O::Ldg, 0x1981, SM80, WHOLE, &[P, D, plus(32)], LOAD).fixed(NO_DESC),
    row(O::Stg, 0x386, SM75, WHOLE, &[GLOBAL, DATA], LOAD75),
    row(O::Stg, 0x1986, SM75, WHOLE, &[plus(64), DATA], LOAD75),
    row(O::Stg, 0x386, SM80, WHOLE, &[GLOBAL, DATA], LOAD),
    row(O::Stg, 0x1986, SM80, WHOLE, &[desc(64), DATA], LOAD).fixed(DESC),
    row(O::Stg, 0x1986, SM80, WHOLE, &[plus(64), DATA], LOAD).fixed(NO_DESC),
    row(O::Ld, 0x980, SM75, WHOLE, &[D, GLOBAL], LOAD75),
    row(O::Ld, 0x1980, SM75, WHOLE, &[D, plus(32)], LOAD75),
    row(O::Ld, 0x980, SM80, WHOLE, &[D, GLOBAL], LOAD),
    row(O::Ld, 0x1980, SM80, WHOLE, &[D, desc(32)], LOAD).fixed(DESC),
    row(O::Ld, 0x1980, SM80, WHOLE, &[D, plus(32)], LOAD).fixed(NO_DESC),
    row(O::St, 0x385, SM75, WHOLE, &[GLOBAL, DATA], LOAD75),
    row(O::St, 0x1985, SM75, WHOLE, &[plus(64), DATA], LOAD75),
    row(O::St, 0x385, SM80, WHOLE, &[GLOBAL, DATA], LOAD),
    row(O::St, 0x1985, SM80, WHOLE, &[desc(64), DATA], LOAD).fixed(DESC),
    row(O::St, 0x1985, SM80, WHOLE, &[plus(64), DATA], LOAD).fixed(NO_DESC),
    row(O::Ldl, 0x983, ALL, WHOLE, &[D, LOCAL], &[EVICT, TYPE]),
    row(O::Ldl, 0x1983, SM80, WHOLE, &[D, LOCAL_PLUS], &[EVICT, TYPE]),
    row(O::Stl, 0x387, ALL, WHOLE, &[LOCAL, DATA], &[EVICT, TYPE]),
    row(O::Lds, 0x984, TO89, WHOLE, &[D, SHARED], &[flag(K::U, 76), TYPE]),
    row(O::Lds, 0x984, SM90, WHOLE, &[D, SHARED], &[TYPE]),
    row(O::Lds, 0x1984, ALL, WHOLE, &[D, shared(32)], &[TYPE]),
    row(O::Sts, 0x388, ALL, WHOLE, &[SHARED, DATA], &[TYPE]),
    row(O::Sts, 0x1988, ALL, WHOLE, &[shared(64), DATA], &[TYPE]),
    row(O::Atomg, 0x3a8, SM75, WHOLE, &[PD0, D, GLOBAL, DATA], ATOM75),
    row(O::Atomg, 0x3a8, SM80, WHOLE, &[PD0, D, GLOBAL, DATA], ATOM80),
    row(O::Atomg, 0x19a8, SM75, WHOLE, &[PD0, D, ATOM_PLUS, DATA], ATOM75),
    row(O::Atomg, 0x19a8, SM80TO89, WHOLE, &[PD0, D, ATOM_DESC, DATA], ATOM80).fixed(DESC90),
    row(O::Atomg, 0x19a8, HOPPER, WHOLE, &[PD0, D, ATOM_DESC, DATA], ATOM_INT).fixed(DESC90),
    row(O::Atomg, 0x19a8, SM100, WHOLE, &[PD0, D, ATOM_DESC100, DATA], ATOM_INT).fixed(DESC),
    row(O::Atomg, 0x19a3, HOPPER, WHOLE, &[PD0, D, ATOM_DESC, DATA], ATOM_FLOAT).fixed(DESC90),
    row(O::Atomg, 0x3a3, HOPPER, WHOLE, &[PD0, D, GLOBAL, DATA], ATOM_FLOAT),
    row(O::Atomg, 0x19a3, SM100, WHOLE, &[PD0, D, ATOM_DESC100, DATA], FLOAT100).fixed(DESC100_FLOAT),
    row(O::AtomgCas, 0x3a9, SM75, WHOLE, &[PD0, D, GLOBAL, DATA, SWAP], CAS75).named("ATOMG"),
    row(O::AtomgCas, 0x3a9, SM80, WHOLE, &[PD0, D, GLOBAL, DATA, SWAP], CAS80).named("ATOMG"),
    row(O::Atom, 0x38a, SM75, WHOLE, &[PD0, D, GLOBAL, DATA], ATOM75).fixed(&[(bits(64, 8), 255)]),
    row(O::Atom, 0x198a, SM75, WHOLE, &[PD0, D, ATOM_PLUS, DATA], ATOM75),
    row(O::Atom, 0x38a, SM80, WHOLE, &[PD0, D, GLOBAL, DATA], ATOM80),
    row(O::Atom, 0x198a, SM80TO89, WHOLE, &[PD0, D, ATOM_DESC, DATA], ATOM80).fixed(DESC90),
    row(O::Atom, 0x198a, HOPPER, WHOLE, &[PD0, D, ATOM_DESC, DATA], ATOM_INT).fixed(DESC90),
    row(O::Atom, 0x198a, SM100, WHOLE, &[PD0, D, ATOM_DESC100, DATA], ATOM_INT).fixed(DESC),
    row(O::Atom, 0x19a2, HOPPER, WHOLE, &[PD0, D, ATOM_DESC, DATA], ATOM_FLOAT).fixed(DESC90),
    row(O::Atom, 0x19a2, SM100, WHOLE, &[PD0, D, ATOM_DESC100, DATA], FLOAT100).fixed(DESC100_FLOAT),
    row(O::AtomCas, 0x38b, SM75, WHOLE, &[PD0, D, GLOBAL, DATA, SWAP], CAS75).named("ATOM"),
    row(O::AtomCas, 0x38b, SM80, WHOLE, &[PD0, D, GLOBAL, DATA, SWAP], CAS80).named("ATOM"),
    row(O::AtomCas, 0x38b, SM90, WHOLE, &[PD0, D, GLOBAL, DATA, SWAP], CAST80).named("ATOM"),
    row(O::Red, 0x198e, SM75, WHOLE, &[plus(64), DATA], RED75),
    row(O::Red, 0x98e, SM75, WHOLE, &[GLOBAL, DATA], RED75),
    row(O::Red, 0x198e, SM80TO89, WHOLE, &[desc(64), DATA], RED80).fixed(DESC90),
    row(O::Red, 0x98e, SM80TO89, WHOLE, &[GLOBAL, DATA], RED80),
    row(O::Red, 0x98e, SM75, WHOLE, &[GLOBAL, DATA], RED75).fixed(NO_RESULT),
    row(O::Red, 0x98e, SM75, WHOLE, &[GLOBAL, DATA], RED75).fixed(NO_REGISTER),
    row(O::Red, 0x98e, SM80TO89, WHOLE, &[GLOBAL, DATA], RED80).fixed(NO_RESULT),
    row(O::Red, 0x98e, SM80TO89, WHOLE, &[GLOBAL, DATA], RED80).fixed(NO_REGISTER),
    row(O::Redg, 0x98e, SM90, WHOLE, &[GLOBAL, DATA], RED_INT),
    row(O::Redg, 0x98e, HOPPER, WHOLE, &[GLOBAL, DATA], RED_INT).fixed(NO_RESULT),
    row(O::Redg, 0x98e, HOPPER, WHOLE, &[GLOBAL, DATA], RED_INT).fixed(NO_REGISTER),
    row(O::Redg, 0x198e, HOPPER, WHOLE, &[desc(64), DATA], RED_INT).fixed(DESC90),
    row(O::Redg, 0x198e, SM100, WHOLE, &[desc(64), DATA], RED_INT).fixed(DESC81),
    row(O::Redg, 0x19a6, HOPPER, WHOLE, &[desc(64), DATA], RED_FLOAT).fixed(DESC90),
    row(O::Redg, 0x9a6, HOPPER, WHOLE, &[GLOBAL, DATA], RED_FLOAT),
    row(O::Redg, 0x9a6, HOPPER, WHOLE, &[GLOBAL, DATA], RED_FLOAT).fixed(NO_RESULT),
    row(O::Redg, 0x9a6, HOPPER, WHOLE, &[GLOBAL, DATA], RED_FLOAT).fixed(NO_REGISTER),
    row(O::Redg, 0x19a6, SM100, WHOLE, &[desc(64), DATA], FLOAT100).fixed(DESC81),
    row(O::Atoms, 0x38c, SM75, WHOLE, &[D, SHARED, DATA], &[OP4, ATOMIC]).fixed(&[(bits(64, 8), 255)]),
    row(O::Atoms, 0x38c, SM75, WHOLE, &[D, SHARED, DATA], &[OP4, ATOMIC]),
    row(O::Atoms, 0x38c, SM80, WHOLE, &[D, SHARED, DATA], &[OP4, ATOMIC]),
    row(O::Atoms, 0x198c, SM90, WHOLE, &[D, shared(64), DATA], &[OP4, ATOMIC]),
    row(O::AtomsPopcInc, 0x1f8c, SM80TO89, WHOLE, &[D, shared(64)], &[])
        .named("ATOMS.POPC.INC.32")
        .fixed(&[(bits(87, 4), 10)]),
    row(O::AtomsPopcInc, 0x1f8c, SM90, WHOLE, &[D, shared(64)], &[])
        .named("ATOMS.POPC.INC.32")
        .fixed(&[(bits(87, 4), 11)]),
    row(O::AtomsArrive, 0x1f8c, SM80TO89, WHOLE, &[D, shared(64)], &[])
        .named("ATOMS.ARRIVE.64")
        .fixed(&[(bits(73, 3), 2), (bits(87, 4), 9)]),
    row(O::SyncsExch, 0x15b2, HOPPER, WHOLE, &[UD, SYNCS_UNIFORM, ureg(Role::Data, 32)], &[])
        .named("SYNCS.EXCH.64")
        .fixed(&[(bits(72, 1), 1)]),
    row(O::SyncsArrive, 0x19a7, HOPPER, WHOLE, &[D, SYNCS, DATA], &[flag(K::OptOut, 75), ARRIVALS])
        .named("SYNCS.ARRIVE.TRANS64"),
    row(O::SyncsPhasechk, 0x15a7, HOPPER, WHOLE, &[PD0, SYNCS, DATA], &[flag(K::TryWait, 72)])
        .named("SYNCS.PHASECHK.TRANS64")
        .fixed(&[(bits(70, 1), 1)]),
    row(O::SyncsCctl, 0x19b1, HOPPER, WHOLE, &[SYNCS], &[]).named("SYNCS.CCTL.IV"),
    row(O::AtomsCas, 0x38d, ALL, WHOLE, &[D, SHARED, DATA, SWAP], CAST).named("ATOMS"),
    row(O::AtomsCas, 0x58d, SM100, WHOLE, &[PD0, SHARED, DATA, SWAP], CAST).named("ATOMS"),
    row(
        O::Ldc,
        0xb82,
        ALL,
        WHOLE,
        &[D, any(Role::Address, SlotKind::ConstMemory)],
        &[f(K::Index, 78, 2), TYPE],
    ),
    row(O::Ldc, 0x1582, TO90, WHOLE, &[D, any(Role::Address, SlotKind::BindlessMemory)], &[TYPE]),
    row(O::Uldc, 0xab9, TO90, WHOLE, &[UD, any(Role::Address, SlotKind::ConstPlain)], &[TYPE]),
    row(O::Uldc, 0x1ab9, TO90, WHOLE, &[UD, any(Role::Address, SlotKind::BindlessPlain)], &[TYPE]),
    row(O::Uldc, 0x1ab9, TO90, WHOLE, &[UD, any(Role::Address, SlotKind::BindlessPlain)], &[TYPE])
        .fixed(NO_THIRD),
    row(
        O::Uldc,
        0x1abb,
        TO90,
        WHOLE,
        &[UD, any(Role::Address, SlotKind::ConstMemoryUniform(bits(38, 16)))],
        &[TYPE],
    ),
    row(
        O::Ldcu,
        0x17ac,
        SM100,
        WHOLE,
        &[UD, any(Role::Address, SlotKind::ConstMemoryUniform(bits(37, 17)))],
        &[TYPE],
    ),
    row(
        O::Ldgsts,
        0x1fae,
        (Arch::Sm80, Arch::Sm90),
        WHOLE,
        &[LDGSTS_TO, LDGSTS_FROM, PS0.show(Show::Used)],
        LDGSTS,
    )
    .fixed(DESC),
    row(O::Ldgsts, 0x1fae, SM100, WHOLE, &[LDGSTS_TO, LDGSTS_FROM100, PS0.show(Show::Used)], LDGSTS100)
        .fixed(DESC),
    row(O::Ldgdepbar, 0x9af, SM80, WHOLE, &[], &[]),
    row(O::Depbar, 0x91a, ALL, WHOLE, &[unsigned(Role::A, 44, 3), unsigned(Role::B, 38, 6)], &[])
        .named("DEPBAR.LE")
        .fixed(&[(bits(47, 1), 1)]),
    row(O::Cctl, 0x98f, ALL, WHOLE, &[], &[])
        .named("CCTL.IVALL")
        .fixed(&[(bits(24, 8), 255), (bits(87, 3), 4)]),
    row(
        O::Membar,
        0x992,
        ALL,
        WHOLE,
        &[],
        &[f(K::FenceOrder, 79, 2), f(K::FenceScope, 76, 3).codes(&[0, 1, 2, 3, 255, 4])],
    ),
    row(O::Errbar, 0x9ab, ALL, WHOLE, &[], &[]),
    row(O::Cgaerrbar, 0x5ab, SM90, WHOLE, &[], &[]),
    row(O::Qspc, 0x3aa, TO89, WHOLE, &[PD0, D, GLOBAL], QSPC),
    row(O::Qspc, 0x19aa, TO89, WHOLE, &[PD0, D, plus(32)], QSPC),
    row(O::Qspc, 0x3aa, SM90, WHOLE, &[PD0, D, GLOBAL], QSPC90),
    row(O::Qspc, 0x19aa, SM90, WHOLE, &[PD0, D, plus(32)], QSPC90),
];

/// Barriers in shared memory (mbarrier).
const SYNCS: Slot = memory(Memory { uniform: Some(64), ..PLAIN });
const SYNCS_UNIFORM: Slot = memory(Memory { uniform: Some(24), base: Option::None, ..PLAIN });
const ARRIVALS: Field = f(K::Arrivals, 84, 3);
/// Where float atomics of Blackwell have that bit.
const DESC100_FLOAT: &[(crate::Bits, u64)] = &[(bits(90, 1), 1)];
const DESC81: &[(crate::Bits, u64)] = &[(bits(81, 1), 1)];
const CAST: &[Field] = &[f(K::CasMode, 87, 2).codes(&[0, 255, 255, 1]), CAS_TYPE];
const CAST80: &[Field] = &[E, f(K::CasMode, 87, 2).codes(&[255, 255, 255, 1]), EVICT, CAS_TYPE, ORDER];
const QSPC: &[Field] = &[E, f(K::Space, 73, 2).codes(&[3, 2, 1])];
const QSPC90: &[Field] = &[E, f(K::Space, 73, 2).codes(&[3, 2, 1, 4])];
const LDGSTS: &[Field] = &[
    f(K::E, 0, 0).codes(&[1]),
    f(K::Bypass, 81, 1).codes(&[1, 0]),
    EVICT,
    f(K::AccessType, 73, 3).codes(&[255, 255, 255, 255, 4, 5, 6]),
    flag(K::ZeroFill, 82),
    ORDER,
];
const LDGSTS_TO: Slot = memory(Memory { base: Some(16), offset: bits(44, 20), ..PLAIN });
const LDGSTS_FROM: Slot = any(
    Role::Address2,
    SlotKind::Memory(Memory { descriptor: Some(64), wide: Some(70), offset: bits(32, 12), ..PLAIN }),
);
const LDGSTS_FROM100: Slot = any(
    Role::Address2,
    SlotKind::Memory(Memory { descriptor: Some(64), wide: Some(83), offset: bits(32, 12), ..PLAIN }),
);
const LDGSTS100: &[Field] = &[
    f(K::E, 0, 0).codes(&[1]),
    f(K::Bypass, 81, 1).codes(&[1, 0]),
    EVICT,
    f(K::AccessType, 74, 2).codes(&[4, 5, 6]),
    ORDER,
];
