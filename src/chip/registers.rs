//! Declarative register tables: one list feeds trap dispatch, trace decoding, the generated documentation and
//! fuzz dictionaries.
//!
//! [`registers!`](macro@crate::registers) turns a list into constants that can be matched on ([`Reg`],
//! [`RegArray`]) and into one table of [`RegisterDef`].

/// The offset of a 32-bit register in BAR0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reg(pub u32);

/// A family of equal registers at a fixed stride.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegArray {
    /// Offset of the first.
    pub base: u32,
    /// Number of elements.
    pub count: u32,
    /// Bytes from one to the next.
    pub stride: u32,
}

impl RegArray {
    /// The register number `index`; indices beyond the end wrap, so that a constant index error shows in
    /// tests and never reaches another unit.
    pub const fn at(self, index: u32) -> Reg {
        Reg(self.base + (index % self.count) * self.stride)
    }

    /// The offsets of all of them, where each follows the one before.
    pub const fn range(self) -> std::ops::Range<u64> {
        // CAST: widening.
        let start = self.base as u64;
        start..start + self.count as u64 * self.stride as u64
    }

    /// Which register of the family lies at `reg`.
    pub const fn index_of(self, reg: Reg) -> Option<u32> {
        if reg.0 < self.base {
            return None;
        }
        let distance = reg.0 - self.base;
        let index = distance / self.stride;
        if !distance.is_multiple_of(self.stride) || index >= self.count { None } else { Some(index) }
    }
}

/// What a guest's access to a register does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Reads back what was written, touches nothing. Also the rule for registers that no table lists.
    Scratch,
    /// As scratch, but only bits of its fields stick; others read 0.
    Fields,
    /// Reads its reset value; writes are dropped.
    Constant,
    /// A written 1 clears the bit.
    WriteOneToClear,
    /// A unit's handler decides.
    Handler,
    /// Writes are dropped and counted as refused; reads give the reset value.
    Denied,
}

/// One field of a register: bits `high` to `low`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldDef {
    /// Vendor's name, without the register's.
    pub name: &'static str,
    /// Most significant bit.
    pub high: u8,
    /// Least significant bit.
    pub low: u8,
}

impl FieldDef {
    /// The field's value in `word`.
    pub const fn get(&self, word: u32) -> u32 {
        let width = self.high - self.low + 1;
        let mask = if width >= 32 { u32::MAX } else { (1 << width) - 1 };
        (word >> self.low) & mask
    }
}

/// Where a field is in its word, for code. [`registers!`](macro@crate::registers) makes one of each field of
/// a register, in a module with the register's name; [`fields!`](macro@crate::fields) does so for words that
/// are no registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    high: u32,
    low: u32,
}

impl Field {
    /// Bits `high` to `low`. A constant with bits in the wrong order, or beyond 31, does not compile.
    pub const fn new(high: u32, low: u32) -> Self {
        assert!(high >= low && high < 32, "bits of a 32-bit word");
        Self { high, low }
    }

    /// Its bits in the word.
    pub const fn mask(self) -> u32 {
        (u32::MAX >> (31 - (self.high - self.low))) << self.low
    }

    /// Its value in a word.
    pub const fn get(self, word: u32) -> u32 {
        (word & self.mask()) >> self.low
    }

    /// The low eight bits of its value in a word.
    pub const fn get_u8(self, word: u32) -> u8 {
        self.get(word).to_le_bytes()[0]
    }

    /// The low sixteen bits of its value in a word.
    pub const fn get_u16(self, word: u32) -> u16 {
        let [low, high, ..] = self.get(word).to_le_bytes();
        u16::from_le_bytes([low, high])
    }

    /// A word with this value in it and zeros around it. Bits that the field has no place for are dropped.
    pub const fn of(self, value: u32) -> u32 {
        (value << self.low) & self.mask()
    }

    /// Whether any of its bits is set in a word.
    pub const fn is_set(self, word: u32) -> bool {
        word & self.mask() != 0
    }

    /// The number of its lowest bit.
    pub const fn low(self) -> u32 {
        self.low
    }

    /// A value that the field has a name for. A constant that the field has no place for does not compile.
    pub const fn named(self, value: u32) -> u32 {
        assert!(self.get(self.of(value)) == value, "a value that fits into the field");
        value
    }
}

/// Where a field is in a word of 64 bits, as an entry of a page table is one; see [`Field`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field64 {
    high: u32,
    low: u32,
}

impl Field64 {
    /// Bits `high` to `low`. A constant with bits in the wrong order, or beyond 63, does not compile.
    pub const fn new(high: u32, low: u32) -> Self {
        assert!(high >= low && high < 64, "bits of a 64-bit word");
        Self { high, low }
    }

    /// Its bits in the word.
    pub const fn mask(self) -> u64 {
        (u64::MAX >> (63 - (self.high - self.low))) << self.low
    }

    /// Its value in a word.
    pub const fn get(self, word: u64) -> u64 {
        (word & self.mask()) >> self.low
    }

    /// The low eight bits of its value in a word.
    pub const fn get_u8(self, word: u64) -> u8 {
        self.get(word).to_le_bytes()[0]
    }

    /// A word with this value in it and zeros around it. Bits that the field has no place for are dropped.
    pub const fn of(self, value: u64) -> u64 {
        (value << self.low) & self.mask()
    }

    /// Whether any of its bits is set in a word.
    pub const fn is_set(self, word: u64) -> bool {
        word & self.mask() != 0
    }

    /// A value that the field has a name for. A constant that the field has no place for does not compile.
    pub const fn named(self, value: u64) -> u64 {
        assert!(self.get(self.of(value)) == value, "a value that fits into the field");
        value
    }
}

/// Declares the fields of words: for each word a module with its name, in it a [`Field`] of each field, and
/// for a field whose values have names a module with those. Words of 64 bits begin with `u64;` and have a
/// [`Field64`] of each field.
///
/// ```
/// gpuvmk_chip::fields! {
///     /// An example.
///     SEMAPHORE_D { 24:24 SHORT, 3:0 OPERATION = { ACQUIRE: 1, RELEASE: 2 } }
/// }
/// let word = SEMAPHORE_D::SHORT.mask() | SEMAPHORE_D::OPERATION.of(SEMAPHORE_D::OPERATION::RELEASE);
/// assert_eq!(word, 0x0100_0002);
/// assert_eq!(SEMAPHORE_D::OPERATION.get(word), SEMAPHORE_D::OPERATION::RELEASE);
///
/// gpuvmk_chip::fields! { u64;
///     /// An example of 64 bits.
///     PTE { 63:56 KIND, 53:8 ADDRESS }
/// }
/// assert_eq!(PTE::KIND.of(6) | PTE::ADDRESS.of(0x123), 0x0600_0000_0001_2300);
/// ```
#[macro_export]
macro_rules! fields {
    (u64; $($words:tt)+) => { $crate::fields!(@words Field64, u64, $($words)+); };
    (@words $field_of:ident, $word:ty, $($(#[doc = $doc:expr])+ $name:ident {
        $($(#[doc = $about:literal])* $hi:literal : $lo:literal $field:ident
          $(= { $($(#[doc = $meaning:literal])* $value:ident : $number:literal),* $(,)? })?),* $(,)?
    })+) => {
        $(
            $(#[doc = $doc])+
            #[allow(non_snake_case, reason = "the vendor's name")]
            pub mod $name {
                $(
                    #[doc = concat!("Bits ", stringify!($hi), ":", stringify!($lo), ".")]
                    $(#[doc = $about])*
                    pub const $field: $crate::registers::$field_of =
                        $crate::registers::$field_of::new($hi, $lo);
                    $(
                        #[doc = concat!("Values of [`", stringify!($field), "`](const@", stringify!($field),
                            ").")]
                        pub mod $field {
                            $(
                                #[doc = concat!("Value ", stringify!($number), ".")]
                                $(#[doc = $meaning])*
                                pub const $value: $word = super::$field.named($number);
                            )*
                        }
                    )?
                )*
            }
        )+
    };
    ($($words:tt)+) => { $crate::fields!(@words Field, u32, $($words)+); };
}

/// Everything known of one register (or of one family of equal registers).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisterDef {
    /// Vendor's name.
    pub name: &'static str,
    /// Unit that owns it.
    pub unit: &'static str,
    /// Offset in BAR0 of the first.
    pub offset: u32,
    /// How many (1 for a single register).
    pub count: u32,
    /// Bytes from one to the next.
    pub stride: u32,
    /// Value after reset.
    pub reset: u32,
    /// What a guest's access does.
    pub policy: Policy,
    /// Fields, most significant first.
    pub fields: &'static [FieldDef],
    /// Where this is known from.
    pub source: &'static str,
    /// What it is, in a sentence.
    pub doc: &'static str,
}

impl RegisterDef {
    /// All bits of its fields.
    pub fn fields_mask(&self) -> u32 {
        let field = |field: &FieldDef| Field::new(field.high.into(), field.low.into()).mask();
        self.fields.iter().fold(0, |mask, one| mask | field(one))
    }

    /// True when `reg` is this register or one of this family.
    pub const fn covers(&self, reg: Reg) -> bool {
        let family = RegArray { base: self.offset, count: self.count, stride: self.stride };
        family.index_of(reg).is_some()
    }
}

/// Declares the registers of one unit.
///
/// ```
/// gpuvmk_chip::registers! {
///     unit "PMC", source "nouveau nvkm/subdev/mc";
///     /// Chip identification.
///     NV_PMC_BOOT_0 @ 0x000000, reset 0x0c0000a3, Constant, {
///         28:20 CHIPSET = { GF100: 0x0c0 }, 7:0 REVISION
///     };
///     /// A family of four at a stride of eight bytes.
///     NV_EXAMPLE[4; 8] @ 0x001000, reset 0, Scratch, {};
/// }
/// assert_eq!(NV_PMC_BOOT_0.0, 0);
/// assert_eq!(NV_EXAMPLE.at(2).0, 0x1010);
/// assert_eq!(TABLE[0].name, "NV_PMC_BOOT_0");
/// assert_eq!(TABLE[0].fields[0].get(0x0c0000a3), 0xc0);
/// assert_eq!(NV_PMC_BOOT_0::CHIPSET.get(0x0c0000a3), NV_PMC_BOOT_0::CHIPSET::GF100);
/// assert_eq!(NV_PMC_BOOT_0::CHIPSET.mask(), 0x1ff0_0000);
/// assert_eq!(NV_PMC_BOOT_0::REVISION.of(0x1a1), 0xa1);
/// ```
#[macro_export]
macro_rules! registers {
    (unit $unit:literal, source $source:literal;
     $($(#[doc = $doc:literal])+ $name:ident $([$count:literal; $stride:literal])? @ $offset:literal,
       reset $reset:expr, $policy:ident, {
         $($hi:literal : $lo:literal $field:ident
           $(= { $($(#[doc = $meaning:literal])* $value:ident : $number:literal),* $(,)? })?),* $(,)?
       };)+) => {
        $( $crate::registers!(@constant $(#[doc = $doc])+ $name, $offset $(, $count, $stride)?); )+
        $crate::fields! {
            $(
                #[doc = concat!("Fields of [`", stringify!($name), "`](const@", stringify!($name), ").")]
                $name {
                    $($hi : $lo $field $(= { $($(#[doc = $meaning])* $value : $number),* })?),*
                }
            )+
        }
        /// The registers of this unit, as declared.
        pub const TABLE: &[$crate::registers::RegisterDef] = &[
            $( $crate::registers::RegisterDef {
                name: stringify!($name),
                unit: $unit,
                offset: $offset,
                count: $crate::registers!(@or 1 $(, $count)?),
                stride: $crate::registers!(@or 4 $(, $stride)?),
                reset: $reset,
                policy: $crate::registers::Policy::$policy,
                fields: &[$($crate::registers::FieldDef { name: stringify!($field), high: $hi, low: $lo }),*],
                source: $source,
                doc: concat!($($doc),+),
            } ),+
        ];
    };
    (@constant $(#[doc = $doc:literal])+ $name:ident, $offset:literal) => {
        $(#[doc = $doc])+
        pub const $name: $crate::registers::Reg = $crate::registers::Reg($offset);
    };
    (@constant $(#[doc = $doc:literal])+ $name:ident, $offset:literal, $count:literal, $stride:literal) => {
        $(#[doc = $doc])+
        pub const $name: $crate::registers::RegArray =
            $crate::registers::RegArray { base: $offset, count: $count, stride: $stride };
    };
    (@or $default:literal) => { $default };
    (@or $default:literal, $value:literal) => { $value };
}
