//! Composing: a frame from what a head shows.
//!
//! A line at a time: the background, the windows from the back, the cursor, then the head's table. A line
//! with one window whose colours come through as they are is converted at once; all others are blended in
//! 16 bits a colour. Both give the same.

mod blend;
mod direct;
mod gob;
mod half;
mod lines;
mod narrow;
mod pixel;
mod place;
mod table;
#[cfg(test)]
mod tests;
mod viewport;

use std::iter;

use thiserror::Error;

use blend::blended;
use direct::Direct;
use lines::Lines;
use narrow::narrow;
use pixel::{Colour, argb1555, argb8888, colour};
use place::Seen;
use table::Table;

use super::frame::{Frame, PIXELS_MAX, SIDE_MAX};
use super::mode::Size;
use super::scanout::{Cursor, CursorFormat, Format, Point, ReadBytes, Scanout, WINDOWS_MAX, Window};

/// Why a head's picture cannot be composed.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ComposeError {
    /// The raster or the viewport has more pixels than a frame may have.
    #[error("a picture of {0} is more than {SIDE_MAX} pixels wide or high, or than {PIXELS_MAX} in all")]
    TooLarge(Size),
}

/// What came of composing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Composed {
    /// Pieces of surfaces, cursors and tables that could not be read. Such pixels are 0 in their format, and
    /// such tables change nothing.
    pub unread: u32,
}

/// A window and what is seen of it.
#[derive(Debug)]
struct Layer<'a> {
    window: &'a Window,
    seen: Seen,
    table: Option<Table>,
    direct: Option<Direct>,
}

/// Composes frames, and keeps the memory for it.
#[derive(Debug, Default)]
pub struct Composer {
    /// Lines of each window.
    lines: Vec<Lines>,
    /// A line of 16 bits a colour.
    wide: Vec<[u16; 3]>,
    /// A line of the cursor.
    cursor: Vec<u8>,
    /// The picture before it is laid into the raster, where that is not the same.
    picture: Frame,
}

impl Composer {
    /// Composes what a head shows to `frame`, which becomes of its size.
    ///
    /// # Errors
    /// The head shows more pixels than a frame may have. The frame is what it was.
    pub fn compose(
        &mut self,
        scanout: &Scanout,
        memory: &dyn ReadBytes,
        frame: &mut Frame,
    ) -> Result<Composed, ComposeError> {
        let viewport = scanout.viewport;
        if viewport.input == scanout.size
            && viewport.output == scanout.size
            && viewport.adjust == Point::default()
        {
            frame.resize(scanout.size).map_err(ComposeError::TooLarge)?;
            return Ok(self.paint(scanout, memory, frame));
        }
        let mut picture = std::mem::take(&mut self.picture);
        let painted = picture
            .resize(viewport.input)
            .and_then(|()| frame.reset(scanout.size))
            .map(|()| self.paint(scanout, memory, &mut picture));
        if painted.is_ok() {
            viewport::lay(viewport, &picture, frame);
        }
        self.picture = picture;
        painted.map_err(ComposeError::TooLarge)
    }

    /// Paints all of a picture, which has the viewport's size.
    fn paint(&mut self, scanout: &Scanout, memory: &dyn ReadBytes, picture: &mut Frame) -> Composed {
        let mut unread = 0;
        let mut table = |lut| {
            let (table, missing) = Table::of(lut, memory);
            unread += u32::from(missing);
            table
        };
        let output = table(scanout.lut);
        let layers: Vec<Layer<'_>> = scanout
            .windows
            .iter()
            .take(WINDOWS_MAX)
            .filter_map(|window| {
                let Window { surface, from, size, to, .. } = window;
                let seen = Seen::of(picture.size(), *to, *from, *size, surface.size)?;
                let table = table(window.lut);
                let copied = blend::is_copy(window.blend, scanout.background);
                let direct =
                    if copied { Direct::new(surface.format, table.as_ref(), output.as_ref()) } else { None };
                Some(Layer { window, seen, table, direct })
            })
            .collect();
        let cursor =
            scanout.cursor.as_ref().and_then(|cursor| Some((cursor, place_of(cursor, picture.size())?)));
        self.lines.resize_with(layers.len().max(self.lines.len()), Lines::default);
        self.lines.iter_mut().for_each(Lines::begin);
        for y in 0..picture.size().height() {
            let line = picture.line_mut(y);
            let above = cursor.as_ref().filter(|(_, seen)| seen.lines.contains(&y));
            let mut here =
                iter::zip(&layers, &mut self.lines).filter(|(layer, _)| layer.seen.lines.contains(&y));
            if above.is_none()
                && let (Some((layer, lines)), None) = (here.next(), here.next())
                && layer.seen.columns.len() == line.len()
                && let Some(direct) = &layer.direct
            {
                direct.convert(layer_line(layer, lines, y, memory), line);
                continue;
            }
            self.wide.clear();
            self.wide.resize(line.len(), scanout.background);
            let here = iter::zip(&layers, &mut self.lines).filter(|(layer, _)| layer.seen.lines.contains(&y));
            for (layer, lines) in here {
                let bytes = layer_line(layer, lines, y, memory);
                layer.lay(bytes, self.wide.get_mut(layer.seen.span()).unwrap_or_default());
            }
            if let Some((cursor, seen)) = above {
                let wide = self.wide.get_mut(seen.span()).unwrap_or_default();
                unread += lay_cursor(cursor, seen, y, (&mut self.cursor, wide), memory);
            }
            for (pixel, wide) in line.iter_mut().zip(&self.wide) {
                *pixel = narrow(output.as_ref().map_or(*wide, |table| table.apply(*wide)));
            }
        }
        let unread = self
            .lines
            .iter_mut()
            .map(|lines| std::mem::take(&mut lines.unread))
            .fold(unread, u32::saturating_add);
        Composed { unread }
    }
}

/// The bytes of a window in line `y` of the picture, which is one of those where it is seen.
fn layer_line<'l>(layer: &Layer<'_>, lines: &'l mut Lines, y: u16, memory: &dyn ReadBytes) -> &'l [u8] {
    let line = layer.seen.first_line.saturating_add(y.saturating_sub(layer.seen.lines.start));
    lines.line(&layer.window.surface, &layer.seen, line, memory)
}

impl Layer<'_> {
    /// Lays a line of the window over what is behind it.
    fn lay(&self, bytes: &[u8], behind: &mut [[u16; 3]]) {
        let format = self.window.surface.format;
        match format {
            // Those that are laid over others most are looked at once for all pixels.
            Format::Argb8888 => {
                let words = bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word));
                self.lay_colours(words.map(argb8888), behind);
            }
            _ => {
                let pixels = bytes.chunks_exact(usize::from(format.bytes()));
                self.lay_colours(pixels.map(|pixel| colour(format, pixel)), behind);
            }
        }
    }

    #[inline]
    fn lay_colours(&self, colours: impl Iterator<Item = Colour>, behind: &mut [[u16; 3]]) {
        let blend = self.window.blend;
        for (mut front, behind) in colours.zip(behind) {
            if let Some(table) = &self.table {
                front.rgb = table.apply(front.rgb);
            }
            *behind = blended(blend, front, *behind);
        }
    }
}

fn place_of(cursor: &Cursor, picture: Size) -> Option<Seen> {
    let side = Size::new(cursor.side.pixels(), cursor.side.pixels());
    Seen::of(picture, cursor.to, Point::default(), side, side)
}

/// Lays a line of the cursor over what is behind it. Comes back with the number of pieces not read.
fn lay_cursor(
    cursor: &Cursor,
    seen: &Seen,
    y: u16,
    (bytes, behind): (&mut Vec<u8>, &mut [[u16; 3]]),
    memory: &dyn ReadBytes,
) -> u32 {
    let size = match cursor.format {
        CursorFormat::Argb8888 => 4,
        CursorFormat::Argb1555 => 2,
    };
    let line = seen.first_line.saturating_add(y.saturating_sub(seen.lines.start));
    let first = u64::from(line) * u64::from(cursor.side.pixels()) + u64::from(seen.first_column);
    bytes.clear();
    bytes.resize(seen.columns.len() * size, 0);
    let address = cursor.address.checked_add(first * size as u64);
    if address.is_none_or(|address| memory.read(address, bytes).is_err()) {
        return 1;
    }
    for (bytes, behind) in bytes.chunks_exact(size).zip(behind) {
        let front = match *bytes {
            [blue, green, red, alpha] => argb8888(u32::from_le_bytes([blue, green, red, alpha])),
            [low, high] => argb1555(u16::from_le_bytes([low, high])),
            _ => continue,
        };
        *behind = blended(cursor.blend, front, *behind);
    }
    0
}
