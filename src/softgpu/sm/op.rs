//! An instruction that is ready to run: operands are rows, modifiers have their types.

use gpuvmk_isa::Opcode;
use gpuvmk_isa::modifier::{AtomicOp, AtomicType, BoolOp, Shuffle};

use crate::numerics::format::Format;
use crate::numerics::half::{self, Swizzle};
use crate::numerics::integer::{Funnel, Permute};
use crate::numerics::mufu::Function;
use crate::numerics::rounding::Rounding;
use crate::numerics::{convert, float};

/// Rows of uniform registers: they stand before a warp's registers.
pub const UNIFORM_ROWS: u16 = 64;

/// The row that is zero: the uniform register that reads so, which nothing is written to.
pub const ZERO_ROW: u16 = UNIFORM_ROWS - 1;

/// Rows from here on are of immediates and constants.
pub const POOL: u16 = 512;

/// A source: a row, or two for 64 bits.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// The row, or that of the lower half.
    pub row: u16,
    /// The row of the upper half.
    pub high: u16,
    /// The magnitude is taken.
    pub absolute: bool,
    /// The sign is changed, after that.
    pub negate: bool,
    /// Halves of a packed operand.
    pub swizzle: Swizzle,
}

impl Source {
    /// Zero.
    pub const ZERO: Self =
        Self { row: ZERO_ROW, high: ZERO_ROW, absolute: false, negate: false, swizzle: Swizzle::H1H0 };
}

/// A predicate as source: uniform ones stand behind the lanes' eight.
#[derive(Clone, Copy, Debug)]
pub struct Condition {
    /// Which.
    pub index: u8,
    /// Its complement.
    pub negate: bool,
}

/// The predicate that is true, as destination that keeps nothing.
pub const TRUE: u8 = 7;

impl Condition {
    /// Always.
    pub const ALWAYS: Self = Self { index: TRUE, negate: false };
}

/// An address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// By virtual address.
    Global,
    /// By virtual address, with windows of shared and local memory.
    Generic,
    /// The CTA's.
    Shared,
    /// The lane's.
    Local,
}

/// What a load or store moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes or halves, by the number of bytes, and whether loads extend their sign.
    Small(u8, bool),
    /// Words.
    Words(u8),
}

/// An address: `a * stride + uniform + offset`.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Where.
    pub space: Space,
    /// `a` is a pair.
    pub wide: bool,
    /// Row of the uniform part; a pair if addresses are.
    pub uniform: u16,
    /// In bytes.
    pub offset: i32,
    /// Shift of `a`.
    pub scale: u8,
}

/// Modifiers of an operation, by what it is.
#[derive(Clone, Copy, Debug)]
pub enum Detail {
    /// None.
    None,
    /// Carries come in, or the result is the upper half; operands are signed.
    Integer {
        /// X: the continued part of a longer number.
        extended: bool,
        /// Signed operands.
        signed: bool,
        /// The upper half.
        high: bool,
    },
    /// A shift of LEA.
    Lea {
        /// The count.
        shift: u8,
        /// The upper half of the shifted pair.
        high: bool,
        /// X.
        extended: bool,
        /// The upper half is the sign's.
        signed: bool,
    },
    /// A table of LOP3 or PLOP3, and a second one; whether predicates are combined by AND.
    Table(u8, u8, bool),
    /// A comparison: accepted relations, and how they are combined.
    Compare {
        /// Set of relations.
        accepted: u8,
        /// With the predicate.
        combine: BoolOp,
        /// Signed integers.
        signed: bool,
        /// Goes on with the lower half's result.
        extended: bool,
        /// Subnormal numbers are 0.
        flush: bool,
        /// Results are 1.0, not all ones.
        number: bool,
    },
    /// SHF.
    Shift(Funnel),
    /// PRMT.
    Permute(Permute),
    /// FLO, BMSK, SGXT, IABS and the like: signed, and a flag.
    Bits(bool, bool),
    /// Single precision, FMUL's scale.
    Float(float::Mode, i8),
    /// Double precision.
    Double(Rounding),
    /// Packed halves; relations for comparisons.
    Half(half::Mode),
    /// A comparison of halves.
    HalfCompare(half::Mode, u8, BoolOp, bool),
    /// A conversion of floats.
    FloatFloat(Format, Format, float::Mode),
    /// A float to an integer.
    FloatInteger(Format, convert::Integer, float::Mode),
    /// An integer to a float.
    IntegerFloat(convert::Integer, Format, Rounding),
    /// F2FP.
    Pack(convert::Pack),
    /// MUFU.
    Function(Function),
    /// A special register.
    Special(u8),
    /// A load or store.
    Move(Place, Unit),
    /// Constant memory: bank, offset, words.
    Constant(u8, i32, Unit),
    /// An atomic; the flag says that CAS tells whether it swapped.
    Atomic(Place, AtomicOp, AtomicType, bool),
    /// Where control goes.
    Target(i64),
    /// A convergence barrier, and where it ends.
    Barrier(u8),
    /// SHFL.
    Shuffle(Shuffle),
    /// A choice among few: VOTE, MATCH, REDUX, BAR.
    Choice(u8, u8),
}

/// An instruction that is ready to run.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    /// What it does.
    pub opcode: Opcode,
    /// It runs once for the warp: all lanes of its rows are alike.
    pub uniform: bool,
    /// Which lanes run.
    pub guard: Condition,
    /// Row of the result; [`ZERO_ROW`] keeps nothing.
    pub d: u16,
    /// First source.
    pub a: Source,
    /// Second source.
    pub b: Source,
    /// Third source.
    pub c: Source,
    /// Predicates that take results.
    pub to: [u8; 2],
    /// Predicates that are sources.
    pub from: [Condition; 3],
    /// Modifiers.
    pub detail: Detail,
}
