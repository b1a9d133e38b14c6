//! Modifiers of operations, as types with the names that they are printed with.

/// A modifier with more than two values.
pub trait Modifier: Copy {
    /// Which of an instruction's modifiers it is.
    const KIND: Kind;
    /// The value with that number; the first for a number that no field can hold.
    fn from_number(number: u8) -> Self;
}

macro_rules! modifiers {
    (
        flags { $($(#[$fdoc:meta])* $flag:ident $fname:literal,)* }
        $($(#[$doc:meta])* $kind:ident { $first:ident $firstname:literal $(, $value:ident $name:literal)* $(,)? })*
    ) => {
        /// Which modifier: an instruction has at most one value of each.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Kind {
            $($(#[$fdoc])* $flag,)*
            $($(#[$doc])* $kind,)*
        }

        impl Kind {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$flag,)* $(Self::$kind,)*];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// Names of the values, by number; an empty one is not printed.
            #[must_use]
            pub const fn names(self) -> &'static [&'static str] {
                match self {
                    $(Self::$flag => &["", $fname],)*
                    $(Self::$kind => &[$firstname $(, $name)*],)*
                }
            }
        }

        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
            #[repr(u8)]
            pub enum $kind {
                #[allow(missing_docs, reason = "the variant is the name that is printed")]
                $first,
                $(#[allow(missing_docs, reason = "the variant is the name that is printed")] $value,)*
            }

            impl Modifier for $kind {
                const KIND: Kind = Kind::$kind;
                fn from_number(number: u8) -> Self {
                    match number {
                        $(n if n == Self::$value as u8 => Self::$value,)*
                        _ => Self::$first,
                    }
                }
            }
        )*
    };
}

modifiers! {
    flags {
        /// Denormal floats are zero, as inputs and results.
        Ftz "FTZ",
        /// The result is clamped to 0..1.
        Sat "SAT",
        /// Zero times anything is zero.
        Fmz "FMZ",
        /// Negative results are zero.
        Relu "RELU",
        /// The sum of what bytes gave is added (VABSDIFF4).
        Acc "ACC",
        /// Carries come in: the extended half of a longer sum.
        X "X",
        /// The comparison continues one of a low half.
        Ex "EX",
        /// The high half of a product or shift.
        Hi "HI",
        /// The source is sign extended (LEA).
        Sx32 "SX32",
        /// Shift counts wrap instead of clamping.
        Wrap "W",
        /// A shift amount instead of a position (FLO).
        Sh "SH",
        /// Results are floats, 1.0 for true (FSET, HSET2).
        Bf "BF",
        /// Both halves must hold (HSETP2).
        HAnd "H_AND",
        /// The packed format is bfloat16.
        Bf16V2 "BF16_V2",
        /// The result is a 32-bit float.
        ResultF32 "F32",
        /// A NaN operand gives NaN.
        Nan "NAN",
        /// The result's sign is the product of the operands'.
        XorSign "XORSIGN",
        /// Global addresses have 64 bits.
        E "E",
        /// Uniform over the warp.
        U "U",
        /// Negative zero and NaN of conversions to integers.
        Ntz "NTZ",
        /// Values of 64 bits.
        Long "64",
        /// Only 32 of 64 bits.
        Short "32",
        /// No register is spilled (CALL).
        NoInc "NOINC",
        /// No register is restored (RET).
        NoDec "NODEC",
        /// The barrier is one of the whole group.
        DeferBlocking "DEFER_BLOCKING",
        /// The branch is taken together.
        Conv "CONV",
        /// The result of a barrier's reduction.
        BarrierResult "RESULT",
        /// The register is cleared after it is read (BMOV).
        Clear "CLEAR",
        /// Whole quads of lanes.
        Pquad "PQUAD",
        /// Every lane sleeps as long (NANOSLEEP).
        WarpWide "WARP",
        /// Who arrives is not waited for in later phases (SYNCS).
        OptOut "OPTOUT",
        /// The warp may sleep until the phase ends (SYNCS).
        TryWait "TRYWAIT",
        /// The L1 cache is bypassed (LDGSTS).
        Bypass "BYPASS",
        /// What lies before the address, up to its width, is copied, and zeros behind it (LDGSTS).
        ZeroFill "ZFILL",
        /// Signed values (DP4A's first source).
        SignedA "S8",
        /// Signed saturation of integer sums.
        SatInt "SAT",
        /// Both results in one register (F2FP).
        Pack "PACK_AB",
        /// The value is clamped to the largest finite one.
        SatFinite "SATFINITE",
        /// The branch depends on any lane of the warp.
        AnyLane "ANY",
        /// Small integers are spread (SULD and so on do not have it).
        F16 "F16",
        /// The predicate is and-ed, not or-ed (LOP3).
        Pand "PAND",
        /// Collective.
        Collective "COLLECTIVE",
    }
    /// Rounding of a float result.
    Rounding { Rn "", Rm "RM", Rp "RP", Rz "RZ" }
    /// Rounding of a float result, as conversions name it.
    IntegerRounding { Round "", Floor "FLOOR", Ceil "CEIL", Trunc "TRUNC" }
    /// Comparison of integers.
    Compare { F "F", Lt "LT", Eq "EQ", Le "LE", Gt "GT", Ne "NE", Ge "GE", T "T" }
    /// Comparison of floats; the second eight also hold when an operand is NaN.
    FloatCompare {
        F "F", Lt "LT", Eq "EQ", Le "LE", Gt "GT", Ne "NE", Ge "GE", Num "NUM",
        Nan "NAN", Ltu "LTU", Equ "EQU", Leu "LEU", Gtu "GTU", Neu "NEU", Geu "GEU", T "T", Min "MIN", Max "MAX",
    }
    /// How a comparison's result is combined with a predicate.
    BoolOp { And "AND", Or "OR", Xor "XOR" }
    /// Type of a number that is an operand.
    NumberType {
        None "", U8 "U8", S8 "S8", U16 "U16", S16 "S16", U32 "U32", S32 "S32", U64 "U64", S64 "S64",
        F16 "F16", F32 "F32", F64 "F64", Bf16 "BF16", Tf32 "TF32", U4 "U4", S4 "S4",
    }
    /// Type of a number that is the result.
    ResultType {
        None "", U8 "U8", S8 "S8", U16 "U16", S16 "S16", U32 "U32", S32 "S32", U64 "U64", S64 "S64",
        F16 "F16", F32 "F32", F64 "F64", Bf16 "BF16", Tf32 "TF32",
    }
    /// Type of the second source.
    SecondType { None "", U8 "U8", S8 "S8", U4 "U4", S4 "S4" }
    /// How a branch is taken.
    Branch { Plain "", Uniform "U", Divergent "DIV", Converged "CONV" }
    /// Which byte of predicates (P2R).
    Byte { B0 "", B1 "B1", B2 "B2", B3 "B3" }
    /// How LDC treats its index.
    Index { Plain "", Il "IL", Is "IS", Isl "ISL" }
    /// What a load or store moves.
    AccessType { U8 "U8", S8 "S8", U16 "U16", S16 "S16", B32 "", B64 "64", B128 "128", UB128 "U.128" }
    /// What an atomic operates on.
    AtomicType {
        U32 "", S32 "S32", U64 "64", F32FtzRn "F32.FTZ.RN", F16x2Rn "F16x2.RN", S64 "S64", F64Rn "F64.RN",
        Bf16x2Rn "BF16x2.RN", F16x4Rn "F16x4.RN", F16x8Rn "F16x8.RN", Bf16x4Rn "BF16x4.RN",
        Bf16x8Rn "BF16x8.RN", F32x2FtzRn "F32x2.FTZ.RN", F32x4FtzRn "F32x4.FTZ.RN",
        F32Rn "F32.RN", F32x2Rn "F32x2.RN", F32x4Rn "F32x4.RN",
    }
    /// What an atomic does.
    AtomicOp {
        Add "ADD", Min "MIN", Max "MAX", Inc "INC", Dec "DEC", And "AND", Or "OR", Xor "XOR", Exch "EXCH",
        SafeAdd "SAFEADD",
    }
    /// Compare and swap: plain, or told by a predicate-like result.
    CasMode { Cas "CAS", CastSpin "CAST.SPIN" }
    /// How many arrive, and how many bytes are waited for besides: none, or as a register says (SYNCS).
    Arrivals { A1Tr "", A1T0 "A1T0", A0T1 "A0T1", A0Tr "A0TR", A0Tx "A0TX", ArT0 "ART0" }
    /// Order and scope of a memory access.
    Order {
        Weak "", ConstantPrivate "CONSTANT.PRIVATE", ConstantCta "CONSTANT.CTA", ConstantCtaPrivate "CONSTANT.CTA.PRIVATE",
        Constant "CONSTANT", StrongSm "STRONG.SM", StrongGpuPrivate "STRONG.GPU.PRIVATE", StrongGpu "STRONG.GPU",
        MmioGpu "MMIO.GPU", ConstantSm "CONSTANT.SM", StrongSys "STRONG.SYS", ConstantSmPrivate "CONSTANT.SM.PRIVATE",
        MmioSys "MMIO.SYS", ConstantVc "CONSTANT.VC", ConstantVcPrivate "CONSTANT.VC.PRIVATE",
        ConstantGpu "CONSTANT.GPU", StrongCta "STRONG.CTA", Sys "SYS", ConstantSys "CONSTANT.SYS", WeakCta "CTA",
        WeakSm "SM", WeakGpu "GPU",
    }
    /// Cache eviction; it does not change what is computed.
    Eviction { Ef "EF", Normal "", El "EL", Lu "LU", Eu "EU", Na "NA" }
    /// Function of the special function unit.
    Mufu {
        Cos "COS", Sin "SIN", Ex2 "EX2", Lg2 "LG2", Rcp "RCP", Rsq "RSQ", Rcp64h "RCP64H", Rsq64h "RSQ64H",
        Sqrt "SQRT", Tanh "TANH",
    }
    /// What lanes SHFL reads from.
    Shuffle { Idx "IDX", Up "UP", Down "DOWN", Bfly "BFLY" }
    /// What VOTE asks.
    Vote { All "ALL", Any "ANY", Eq "EQ" }
    /// What MATCH asks.
    Match { All "ALL", Any "ANY" }
    /// What REDUX computes.
    Redux { And "", Or "OR", Xor "XOR", Sum "SUM", Min "MIN", Max "MAX" }
    /// How PRMT reads its selector.
    Permute { Index "", F4e "F4E", B4e "B4E", Rc8 "RC8", Ecl "ECL", Ecr "ECR", Rc16 "RC16" }
    /// Direction of a shift.
    Direction { Left "L", Right "R" }
    /// Type of what is shifted.
    ShiftType { S64 "S64", U64 "U64", S32 "S32", U32 "U32" }
    /// What a barrier of the CTA does.
    BarrierMode { Sync "SYNC", Arv "ARV", Red "RED", Scan "SCAN", SyncAll "SYNCALL" }
    /// What a barrier reduces.
    BarrierReduction { Popc "POPC", And "AND", Or "OR" }
    /// Order of a memory barrier.
    FenceOrder { Sc "SC", All "ALL", Mmio "MMIO" }
    /// Scope of a memory barrier.
    FenceScope { Cta "CTA", Sm "SM", Gpu "GPU", Sys "SYS", Vc "VC" }
    /// Kind of a convergence barrier (SM120).
    Convergence { Plain "", Reliable "RELIABLE", Reconvergent "RECONVERGENT" }
    /// What LDSM loads and how.
    MatrixLoad { M88 "16.M88", Mt88 "16.MT88", }
    /// How many matrices LDSM loads.
    MatrixCount { One "", Two "2", Four "4" }
    /// Shape of a matrix product.
    MatrixShape { S1688 "1688", S16816 "16816", S1684 "1684", S8816 "8816", S8832 "8832", S16832 "16832",
        S16864 "16864" }
    /// Scale of a product (FMUL).
    Scale { None "", D2 "D2", D4 "D4", D8 "D8", M8 "M8", M4 "M4", M2 "M2" }
    /// Target of a trap.
    Trap { DrainIll "DRAIN_ILL", Cal "CAL", Pause "PAUSE", Trap "TRAP", Int "INT", Drain "DRAIN" }
    /// Address space that QSPC asks about.
    Space { Generic "", Shared "S", Local "L", Global "G", Distributed "D" }
    /// Whose lanes decide a branch (BRA.U.ANY).
    Uniformity { None "", Any "ANY", All "ALL" }
}
