//! Lines whose pixels become those of a frame one by one, whatever is behind them.

use super::narrow::narrow;
use super::pixel::colour;
use super::table::Table;
use crate::scanout::Format;

/// How pixels of a format become those of a frame.
#[derive(Clone, Debug)]
pub(super) enum Direct {
    /// Red, green and blue lie as in a frame.
    Same,
    /// Red and blue are exchanged.
    Exchanged,
    /// 32 bits with 8 of each colour, which become what the three tables say. The flag is for red lowest.
    Mapped(Box<[[u8; 256]; 3]>, bool),
    /// All values of 8 bits.
    Palette(Box<[u32; 256]>),
    /// All values of 16 bits.
    All(Vec<u32>),
    /// 32 bits, ten of each colour. The flag is for red lowest.
    Ten(bool),
}

impl Direct {
    /// How pixels of a window become those of a frame; nothing if that takes more than a look at a few
    /// tables.
    pub(super) fn new(format: Format, input: Option<&Table>, output: Option<&Table>) -> Option<Self> {
        let plain = input.is_none() && output.is_none();
        let apply = |rgb| {
            let rgb = input.map_or(rgb, |table| table.apply(rgb));
            narrow(output.map_or(rgb, |table| table.apply(rgb)))
        };
        let of = |bytes: &[u8]| apply(colour(format, bytes).rgb);
        Some(match format {
            Format::Argb8888 | Format::Xrgb8888 if plain => Self::Same,
            Format::Abgr8888 | Format::Xbgr8888 if plain => Self::Exchanged,
            Format::Argb8888 | Format::Xrgb8888 => Self::Mapped(maps(apply), false),
            Format::Abgr8888 | Format::Xbgr8888 => Self::Mapped(maps(apply), true),
            Format::I8 => {
                let mut palette = Box::new([0; 256]);
                (0..=u8::MAX).zip(palette.iter_mut()).for_each(|(byte, colour)| *colour = of(&[byte]));
                Self::Palette(palette)
            }
            Format::Rgb565 | Format::Argb1555 => {
                Self::All((0..=u16::MAX).map(|word| of(&word.to_le_bytes())).collect())
            }
            Format::Argb2101010 if plain => Self::Ten(false),
            Format::Abgr2101010 if plain => Self::Ten(true),
            Format::Argb2101010 | Format::Abgr2101010 | Format::Abgr16161616F => return None,
        })
    }

    /// Converts a line.
    pub(super) fn convert(&self, bytes: &[u8], line: &mut [u32]) {
        let words = || bytes.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
        match self {
            Self::Same => line.iter_mut().zip(words()).for_each(|(pixel, word)| *pixel = word & 0xff_ffff),
            Self::Exchanged => {
                // What was the lowest byte comes to bits 23:16 if the bytes are taken in the other order.
                line.iter_mut().zip(words()).for_each(|(pixel, word)| *pixel = word.swap_bytes() >> 8);
            }
            Self::Mapped(maps, exchanged) => {
                let [red, green, blue] = maps.as_ref();
                for (pixel, word) in line.iter_mut().zip(words()) {
                    let [r, g, b] = if *exchanged {
                        let [r, g, b, _] = word.to_le_bytes();
                        [r, g, b]
                    } else {
                        let [b, g, r, _] = word.to_le_bytes();
                        [r, g, b]
                    };
                    let at = usize::from;
                    *pixel = u32::from_be_bytes([0, red[at(r)], green[at(g)], blue[at(b)]]);
                }
            }
            Self::Palette(palette) => {
                line.iter_mut().zip(bytes).for_each(|(pixel, byte)| *pixel = palette[usize::from(*byte)]);
            }
            Self::All(colours) => {
                let words = bytes.as_chunks().0.iter().map(|bytes| usize::from(u16::from_le_bytes(*bytes)));
                for (pixel, word) in line.iter_mut().zip(words) {
                    *pixel = colours.get(word).copied().unwrap_or(0);
                }
            }
            Self::Ten(exchanged) => {
                let shifts = if *exchanged { [0, 10, 20] } else { [20, 10, 0] };
                for (pixel, word) in line.iter_mut().zip(words()) {
                    let [red, green, blue] = shifts.map(|shift| word >> shift >> 2 & 0xff);
                    *pixel = red << 16 | green << 8 | blue;
                }
            }
        }
    }
}

/// What becomes of each value of each colour.
fn maps(apply: impl Fn([u16; 3]) -> u32) -> Box<[[u8; 256]; 3]> {
    let mut maps = Box::new([[0; 256]; 3]);
    for byte in 0..=u8::MAX {
        let [_, rgb @ ..] = apply([u16::from(byte) << 8; 3]).to_be_bytes();
        for (map, value) in maps.iter_mut().zip(rgb) {
            map[usize::from(byte)] = value;
        }
    }
    maps
}
