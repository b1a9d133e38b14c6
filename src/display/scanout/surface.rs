//! Surfaces: pixels in memory.

use super::memory::Address;
use crate::mode::Size;

/// Formats of pixels, each named from the highest bits to the lowest, with the code that NVIDIA's window
/// channels give it (open-gpu-doc, `classes/display/clc67e.h`, `SET_PARAMS_FORMAT`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// 8 bits that name an entry of the window's table. Code 1e.
    I8,
    /// 16 bits. Code e8.
    Rgb565,
    /// 16 bits, the highest of them alpha. Code e9.
    Argb1555,
    /// 32 bits. Code cf.
    Argb8888,
    /// 32 bits without alpha. Code e6.
    Xrgb8888,
    /// 32 bits, red lowest. Code d5.
    Abgr8888,
    /// 32 bits without alpha, red lowest. Code f9.
    Xbgr8888,
    /// 32 bits, 10 a colour. Code df.
    Argb2101010,
    /// 32 bits, 10 a colour, red lowest. Code d1.
    Abgr2101010,
    /// 64 bits, half floats, red lowest. Code ca.
    Abgr16161616F,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 10] = [
        Self::I8,
        Self::Rgb565,
        Self::Argb1555,
        Self::Argb8888,
        Self::Xrgb8888,
        Self::Abgr8888,
        Self::Xbgr8888,
        Self::Argb2101010,
        Self::Abgr2101010,
        Self::Abgr16161616F,
    ];

    /// The code by which a window channel names it.
    pub const fn code(self) -> u8 {
        match self {
            Self::I8 => 0x1e,
            Self::Rgb565 => 0xe8,
            Self::Argb1555 => 0xe9,
            Self::Argb8888 => 0xcf,
            Self::Xrgb8888 => 0xe6,
            Self::Abgr8888 => 0xd5,
            Self::Xbgr8888 => 0xf9,
            Self::Argb2101010 => 0xdf,
            Self::Abgr2101010 => 0xd1,
            Self::Abgr16161616F => 0xca,
        }
    }

    /// The format of a code, if it is one of these.
    pub fn of_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.code() == code)
    }

    /// Bytes of a pixel.
    pub const fn bytes(self) -> u8 {
        match self {
            Self::I8 => 1,
            Self::Rgb565 | Self::Argb1555 => 2,
            Self::Argb8888
            | Self::Xrgb8888
            | Self::Abgr8888
            | Self::Xbgr8888
            | Self::Argb2101010
            | Self::Abgr2101010 => 4,
            Self::Abgr16161616F => 8,
        }
    }
}

/// Where the pixels of a surface lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Lines follow each other at this distance in bytes.
    Pitch(u32),
    /// GOBs of 64 bytes by 8 lines, stacked to blocks, which follow each other along a line of blocks.
    Blocks {
        /// log2 of the GOBs of a block: 0 to 5.
        height_shift: u8,
        /// Blocks of a line.
        across: u32,
    },
}

/// Pixels in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Surface {
    /// The format of pixels.
    pub format: Format,
    /// How many there are. What lies outside is not shown.
    pub size: Size,
    /// Where they lie.
    pub layout: Layout,
    /// The first byte.
    pub address: Address,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_found_by_their_codes() {
        for format in Format::ALL {
            assert_eq!(Format::of_code(format.code()), Some(format));
        }
        assert_eq!(Format::of_code(0x28), None);
    }
}
