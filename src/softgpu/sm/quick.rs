//! The commonest instructions in their commonest forms, which need no more than rows of registers. They run
//! one after the other where all lanes of a warp run together, and give what the usual way gives.

use gpuvmk_isa::Opcode as O;
use gpuvmk_isa::modifier::BoolOp;

use crate::numerics::integer::Funnel;
use crate::op::{Condition, Detail, Op, Source, TRUE, UNIFORM_ROWS, Unit, ZERO_ROW};

const SIGN: u32 = (-0.0_f32).to_bits();

/// What is computed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// It is none of these.
    None,
    Copy,
    /// Constants that are known: one word, or two.
    Constants(bool),
    /// By so many bytes from the next one, where the guard and two conditions hold.
    Branch(i64, [Condition; 3]),
    /// The bits that are flipped, and what is added besides: the sign of a number is changed by both.
    Sum([u32; 3], u32),
    Multiply,
    /// The product has 64 bits; whether operands are signed.
    MultiplyWide(bool),
    /// By the table of LOP3.
    Logic(u8),
    Shift(Funnel),
    /// Numbers: the signs that are changed, and whether subnormal numbers are 0.
    Add([u32; 2], bool),
    Scale([u32; 2], bool),
    Fused([u32; 3], bool),
    /// Integers: accepted relations, whether they are signed, and how that is combined.
    Compare(u8, bool, BoolOp, Condition, [u8; 2]),
}

/// An instruction in a form of its own, if it is one of these.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quick {
    pub kind: Kind,
    pub d: u16,
    pub a: u16,
    pub b: u16,
    pub c: u16,
    /// The upper half of `c`.
    pub high: u16,
}

/// The sign's bit where a source's sign is changed.
const fn sign(source: Source) -> u32 {
    if source.negate { SIGN } else { 0 }
}

const fn complement(source: Source) -> u32 {
    if source.negate { u32::MAX } else { 0 }
}

impl Kind {
    fn of(op: &Op) -> Self {
        let [a, b, c] = [op.a, op.b, op.c];
        let whole = !a.absolute && !b.absolute && !c.absolute;
        let signless = !a.negate && !b.negate && !c.negate;
        let kept = op.to.iter().any(|to| to & TRUE != TRUE);
        match (op.opcode, op.detail) {
            (O::Mov | O::Umov, _) => Self::Copy,
            (O::Ldc | O::Uldc, Detail::Constant(_, offset, Unit::Words(words @ 1..=2)))
                if op.a.row == ZERO_ROW && offset % 4 == 0 =>
            {
                Self::Constants(words == 2)
            }
            (O::Bra, Detail::Target(distance)) => Self::Branch(distance, [op.guard, op.from[0], op.from[1]]),
            (O::Iadd3 | O::Uiadd3 | O::Viadd, Detail::Integer { extended: true, .. }) => Self::None,
            (O::Iadd3 | O::Uiadd3 | O::Viadd, _) if !kept => {
                let flips = [a, b, c].map(complement);
                Self::Sum(flips, flips.iter().fold(0, |ones, flip| ones + (flip & 1)))
            }
            (O::Imad | O::Uimad, Detail::Integer { extended: false, high: false, .. }) if signless => {
                Self::Multiply
            }
            (O::ImadWide | O::UimadWide, Detail::Integer { extended: false, high: false, signed })
                if signless && !kept =>
            {
                Self::MultiplyWide(signed)
            }
            (O::Lop3 | O::Ulop3, Detail::Table(table, ..)) if !kept => Self::Logic(table),
            (O::Shf | O::Ushf, Detail::Shift(how)) => Self::Shift(how),
            (O::Fadd, Detail::Float(mode, _)) if whole && mode.is_ordinary() => {
                Self::Add([a, b].map(sign), mode.flush)
            }
            (O::Fmul, Detail::Float(mode, 0)) if whole && mode.is_ordinary() => {
                Self::Scale([a, b].map(sign), mode.flush)
            }
            (O::Ffma, Detail::Float(mode, _)) if whole && mode.is_ordinary() => {
                Self::Fused([a, b, c].map(sign), mode.flush)
            }
            (O::Isetp | O::Uisetp, Detail::Compare { accepted, combine, signed, extended: false, .. }) => {
                Self::Compare(accepted, signed, combine, op.from[0], op.to)
            }
            _ => Self::None,
        }
    }
}

impl Quick {
    /// No such form.
    pub const NONE: Self = Self { kind: Kind::None, d: 0, a: 0, b: 0, c: 0, high: 0 };

    /// The form of an operation that runs with so many registers.
    pub fn of(op: &Op, registers: u16) -> Self {
        let kind = Kind::of(op);
        let words = match kind {
            Kind::None | Kind::Compare(..) | Kind::Branch(..) => 0,
            Kind::MultiplyWide(_) | Kind::Constants(true) => 2,
            _ => 1,
        };
        // Registers behind the last one are a fault, which the usual way tells.
        let there = words == 0 || op.d < UNIFORM_ROWS || op.d + words <= UNIFORM_ROWS + registers;
        let guarded = op.guard.index & TRUE != TRUE || op.guard.negate;
        if !there || guarded && !matches!(kind, Kind::Branch(..)) {
            return Self::NONE;
        }
        Self { kind, d: op.d, a: op.a.row, b: op.b.row, c: op.c.row, high: op.c.high }
    }
}
