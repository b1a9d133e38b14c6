//! The commonest instructions in their commonest forms. They run one after the other where all lanes of a
//! warp run together, and give what the usual way gives.

use gpuvmk_isa::Opcode as O;
use gpuvmk_isa::modifier::BoolOp;

use crate::numerics::integer::Funnel;
use crate::op::{Condition, Detail, Op, POOL, Source, TRUE, UNIFORM_ROWS, Unit, ZERO_ROW};

const SIGN: u32 = (-0.0_f32).to_bits();

/// A sum of three words, of which carries come in, or go out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Carried {
    /// Operands whose complements are added, a bit each.
    pub flips: u8,
    /// What is added besides.
    pub more: u8,
    /// Carries that are added.
    pub from: Option<[Condition; 2]>,
    /// Predicates that take the result's carries.
    pub to: [u8; 2],
}

/// A shifted word, or the upper half of a shifted pair, and a sum with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scaled {
    /// The count, below 32.
    pub shift: u8,
    /// The upper half is shifted; whether it is the sign's.
    pub high: Option<bool>,
    /// A carry that is added.
    pub from: Option<Condition>,
    /// The predicate that takes the result's carry.
    pub to: u8,
}

/// What is computed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// It is none of these. Where its guard lets no lane run, nothing is done.
    None,
    /// The same, but control flow: it goes the usual way in any case.
    Control,
    Copy,
    /// Constants that are known: one word, or two.
    Constants(bool),
    /// A special register.
    Special(u8),
    /// By so many bytes from the next one, where the guard and two conditions hold.
    Branch(i64, [Condition; 3]),
    /// The bits that are flipped, and what is added besides: the sign of a number is changed by both.
    Sum([u32; 3], u32),
    Carried(Carried),
    Scaled(Scaled),
    Multiply,
    /// The product has 64 bits; whether operands are signed.
    MultiplyWide(bool),
    /// Its upper half.
    MultiplyHigh(bool),
    /// By the table of LOP3.
    Logic(u8),
    Shift(Funnel),
    /// Numbers: the signs that are changed, and whether subnormal numbers are 0.
    Add([u32; 2], bool),
    Scale([u32; 2], bool),
    Fused([u32; 3], bool),
    /// Of numbers no sign of which is changed.
    PlainFused,
    /// Integers: accepted relations, whether they are signed, and how that is combined.
    Compare(u8, bool, BoolOp, Condition, [u8; 2]),
    /// Of memory.
    Load,
    /// To memory.
    Store,
}

/// An instruction in a form of its own, if it is one of these.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quick {
    pub kind: Kind,
    /// The lanes that run, if not all of them do in any case.
    pub guard: Option<Condition>,
    /// All sources are registers.
    pub near: bool,
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
            (O::S2r | O::S2ur, Detail::Special(register)) => Self::Special(register),
            (O::Bra, Detail::Target(distance)) => Self::Branch(distance, [op.guard, op.from[0], op.from[1]]),
            (O::Iadd3 | O::Uiadd3 | O::Viadd, detail) => Self::sum(op, detail, kept),
            (O::Lea | O::Ulea, Detail::Lea { shift: shift @ ..=31, high, extended, signed }) if signless => {
                let from = extended.then_some(op.from[0]);
                Self::Scaled(Scaled { shift, high: high.then_some(signed), from, to: op.to[0] })
            }
            (O::Imad | O::Uimad, Detail::Integer { extended: false, high: false, .. }) if signless => {
                Self::Multiply
            }
            (O::ImadWide | O::UimadWide, Detail::Integer { extended: false, high: false, signed })
                if signless && !kept =>
            {
                Self::MultiplyWide(signed)
            }
            (O::ImadHi | O::UimadHi, Detail::Integer { extended: false, high: true, signed })
                if signless && !kept =>
            {
                Self::MultiplyHigh(signed)
            }
            (O::Lop3 | O::Ulop3, Detail::Table(table, ..)) if !kept => Self::Logic(table),
            (O::Shf | O::Ushf, Detail::Shift(how)) => Self::Shift(how),
            (O::Fadd, Detail::Float(mode, _)) if whole && mode.is_ordinary() => {
                Self::Add([a, b].map(sign), mode.flush)
            }
            (O::Fmul, Detail::Float(mode, 0)) if whole && mode.is_ordinary() => {
                Self::Scale([a, b].map(sign), mode.flush)
            }
            (O::Ffma, Detail::Float(mode, _)) if whole && signless && mode.is_plain() => Self::PlainFused,
            (O::Ffma, Detail::Float(mode, _)) if whole && mode.is_ordinary() => {
                Self::Fused([a, b, c].map(sign), mode.flush)
            }
            (O::Isetp | O::Uisetp, Detail::Compare { accepted, combine, signed, extended: false, .. }) => {
                Self::Compare(accepted, signed, combine, op.from[0], op.to)
            }
            (O::Ldg | O::Ld | O::Lds | O::Ldl, Detail::Move(..)) => Self::Load,
            (O::Stg | O::St | O::Sts | O::Stl, Detail::Move(..)) => Self::Store,
            // Without lanes nobody ends.
            (O::Exit, _) => Self::None,
            _ => Self::Control,
        }
    }

    fn sum(op: &Op, detail: Detail, kept: bool) -> Self {
        let extended = matches!(detail, Detail::Integer { extended: true, .. });
        let sources = [op.a, op.b, op.c];
        let ones = sources.iter().map(|source| u8::from(source.negate)).sum::<u8>();
        if !kept && !extended {
            return Self::Sum(sources.map(complement), u32::from(ones));
        }
        Self::Carried(Carried {
            flips: (0..).zip(sources).fold(0, |flips, (bit, source)| flips | u8::from(source.negate) << bit),
            // A longer number's sign is changed by its complement, and the one below all of it.
            more: if extended { 0 } else { ones },
            from: extended.then_some([op.from[0], op.from[1]]),
            to: op.to,
        })
    }
}

impl Quick {
    /// No such form.
    pub const NONE: Self =
        Self { kind: Kind::Control, guard: None, near: false, d: 0, a: 0, b: 0, c: 0, high: 0 };

    /// The form of an operation that runs with so many registers.
    pub fn of(op: &Op, registers: u16) -> Self {
        let kind = Kind::of(op);
        let words = match kind {
            Kind::None | Kind::Control | Kind::Compare(..) | Kind::Branch(..) | Kind::Load | Kind::Store => 0,
            Kind::MultiplyWide(_) | Kind::Constants(true) => 2,
            _ => 1,
        };
        // Registers behind the last one are a fault, which the usual way tells.
        if words > 0 && op.d >= UNIFORM_ROWS && op.d + words > UNIFORM_ROWS + registers {
            return Self::NONE;
        }
        let guarded = op.guard.index & TRUE != TRUE || op.guard.negate;
        let guard = (guarded && !matches!(kind, Kind::Branch(..))).then_some(op.guard);
        let near = [op.a, op.b, op.c].iter().all(|source| source.row < POOL);
        Self { kind, guard, near, d: op.d, a: op.a.row, b: op.b.row, c: op.c.row, high: op.c.high }
    }
}
