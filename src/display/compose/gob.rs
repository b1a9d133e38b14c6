//! GOBs: the pieces of block-linear surfaces, 64 bytes by 8 lines.
//!
//! Their order is that of colour surfaces since Turing, as Mesa's `nil` has it for copies by the CPU: sectors
//! of 16 bytes, of which the lowest bits of the line and bit 4 of the column come first.

/// Bytes of a line of a GOB.
pub(super) const WIDTH: usize = 64;

/// Lines of a GOB.
pub(super) const LINES: usize = 8;

/// Bytes of a GOB.
pub(super) const BYTES: usize = WIDTH * LINES;

/// Bytes of a line that follow each other in memory.
const SECTOR: usize = 16;

/// Copies a GOB to lines: its first line begins at `at` of `lines`, the next one `stride` bytes later. What
/// does not fit is left out.
pub(super) fn to_lines(gob: &[u8; BYTES], lines: &mut [u8], at: usize, stride: usize) {
    for (number, sector) in gob.chunks_exact(SECTOR).enumerate() {
        let line = number & 3 | number >> 1 & 4;
        let column = (number & 4) << 2 | (number & 16) << 1;
        let to = at + line * stride + column;
        if let Some(to) = lines.get_mut(to..to + SECTOR) {
            to.copy_from_slice(sector);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_comes_to_its_place() {
        // By the order of bits that `softgpu`'s engines have: y0, y1, x4, y2, x5 from bit 4 on.
        let place = |x: usize, y: usize| {
            (x >> 5 & 1) << 8
                | (y >> 2 & 1) << 7
                | (x >> 4 & 1) << 6
                | (y >> 1 & 1) << 5
                | (y & 1) << 4
                | x & 15
        };
        // Not the same for any two bytes of a line or a column.
        let value = |x: usize, y: usize| (y * 31 + x) & 0xff;
        let mut gob = [0; BYTES];
        for y in 0..LINES {
            for x in 0..WIDTH {
                gob[place(x, y)] = u8::try_from(value(x, y)).unwrap();
            }
        }
        let mut lines = [0xee; 3 + 8 * 100];
        to_lines(&gob, &mut lines, 3, 100);
        for y in 0..LINES {
            for x in 0..WIDTH {
                assert_eq!(usize::from(lines[3 + y * 100 + x]), value(x, y), "{x} {y}");
            }
        }
        let outside = lines.iter().enumerate().filter(|(at, _)| !(3..67).contains(&(at % 100)));
        assert!(outside.map(|(_, byte)| *byte).all(|byte| byte == 0xee));
    }
}
