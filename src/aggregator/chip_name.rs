//! The chip of a peer's vGPU, as the peer names it.

use std::fmt;

use gpuvmk_chip::Chip;

/// A chip as a peer names it: one that is known here, or any other name. A peer of another release may know
/// chips that this one does not; the refusal then names its release, or says that this GPU is another chip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChipName {
    /// One that is known.
    Known(Chip),
    /// None of those.
    Other(String),
}

impl ChipName {
    /// The name in a message.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(chip) => chip.name(),
            Self::Other(name) => name,
        }
    }
}

impl From<Chip> for ChipName {
    fn from(chip: Chip) -> Self {
        Self::Known(chip)
    }
}

impl From<String> for ChipName {
    fn from(name: String) -> Self {
        Chip::by_name(&name).map_or(Self::Other(name), Self::Known)
    }
}

impl fmt::Display for ChipName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_chips_are_known_and_others_kept() {
        for chip in Chip::ALL.iter().copied() {
            let name = ChipName::from(chip.name().to_owned());
            assert_eq!((name.clone(), name.to_string().as_str()), (ChipName::Known(chip), chip.name()));
        }
        for other in ["", "gf100", "GK104"] {
            assert_eq!(ChipName::from(other.to_owned()), ChipName::Other(other.to_owned()));
            assert_eq!(ChipName::from(other.to_owned()).as_str(), other);
        }
    }
}
