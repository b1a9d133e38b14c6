//! The picture in the raster: scaled by the nearest pixel, around the middle.

use crate::frame::Frame;
use crate::scanout::Viewport;

/// Where along one direction output pixels lie in the raster, and what they show: pairs of places in the
/// raster and in the picture.
fn places(raster: u16, input: u16, output: u16, adjust: i32) -> impl Iterator<Item = (u16, u16)> {
    let start = (i64::from(raster) - i64::from(output)) / 2 + i64::from(adjust);
    let seen = 0.max(-start)..i64::from(output).min(i64::from(raster) - start);
    seen.filter_map(move |at| {
        // The middle of the output pixel, in pixels of the picture.
        let from = (2 * at + 1) * i64::from(input) / (2 * i64::from(output));
        Some((u16::try_from(start + at).ok()?, u16::try_from(from).ok()?))
    })
}

/// Lays a picture into a black frame.
pub(super) fn lay(viewport: Viewport, picture: &Frame, frame: &mut Frame) {
    let (raster, Viewport { input, output, adjust }) = (frame.size(), viewport);
    let columns: Vec<(u16, u16)> = places(raster.width(), input.width(), output.width(), adjust.x).collect();
    for (y, from) in places(raster.height(), input.height(), output.height(), adjust.y) {
        let (line, to) = (picture.line(from), frame.line_mut(y));
        for (x, from) in &columns {
            if let (Some(pixel), Some(from)) = (to.get_mut(usize::from(*x)), line.get(usize::from(*from))) {
                *pixel = *from;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picture_is_scaled_around_the_middle() {
        let found: Vec<_> = places(8, 2, 4, 0).collect();
        assert_eq!(found, [(2, 0), (3, 0), (4, 1), (5, 1)]);
        let found: Vec<_> = places(8, 4, 4, -3).collect();
        assert_eq!(found, [(0, 1), (1, 2), (2, 3)]);
        let found: Vec<_> = places(3, 8, 2, 1).collect();
        assert_eq!(found, [(1, 2), (2, 6)]);
    }

    #[test]
    fn wild_places_show_nothing_and_cost_no_more_than_the_raster() {
        for adjust in [i32::MIN, -70_000, 70_000, i32::MAX] {
            assert_eq!(places(4096, 4096, u16::MAX, adjust).count(), 0);
        }
        assert!(places(4096, 0, u16::MAX, 0).count() <= 4096);
        assert_eq!(places(4096, 5, 0, 0).count(), 0);
    }
}
