//! Where the bytes of a surface lie in memory: in lines with a pitch, or in blocks.
//!
//! A block-linear surface is made of GOBs of 64 bytes by 8 lines, stacked to blocks of 2^n GOBs in height and
//! depth; blocks follow each other along x, then y, then z. Inside a GOB, pieces of 16 bytes are shuffled. No
//! driver can tell as long as all engines agree and no CPU looks at the surface through an untiled mapping,
//! as drivers of newer chips do.

/// Bytes of a line of a GOB, as log2.
const GOB_WIDTH_SHIFT: u32 = 6;

/// Lines of a GOB, as log2.
const GOB_HEIGHT_SHIFT: u32 = 3;

/// How the bytes of a GOB follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gob {
    /// The lines follow each other. Fermi's true order is not known here and does not matter.
    Lines,
    /// Sectors of 16 bytes by 2 lines, two side by side, two such pairs below each other, and so on, as
    /// colour and copies have it since Turing.
    Sectors,
}

impl Gob {
    /// Offset in the GOB of a byte at (x, y), which must lie inside the GOB.
    fn offset(self, x: u64, y: u64) -> u64 {
        match self {
            Self::Lines => y << GOB_WIDTH_SHIFT | x,
            Self::Sectors => {
                let bit = |value: u64, from: u32, to: u32| (value >> from & 1) << to;
                let columns = bit(x, 5, 8) | bit(x, 4, 6) | x & 15;
                columns | bit(y, 2, 7) | bit(y, 1, 5) | bit(y, 0, 4)
            }
        }
    }

    /// log2 of the bytes of a line that follow each other.
    fn run_shift(self) -> u32 {
        match self {
            Self::Lines => GOB_WIDTH_SHIFT,
            Self::Sectors => 4,
        }
    }
}

/// The shape of a block-linear surface, and where in it a rectangle begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Blocks {
    /// Order of the bytes inside a GOB.
    pub(super) gob: Gob,
    /// log2 of a block's height in GOBs.
    pub(super) height_shift: u32,
    /// log2 of a block's depth in slices.
    pub(super) depth_shift: u32,
    /// Bytes of a line.
    pub(super) width: u64,
    /// Lines of a slice.
    pub(super) height: u64,
    /// Byte of a line at which the rectangle begins.
    pub(super) x: u64,
    /// Line at which the rectangle begins.
    pub(super) y: u64,
    /// Slice in which the rectangle lies.
    pub(super) z: u64,
}

/// How a rectangle of bytes lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// Lines follow each other at this distance in bytes.
    Pitch(i64),
    /// The surface is block-linear.
    Blocks(Blocks),
}

/// A rectangle of bytes in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Surface {
    /// Virtual address of the surface.
    pub(super) base: u64,
    /// Its layout in memory.
    pub(super) layout: Layout,
    /// Mask of the virtual address bits that the engine uses.
    pub(super) va_max: u64,
}

impl Surface {
    /// Virtual address of byte `at` of line `line`, and how many bytes follow it in memory without a gap
    /// (at most `limit`).
    pub(super) fn locate(&self, line: u64, at: u64, limit: u64) -> (u64, u64) {
        match self.layout {
            Layout::Pitch(pitch) => {
                let distance = pitch.wrapping_mul(line.cast_signed()).cast_unsigned();
                (self.base.wrapping_add(distance).wrapping_add(at) & self.va_max, limit)
            }
            Layout::Blocks(blocks) => {
                let x = blocks.x.wrapping_add(at);
                let longest = 1 << blocks.gob.run_shift();
                let run = longest - (x & (longest - 1));
                (self.base.wrapping_add(blocks.offset(x, line)) & self.va_max, run.min(limit))
            }
        }
    }
}

impl Blocks {
    fn offset(&self, x: u64, line: u64) -> u64 {
        let height_shift = GOB_HEIGHT_SHIFT + self.height_shift;
        let y = self.y.wrapping_add(line);
        let part = |value: u64, shift: u32| value & ((1 << shift) - 1);
        let across = self.width.div_ceil(1 << GOB_WIDTH_SHIFT);
        let down = self.height.div_ceil(1 << height_shift);
        let block = (self.z >> self.depth_shift)
            .wrapping_mul(down)
            .wrapping_add(y >> height_shift)
            .wrapping_mul(across)
            .wrapping_add(x >> GOB_WIDTH_SHIFT);
        let slice = part(self.z, self.depth_shift) << (GOB_WIDTH_SHIFT + height_shift);
        let gobs = part(y >> GOB_HEIGHT_SHIFT, self.height_shift) << (GOB_WIDTH_SHIFT + GOB_HEIGHT_SHIFT);
        let inside = slice | gobs | self.gob.offset(part(x, GOB_WIDTH_SHIFT), part(y, GOB_HEIGHT_SHIFT));
        let block_shift = GOB_WIDTH_SHIFT + height_shift + self.depth_shift;
        block.wrapping_shl(block_shift).wrapping_add(inside)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuvmk_chip::gf100::mmu::VA_MAX;

    fn blocks(height_shift: u32, depth_shift: u32) -> Blocks {
        Blocks { gob: Gob::Lines, height_shift, depth_shift, width: 200, height: 40, x: 0, y: 0, z: 0 }
    }

    #[test]
    fn every_byte_has_a_place_of_its_own() {
        let shapes = [(0, 0), (1, 0), (2, 1)];
        let orders = [Gob::Lines, Gob::Sectors];
        for ((height_shift, depth_shift), gob) in shapes.into_iter().flat_map(|s| orders.map(|g| (s, g))) {
            let mut seen = std::collections::HashSet::new();
            for z in 0..3 {
                let surface = Blocks { z, gob, ..blocks(height_shift, depth_shift) };
                for line in 0..40 {
                    for x in 0..200 {
                        assert!(seen.insert(surface.offset(x, line)), "{z} {line} {x}");
                    }
                }
            }
        }
    }

    #[test]
    fn first_gob_is_eight_lines_of_64_bytes() {
        let surface = blocks(0, 0);
        assert_eq!(surface.offset(63, 0), 63);
        assert_eq!(surface.offset(0, 1), 64);
        assert_eq!(surface.offset(64, 0), 512);
        assert_eq!(surface.offset(0, 8), 4 * 512);
    }

    #[test]
    fn sectors_are_shuffled_as_drivers_expect() {
        // Number of the 32-byte sector by pair of lines and by 16 bytes of a line.
        let sectors = [[0, 2, 8, 10], [1, 3, 9, 11], [4, 6, 12, 14], [5, 7, 13, 15]];
        for (lines, row) in (0..).zip(sectors) {
            for (column, sector) in (0..).zip(row) {
                assert_eq!(Gob::Sectors.offset(column * 16 + 3, lines * 2), sector * 32 + 3);
                assert_eq!(Gob::Sectors.offset(column * 16, lines * 2 + 1), sector * 32 + 16);
            }
        }
    }

    #[test]
    fn runs_end_with_the_gob_line() {
        let surface = Surface {
            base: 0x1000,
            layout: Layout::Blocks(Blocks { x: 60, ..blocks(0, 0) }),
            va_max: VA_MAX,
        };
        assert_eq!(surface.locate(0, 0, 100), (0x1000 + 60, 4));
        assert_eq!(surface.locate(0, 4, 100), (0x1000 + 512, 64));
        assert_eq!(surface.locate(0, 4, 10), (0x1000 + 512, 10));
    }

    #[test]
    fn pitch_may_be_negative() {
        let surface = Surface { base: 0x1_0000, layout: Layout::Pitch(-0x100), va_max: VA_MAX };
        assert_eq!(surface.locate(2, 4, 64), (0xfe04, 64));
    }
}
