//! Rectangles of a picture, as viewers get them.

use super::format::Converter;
use super::zrle::{Stream, Tiles};
use crate::frame::Frame;
use crate::mode::Size;
use crate::tiles::{Rectangle, TILE};

/// Pixels as they are.
const RAW: i32 = 0;

/// Tiles by zlib.
pub(super) const ZRLE: i32 = 16;

/// No pixels: the screen has another size.
pub(super) const DESKTOP_SIZE: i32 = -223;

/// How pixels are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    /// As they are.
    Raw,
    /// By zlib.
    Zrle,
    /// By zlib where that makes them a quarter or less, and as they are elsewhere.
    ZrleIfSmall,
}

/// Encodes rectangles for one viewer, and keeps the memory for it.
#[derive(Debug, Default)]
pub(super) struct Encoder {
    pixels: Vec<u32>,
    tiles: Tiles,
    bytes: Vec<u8>,
    /// Made when the viewer gets its first rectangle by zlib: one for all of them.
    stream: Option<Stream>,
}

impl Encoder {
    /// Appends a rectangle. Pixels outside the frame are black.
    pub(super) fn rectangle(
        &mut self,
        frame: &Frame,
        area: Rectangle,
        (converter, encoding): (&Converter, Encoding),
        to: &mut Vec<u8>,
    ) {
        self.pixels.clear();
        let (first, width) = (usize::from(area.x), usize::from(area.width));
        for y in area.y..area.y.saturating_add(area.height) {
            let line = frame.line(y);
            let seen = line.get(first..line.len().min(first + width)).unwrap_or_default();
            self.pixels.extend_from_slice(seen);
            self.pixels.resize(self.pixels.len() + width - seen.len(), 0);
        }
        let plain = self.pixels.len() * converter.bytes();
        if encoding != Encoding::Raw {
            self.bytes.clear();
            self.tiles.encode(&self.pixels, width, converter, &mut self.bytes);
            if encoding == Encoding::Zrle || self.bytes.len() < plain / 4 {
                head(area, ZRLE, to);
                return self.stream.get_or_insert_with(Stream::new).compress(&self.bytes, to);
            }
        }
        head(area, RAW, to);
        to.reserve(plain);
        converter.write(&self.pixels, to);
    }
}

/// Appends the head of a rectangle.
fn head(area: Rectangle, encoding: i32, to: &mut Vec<u8>) {
    for part in [area.x, area.y, area.width, area.height] {
        to.extend_from_slice(&part.to_be_bytes());
    }
    to.extend_from_slice(&encoding.to_be_bytes());
}

/// Appends the head of an update of so many rectangles.
pub(super) fn begin(rectangles: usize, to: &mut Vec<u8>) {
    // A frame has 4096 tiles at most.
    to.extend_from_slice(&[0, 0]);
    to.extend_from_slice(&u16::try_from(rectangles).unwrap_or(u16::MAX).to_be_bytes());
}

/// Appends an update that says that the screen has another size.
pub(super) fn resized(size: Size, to: &mut Vec<u8>) {
    begin(1, to);
    head(Rectangle::all(size), DESKTOP_SIZE, to);
}

/// The lines of an area, as many at once as a tile has.
pub(super) fn strips(area: Rectangle) -> impl Iterator<Item = Rectangle> {
    (0..area.height).step_by(TILE.into()).map(move |from| Rectangle {
        y: area.y + from,
        height: TILE.min(area.height - from),
        ..area
    })
}
