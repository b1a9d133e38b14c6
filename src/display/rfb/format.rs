//! Pixel formats of viewers, and frames' pixels in them.

use thiserror::Error;

/// Bytes of a pixel format in a message.
pub(super) const FORMAT_BYTES: usize = 16;

/// Why a pixel format is not sent.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum FormatError {
    /// Pixels would be of another size.
    #[error("it asks for pixels of {0} bits, and 8, 16 and 32 are what there is")]
    Bits(u8),
    /// Pixels would be indices of a colour map.
    #[error("it asks for a colour map, and only true colour is sent")]
    ColourMap,
    /// A colour does not fit into a pixel.
    #[error("it asks for a colour of at most {max} at bit {shift} of {bits}")]
    Colour {
        /// Its largest value.
        max: u16,
        /// Its lowest bit.
        shift: u8,
        /// Bits of a pixel.
        bits: u8,
    },
}

/// How a viewer wants pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PixelFormat {
    /// Bytes of a pixel: 1, 2 or 4.
    bytes: u8,
    /// Bits of a pixel that mean anything, by the viewer's own account.
    depth: u8,
    big_endian: bool,
    /// Largest value and lowest bit of red, green and blue.
    colours: [(u16, u8); 3],
}

impl PixelFormat {
    /// What frames have, and what viewers get that do not ask for another one.
    pub const OURS: Self =
        Self { bytes: 4, depth: 24, big_endian: false, colours: [(255, 16), (255, 8), (255, 0)] };

    /// Reads one from a message.
    ///
    /// # Errors
    /// Frames cannot be converted to it.
    pub fn read(bytes: &[u8; FORMAT_BYTES]) -> Result<Self, FormatError> {
        let [bits, depth, big_endian, true_colour, maxima @ .., _, _, _] = *bytes;
        let [r1, r0, g1, g0, b1, b0, red, green, blue] = maxima;
        if true_colour == 0 {
            return Err(FormatError::ColourMap);
        }
        if !matches!(bits, 8 | 16 | 32) {
            return Err(FormatError::Bits(bits));
        }
        let colours = [([r1, r0], red), ([g1, g0], green), ([b1, b0], blue)];
        let colours = colours.map(|(max, shift)| (u16::from_be_bytes(max), shift));
        for (max, shift) in colours {
            if shift >= bits || u64::from(max) << shift >= 1 << bits {
                return Err(FormatError::Colour { max, shift, bits });
            }
        }
        Ok(Self { bytes: bits / 8, depth, big_endian: big_endian != 0, colours })
    }

    /// The same as a message has it.
    pub fn write(&self) -> [u8; FORMAT_BYTES] {
        let [(r, red), (g, green), (b, blue)] = self.colours;
        let ([r1, r0], [g1, g0], [b1, b0]) = (r.to_be_bytes(), g.to_be_bytes(), b.to_be_bytes());
        let big_endian = u8::from(self.big_endian);
        [self.bytes * 8, self.depth, big_endian, 1, r1, r0, g1, g0, b1, b0, red, green, blue, 0, 0, 0]
    }

    /// All bits that a colour may set.
    fn mask(&self) -> u32 {
        self.colours.iter().fold(0, |mask, (max, shift)| mask | u32::from(*max) << shift)
    }

    /// Bytes of a pixel as it is sent that are left out where pixels are to be compact: the last one, or else
    /// the first one, if that is always 0.
    fn left_out(&self) -> Option<LeftOut> {
        if self.bytes != 4 || self.depth > 24 {
            return None;
        }
        let mask = self.mask();
        let bytes = if self.big_endian { mask.to_be_bytes() } else { mask.to_le_bytes() };
        match bytes {
            [.., 0] => Some(LeftOut::Last),
            [0, ..] => Some(LeftOut::First),
            _ => None,
        }
    }
}

/// Which byte of a pixel is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeftOut {
    First,
    Last,
}

/// Converts frames' pixels to a format.
#[derive(Clone, Debug)]
pub(super) struct Converter {
    format: PixelFormat,
    left_out: Option<LeftOut>,
    /// What each value of red, green and blue is in a pixel.
    tables: Box<[[u32; 256]; 3]>,
}

impl Converter {
    pub(super) fn new(format: PixelFormat) -> Self {
        let mut tables = Box::new([[0; 256]; 3]);
        for (table, (max, shift)) in tables.iter_mut().zip(format.colours) {
            for (value, entry) in (0_u32..).zip(table) {
                *entry = ((value * u32::from(max) + 127) / 255) << shift;
            }
        }
        Self { format, left_out: format.left_out(), tables }
    }

    /// Bytes of a pixel.
    pub(super) fn bytes(&self) -> usize {
        self.format.bytes.into()
    }

    /// Bytes of a compact pixel.
    pub(super) fn compact_bytes(&self) -> usize {
        if self.left_out.is_some() { 3 } else { self.bytes() }
    }

    /// A pixel in the format, as a number.
    fn word(&self, pixel: u32) -> u32 {
        let [_, rgb @ ..] = pixel.to_be_bytes();
        let [red, green, blue] = &*self.tables;
        let [r, g, b] = rgb.map(usize::from);
        red[r] | green[g] | blue[b]
    }

    /// Appends pixels.
    pub(super) fn write(&self, pixels: &[u32], to: &mut Vec<u8>) {
        match (self.format.bytes, self.format.big_endian) {
            _ if self.format == PixelFormat::OURS => {
                to.extend(pixels.iter().flat_map(|pixel| pixel.to_le_bytes()));
            }
            (1, _) => to.extend(pixels.iter().map(|pixel| self.word(*pixel).to_le_bytes()[0])),
            (2, false) => to.extend(pixels.iter().flat_map(|pixel| low(self.word(*pixel)).to_le_bytes())),
            (2, true) => to.extend(pixels.iter().flat_map(|pixel| low(self.word(*pixel)).to_be_bytes())),
            (_, false) => to.extend(pixels.iter().flat_map(|pixel| self.word(*pixel).to_le_bytes())),
            (_, true) => to.extend(pixels.iter().flat_map(|pixel| self.word(*pixel).to_be_bytes())),
        }
    }

    /// Appends pixels in the compact form.
    pub(super) fn write_compact(&self, pixels: &[u32], to: &mut Vec<u8>) {
        let Some(left_out) = self.left_out else { return self.write(pixels, to) };
        for pixel in pixels {
            let word = self.word(*pixel);
            let bytes = if self.format.big_endian { word.to_be_bytes() } else { word.to_le_bytes() };
            let [first, second, third, fourth] = bytes;
            to.extend_from_slice(&match left_out {
                LeftOut::First => [second, third, fourth],
                LeftOut::Last => [first, second, third],
            });
        }
    }
}

/// The lower half of a word.
fn low(word: u32) -> u16 {
    let [first, second, ..] = word.to_le_bytes();
    u16::from_le_bytes([first, second])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn format(bits: u8, depth: u8, big: bool, colours: [(u16, u8); 3]) -> PixelFormat {
        PixelFormat { bytes: bits / 8, depth, big_endian: big, colours }
    }

    fn sent(format: PixelFormat, pixel: u32) -> (Vec<u8>, Vec<u8>) {
        let converter = Converter::new(format);
        let (mut plain, mut compact) = (Vec::new(), Vec::new());
        converter.write(&[pixel], &mut plain);
        converter.write_compact(&[pixel], &mut compact);
        assert_eq!((plain.len(), compact.len()), (converter.bytes(), converter.compact_bytes()));
        (plain, compact)
    }

    #[test]
    fn pixels_are_sent_as_formats_say() {
        let pixel = 0x00ff_8001;
        let rgb = |a, b, c| [(255, a), (255, b), (255, c)];
        assert_eq!(sent(PixelFormat::OURS, pixel), (vec![1, 0x80, 0xff, 0], vec![1, 0x80, 0xff]));
        let big = format(32, 24, true, rgb(16, 8, 0));
        assert_eq!(sent(big, pixel), (vec![0, 0xff, 0x80, 1], vec![0xff, 0x80, 1]));
        let high = format(32, 24, false, rgb(24, 16, 8));
        assert_eq!(sent(high, pixel), (vec![0, 1, 0x80, 0xff], vec![1, 0x80, 0xff]));
        let deep = format(32, 32, false, rgb(0, 8, 16));
        assert_eq!(sent(deep, pixel), (vec![0xff, 0x80, 1, 0], vec![0xff, 0x80, 1, 0]));
        let wide = format(32, 24, false, [(1023, 20), (1023, 10), (1023, 0)]);
        assert_eq!(sent(wide, pixel).0, (1023 << 20 | 514 << 10 | 4_u32).to_le_bytes());
        assert_eq!(sent(wide, pixel).1.len(), 4);
        let r5g6b5 = format(16, 16, true, [(31, 11), (63, 5), (31, 0)]);
        assert_eq!(sent(r5g6b5, pixel).0, (31_u16 << 11 | 32 << 5).to_be_bytes());
        let r3g3b2 = format(8, 8, false, [(7, 0), (7, 3), (3, 6)]);
        assert_eq!(sent(r3g3b2, pixel).0, [7 | 4 << 3]);
    }

    #[test]
    fn formats_that_cannot_be_sent_say_why() {
        let why = |change: &dyn Fn(&mut [u8; FORMAT_BYTES])| {
            let mut bytes = PixelFormat::OURS.write();
            change(&mut bytes);
            PixelFormat::read(&bytes).unwrap_err().to_string()
        };
        assert_eq!(why(&|b| b[0] = 24), "it asks for pixels of 24 bits, and 8, 16 and 32 are what there is");
        assert_eq!(why(&|b| b[3] = 0), "it asks for a colour map, and only true colour is sent");
        assert_eq!(why(&|b| b[10] = 32), "it asks for a colour of at most 255 at bit 32 of 32");
        assert_eq!(why(&|b| b[0] = 16), "it asks for a colour of at most 255 at bit 16 of 16");
        assert_eq!(why(&|b| b[10] = 25), "it asks for a colour of at most 255 at bit 25 of 32");
    }

    proptest! {
        #[test]
        fn any_format_is_refused_or_used(bytes: [u8; FORMAT_BYTES], pixel in 0_u32..1 << 24) {
            let Ok(format) = PixelFormat::read(&bytes) else { return Ok(()) };
            prop_assert_eq!(PixelFormat::read(&format.write()), Ok(format));
            let (plain, compact) = sent(format, pixel);
            // A compact pixel is the pixel but for a byte that is 0.
            let zero_before = [&[0][..], &compact].concat();
            let zero_behind = [&compact[..], &[0]].concat();
            prop_assert!(plain == compact || plain == zero_before || plain == zero_behind);
        }
    }
}
