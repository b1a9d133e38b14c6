//! The version of a tree of states.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// The version of a state that this program writes as `NOW`, and reads from `OLDEST` on. A state of another
/// version is refused while it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Version<const OLDEST: u32, const NOW: u32>(u32);

impl<const OLDEST: u32, const NOW: u32> Default for Version<OLDEST, NOW> {
    fn default() -> Self {
        Self(NOW)
    }
}

impl<const OLDEST: u32, const NOW: u32> Version<OLDEST, NOW> {
    /// Its number.
    pub const fn number(self) -> u32 {
        self.0
    }
}

impl<'de, const OLDEST: u32, const NOW: u32> Deserialize<'de> for Version<OLDEST, NOW> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = u32::deserialize(deserializer)?;
        if (OLDEST..=NOW).contains(&number) {
            return Ok(Self(number));
        }
        let readable = if OLDEST == NOW { NOW.to_string() } else { format!("{OLDEST} to {NOW}") };
        Err(D::Error::custom(format!("the state has version {number}, and this program reads {readable}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_in_the_range_are_read_and_others_are_named() {
        type Two = Version<2, 3>;
        assert_eq!(serde_json::to_string(&Two::default()).unwrap(), "3");
        assert_eq!(serde_json::from_str::<Two>("2").unwrap().number(), 2);
        let refused = serde_json::from_str::<Two>("4").unwrap_err().to_string();
        assert!(refused.contains("the state has version 4, and this program reads 2 to 3"), "{refused}");
        let refused = serde_json::from_str::<Version<1, 1>>("0").unwrap_err().to_string();
        assert!(refused.contains("the state has version 0, and this program reads 1"), "{refused}");
    }
}
