//! Which parts of a picture changed: tiles of 64 by 64 pixels, by their hashes.
//!
//! A change that leaves a tile's hash as it was is not seen before the next one. By accident that happens
//! once in 2^56 changes; a guest that makes such changes spoils its own picture only.

use zerocopy::IntoBytes as _;

use super::frame::Frame;
use super::mode::Size;

/// Pixels of a tile's side.
pub const TILE: u16 = 64;

/// A rectangle of pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rectangle {
    /// First column.
    pub x: u16,
    /// First line.
    pub y: u16,
    /// Columns.
    pub width: u16,
    /// Lines.
    pub height: u16,
}

impl Rectangle {
    /// All of a picture.
    pub const fn all(size: Size) -> Self {
        Self { x: 0, y: 0, width: size.width(), height: size.height() }
    }

    /// What two rectangles have in common, if that is anything.
    pub fn common(self, other: Self) -> Option<Self> {
        let axis = |from: u16, length: u16, other_from: u16, other_length: u16| {
            let first = from.max(other_from);
            let end =
                (u32::from(from) + u32::from(length)).min(u32::from(other_from) + u32::from(other_length));
            let length = end.checked_sub(first.into()).filter(|length| *length > 0)?;
            Some((first, u16::try_from(length).ok()?))
        };
        let (x, width) = axis(self.x, self.width, other.x, other.width)?;
        let (y, height) = axis(self.y, self.height, other.y, other.height)?;
        Some(Self { x, y, width, height })
    }
}

/// When each tile of a picture changed, counted in pictures.
#[derive(Clone, Debug)]
pub struct Tiles {
    size: Size,
    /// Line by line: the hash, and the number of the picture since which it is so.
    tiles: Vec<(u64, u64)>,
}

impl Default for Tiles {
    /// No picture yet.
    fn default() -> Self {
        Self { size: Size::new(0, 0), tiles: Vec::new() }
    }
}

/// How many tiles a side has.
const fn count(side: u16) -> u16 {
    side.div_ceil(TILE)
}

impl Tiles {
    /// Takes note of the picture `number`, which is more than those before it. True if any tile changed; all
    /// do when the size does.
    pub fn update(&mut self, frame: &Frame, number: u64) -> bool {
        let size = frame.size();
        let mut changed = self.size != size;
        if changed {
            self.size = size;
            self.tiles.clear();
        }
        let across = usize::from(count(size.width()));
        self.tiles.resize(across * usize::from(count(size.height())), (0, 0));
        for (y, row) in (0..size.height()).step_by(TILE.into()).zip(self.tiles.chunks_mut(across.max(1))) {
            for (column, (hash, since)) in row.iter_mut().enumerate() {
                let found = hash_of(frame, column * usize::from(TILE), y);
                // A tile without a picture has no hash yet.
                if *since == 0 || found != *hash {
                    (*hash, *since, changed) = (found, number, true);
                }
            }
        }
        changed
    }

    /// What changed since picture `seen`: runs of tiles, from left to right and from above. All of the
    /// picture has changed since number 0.
    pub fn changed_since(&self, seen: u64) -> Vec<Rectangle> {
        let across = usize::from(count(self.size.width()));
        let mut found: Vec<Rectangle> = Vec::new();
        for (y, row) in (0..self.size.height()).step_by(TILE.into()).zip(self.tiles.chunks(across.max(1))) {
            let height = TILE.min(self.size.height() - y);
            for (x, (_, since)) in (0..self.size.width()).step_by(TILE.into()).zip(row) {
                if *since <= seen {
                    continue;
                }
                let width = TILE.min(self.size.width() - x);
                match found.last_mut() {
                    Some(last) if last.y == y && last.x + last.width == x => last.width += width,
                    _ => found.push(Rectangle { x, y, width, height }),
                }
            }
        }
        found
    }
}

/// The hash of the tile that begins here: a checksum, and the sum of its pixels.
fn hash_of(frame: &Frame, x: usize, y: u16) -> u64 {
    let mut hasher = crc32fast::Hasher::new();
    let mut sum = 0_u32;
    for line in (y..).take(TILE.into()).map(|y| frame.line(y)) {
        let end = line.len().min(x + usize::from(TILE));
        let pixels = line.get(x..end).unwrap_or_default();
        hasher.update(pixels.as_bytes());
        sum = pixels.iter().fold(sum, |sum, pixel| sum.wrapping_add(*pixel));
    }
    u64::from(hasher.finalize()) << 32 | u64::from(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(size: Size) -> Frame {
        Frame::black(size).unwrap()
    }

    fn rectangle(x: u16, y: u16, width: u16, height: u16) -> Rectangle {
        Rectangle { x, y, width, height }
    }

    #[test]
    fn runs_of_changed_tiles_are_one_rectangle() {
        let mut frame = frame(Size::new(200, 100));
        let mut tiles = Tiles::default();
        assert!(tiles.update(&frame, 1));
        assert_eq!(tiles.changed_since(0), [rectangle(0, 0, 200, 64), rectangle(0, 64, 200, 36)]);
        assert!(!tiles.update(&frame, 2));
        assert!(tiles.changed_since(1).is_empty());
        for x in [0, 64, 192] {
            frame.line_mut(99)[x] = 1;
        }
        assert!(tiles.update(&frame, 3));
        assert_eq!(tiles.changed_since(2), [rectangle(0, 64, 128, 36), rectangle(192, 64, 8, 36)]);
        assert!(tiles.changed_since(3).is_empty());
    }

    #[test]
    fn other_size_is_another_picture() {
        let mut tiles = Tiles::default();
        tiles.update(&frame(Size::new(64, 128)), 1);
        assert!(tiles.update(&frame(Size::new(128, 64)), 2));
        assert_eq!(tiles.changed_since(1), [rectangle(0, 0, 128, 64)]);
        assert!(tiles.update(&frame(Size::new(0, 0)), 3));
        assert!(tiles.changed_since(0).is_empty());
    }

    proptest! {
        #[test]
        fn changed_pixels_lie_in_changed_tiles(
            width in 1_u16..300, height in 1_u16..200,
            changes in prop::collection::vec((any::<u16>(), any::<u16>(), 1_u32..0x100_0000), 0..5),
        ) {
            let mut frame = frame(Size::new(width, height));
            let mut tiles = Tiles::default();
            tiles.update(&frame, 1);
            for (x, y, colour) in &changes {
                frame.line_mut(y % height)[usize::from(x % width)] = *colour;
            }
            let changed = tiles.update(&frame, 2);
            prop_assert_eq!(changed, !changes.is_empty());
            let found = tiles.changed_since(1);
            let area: u32 = found.iter().map(|part| u32::from(part.width) * u32::from(part.height)).sum();
            prop_assert!(area <= u32::from(TILE) * u32::from(TILE) * u32::try_from(changes.len()).unwrap());
            for (x, y, _) in &changes {
                let pixel = rectangle(x % width, y % height, 1, 1);
                prop_assert_eq!(found.iter().filter_map(|part| part.common(pixel)).count(), 1);
            }
        }

        #[test]
        fn common_pixels_are_in_both(sides in prop::array::uniform8(0_u16..12)) {
            let [a, b, c, d, e, f, g, h] = sides;
            let (one, other) = (rectangle(a, b, c, d), rectangle(e, f, g, h));
            let inside = |part: Rectangle, x, y| {
                (part.x..part.x + part.width).contains(&x) && (part.y..part.y + part.height).contains(&y)
            };
            let common = one.common(other);
            for (x, y) in (0..24).flat_map(|x| (0..24).map(move |y| (x, y))) {
                let expected = inside(one, x, y) && inside(other, x, y);
                prop_assert_eq!(common.is_some_and(|part| inside(part, x, y)), expected);
            }
        }
    }
}
