//! Pixels of all formats, as colours of 16 bits.
//!
//! 8 bits of a colour are the upper half of 16, 10 bits the upper ten: a table of 256 or 1024 entries is then
//! indexed by the value that the pixel has. 5 and 6 bits are repeated to 8, so that white is white. What of
//! this hardware does is not said by public sources, but for tables of 256 entries that drivers write: they
//! name what becomes of each of the 256 values.

use super::half::fraction;
use crate::scanout::Format;

/// A colour with alpha: red, green and blue of 65536, alpha of 255.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Colour {
    /// Red, green, blue.
    pub(super) rgb: [u16; 3],
    /// 255 where it hides all.
    pub(super) alpha: u8,
}

impl Colour {
    fn of_bytes(alpha: u8, rgb: [u8; 3]) -> Self {
        Self { rgb: rgb.map(|part| u16::from(part) << 8), alpha }
    }
}

/// `bits` bits of a word, from `shift` on.
fn part(word: u32, shift: u32, bits: u32) -> u16 {
    (word >> shift & ((1 << bits) - 1)).to_le_bytes().first_chunk().map_or(0, |low| u16::from_le_bytes(*low))
}

/// 5 or 6 bits, repeated to 8, as the upper half of 16.
fn repeated(value: u16, bits: u32) -> u16 {
    (value << (8 - bits) | value >> (2 * bits - 8)) << 8
}

/// A pixel of 16 bits with five of each colour and one of alpha.
pub(super) fn argb1555(word: u16) -> Colour {
    let word = u32::from(word);
    let rgb = [10, 5, 0].map(|shift| repeated(part(word, shift, 5), 5));
    Colour { rgb, alpha: if word >> 15 == 1 { 0xff } else { 0 } }
}

/// A pixel of 32 bits: alpha, red, green, blue from the top.
pub(super) fn argb8888(word: u32) -> Colour {
    let [blue, green, red, alpha] = word.to_le_bytes();
    Colour::of_bytes(alpha, [red, green, blue])
}

fn ten_bits(word: u32, shifts: [u32; 3]) -> Colour {
    let alpha = part(word, 30, 2).to_le_bytes()[0] * 0x55;
    Colour { rgb: shifts.map(|shift| part(word, shift, 10) << 6), alpha }
}

/// The colour of a pixel: `bytes` are one pixel's, as many as the format has.
pub(super) fn colour(format: Format, bytes: &[u8]) -> Colour {
    let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
    let half = |at: usize| u16::from_le_bytes([byte(at), byte(at + 1)]);
    let word = u32::from_le_bytes([byte(0), byte(1), byte(2), byte(3)]);
    match format {
        Format::I8 => Colour::of_bytes(0xff, [byte(0); 3]),
        Format::Rgb565 => {
            let [red, green, blue] =
                [(11, 5), (5, 6), (0, 5)].map(|(shift, bits)| repeated(part(word, shift, bits), bits));
            Colour { rgb: [red, green, blue], alpha: 0xff }
        }
        Format::Argb1555 => argb1555(half(0)),
        Format::Argb8888 => argb8888(word),
        Format::Xrgb8888 => Colour { alpha: 0xff, ..argb8888(word) },
        Format::Abgr8888 => Colour::of_bytes(byte(3), [byte(0), byte(1), byte(2)]),
        Format::Xbgr8888 => Colour::of_bytes(0xff, [byte(0), byte(1), byte(2)]),
        Format::Argb2101010 => ten_bits(word, [20, 10, 0]),
        Format::Abgr2101010 => ten_bits(word, [0, 10, 20]),
        Format::Abgr16161616F => {
            let alpha = fraction(half(6));
            // 1 and more, which a fraction cannot say, is as much as alpha can be.
            let alpha = if alpha == u16::MAX {
                0xff
            } else {
                ((u32::from(alpha) * 255 + 0x8000) >> 16).to_le_bytes()[0]
            };
            Colour { rgb: [0, 2, 4].map(|at| fraction(half(at))), alpha }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_is_white_in_every_format() {
        for format in Format::ALL {
            let bytes = match format {
                Format::Abgr16161616F => [0x00, 0x3c].repeat(4),
                _ => vec![0xff; usize::from(format.bytes())],
            };
            let white = colour(format, &bytes);
            assert_eq!(white.rgb.map(|part| part >> 8), [0xff; 3], "{format:?}");
            assert_eq!(white.alpha, 0xff, "{format:?}");
        }
    }

    #[test]
    fn colours_lie_where_formats_say() {
        let cases: [(Format, u64, [u16; 3], u8); 10] = [
            (Format::I8, 0x5a, [0x5a00; 3], 0xff),
            (Format::Rgb565, 0x8021, [0x8400, 0x0400, 0x0800], 0xff),
            (Format::Argb1555, 0x4022, [0x8400, 0x0800, 0x1000], 0),
            (Format::Argb8888, 0x4012_3456, [0x1200, 0x3400, 0x5600], 0x40),
            (Format::Xrgb8888, 0x4012_3456, [0x1200, 0x3400, 0x5600], 0xff),
            (Format::Abgr8888, 0x4012_3456, [0x5600, 0x3400, 0x1200], 0x40),
            (Format::Xbgr8888, 0x4012_3456, [0x5600, 0x3400, 0x1200], 0xff),
            (Format::Argb2101010, 2 << 30 | 1 << 20 | 2 << 10 | 3, [0x40, 0x80, 0xc0], 0xaa),
            (Format::Abgr2101010, 1 << 30 | 1 << 20 | 2 << 10 | 3, [0xc0, 0x80, 0x40], 0x55),
            // 0.5, 0.25, 1 and an alpha of 0.5.
            (Format::Abgr16161616F, 0x3800_3c00_3400_3800, [0x8000, 0x4000, 0xffff], 0x80),
        ];
        for (format, word, rgb, alpha) in cases {
            let bytes = word.to_le_bytes();
            let found = colour(format, &bytes[..usize::from(format.bytes())]);
            assert_eq!(found, Colour { rgb, alpha }, "{format:?}");
        }
    }
}
