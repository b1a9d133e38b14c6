//! What becomes of colours: tables, and the factors of blending.

use super::memory::Address;

/// What entries of a table are indexed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LutEntries {
    /// The upper 8 bits of a colour. 256 entries, and one more to interpolate to.
    Direct8,
    /// The upper 10 bits. 1024 entries, and one more.
    Direct10,
}

impl LutEntries {
    /// Entries, but for the last one that is only interpolated to.
    pub const fn count(self) -> u16 {
        match self {
            Self::Direct8 => 1 << 8,
            Self::Direct10 => 1 << 10,
        }
    }
}

/// What a table's words are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LutEncoding {
    /// Half floats, as input tables of windows have them.
    Half,
    /// Fractions of 65536, as output tables of heads have them.
    Fraction,
}

/// A table in memory: 32 bytes that say nothing, then entries of four 16-bit words: red, green, blue, and one
/// that is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LutTable {
    /// Where its header begins.
    pub address: Address,
    /// Its entries.
    pub entries: LutEntries,
    /// Its words.
    pub encoding: LutEncoding,
    /// Whether colours between two entries become something between them.
    pub interpolate: bool,
}

/// What colours become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lut {
    /// What they are.
    Identity,
    /// What a table says. One that cannot be read changes nothing.
    Table(LutTable),
}

/// What a pixel's colour is multiplied with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceFactor {
    /// Nothing of it is seen.
    Zero,
    /// All of it.
    One,
    /// By K1.
    K1,
    /// By K1 and the pixel's alpha.
    K1TimesSource,
}

/// What the colour behind a pixel is multiplied with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DestinationFactor {
    /// Nothing of it is seen.
    Zero,
    /// All of it.
    One,
    /// By K1.
    K1,
    /// By what K1 leaves of one.
    NegK1,
    /// By what K1 times the pixel's alpha leaves of one.
    NegK1TimesSource,
}

/// How what is in front and what is behind it are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blend {
    /// The constant, of 255.
    pub k1: u8,
    /// Factor of what is in front.
    pub source: SourceFactor,
    /// Factor of what is behind.
    pub destination: DestinationFactor,
}

impl Blend {
    /// What is in front hides what is behind.
    pub const OPAQUE: Self =
        Self { k1: 0xff, source: SourceFactor::One, destination: DestinationFactor::Zero };
}
