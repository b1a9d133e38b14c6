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
    /// By virtual address, in the window of shared memory alone: that of the cluster's blocks.
    Cluster,
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

/// Elements of matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elements {
    /// Floats: of the factors, and of the sum.
    Floats {
        /// F16, BF16 or TF32.
        factors: Format,
        /// F16 or F32.
        accumulator: Format,
    },
    /// Integers, whose sum has 32 bits.
    Integers {
        /// 4 or 8.
        bits: u8,
        /// Whether the factors are signed.
        signed: (bool, bool),
        /// The sum is clamped.
        saturate: bool,
    },
}

impl Elements {
    /// Bits of a factor.
    #[must_use]
    pub const fn bits(self) -> u32 {
        match self {
            Self::Floats { factors, .. } => factors.bits(),
            Self::Integers { bits, .. } => bits as u32,
        }
    }

    /// How many of them a register holds: one of TF32, which has its upper bits.
    #[must_use]
    pub const fn packed(self) -> usize {
        match self.bits() {
            4 => 8,
            8 => 4,
            16 => 2,
            _ => 1,
        }
    }
}

/// A product of matrices: `rows` by `depth` times `depth` by 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// 8 or 16.
    pub rows: usize,
    /// Terms of a sum, 64 at most.
    pub depth: usize,
    /// What they are of.
    pub elements: Elements,
}

/// IDP: a sum of products of parts of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dot {
    /// Parts of the first word are bytes, else halves: two products.
    pub bytes: bool,
    /// Halves are multiplied with the upper bytes of the second word.
    pub high: bool,
    /// Whether parts are signed.
    pub signed: (bool, bool),
}

/// What is done to a barrier in shared memory (mbarrier).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phased {
    /// The warp puts another word there.
    Exchange,
    /// Lanes arrive: one each, or as many as a register says.
    Arrive {
        /// As a register says.
        several: bool,
        /// They are not waited for in later phases.
        leave: bool,
        /// The word is one of Ampere's.
        ampere: bool,
    },
    /// Whether a phase is over.
    Check,
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
    /// FMNMX and HMNMX2.
    Extreme(half::Mode, float::Extreme),
    /// DSETP.MIN and DSETP.MAX: whether the larger number is asked for, and how results are combined.
    Pick(bool, BoolOp),
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
    /// An integer to a float; the integer's lowest bit in its word.
    IntegerFloat(convert::Integer, Format, Rounding, u8),
    /// F2FP.
    Pack(convert::Pack),
    /// MUFU, and whether it is of a half.
    Function(Function, bool),
    /// A special register.
    Special(u8),
    /// A load or store.
    Move(Place, Unit),
    /// LDGSTS: from where, to where in shared memory, how many words. The base of the latter is in `b`.
    Copy(Place, Place, u8, bool),
    /// LDSM: where rows are, how many matrices, and whether they are transposed.
    Matrices(Place, u8, bool),
    /// QSPC: whether addresses are in a space.
    Asked(Place, Space),
    /// Constant memory: bank, offset, words.
    Constant(u8, i32, Unit),
    /// What is done to a barrier in shared memory.
    Phase(Place, Phased),
    /// An atomic; the flag says that CAS tells whether it swapped.
    Atomic(Place, AtomicOp, AtomicType, bool),
    /// Where control goes.
    Target(i64),
    /// A convergence barrier, and where it ends.
    Barrier(u8),
    /// A convergence barrier that is cleared when it was read.
    TakenBarrier(u8),
    /// Where all lanes go if all want to (BRA.U).
    AllLanes(i64),
    /// Where all lanes go if one wants to (BRA.U.ANY).
    AnyLane(i64),
    /// Where all lanes go if one wants to, and one of a mask, which is the first operand, does not want to
    /// with them (BRA.DIV).
    Divergent(i64),
    /// Where all lanes go if one wants to, and all of a mask want to with them (BRA.CONV).
    Converged(i64),
    /// Another word of a warp's state, by its number.
    WarpWord(u8),
    /// SHFL.
    Shuffle(Shuffle),
    /// HMMA and IMMA.
    Matrix(Matrix),
    /// IDP.
    Dot(Dot),
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
