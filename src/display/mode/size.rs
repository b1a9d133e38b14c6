//! A size in pixels, and its text.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Why a text is no size.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SizeError {
    /// There is no `x` in it, or more than one.
    #[error("{0:?} is no size: WIDTHxHEIGHT in pixels is expected, as \"1280x800\"")]
    Form(String),
    /// One of the two is no number.
    #[error("{text:?} is no size: its {side} {number:?} is no whole number from 1 to 65535")]
    Number {
        /// The whole text.
        text: String,
        /// "width" or "height".
        side: &'static str,
        /// What stands for it.
        number: String,
    },
}

/// Width and height in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Size {
    width: u16,
    height: u16,
}

impl Size {
    /// A size of this many columns and lines of pixels.
    pub const fn new(width: u16, height: u16) -> Self {
        Self { width, height }
    }

    /// Pixels of a line.
    pub const fn width(self) -> u16 {
        self.width
    }

    /// Lines.
    pub const fn height(self) -> u16 {
        self.height
    }

    /// All pixels.
    pub const fn pixels(self) -> u32 {
        self.width as u32 * self.height as u32
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.width, self.height)
    }
}

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let (width, height) = text.split_once('x').ok_or_else(|| SizeError::Form(text.to_owned()))?;
        if height.contains('x') {
            return Err(SizeError::Form(text.to_owned()));
        }
        let number = |side, digits: &str| {
            let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
            let value = if plain { digits.parse().unwrap_or(0) } else { 0 };
            let number = digits.to_owned();
            if value == 0 {
                Err(SizeError::Number { text: text.to_owned(), side, number })
            } else {
                Ok(value)
            }
        };
        Ok(Self::new(number("width", width)?, number("height", height)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_is_read_as_it_is_written() {
        for size in [Size::new(1, 1), Size::new(1280, 800), Size::new(65535, 65535)] {
            assert_eq!(size.to_string().parse(), Ok(size));
        }
    }

    #[test]
    fn text_that_is_no_size_is_refused_with_its_fault() {
        let why = |text: &str| text.parse::<Size>().unwrap_err().to_string();
        for text in ["", "1280", "1280*800", "1280x800x32"] {
            let expected =
                format!("{text:?} is no size: WIDTHxHEIGHT in pixels is expected, as \"1280x800\"");
            assert_eq!(why(text), expected);
        }
        let number = |text, side, digits: &str| {
            format!("{text:?} is no size: its {side} {digits:?} is no whole number from 1 to 65535")
        };
        for (text, side, digits) in [
            ("x800", "width", ""),
            ("+1280x800", "width", "+1280"),
            ("1280x 800", "height", " 800"),
            ("1280x0", "height", "0"),
            ("1280x-1", "height", "-1"),
            ("65536x1", "width", "65536"),
            ("1280X800x1", "width", "1280X800"),
        ] {
            assert_eq!(why(text), number(text, side, digits));
        }
    }
}
