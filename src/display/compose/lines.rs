//! Lines of a surface, read from memory one after another.
//!
//! Of a block-linear surface whole blocks are read, and their lines kept until they have been shown. Memory
//! is kept from one surface to the next: 8 MiB at most, for lines of 4096 pixels of 64 bits in blocks of 32
//! GOBs.

use super::gob;
use super::place::Seen;
use crate::scanout::{Layout, READ_MAX, ReadBytes, Surface};

/// What was read last.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// Bytes as they are in memory.
    raw: Vec<u8>,
    /// Lines of blocks, or one line.
    lines: Vec<u8>,
    /// The lines of blocks that are in it, by number.
    band: Option<u64>,
    /// Pieces that could not be read.
    pub(super) unread: u32,
}

/// The last shift of a block's height: 32 GOBs.
const HEIGHT_SHIFT_MAX: u8 = 5;

impl Lines {
    /// Another surface is read from now on.
    pub(super) fn begin(&mut self) {
        self.band = None;
    }

    /// The bytes of what is seen of a surface in line `line` of it.
    pub(super) fn line(
        &mut self,
        surface: &Surface,
        seen: &Seen,
        line: u16,
        memory: &dyn ReadBytes,
    ) -> &[u8] {
        let bytes = usize::from(surface.format.bytes());
        let (from, length) = (usize::from(seen.first_column) * bytes, seen.columns.len() * bytes);
        match surface.layout {
            Layout::Pitch(pitch) => {
                let offset = u64::from(line) * u64::from(pitch) + from as u64;
                self.lines.resize(length, 0);
                self.unread += read(surface, offset, &mut self.lines, memory);
                &self.lines
            }
            Layout::Blocks { height_shift, across } => {
                let height = gob::LINES << height_shift.min(HEIGHT_SHIFT_MAX);
                let blocks = from / gob::WIDTH..(from + length).div_ceil(gob::WIDTH);
                let stride = blocks.len() * gob::WIDTH;
                let band = u64::from(line) / height as u64;
                if self.band != Some(band) {
                    self.band = Some(band);
                    let first = band * u64::from(across) + blocks.start as u64;
                    self.read_blocks(surface, first, (height, stride), memory);
                }
                let at = usize::from(line) % height * stride + from % gob::WIDTH;
                self.lines.get(at..at + length).unwrap_or_default()
            }
        }
    }

    /// Reads blocks that follow each other, and lays out their lines.
    fn read_blocks(
        &mut self,
        surface: &Surface,
        first: u64,
        (height, stride): (usize, usize),
        memory: &dyn ReadBytes,
    ) {
        let block = height * gob::WIDTH;
        let (count, at_once) = (stride / gob::WIDTH, READ_MAX / block);
        self.lines.resize(height * stride, 0);
        for start in (0..count).step_by(at_once.max(1)) {
            let blocks = at_once.min(count - start);
            self.raw.resize(blocks * block, 0);
            let offset = (first + start as u64) * block as u64;
            self.unread += read(surface, offset, &mut self.raw, memory);
            let gobs = self.raw.as_chunks::<{ gob::BYTES }>().0;
            for (number, gob) in gobs.iter().enumerate() {
                let (column, row) = (start + number / (height / gob::LINES), number % (height / gob::LINES));
                let at = row * gob::LINES * stride + column * gob::WIDTH;
                gob::to_lines(gob, &mut self.lines, at, stride);
            }
        }
    }
}

/// Reads bytes of a surface; zeros where that is not possible. The number of such pieces comes back.
fn read(surface: &Surface, offset: u64, bytes: &mut [u8], memory: &dyn ReadBytes) -> u32 {
    let mut unread = 0;
    let mut at = offset;
    for piece in bytes.chunks_mut(READ_MAX) {
        let address = surface.address.checked_add(at);
        if address.is_none_or(|address| memory.read(address, piece).is_err()) {
            piece.fill(0);
            unread += 1;
        }
        at += piece.len() as u64;
    }
    unread
}
