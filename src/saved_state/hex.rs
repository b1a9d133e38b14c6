//! Memory of a unit as text: two digits for a byte, eight for a word, in the order of addresses.

use std::fmt::Write;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Check, StateError};

/// Bytes of a fixed number.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Bytes(pub Vec<u8>);

/// Words of a memory whose size is known elsewhere, up to the last one that is not zero.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Words(pub Vec<u32>);

impl Words {
    /// What is in `memory`.
    pub fn of(memory: &[u32]) -> Self {
        let length = memory.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
        Self(memory.iter().take(length).copied().collect())
    }

    /// A memory of `size` words with this in it.
    ///
    /// # Errors
    /// There are more words, or zeros at the end.
    pub fn memory(&self, check: Check, name: &str, size: usize) -> Result<Vec<u32>, StateError> {
        check.at_most(name, self.0.len(), size)?;
        check.that(self.0.last() != Some(&0), || format!("{name} ends with zeros"))?;
        let mut memory = self.0.clone();
        memory.resize(size, 0);
        Ok(memory)
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = String::with_capacity(self.0.len().saturating_mul(2));
        for byte in &self.0 {
            // A string takes what it is given.
            let _ = write!(text, "{byte:02x}");
        }
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let values = digits(deserializer, 2)?;
        // Two digits are a byte.
        Ok(Self(values.into_iter().filter_map(|value| u8::try_from(value).ok()).collect()))
    }
}

impl Serialize for Words {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = String::with_capacity(self.0.len().saturating_mul(8));
        for word in &self.0 {
            // A string takes what it is given.
            let _ = write!(text, "{word:08x}");
        }
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        digits(deserializer, 8).map(Self)
    }
}

/// Numbers of `width` hexadecimal digits each.
fn digits<'de, D: Deserializer<'de>>(deserializer: D, width: usize) -> Result<Vec<u32>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let parts = text.as_bytes().chunks(width);
    let number = |part: &[u8]| {
        // The standard library takes a sign, too.
        let plain = part.len() == width && part.iter().all(u8::is_ascii_hexdigit);
        let part = std::str::from_utf8(part).ok().filter(|_| plain)?;
        u32::from_str_radix(part, 16).ok()
    };
    let numbers: Option<Vec<u32>> = parts.map(number).collect();
    let problem = || D::Error::custom(format!("memory is not in numbers of {width} hexadecimal digits"));
    numbers.ok_or_else(problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_text_without_the_zeros_at_its_end() {
        let words = Words::of(&[0, 0xf8, 0, 0]);
        let text = serde_json::to_string(&words).unwrap();
        assert_eq!(text, "\"00000000000000f8\"");
        let back: Words = serde_json::from_str(&text).unwrap();
        assert_eq!(back.memory(Check("X"), "code", 4).unwrap(), [0, 0xf8, 0, 0]);
        assert!(back.memory(Check("X"), "code", 1).is_err());
        assert!(Words(vec![1, 0]).memory(Check("X"), "code", 4).is_err());

        let bytes = Bytes(vec![0, 0xab, 0]);
        let text = serde_json::to_string(&bytes).unwrap();
        assert_eq!(text, "\"00ab00\"");
        assert_eq!(serde_json::from_str::<Bytes>(&text).unwrap(), bytes);
    }

    #[test]
    fn text_that_is_no_memory_is_refused() {
        for text in ["\"1\"", "\"+1\"", "\"0g\"", "\"\u{fc}\"", "12", "\"000\""] {
            assert!(serde_json::from_str::<Bytes>(text).is_err(), "{text}");
            assert!(serde_json::from_str::<Words>(text).is_err(), "{text}");
        }
        assert_eq!(serde_json::from_str::<Words>("\"\"").unwrap(), Words::default());
    }
}
