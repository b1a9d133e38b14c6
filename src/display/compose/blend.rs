//! Blending: what is in front times a factor, and what is behind times another one.

use super::pixel::Colour;
use crate::scanout::{Blend, DestinationFactor, SourceFactor};

/// A factor of one: K1 and alpha have 255 each.
const ONE: u64 = 255 * 255;

/// Both factors for a pixel of this alpha.
fn factors(blend: Blend, alpha: u8) -> (u64, u64) {
    let (k1, alpha) = (u64::from(blend.k1), u64::from(alpha));
    let source = match blend.source {
        SourceFactor::Zero => 0,
        SourceFactor::One => ONE,
        SourceFactor::K1 => k1 * 255,
        SourceFactor::K1TimesSource => k1 * alpha,
    };
    let destination = match blend.destination {
        DestinationFactor::Zero => 0,
        DestinationFactor::One => ONE,
        DestinationFactor::K1 => k1 * 255,
        DestinationFactor::NegK1 => ONE - k1 * 255,
        DestinationFactor::NegK1TimesSource => ONE - k1 * alpha,
    };
    (source, destination)
}

/// The sum of both, to the nearest, at most the most that a colour can be.
pub(super) fn blended(blend: Blend, front: Colour, behind: [u16; 3]) -> [u16; 3] {
    let (source, destination) = factors(blend, front.alpha);
    // Both are frequent, and what the sums below come to.
    match (source, destination) {
        (ONE, 0) => return front.rgb,
        (_, ONE) if front.rgb == [0; 3] => return behind,
        _ => {}
    }
    let mut result = behind;
    for (value, front) in result.iter_mut().zip(front.rgb) {
        let sum = u64::from(front) * source + u64::from(*value) * destination;
        *value = u16::try_from((sum + ONE / 2) / ONE).unwrap_or(u16::MAX);
    }
    result
}

/// Whether colours in front come through as they are, whatever alpha they have, over this background.
pub(super) fn is_copy(blend: Blend, behind: [u16; 3]) -> bool {
    let source = match blend.source {
        SourceFactor::Zero | SourceFactor::K1TimesSource => false,
        SourceFactor::One => true,
        SourceFactor::K1 => blend.k1 == 0xff,
    };
    let destination = match blend.destination {
        DestinationFactor::Zero => true,
        DestinationFactor::NegK1 => blend.k1 == 0xff,
        DestinationFactor::K1 => blend.k1 == 0,
        DestinationFactor::One | DestinationFactor::NegK1TimesSource => false,
    };
    source && (destination || behind == [0; 3])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SOURCES: [SourceFactor; 4] =
        [SourceFactor::Zero, SourceFactor::One, SourceFactor::K1, SourceFactor::K1TimesSource];

    const DESTINATIONS: [DestinationFactor; 5] = [
        DestinationFactor::Zero,
        DestinationFactor::One,
        DestinationFactor::K1,
        DestinationFactor::NegK1,
        DestinationFactor::NegK1TimesSource,
    ];

    #[test]
    fn premultiplied_colours_are_laid_over() {
        let blend =
            Blend { k1: 0xff, source: SourceFactor::K1, destination: DestinationFactor::NegK1TimesSource };
        let over = |alpha, rgb| blended(blend, Colour { rgb, alpha }, [0x1000, 0x8000, 0xff00]);
        assert_eq!(over(0xff, [1, 2, 3]), [1, 2, 3]);
        assert_eq!(over(0, [0; 3]), [0x1000, 0x8000, 0xff00]);
        // 0x33 is a fifth of 0xff.
        assert_eq!(over(0x33, [0x100; 3]), [0xdcd, 0x6766, 0xcd00]);
        // What is too bright for its alpha is cut off.
        assert_eq!(over(0, [0xff00; 3]), [0xffff; 3]);
    }

    proptest! {
        #[test]
        fn copies_change_nothing(
            k1: u8, alpha: u8, rgb: [u16; 3], behind: [u16; 3], black: bool,
            source in prop::sample::select(&SOURCES[..]),
            destination in prop::sample::select(&DESTINATIONS[..]),
        ) {
            let behind = if black { [0; 3] } else { behind };
            let k1 = if k1 > 0x80 { 0xff } else { k1 };
            let blend = Blend { k1, source, destination };
            let found = blended(blend, Colour { rgb, alpha }, behind);
            if is_copy(blend, behind) {
                prop_assert_eq!(found, rgb);
            }
        }
    }
}
