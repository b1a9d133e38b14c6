//! Short names for the rows of the table.

use crate::arch::Arch;
use crate::modifier::Kind;
pub(crate) use crate::modifier::Kind as K;
use crate::opcode::Opcode;
pub(crate) use crate::opcode::Opcode as O;
pub(crate) use crate::operand::Role;
pub(crate) use crate::row::Mods::{self, Half, Neg, NegAbs, None, Not};
use crate::row::{Field, Form, Memory, Place, Slot};
pub(crate) use crate::row::{Number, Row, Show, SlotKind};
use crate::word::Bits;

/// First and last version.
pub(crate) const ALL: (Arch, Arch) = (Arch::Sm75, Arch::Sm120);
/// Before Hopper.
pub(crate) const TO89: (Arch, Arch) = (Arch::Sm75, Arch::Sm89);
/// Before Blackwell.
pub(crate) const TO90: (Arch, Arch) = (Arch::Sm75, Arch::Sm90);
/// From Ampere on.
pub(crate) const SM80: (Arch, Arch) = (Arch::Sm80, Arch::Sm120);
/// Ampere and Ada.
pub(crate) const SM80TO89: (Arch, Arch) = (Arch::Sm80, Arch::Sm89);
/// From Hopper on.
pub(crate) const SM90: (Arch, Arch) = (Arch::Sm90, Arch::Sm120);
/// From Blackwell on.
pub(crate) const SM100: (Arch, Arch) = (Arch::Sm100, Arch::Sm120);
/// Turing.
pub(crate) const SM75: (Arch, Arch) = (Arch::Sm75, Arch::Sm75);
/// GB20x.
pub(crate) const SM120: (Arch, Arch) = (Arch::Sm120, Arch::Sm120);
/// Before GB20x.
pub(crate) const TO100: (Arch, Arch) = (Arch::Sm75, Arch::Sm100);

const fn form(code: u16, b: Place, c: Place) -> Form {
    Form { code, b, c, arch: ALL }
}

const RRR: Form = form(0x200, Place::Low, Place::High);
const RRI: Form = form(0x400, Place::High, Place::Imm);
const RRK: Form = form(0x600, Place::High, Place::Const);
const RIR: Form = form(0x800, Place::Imm, Place::High);
const RKR: Form = form(0xa00, Place::Const, Place::High);
const RUR: Form = form(0x1c00, Place::Uniform, Place::High);
const RRU: Form = form(0x1e00, Place::High, Place::Uniform);
const RXR: Form = form(0x1a00, Place::Bindless, Place::High);
const RRX: Form = form(0x1600, Place::High, Place::Bindless);
/// Three sources, any form.
pub(crate) const THREE: &[Form] = &[RRR, RRI, RRK, RIR, RKR, RUR, RRU, RXR, RRX];
/// Second source in any form, a third in bits 71:64.
pub(crate) const TWO: &[Form] = &[RRR, RIR, RKR, RUR, RXR];
/// Second source that takes the third's place in other forms than that of a register (FADD, HADD2).
pub(crate) const SUM: &[Form] = &[
    form(0x200, Place::Low, Place::None),
    form(0x400, Place::Imm, Place::None),
    form(0x600, Place::Const, Place::None),
    form(0x1e00, Place::Uniform, Place::None),
    form(0x1600, Place::Bindless, Place::None),
];
/// The same, with the register in bits 71:64 (DADD).
pub(crate) const SUM_HIGH: &[Form] = &[
    form(0x200, Place::High, Place::None),
    form(0x400, Place::Imm, Place::None),
    form(0x600, Place::Const, Place::None),
    form(0x1e00, Place::Uniform, Place::None),
    form(0x1600, Place::Bindless, Place::None),
];
/// Uniform operations.
pub(crate) const UNIFORM: &[Form] = &[
    form(0x1200, Place::Uniform, Place::UniformHigh),
    form(0x1400, Place::UniformHigh, Place::Imm),
    form(0x1800, Place::Imm, Place::UniformHigh),
];
/// RZ where other operations have a third source. Mesa's compiler writes it in some, NVIDIA's leaves zeros.
pub(crate) const NO_THIRD: &[(Bits, u64)] = &[(Bits::new(64, 8), 255)];
/// One source, of constant memory.
pub(crate) const CONST: &[Form] = &[form(0xa00, Place::Const, Place::None)];
/// Hopper.
pub(crate) const ONLY90: (Arch, Arch) = (Arch::Sm90, Arch::Sm90);
/// One form, the code is whole.
pub(crate) const WHOLE: &[Form] = &[form(0, Place::None, Place::None)];

/// A row of integers or none.
pub(crate) const fn row(
    op: Opcode,
    code: u16,
    arch: (Arch, Arch),
    forms: &'static [Form],
    slots: &'static [Slot],
    fields: &'static [Field],
) -> Row {
    Row {
        op,
        mnemonic: op.name(),
        since: arch.0,
        until: arch.1,
        code,
        forms,
        slots,
        fields,
        fixed: &[],
        number: Number::Signed,
    }
}

impl Row {
    pub(crate) const fn number(mut self, number: Number) -> Self {
        self.number = number;
        self
    }
    pub(crate) const fn fixed(mut self, fixed: &'static [(Bits, u64)]) -> Self {
        self.fixed = fixed;
        self
    }
    pub(crate) const fn named(mut self, mnemonic: &'static str) -> Self {
        self.mnemonic = mnemonic;
        self
    }
}

/// A run of bits.
pub(crate) const fn bits(lo: u8, len: u8) -> Bits {
    Bits::new(lo, len)
}

const NOWHERE: Bits = Bits::new(0, 0);

/// A modifier whose codes are its values.
pub(crate) const fn f(kind: Kind, lo: u8, len: u8) -> Field {
    Field { kind, bits: [Bits::new(lo, len), NOWHERE], codes: &[], hidden: Option::None }
}

/// A flag of one bit.
pub(crate) const fn flag(kind: Kind, lo: u8) -> Field {
    f(kind, lo, 1)
}

impl Field {
    pub(crate) const fn codes(mut self, codes: &'static [u8]) -> Self {
        self.codes = codes;
        self
    }
    pub(crate) const fn hide(mut self, value: u8) -> Self {
        self.hidden = Some(value);
        self
    }
    pub(crate) const fn high(mut self, lo: u8, len: u8) -> Self {
        self.bits[1] = Bits::new(lo, len);
        self
    }
}

const fn slot(role: Role, kind: SlotKind) -> Slot {
    Slot { role, kind, show: Show::Always }
}

impl Slot {
    pub(crate) const fn show(mut self, show: Show) -> Self {
        self.show = show;
        self
    }
    /// Prints with a flag only.
    pub(crate) const fn with(self, kind: Kind) -> Self {
        self.show(Show::With(kind))
    }
}

/// Result register.
pub(crate) const D: Slot = slot(Role::Dst, SlotKind::Reg(16, None));
/// Result uniform register.
pub(crate) const UD: Slot = slot(Role::Dst, SlotKind::UReg(16, None));

/// First source.
pub(crate) const fn a(mods: Mods) -> Slot {
    slot(Role::A, SlotKind::Reg(24, mods))
}
/// First uniform source.
pub(crate) const fn ua(mods: Mods) -> Slot {
    slot(Role::A, SlotKind::UReg(24, mods))
}
/// Second source.
pub(crate) const fn b(mods: Mods) -> Slot {
    slot(Role::B, SlotKind::FormB(mods))
}
/// Third source.
pub(crate) const fn c(mods: Mods) -> Slot {
    slot(Role::C, SlotKind::FormC(mods))
}
/// Register at a bit.
pub(crate) const fn reg(role: Role, lo: u8) -> Slot {
    slot(role, SlotKind::Reg(lo, None))
}
/// Uniform register at a bit.
pub(crate) const fn ureg(role: Role, lo: u8) -> Slot {
    slot(role, SlotKind::UReg(lo, None))
}
/// First predicate result.
pub(crate) const PD0: Slot = slot(Role::PDst0, SlotKind::Pred(81, Option::None));
/// Second predicate result.
pub(crate) const PD1: Slot = slot(Role::PDst1, SlotKind::Pred(84, Option::None));
/// First predicate source.
pub(crate) const PS0: Slot = slot(Role::PSrc0, SlotKind::Pred(87, Some(90)));
/// Second predicate source.
pub(crate) const PS1: Slot = slot(Role::PSrc1, SlotKind::Pred(77, Some(80)));
/// Third predicate source.
pub(crate) const PS2: Slot = slot(Role::PSrc2, SlotKind::Pred(68, Some(71)));
/// First uniform predicate result.
pub(crate) const UPD0: Slot = slot(Role::PDst0, SlotKind::UPred(81, Option::None));
/// Second uniform predicate result.
pub(crate) const UPD1: Slot = slot(Role::PDst1, SlotKind::UPred(84, Option::None));
/// First uniform predicate source.
pub(crate) const UPS0: Slot = slot(Role::PSrc0, SlotKind::UPred(87, Some(90)));
/// Second uniform predicate source.
pub(crate) const UPS1: Slot = slot(Role::PSrc1, SlotKind::UPred(77, Some(80)));
/// Third uniform predicate source.
pub(crate) const UPS2: Slot = slot(Role::PSrc2, SlotKind::UPred(68, Some(71)));

/// Anything.
pub(crate) const fn any(role: Role, kind: SlotKind) -> Slot {
    slot(role, kind)
}
/// Unsigned number.
pub(crate) const fn unsigned(role: Role, lo: u8, len: u8) -> Slot {
    slot(role, SlotKind::Unsigned(Bits::new(lo, len)))
}

/// Memory without anything but a base and an offset.
pub(crate) const PLAIN: Memory = Memory {
    wide: Option::None,
    uniform: Option::None,
    descriptor: Option::None,
    offset: Bits::new(40, 24),
    stride: Option::None,
    base: Some(24),
};

/// A memory operand.
pub(crate) const fn memory(memory: Memory) -> Slot {
    slot(Role::Address, SlotKind::Memory(memory))
}
