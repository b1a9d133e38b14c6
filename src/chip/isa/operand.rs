//! Operands of instructions, resolved from their fields.

/// A general register of a lane; 255 reads as zero and keeps nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reg(pub u8);

impl Reg {
    /// The register that is zero.
    pub const ZERO: Self = Self(255);
}

/// A uniform register of a warp; 255 reads as zero (63 in words of versions before SM100 becomes 255 here).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UReg(pub u8);

impl UReg {
    /// The uniform register that is zero.
    pub const ZERO: Self = Self(255);
}

/// A predicate register of a lane; 7 is always true and keeps nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pred(pub u8);

impl Pred {
    /// The predicate that is true.
    pub const TRUE: Self = Self(7);
}

/// A uniform predicate of a warp; 7 is always true.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UPred(pub u8);

/// Which halves of a packed operand are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Half {
    /// Both, each for its own lane of the result.
    #[default]
    H1H0,
    /// The operand is one 32-bit float.
    F32,
    /// The low half twice.
    H0H0,
    /// The high half twice.
    H1H1,
}

impl Half {
    pub(crate) const ALL: [Self; 4] = [Self::H1H0, Self::F32, Self::H0H0, Self::H1H1];
}

/// What is done to a source before it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SourceModifiers {
    /// Negated: a float's sign, or two's complement; the complement of all bits where the operation says so
    /// (IADD3.X, LOP3, FLO).
    pub neg: bool,
    /// A float's sign is dropped, before `neg`.
    pub abs: bool,
    /// Halves of a packed operand.
    pub half: Half,
}

/// An address in memory: `base + uniform + offset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Address {
    /// Per-lane part; [`Reg::ZERO`] for none.
    pub base: Reg,
    /// `base` is a pair of registers, 64 bits.
    pub wide: bool,
    /// Uniform part, where the form has one.
    pub uniform: Option<UReg>,
    /// Uniform register pair with a descriptor: attributes only, it adds nothing to the address.
    pub descriptor: Option<UReg>,
    /// Constant part, in bytes.
    pub offset: i32,
    /// What the base is multiplied with (shared memory): 1, 4, 8 or 16.
    pub stride: u8,
}

/// One operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operand {
    /// A register, as source or destination.
    Reg(Reg, SourceModifiers),
    /// A uniform register, as source or destination.
    UReg(UReg, SourceModifiers),
    /// A predicate; the flag says that it is negated.
    Pred(Pred, bool),
    /// A uniform predicate; the flag says that it is negated.
    UPred(UPred, bool),
    /// Bits of an immediate. Of a double they are the high half; of a packed pair the low half comes first.
    Imm(u32),
    /// A signed number that is not data: a distance, a count.
    Number(i64),
    /// A word of constant bank `bank`, `offset` in bytes.
    Const {
        /// Bank.
        bank: u8,
        /// Bytes from the bank's start.
        offset: u16,
        /// What is done to it.
        modifiers: SourceModifiers,
    },
    /// A word of the constant buffer whose handle is in a pair of uniform registers.
    Bindless {
        /// Pair with the handle.
        handle: UReg,
        /// Bytes from the buffer's start.
        offset: u16,
        /// What is done to it.
        modifiers: SourceModifiers,
    },
    /// Constant memory at `base + offset` of a bank (LDC).
    ConstAt {
        /// Bank.
        bank: u8,
        /// Register with the per-lane part.
        base: Reg,
        /// Bytes, signed.
        offset: i32,
    },
    /// Constant memory at `base + offset` of the buffer whose handle is in a pair of uniform registers (LDC).
    BindlessAt {
        /// Pair with the handle.
        handle: UReg,
        /// Register with the per-lane part.
        base: Reg,
        /// Bytes, signed.
        offset: i32,
    },
    /// Constant memory at `base + offset` of a bank (LDCU).
    ConstAtUniform {
        /// Bank.
        bank: u8,
        /// Uniform register with the variable part.
        base: UReg,
        /// Bytes, signed.
        offset: i32,
    },
    /// Memory.
    Address(Address),
    /// A convergence barrier, B0 to B15, or a word of a warp's state by its number behind those.
    Barrier(u8),
    /// A special register, by its number.
    Special(u8),
    /// Where control goes: bytes from the next instruction.
    Target(i64),
    /// Where control goes, as an address.
    Absolute(u64),
}

/// What an operand is for. An executor asks [`crate::Instruction::operand`] by role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Register that takes the result (a pair or more where the operation says so).
    Dst,
    /// First predicate result (bits 83:81).
    PDst0,
    /// Second predicate result (bits 86:84).
    PDst1,
    /// First source.
    A,
    /// Second source.
    B,
    /// Third source.
    C,
    /// First predicate source (bits 90:87): carry in, select, combine.
    PSrc0,
    /// Second predicate source (bits 80:77): second carry in.
    PSrc1,
    /// Third predicate source (bits 71:68): ISETP's low half.
    PSrc2,
    /// Memory that is read, written or both.
    Address,
    /// Second memory operand (LDGSTS: the source in global memory).
    Address2,
    /// Register with what is stored, or an atomic's operand.
    Data,
    /// Convergence barrier register.
    Barrier,
    /// Where control goes.
    Target,
    /// Function table, mask, selector or count that is no source register.
    Table,
    /// Second table (PLOP3's second function).
    Table2,
    /// Special register.
    Special,
}
