//! Instructions of the macro method expander (MME) from Turing on, as data.
//!
//! An instruction is a group: a predicate, two ALU operations with an immediate each, and two outputs, in 96
//! bits. Source: open-gpu-doc `MME-MacroMethodExpander/tu104` (names, numbers and the order of fields); what
//! the bits of immediates mean is Mesa's finding on hardware (`src/nouveau/mme`).

/// Words of a group.
pub const GROUP_WORDS: usize = 3;

/// General registers.
pub const REGISTERS: usize = 24;

/// A run of bits of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits {
    high: u8,
    low: u8,
}

impl Bits {
    /// Bits `high` to `low`: at most 16, of 96. Others do not compile as a constant.
    const fn new(high: u8, low: u8) -> Self {
        assert!(high >= low && high < 96 && high - low < 16, "at most 16 bits of 96");
        Self { high, low }
    }

    const fn mask(self) -> u128 {
        (u128::MAX >> (127 - (self.high - self.low))) << self.low
    }
}

/// Where the fields of a group are.
pub mod fields {
    use super::Bits;

    /// The next group is the last one.
    pub const END_NEXT: Bits = Bits::new(0, 0);
    /// Which parts the predicate switches.
    pub const PREDICATE_MODE: Bits = Bits::new(4, 1);
    /// The register that is the predicate.
    pub const PREDICATE: Bits = Bits::new(9, 5);
    /// Operations of the ALUs.
    pub const OPERATION: [Bits; 2] = [Bits::new(14, 10), Bits::new(50, 46)];
    /// Where results go.
    pub const DESTINATION: [Bits; 2] = [Bits::new(19, 15), Bits::new(55, 51)];
    /// Operands.
    pub const SOURCES: [[Bits; 2]; 2] =
        [[Bits::new(24, 20), Bits::new(29, 25)], [Bits::new(60, 56), Bits::new(65, 61)]];
    /// Immediates.
    pub const IMMEDIATE: [Bits; 2] = [Bits::new(45, 30), Bits::new(81, 66)];
    /// What sets the method that outputs go to.
    pub const OUTPUT_METHOD: [Bits; 2] = [Bits::new(84, 82), Bits::new(91, 89)];
    /// What is put out.
    pub const OUTPUT_EMIT: [Bits; 2] = [Bits::new(88, 85), Bits::new(95, 92)];
}

crate::fields! {
    /// The word that sets the method of outputs.
    METHOD {
        /// Words by which each output moves it on.
        15:12 INCREMENT,
        /// In words.
        11:0 ADDRESS
    }
    /// The immediate of MERGE.
    MERGE { 15:10 TO, 9:5 COUNT, 4:0 FROM }
    /// The immediate of a branch.
    BRANCH {
        /// Taken if the condition holds; clear: if it does not.
        15:15 IF_TRUE,
        /// What they do is not known.
        14:13 OTHER,
        /// In groups, signed. The lowest value ends the macro.
        12:0 DISTANCE = { END: 0x1000 }
    }
    /// The immediate of JAL.
    JAL {
        /// Set in all macros that are known.
        15:15 JUMP,
        /// In groups.
        14:0 DISTANCE
    }
}

/// The distance of a branch, in groups: its field with the sign.
pub const fn branch_distance(immediate: u16) -> i16 {
    // The field's highest bit becomes the word's, and comes back with copies of itself.
    (immediate << 3).cast_signed() >> 3
}

/// What an ALU does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "by the vendor's names, which say it")]
pub enum Operation {
    Add,
    /// With the carry of the first ALU.
    AddC,
    Sub,
    /// With the borrow of the first ALU.
    SubB,
    /// Signed.
    Mul,
    /// The upper half of the first ALU's product.
    MulH,
    /// Unsigned.
    MulU,
    /// Sets what no method sets: the first operand says what.
    Extended,
    Clz,
    Sll,
    Srl,
    Sra,
    And,
    Nand,
    Or,
    Xor,
    /// Bits of the second operand among those of the first.
    Merge,
    Slt,
    SltU,
    Sle,
    SleU,
    Seq,
    /// What a method was sent last.
    State,
    Loop,
    Jal,
    Blt,
    BltU,
    Ble,
    BleU,
    Beq,
    /// Reads data RAM.
    DRead,
    /// Writes data RAM.
    DWrite,
}

impl Operation {
    /// In the order of their numbers.
    pub const ALL: [Self; 32] = {
        use Operation::*;
        [
            Add, AddC, Sub, SubB, Mul, MulH, MulU, Extended, Clz, Sll, Srl, Sra, And, Nand, Or, Xor, Merge,
            Slt, SltU, Sle, SleU, Seq, State, Loop, Jal, Blt, BltU, Ble, BleU, Beq, DRead, DWrite,
        ]
    };
}

/// Where an operand comes from, and a result goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Register {
    /// A general register.
    General(u8),
    /// Reads as zero; what is written is lost.
    Zero,
    /// The ALU's own immediate, with sign.
    Immediate,
    /// The other ALU's immediate, with sign.
    ImmediatePair,
    /// Both immediates, the first one above.
    Immediate32,
    /// The first word that the group loads.
    Load0,
    /// The second one.
    Load1,
}

impl Register {
    const fn new(number: u8) -> Option<Self> {
        Some(match number {
            0..24 => Self::General(number),
            24 => Self::Zero,
            25 => Self::Immediate,
            26 => Self::ImmediatePair,
            27 => Self::Immediate32,
            28 => Self::Load0,
            29 => Self::Load1,
            _ => return None,
        })
    }

    /// Its number in a group.
    pub const fn number(self) -> u8 {
        match self {
            Self::General(number) => number,
            Self::Zero => 24,
            Self::Immediate => 25,
            Self::ImmediatePair => 26,
            Self::Immediate32 => 27,
            Self::Load0 => 28,
            Self::Load1 => 29,
        }
    }
}

/// What an output puts out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// The result of an ALU.
    Alu(usize),
    /// A word that the group loads.
    Load(usize),
    /// An immediate, without sign.
    Immediate(usize),
    /// Bits 15:12 of an immediate.
    ImmediateHigh(usize),
    /// Both immediates, the first one above.
    Immediate32,
}

impl Output {
    /// `None` inside where nothing is put out; `Err` for a reserved number.
    const fn new(number: u8) -> Result<Option<Self>, Illegal> {
        Ok(Some(match number {
            0 => return Ok(None),
            1 => Self::Alu(0),
            2 => Self::Alu(1),
            3 => Self::Load(0),
            4 => Self::Load(1),
            5 => Self::Immediate(0),
            6 => Self::Immediate(1),
            8 => Self::ImmediateHigh(0),
            9 => Self::ImmediateHigh(1),
            10 => Self::Immediate32,
            _ => return Err(Illegal),
        }))
    }
}

/// Parts that a predicate switches off: by the predicate's value, for the first ALU, the second one, the
/// first output and the second one.
type Squash = [[bool; 4]; 2];

/// A mode of predicates, as the vendor writes it: T is switched off where the predicate is not zero, F where
/// it is, U never.
const fn squash(mode: &[u8; 4]) -> Squash {
    let mut squash = [[false; 4]; 2];
    let mut part = 0;
    while part < 4 {
        squash[0][part] = mode[part] == b'F';
        squash[1][part] = mode[part] == b'T';
        part += 1;
    }
    squash
}

/// Modes of predicates by number.
const MODES: [Squash; 16] = [
    squash(b"UUUU"),
    squash(b"TTTT"),
    squash(b"FFFF"),
    squash(b"TTUU"),
    squash(b"FFUU"),
    squash(b"TFUU"),
    squash(b"TUUU"),
    squash(b"FUUU"),
    squash(b"UUTT"),
    squash(b"UUTF"),
    squash(b"UUTU"),
    squash(b"UUFT"),
    squash(b"UUFF"),
    squash(b"UUFU"),
    squash(b"UUUT"),
    squash(b"UUUF"),
];

/// An ALU's part of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alu {
    /// What it does.
    pub operation: Operation,
    /// A general register, or none.
    pub destination: Option<u8>,
    /// Its operands.
    pub sources: [Register; 2],
}

/// An output of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Out {
    /// What sets the method; none leaves it.
    pub method: Option<Output>,
    /// What is put out.
    pub emit: Option<Output>,
}

/// A group that does not decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it has a reserved number of a register or an output")]
pub struct Illegal;

/// A group, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// The next group is the last one.
    pub end_next: bool,
    /// What its predicate switches off.
    squash: Squash,
    /// Its predicate.
    pub predicate: Register,
    /// Its ALUs.
    pub alus: [Alu; 2],
    /// Its immediates.
    pub immediates: [u16; 2],
    /// Its outputs.
    pub outputs: [Out; 2],
}

impl Group {
    /// Whether the predicate has a value that leaves the part on: the ALUs are 0 and 1, outputs 2 and 3.
    pub fn is_on(&self, predicate: u32, part: usize) -> bool {
        let [zero, other] = &self.squash;
        let off = if predicate == 0 { zero } else { other };
        !off.get(part).copied().unwrap_or(true)
    }

    /// How many words it loads, whatever its predicate says.
    pub fn loads(&self) -> usize {
        let registers = self.alus.iter().flat_map(|alu| alu.sources).chain([self.predicate]);
        let outputs = self.outputs.iter().flat_map(|out| [out.method, out.emit]).flatten();
        let of_registers = registers.map(|register| match register {
            Register::Load0 => 1,
            Register::Load1 => 2,
            _ => 0,
        });
        let of_outputs = outputs.map(|output| match output {
            Output::Load(index) => index.saturating_add(1),
            _ => 0,
        });
        of_registers.chain(of_outputs).max().unwrap_or(0)
    }
}

/// A group as it is stored: the word with the highest bits comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Encoded(u128);

impl From<[u32; GROUP_WORDS]> for Encoded {
    fn from([high, middle, low]: [u32; GROUP_WORDS]) -> Self {
        Self(u128::from(high) << 64 | u128::from(middle) << 32 | u128::from(low))
    }
}

impl Encoded {
    /// The words in the order in which they are loaded.
    pub const fn words(self) -> [u32; GROUP_WORDS] {
        let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = self.0.to_le_bytes();
        [u32::from_le_bytes([i, j, k, l]), u32::from_le_bytes([e, f, g, h]), u32::from_le_bytes([a, b, c, d])]
    }

    /// The value of a field.
    pub const fn get(self, bits: Bits) -> u16 {
        let [low, high, ..] = ((self.0 & bits.mask()) >> bits.low).to_le_bytes();
        u16::from_le_bytes([low, high])
    }

    /// The group with a value in a field; what does not fit is cut off.
    pub const fn with(self, bits: Bits, value: u16) -> Self {
        Self(self.0 & !bits.mask() | (value as u128) << bits.low & bits.mask())
    }

    const fn small(self, bits: Bits) -> u8 {
        let [value, _] = self.get(bits).to_le_bytes();
        value
    }

    fn register(self, bits: Bits) -> Result<Register, Illegal> {
        Register::new(self.small(bits)).ok_or(Illegal)
    }

    fn alu(self, index: usize) -> Result<Alu, Illegal> {
        let of = |bits: &[Bits; 2]| bits.get(index).copied().ok_or(Illegal);
        let number = usize::from(self.small(of(&fields::OPERATION)?));
        let destination = match self.register(of(&fields::DESTINATION)?)? {
            Register::General(number) => Some(number),
            Register::Zero => None,
            _ => return Err(Illegal),
        };
        let [first, second] = fields::SOURCES.get(index).copied().ok_or(Illegal)?;
        Ok(Alu {
            operation: Operation::ALL.get(number).copied().ok_or(Illegal)?,
            destination,
            sources: [self.register(first)?, self.register(second)?],
        })
    }

    /// What it says.
    ///
    /// # Errors
    /// It has a reserved number.
    pub fn decode(self) -> Result<Group, Illegal> {
        let out = |[method, emit]: [Bits; 2]| -> Result<Out, Illegal> {
            Ok(Out { method: Output::new(self.small(method))?, emit: Output::new(self.small(emit))? })
        };
        let [method0, method1] = fields::OUTPUT_METHOD;
        let [emit0, emit1] = fields::OUTPUT_EMIT;
        let mode = usize::from(self.small(fields::PREDICATE_MODE));
        Ok(Group {
            end_next: self.small(fields::END_NEXT) != 0,
            squash: MODES.get(mode).copied().ok_or(Illegal)?,
            predicate: self.register(fields::PREDICATE)?,
            alus: [self.alu(0)?, self.alu(1)?],
            immediates: fields::IMMEDIATE.map(|bits| self.get(bits)),
            outputs: [out([method0, emit0])?, out([method1, emit1])?],
        })
    }
}

#[cfg(test)]
mod tests;
