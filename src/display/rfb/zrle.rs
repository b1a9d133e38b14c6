//! ZRLE: tiles of 64 by 64 pixels, each as small as its colours allow, then all of them by zlib (RFC 6143,
//! 7.7.6).

use flate2::{Compress, Compression, FlushCompress};

use super::format::Converter;

/// Pixels of a tile's side.
pub(super) const TILE: usize = 64;

/// Most colours of a palette. Beyond 16 a pixel's index is as long as half a compact pixel.
const PALETTE_MAX: usize = 16;

/// The tiles of a rectangle, before zlib.
#[derive(Debug, Default)]
pub(super) struct Tiles {
    /// A tile's pixels.
    tile: Vec<u32>,
    palette: Vec<u32>,
}

impl Tiles {
    /// Appends the tiles of a rectangle: its lines are `width` pixels each.
    pub(super) fn encode(&mut self, pixels: &[u32], width: usize, converter: &Converter, to: &mut Vec<u8>) {
        for lines in pixels.chunks(width.max(1) * TILE) {
            for x in (0..width).step_by(TILE) {
                let across = TILE.min(width - x);
                self.tile.clear();
                for line in lines.chunks_exact(width) {
                    self.tile.extend_from_slice(line.get(x..x + across).unwrap_or_default());
                }
                self.encode_tile(across, converter, to);
            }
        }
    }

    fn encode_tile(&mut self, across: usize, converter: &Converter, to: &mut Vec<u8>) {
        let compact = converter.compact_bytes();
        let runs = self.look();
        let plain = self.tile.len() * compact;
        let run_lengths = runs * (compact + 1);
        match self.palette.len() {
            1 => {
                to.push(1);
                converter.write_compact(&self.palette, to);
            }
            colours @ 2..=PALETTE_MAX => {
                let bits = index_bits(colours);
                let packed = self.tile.len() / across.max(1) * (across * bits).div_ceil(8);
                // Most runs take two bytes.
                let (packed, run_lengths) = (packed.min(plain), runs * 2);
                to.push(
                    u8::try_from(if packed <= run_lengths { colours } else { colours | 0x80 }).unwrap_or(0),
                );
                converter.write_compact(&self.palette, to);
                if packed <= run_lengths {
                    self.pack(across, bits, to);
                } else {
                    self.run_lengths_by_index(to);
                }
            }
            _ if run_lengths < plain => {
                to.push(0x80);
                for run in self.tile.chunk_by(|one, next| one == next) {
                    converter.write_compact(run.get(..1).unwrap_or_default(), to);
                    run_length(run.len(), to);
                }
            }
            _ => {
                to.push(0);
                converter.write_compact(&self.tile, to);
            }
        }
    }

    /// Finds the palette (empty if there are too many colours), and how many runs there are.
    fn look(&mut self) -> usize {
        self.palette.clear();
        let (mut runs, mut last, mut few) = (0, None, true);
        for pixel in &self.tile {
            if last == Some(*pixel) {
                continue;
            }
            runs += 1;
            last = Some(*pixel);
            if few && !self.palette.contains(pixel) {
                few = self.palette.len() < PALETTE_MAX;
                self.palette.push(*pixel);
            }
        }
        if !few {
            self.palette.clear();
        }
        runs
    }

    /// The number of a colour in the palette.
    fn index(&self, pixel: u32) -> u8 {
        let index = self.palette.iter().position(|colour| *colour == pixel).unwrap_or(0);
        u8::try_from(index).unwrap_or(0)
    }

    /// Appends indices of `bits` bits; each line begins with a byte.
    fn pack(&self, across: usize, bits: usize, to: &mut Vec<u8>) {
        for line in self.tile.chunks(across.max(1)) {
            for pixels in line.chunks(8 / bits) {
                let packed = pixels.iter().fold(0, |byte, pixel| byte << bits | self.index(*pixel));
                to.push(packed << (8 - bits * pixels.len()));
            }
        }
    }

    fn run_lengths_by_index(&self, to: &mut Vec<u8>) {
        for run in self.tile.chunk_by(|one, next| one == next) {
            let index = self.index(run.first().copied().unwrap_or(0));
            if run.len() == 1 {
                to.push(index);
            } else {
                to.push(index | 0x80);
                run_length(run.len(), to);
            }
        }
    }
}

/// Bits of an index into a palette of so many colours.
fn index_bits(colours: usize) -> usize {
    match colours {
        0..=2 => 1,
        3..=4 => 2,
        _ => 4,
    }
}

/// Appends a length less one, in bytes of which all but the last are 255.
fn run_length(length: usize, to: &mut Vec<u8>) {
    let mut left = length.saturating_sub(1);
    while left >= 255 {
        to.push(255);
        left -= 255;
    }
    to.push(u8::try_from(left).unwrap_or(0));
}

/// A viewer's zlib stream.
pub(super) struct Stream(Compress);

impl Stream {
    pub(super) fn new() -> Self {
        Self(Compress::new(Compression::fast(), true))
    }

    /// Appends the compressed bytes with their length before them. All of them can be read at once.
    pub(super) fn compress(&mut self, bytes: &[u8], to: &mut Vec<u8>) {
        /// Room that is made at a time.
        const ROOM: usize = 1 << 14;
        let start = to.len();
        to.extend_from_slice(&[0; 4]);
        let before = self.0.total_in();
        loop {
            to.reserve(ROOM);
            let taken = usize::try_from(self.0.total_in() - before).unwrap_or(usize::MAX);
            let left = bytes.get(taken..).unwrap_or_default();
            let done = self.0.compress_vec(left, to, FlushCompress::Sync);
            let taken = usize::try_from(self.0.total_in() - before).unwrap_or(usize::MAX);
            // There was more room than was needed: nothing is held back.
            if done.is_err() || taken >= bytes.len() && to.len() < to.capacity() {
                break;
            }
        }
        let length = u32::try_from(to.len() - start - 4).unwrap_or(u32::MAX);
        if let Some(head) = to.get_mut(start..start + 4) {
            head.copy_from_slice(&length.to_be_bytes());
        }
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("total_in", &self.0.total_in()).finish_non_exhaustive()
    }
}
