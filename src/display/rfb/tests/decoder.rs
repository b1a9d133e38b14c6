//! What a viewer makes of updates.

use std::collections::HashMap;

use flate2::{Decompress, FlushDecompress, Status};

use crate::frame::Frame;
use crate::mode::Size;
use crate::rfb::format::PixelFormat;
use crate::tiles::Rectangle;

/// A pixel format, as a viewer sends it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Format {
    pub(super) bits: u8,
    pub(super) depth: u8,
    pub(super) big: bool,
    pub(super) colours: [(u16, u8); 3],
}

/// The formats that the tests look at: what the server has, TigerVNC's with few colours, and others.
pub(super) const FORMATS: [Format; 8] = [
    Format { bits: 32, depth: 24, big: false, colours: [(255, 16), (255, 8), (255, 0)] },
    Format { bits: 32, depth: 24, big: true, colours: [(255, 16), (255, 8), (255, 0)] },
    Format { bits: 32, depth: 24, big: false, colours: [(255, 8), (255, 16), (255, 24)] },
    Format { bits: 32, depth: 30, big: false, colours: [(1023, 20), (1023, 10), (1023, 0)] },
    Format { bits: 16, depth: 16, big: false, colours: [(31, 11), (63, 5), (31, 0)] },
    Format { bits: 16, depth: 15, big: true, colours: [(31, 10), (31, 5), (31, 0)] },
    Format { bits: 8, depth: 8, big: false, colours: [(7, 0), (7, 3), (3, 6)] },
    Format { bits: 8, depth: 3, big: false, colours: [(1, 2), (1, 1), (1, 0)] },
];

impl Format {
    pub(super) fn message(&self) -> Vec<u8> {
        let mut bytes = vec![0, 0, 0, 0, self.bits, self.depth, u8::from(self.big), 1];
        bytes.extend(self.colours.iter().flat_map(|(max, _)| max.to_be_bytes()));
        bytes.extend(self.colours.iter().map(|(_, shift)| *shift));
        bytes.extend([0; 3]);
        bytes
    }

    /// What a frame's pixel is in this format.
    pub(super) fn of(&self, pixel: u32) -> u64 {
        let parts = [pixel >> 16 & 0xff, pixel >> 8 & 0xff, pixel & 0xff];
        parts.into_iter().zip(self.colours).fold(0, |word, (part, (max, shift))| {
            // To the nearest.
            let value = (2 * u64::from(part) * u64::from(max) + 255) / 510;
            word | value << shift
        })
    }

    fn number(&self, bytes: &[u8]) -> u64 {
        let fold = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        if self.big { bytes.iter().fold(0, fold) } else { bytes.iter().rev().fold(0, fold) }
    }

    fn bytes(&self) -> usize {
        usize::from(self.bits / 8)
    }

    /// Where the byte is that compact pixels do not have: before the others, or behind them.
    fn missing(&self) -> Option<bool> {
        let mask = self.colours.iter().fold(0, |mask, (max, shift)| mask | u64::from(*max) << shift);
        if self.bits != 32 || self.depth > 24 {
            None
        } else if mask < 1 << 24 {
            Some(self.big)
        } else {
            (mask & 0xff == 0).then_some(!self.big)
        }
    }
}

/// Bytes that are read from the front.
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(super) fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    pub(super) fn byte(&mut self) -> u8 {
        self.take(1)[0]
    }

    pub(super) fn two(&mut self) -> u16 {
        u16::from_be_bytes(self.take(2).try_into().unwrap())
    }

    pub(super) fn four(&mut self) -> u32 {
        u32::from_be_bytes(self.take(4).try_into().unwrap())
    }
}

/// A viewer's screen.
pub(super) struct Screen {
    pub(super) size: Size,
    pub(super) format: Format,
    /// Line by line; nothing where no pixel came yet.
    pixels: Vec<Option<u64>>,
    inflate: Decompress,
    /// How many rectangles of each encoding came.
    pub(super) encodings: HashMap<i32, usize>,
}

impl Screen {
    pub(super) fn new(size: Size) -> Self {
        let pixels = vec![None; usize::try_from(size.pixels()).unwrap()];
        let inflate = Decompress::new(true);
        Self { size, format: FORMATS[0], pixels, inflate, encodings: HashMap::new() }
    }

    /// Whether the screen shows a frame, and black outside.
    pub(super) fn shows(&self, frame: &Frame) -> bool {
        let pixel = |x: u16, y: u16| frame.line(y).get(usize::from(x)).copied().unwrap_or(0);
        let places = places(Rectangle::all(self.size));
        places.zip(&self.pixels).all(|((x, y), found)| *found == Some(self.format.of(pixel(x, y))))
    }

    /// Takes an update; what it has behind its type. The rectangles come back.
    pub(super) fn update(&mut self, bytes: &mut Bytes<'_>) -> Vec<Rectangle> {
        assert_eq!(bytes.byte(), 0, "padding");
        let count = bytes.two();
        (0..count).map(|_| self.rectangle(bytes)).collect()
    }

    fn rectangle(&mut self, bytes: &mut Bytes<'_>) -> Rectangle {
        let (x, y, width, height) = (bytes.two(), bytes.two(), bytes.two(), bytes.two());
        let area = Rectangle { x, y, width, height };
        let encoding = bytes.four().cast_signed();
        *self.encodings.entry(encoding).or_default() += 1;
        if encoding == -223 {
            self.size = Size::new(width, height);
            self.pixels = vec![None; usize::try_from(self.size.pixels()).unwrap()];
            return area;
        }
        assert!(x + width <= self.size.width() && y + height <= self.size.height(), "{area:?}");
        let format = self.format;
        match encoding {
            0 => {
                let bytes = bytes.take(format.bytes() * usize::from(width) * usize::from(height));
                self.put(area, bytes.chunks(format.bytes()).map(|bytes| format.number(bytes)));
            }
            16 => {
                let length = usize::try_from(bytes.four()).unwrap();
                let plain = self.inflate(bytes.take(length));
                self.tiles(area, &mut Bytes(&plain));
            }
            other => panic!("encoding {other}"),
        }
        area
    }

    fn put(&mut self, area: Rectangle, pixels: impl Iterator<Item = u64>) {
        let width = usize::from(self.size.width());
        for ((x, y), pixel) in places(area).zip(pixels) {
            self.pixels[usize::from(y) * width + usize::from(x)] = Some(pixel);
        }
    }

    /// What a piece of the zlib stream says, all of it.
    fn inflate(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        let start = self.inflate.total_in();
        loop {
            plain.reserve(1 << 16);
            let taken = usize::try_from(self.inflate.total_in() - start).unwrap();
            let room = plain.capacity() - plain.len();
            let before = plain.len();
            let status = self.inflate.decompress_vec(&bytes[taken..], &mut plain, FlushDecompress::Sync);
            assert!(matches!(status, Ok(Status::Ok | Status::BufError)), "{status:?}");
            let taken = usize::try_from(self.inflate.total_in() - start).unwrap();
            if taken == bytes.len() && plain.len() - before < room {
                return plain;
            }
        }
    }

    fn tiles(&mut self, area: Rectangle, bytes: &mut Bytes<'_>) {
        for y in (area.y..area.y + area.height).step_by(64) {
            for x in (area.x..area.x + area.width).step_by(64) {
                let (width, height) = (64.min(area.x + area.width - x), 64.min(area.y + area.height - y));
                let tile = Rectangle { x, y, width, height };
                let pixels = self.tile(tile, bytes);
                assert_eq!(pixels.len(), usize::from(width) * usize::from(height));
                self.put(tile, pixels.into_iter());
            }
        }
        assert!(bytes.0.is_empty(), "{} bytes behind a rectangle", bytes.0.len());
    }

    fn compact(&self, bytes: &mut Bytes<'_>) -> u64 {
        match self.format.missing() {
            None => self.format.number(bytes.take(self.format.bytes())),
            Some(before) => {
                let three = bytes.take(3);
                let all = if before { [&[0][..], three].concat() } else { [three, &[0][..]].concat() };
                self.format.number(&all)
            }
        }
    }

    fn tile(&self, tile: Rectangle, bytes: &mut Bytes<'_>) -> Vec<u64> {
        let count = usize::from(tile.width) * usize::from(tile.height);
        let kind = bytes.byte();
        let mut pixels = Vec::new();
        let length = |bytes: &mut Bytes<'_>| {
            let mut length = 1;
            loop {
                let byte = bytes.byte();
                length += usize::from(byte);
                if byte != 255 {
                    return length;
                }
            }
        };
        match kind {
            0 => pixels.extend((0..count).map(|_| self.compact(bytes))),
            1 => pixels.resize(count, self.compact(bytes)),
            2..=16 => {
                let palette: Vec<_> = (0..kind).map(|_| self.compact(bytes)).collect();
                let bits = match kind {
                    2 => 1,
                    3..=4 => 2,
                    _ => 4,
                };
                for _ in 0..tile.height {
                    let line = bytes.take((usize::from(tile.width) * bits).div_ceil(8));
                    for x in 0..usize::from(tile.width) {
                        let byte = line[x * bits / 8];
                        let index = byte >> (8 - bits - x * bits % 8) & (0xff >> (8 - bits));
                        pixels.push(palette[usize::from(index)]);
                    }
                }
            }
            128 => {
                while pixels.len() < count {
                    let colour = self.compact(bytes);
                    let run = length(bytes);
                    pixels.extend(std::iter::repeat_n(colour, run));
                }
            }
            130..=255 => {
                let palette: Vec<_> = (0..kind - 128).map(|_| self.compact(bytes)).collect();
                while pixels.len() < count {
                    let index = bytes.byte();
                    let run = if index & 0x80 == 0 { 1 } else { length(bytes) };
                    pixels.extend(std::iter::repeat_n(palette[usize::from(index & 0x7f)], run));
                }
            }
            other => panic!("tile of kind {other}"),
        }
        pixels
    }
}

fn places(area: Rectangle) -> impl Iterator<Item = (u16, u16)> {
    (area.y..area.y + area.height).flat_map(move |y| (area.x..area.x + area.width).map(move |x| (x, y)))
}

#[test]
fn first_format_is_the_servers() {
    assert_eq!(FORMATS[0].message()[4..], PixelFormat::OURS.write());
}
