//! The EDID of a virtual monitor: 128 bytes, by VESA's Enhanced EDID Standard (release A, revision 2: EDID
//! 1.4), as a monitor at a DVI connector has it. There are no extensions, hence no sound and no infoframes.
//!
//! The preferred mode is the first detailed timing; the usual modes are said as established and standard
//! timings, for which drivers take VESA's DMT.

use std::array;

use super::mode::{Mode, Polarity, Size, Timing, modes};

/// Bytes of an EDID without extensions.
pub const EDID_BYTES: usize = 128;

/// First bytes of every EDID.
const HEADER: [u8; 8] = [0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0];

/// The maker: three letters, five bits each.
const MAKER: [u8; 3] = *b"GPV";

/// The product's number, ours.
const PRODUCT: u16 = 1;

/// The year that the product is of, from 1990 on.
const YEAR: u8 = 36;

/// Digital, 8 bits a colour, DVI.
const INPUT: u8 = 0x80 | 2 << 4 | 1;

/// Gamma of 2.2: (2.2 - 1) * 100.
const GAMMA: u8 = 120;

/// RGB 4:4:4, sRGB is the colour space, and the preferred timing is what the panel has.
const FEATURES: u8 = 1 << 2 | 1 << 1;

/// sRGB's red, green, blue and white: x and y in 1/10000.
const COLOURS: [(u32, u32); 4] = [(6400, 3300), (3000, 6000), (1500, 600), (3127, 3290)];

/// Established timings: 640x480, 800x600 and 1024x768 at 60 Hz.
const ESTABLISHED: [u8; 3] = [1 << 5 | 1, 1 << 3, 0];

/// What are standard timings. All have an aspect ratio of 16:9 and 60 Hz.
const STANDARD: [Size; 2] = [Size::new(1280, 720), Size::new(1920, 1080)];

/// Standard timings in an EDID; those not used are 0101.
const STANDARD_SLOTS: usize = 8;

/// Characters of a monitor's name.
const NAME_BYTES: usize = 13;

/// The name where a VM has none that an EDID can say.
const NO_NAME: &str = "gpuvmk";

/// The EDID of a virtual monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edid([u8; EDID_BYTES]);

impl Edid {
    /// The EDID of a monitor with this preferred mode. It is named by the first 13 characters of `name` that
    /// are printable ASCII.
    pub fn new(name: &str, preferred: Mode) -> Self {
        let mut bytes = Vec::with_capacity(EDID_BYTES);
        bytes.extend_from_slice(&HEADER);
        bytes.extend_from_slice(&maker().to_be_bytes());
        bytes.extend_from_slice(&PRODUCT.to_le_bytes());
        // No serial number, no week, a year; EDID 1.4.
        bytes.extend_from_slice(&[0, 0, 0, 0, 0, YEAR, 1, 4]);
        let size = preferred.size();
        bytes.push(INPUT);
        bytes.extend([size.width(), size.height()].map(|side| low(millimetres(side).div_ceil(10))));
        bytes.extend_from_slice(&[GAMMA, FEATURES]);
        bytes.extend_from_slice(&colours());
        bytes.extend_from_slice(&ESTABLISHED);
        bytes.extend_from_slice(&standard());
        bytes.extend_from_slice(&detailed(preferred));
        bytes.extend_from_slice(&text(0xfc, name));
        bytes.extend_from_slice(&ranges(&modes(preferred)));
        // A descriptor that says nothing.
        bytes.extend_from_slice(&descriptor(0x10, [0; NAME_BYTES]));
        // No extensions.
        bytes.push(0);
        let sum = bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
        bytes.push(sum.wrapping_neg());
        Self(array::from_fn(|at| bytes.get(at).copied().unwrap_or(0)))
    }

    /// The bytes, as a driver reads them.
    pub fn bytes(&self) -> &[u8; EDID_BYTES] {
        &self.0
    }
}

/// The lowest byte of a number.
fn low(value: u16) -> u8 {
    value.to_le_bytes()[0]
}

/// Bits 11:8 of a number, for the lower half of a byte.
fn upper(value: u16) -> u8 {
    value.to_le_bytes()[1] & 0xf
}

fn maker() -> u16 {
    MAKER.iter().fold(0, |id, letter| id << 5 | u16::from(letter - b'@'))
}

/// Length of a side at 96 dots an inch.
fn millimetres(pixels: u16) -> u16 {
    u16::try_from(u32::from(pixels) * 254 / 960).unwrap_or(u16::MAX)
}

/// Ten bytes of colours: two of lowest bits, then the upper eight of each.
fn colours() -> [u8; 10] {
    let parts = COLOURS.map(|(x, y)| [x, y].map(|part| (part * 1024 + 5000) / 10_000));
    let parts: Vec<u32> = parts.into_iter().flatten().collect();
    let low_bits = parts.chunks(4).map(|four| four.iter().fold(0, |byte, part| byte << 2 | part & 3));
    let bytes: Vec<u32> = low_bits.chain(parts.iter().map(|part| part >> 2)).collect();
    array::from_fn(|at| bytes.get(at).map_or(0, |byte| byte.to_le_bytes()[0]))
}

fn standard() -> [u8; 2 * STANDARD_SLOTS] {
    // Characters less 31, then the aspect ratio (3 is 16:9) over the rate less 60.
    let said = STANDARD.map(|size| [low(size.width() / 8 - 31), 3 << 6]);
    let mut bytes = said.as_flattened().to_vec();
    bytes.resize(2 * STANDARD_SLOTS, 1);
    array::from_fn(|at| bytes.get(at).copied().unwrap_or(1))
}

/// A detailed timing.
fn detailed(mode: Mode) -> [u8; 18] {
    let Timing { clock, horizontal: line, vertical: picture } = mode.timing();
    // In 10 kHz: the limit is 165 MHz.
    let clock = u16::try_from(clock.kilohertz() / 10).unwrap_or(u16::MAX).to_le_bytes();
    let (width, height) = (millimetres(line.active), millimetres(picture.active));
    let pair = |one: u16, other: u16| upper(one) << 4 | upper(other);
    let positive = |polarity| u8::from(polarity == Polarity::Positive);
    // Vertical porch and pulse have 6 bits each, of which 4 are in a byte of their own.
    let lines = low(picture.front_porch & 0xf) << 4 | low(picture.sync & 0xf);
    let above = low(line.front_porch >> 8 & 3) << 6
        | low(line.sync >> 8 & 3) << 4
        | low(picture.front_porch >> 4 & 3) << 2
        | low(picture.sync >> 4 & 3);
    [
        clock[0],
        clock[1],
        low(line.active),
        low(line.blanking()),
        pair(line.active, line.blanking()),
        low(picture.active),
        low(picture.blanking()),
        pair(picture.active, picture.blanking()),
        low(line.front_porch),
        low(line.sync),
        lines,
        above,
        low(width),
        low(height),
        pair(width, height),
        0,
        0,
        // Not interlaced, sync pulses on wires of their own.
        3 << 3 | positive(picture.polarity) << 2 | positive(line.polarity) << 1,
    ]
}

fn descriptor(tag: u8, content: [u8; NAME_BYTES]) -> [u8; 18] {
    let mut bytes = [0; 18];
    bytes[3] = tag;
    bytes[5..].copy_from_slice(&content);
    bytes
}

/// A text: ended by a line feed where there is room, then spaces.
fn text(tag: u8, text: &str) -> [u8; 18] {
    let printable = |text: &str| -> Vec<u8> {
        text.bytes().filter(|byte| matches!(byte, b' '..=b'~')).take(NAME_BYTES).collect()
    };
    let mut letters = printable(text);
    if letters.iter().all(|letter| *letter == b' ') {
        letters = printable(NO_NAME);
    }
    if letters.len() < NAME_BYTES {
        letters.push(b'\n');
    }
    descriptor(tag, array::from_fn(|at| letters.get(at).copied().unwrap_or(b' ')))
}

/// The rates between which all modes are.
fn ranges(modes: &[Mode]) -> [u8; 18] {
    let timings = || modes.iter().map(|mode| mode.timing());
    let byte = |value: u64| u8::try_from(value).unwrap_or(u8::MAX);
    let least = |values: &mut dyn Iterator<Item = u64>| byte(values.min().unwrap_or(0) / 1000);
    let most = |values: &mut dyn Iterator<Item = u64>| byte(values.max().unwrap_or(0).div_ceil(1000));
    let clock = most(&mut timings().map(|timing| u64::from(timing.clock.kilohertz()).div_ceil(10)));
    let mut content = [b' '; NAME_BYTES];
    content[..7].copy_from_slice(&[
        least(&mut timings().map(|timing| timing.millihertz())),
        most(&mut timings().map(|timing| timing.millihertz())),
        least(&mut timings().map(|timing| timing.line_hertz())),
        most(&mut timings().map(|timing| timing.line_hertz())),
        // In 10 MHz.
        clock,
        // These are limits, and no formula for more timings.
        1,
        b'\n',
    ]);
    descriptor(0xfd, content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn edid(name: &str, mode: &str) -> [u8; EDID_BYTES] {
        *Edid::new(name, mode.parse().unwrap()).bytes()
    }

    /// A detailed timing, read back: clock in kHz, line and picture.
    fn read(bytes: &[u8]) -> (u32, [u16; 4], [u16; 4]) {
        let byte = |at: usize| u16::from(bytes[at]);
        let active = |at: usize| byte(at) | (byte(at + 2) >> 4) << 8;
        let blanking = |at: usize| byte(at) | (byte(at + 1) & 0xf) << 8;
        let line = [
            active(2),
            byte(8) | (byte(11) >> 6) << 8,
            byte(9) | (byte(11) >> 4 & 3) << 8,
            active(2) + blanking(3),
        ];
        let picture = [
            active(5),
            byte(10) >> 4 | (byte(11) >> 2 & 3) << 4,
            byte(10) & 0xf | (byte(11) & 3) << 4,
            active(5) + blanking(6),
        ];
        (u32::from(u16::from_le_bytes([bytes[0], bytes[1]])) * 10, line, picture)
    }

    fn sum(bytes: &[u8]) -> u8 {
        bytes.iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte))
    }

    #[test]
    fn edid_is_as_the_standard_has_it() {
        let bytes = edid("vm1", "1280x800");
        assert_eq!(bytes[..8], [0, 255, 255, 255, 255, 255, 255, 0]);
        // "GPV" by five bits a letter: 7, 16, 22.
        assert_eq!(bytes[8..10], [0b0001_1110, 0b0001_0110]);
        assert_eq!(bytes[18..20], [1, 4]);
        assert_eq!(bytes[20], 0b1010_0001);
        // 338 by 211 millimetres, rounded up to centimetres.
        assert_eq!(bytes[21..23], [34, 22]);
        // The bytes that every sRGB monitor has.
        assert_eq!(bytes[25..35], [0xee, 0x91, 0xa3, 0x54, 0x4c, 0x99, 0x26, 0x0f, 0x50, 0x54]);
        assert_eq!(bytes[35..38], [0x21, 0x08, 0]);
        // As DMT gives the codes of 1280x720 and 1920x1080.
        assert_eq!(bytes[38..44], [0x81, 0xc0, 0xd1, 0xc0, 1, 1]);
        assert_eq!(read(&bytes[54..72]), (71_000, [1280, 48, 32, 1440], [800, 3, 6, 823]));
        assert_eq!(bytes[71], 0b0001_1010);
        assert_eq!(bytes[72..90], *b"\0\0\0\xfc\0vm1\n         ");
        // 59.8 to 60.3 Hz, 31.5 to 67.5 kHz, 148.5 MHz.
        assert_eq!(bytes[90..108], *b"\0\0\0\xfd\0\x3b\x3d\x1f\x44\x0f\x01\n      ");
        assert_eq!(bytes[126], 0);
        assert_eq!(sum(&bytes), 0);
    }

    #[test]
    fn names_are_cut_and_never_empty() {
        assert_eq!(edid("a-machine-with-a-long-name", "640x480")[77..90], *b"a-machine-wit");
        assert_eq!(edid("exactly-12-by", "640x480")[77..90], *b"exactly-12-by");
        assert_eq!(edid("\u{e4}\n", "640x480")[77..90], *b"gpuvmk\n      ");
    }

    proptest! {
        #[test]
        fn preferred_mode_is_said_as_it_is(width in 40_u16..300, height in 200_u16..2300, name in ".*") {
            let Ok(mode) = Mode::new(Size::new(width * 8, height)) else { return Ok(()) };
            let bytes = *Edid::new(&name, mode).bytes();
            let timing = mode.timing();
            let axis = |axis: crate::Axis| [axis.active, axis.front_porch, axis.sync, axis.total()];
            let (clock, line, picture) = read(&bytes[54..72]);
            prop_assert!(timing.clock.kilohertz().abs_diff(clock) < 10);
            prop_assert_eq!((line, picture), (axis(timing.horizontal), axis(timing.vertical)));
            prop_assert_eq!(sum(&bytes), 0);
        }
    }
}
