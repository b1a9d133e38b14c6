//! The chips that guests can be shown, as rows of facts. Configuration, admission, documents and tests read
//! them here (docs/adr/0018-catalogue.md). docs/chips.md is written from them.

mod ada;
mod ampere;
mod blackwell;
mod classes;
pub mod document;
mod fermi;
mod gsp_row;
mod hopper;
mod row;
mod turing;

pub use classes::{ChipClasses, DisplayClasses};
pub use row::{ChipRow, Face, Family, Subchannels};

use std::error::Error;
use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

/// The chips: constant, row.
macro_rules! chips {
    ($($chip:ident = $row:path;)+) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        enum Place {
            $($chip,)+
        }

        impl Chip {
            /// All chips, oldest first.
            pub const ALL: &'static [Self] = &[$(Self(Place::$chip),)+];

            $(
                #[doc = concat!(stringify!($chip), ".")]
                pub const $chip: Self = Self(Place::$chip);
            )+

            /// What is known about it.
            pub const fn row(self) -> &'static ChipRow {
                match self.0 {
                    $(Place::$chip => &$row,)+
                }
            }
        }
    };
}

/// A chip that a vGPU presents. It gives access to the facts of its [`ChipRow`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Chip(Place);

chips! {
    GF100 = fermi::GF100;
    TU102 = turing::TU102;
    TU104 = turing::TU104;
    TU106 = turing::TU106;
    TU117 = turing::TU117;
    TU116 = turing::TU116;
    GA102 = ampere::GA102;
    GA103 = ampere::GA103;
    GA104 = ampere::GA104;
    GA106 = ampere::GA106;
    GA107 = ampere::GA107;
    GH100 = hopper::GH100;
    AD102 = ada::AD102;
    AD103 = ada::AD103;
    AD104 = ada::AD104;
    AD106 = ada::AD106;
    AD107 = ada::AD107;
    GB202 = blackwell::GB202;
    GB203 = blackwell::GB203;
    GB205 = blackwell::GB205;
    GB206 = blackwell::GB206;
    GB207 = blackwell::GB207;
}

impl Chip {
    /// Name as users write it in configuration files, and as both ends of a link tell it.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// The chip of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|chip| chip.name() == name)
    }

    /// Names of chips for a message: `quote` around each, commas between them, and `last` before the last.
    pub fn list(chips: impl IntoIterator<Item = Self>, quote: &str, last: &str) -> String {
        let names: Vec<String> = chips.into_iter().map(|chip| format!("{quote}{chip}{quote}")).collect();
        match names.split_last() {
            Some((end, others)) if !others.is_empty() => format!("{}{last}{end}", others.join(", ")),
            _ => names.concat(),
        }
    }

    /// Those with this face.
    pub fn with_face(face: Face) -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(move |chip| chip.face == face)
    }
}

impl FromStr for Chip {
    type Err = UnknownChip;

    /// The chip of that name, in either case: as words of a command line have it.
    fn from_str(name: &str) -> Result<Self, UnknownChip> {
        let found = Self::ALL.iter().copied().find(|chip| chip.name().eq_ignore_ascii_case(name));
        found.ok_or_else(|| UnknownChip(name.to_owned()))
    }
}

/// No chip has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownChip(String);

impl Error for UnknownChip {}

impl fmt::Display for UnknownChip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "No chip '{}': there are {}", self.0, Chip::list(Chip::ALL.iter().copied(), "", ", "))
    }
}

impl Deref for Chip {
    type Target = ChipRow;

    fn deref(&self) -> &ChipRow {
        self.row()
    }
}

impl fmt::Debug for Chip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Chip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_constants_agree_and_differ() {
        for (place, chip) in Chip::ALL.iter().enumerate() {
            assert_eq!(format!("{:?}", chip.0), chip.name(), "a constant with the row of another chip");
            assert_eq!(Chip::by_name(chip.name()), Some(*chip));
            assert!(Chip::ALL[..place].iter().all(|other| other < chip && other.boot_0 != chip.boot_0));
        }
        assert_eq!(Chip::by_name("gf100"), None);
        assert_eq!("gh100".parse(), Ok(Chip::GH100));
        let message = "GK104".parse::<Chip>().unwrap_err().to_string();
        assert!(message.starts_with("No chip 'GK104': there are GF100, "), "{message}");
    }

    #[test]
    fn lists_of_names_have_what_is_between_them() {
        assert_eq!(Chip::list([], "'", " or "), "");
        assert_eq!(Chip::list([Chip::GF100], "'", " or "), "'GF100'");
        assert_eq!(Chip::list([Chip::GF100, Chip::GH100], "", " or "), "GF100 or GH100");
        let three = [Chip::GF100, Chip::GH100, Chip::AD104];
        assert_eq!(Chip::list(three, "'", " or "), "'GF100', 'GH100' or 'AD104'");
    }

    #[test]
    fn older_chips_come_first() {
        assert!(Chip::ALL.is_sorted_by_key(|chip| chip.family));
    }

    #[test]
    fn rows_are_sound() {
        for chip in Chip::ALL {
            assert!(chip.vram.0 < chip.vram.1 && chip.software_vram.0 < chip.software_vram.1, "{chip}");
            assert!(chip.channels > 0, "{chip}");
            let classes = chip.classes.for_tenants();
            assert!(
                classes.iter().all(|class| classes.iter().filter(|c| *c == class).count() == 1),
                "{chip}"
            );
        }
    }
}
