//! Modes: sizes with their timings, and the list that a virtual monitor offers.

mod size;
mod timing;

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

pub use size::{Size, SizeError};
pub use timing::{Axis, PixelClock, Polarity, Timing};

/// Fastest clock of a single-link connector, for TMDS (HDMI 1.0, DVI 1.0): 165 MHz.
pub const PIXEL_CLOCK_MAX: PixelClock = PixelClock::from_kilohertz(165_000);

/// Sizes that every virtual monitor offers, at 60 Hz.
const USUAL: [Size; 5] = [
    Size::new(640, 480),
    Size::new(800, 600),
    Size::new(1024, 768),
    Size::new(1280, 720),
    Size::new(1920, 1080),
];

/// Smallest preferred size: with less, an EDID's clock and picture are below what its readers believe.
const SMALLEST: Size = Size::new(640, 400);

/// A size that cannot be a virtual monitor's mode.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ModeError {
    /// A side is too short.
    #[error("a screen of {0} is smaller than {SMALLEST}")]
    TooSmall(Size),
    /// An EDID has no room for a side.
    #[error("a screen of {0} has a side of more than {max} pixels", max = Timing::SIDE_MAX)]
    TooLarge(Size),
    /// Reduced blanking is for widths in whole characters.
    #[error("a screen of {0} has a width that is not a multiple of {cell}", cell = timing::CELL)]
    Width(Size),
    /// A single link is not fast enough.
    #[error("a screen of {size} needs a pixel clock of {clock}, and {PIXEL_CLOCK_MAX} is the limit")]
    Clock {
        /// The size.
        size: Size,
        /// The clock that it needs at 60 Hz.
        clock: PixelClock,
    },
}

/// Why a text is no mode.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ModeTextError {
    /// The text is no size.
    #[error(transparent)]
    Text(#[from] SizeError),
    /// The size is no mode.
    #[error(transparent)]
    Mode(#[from] ModeError),
}

/// A mode of a virtual monitor: a size, and how it is sent at 60 Hz.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    size: Size,
    timing: Timing,
}

impl Mode {
    /// The mode of a size: VESA's DMT where it has one, reduced blanking by VESA's CVT otherwise.
    ///
    /// # Errors
    /// The size cannot be a mode: too small or large, or too fast for a single link.
    pub fn new(size: Size) -> Result<Self, ModeError> {
        if size.width() < SMALLEST.width() || size.height() < SMALLEST.height() {
            return Err(ModeError::TooSmall(size));
        }
        if size.width().max(size.height()) > Timing::SIDE_MAX {
            return Err(ModeError::TooLarge(size));
        }
        let timing = match Timing::of_dmt(size) {
            Some(timing) => timing,
            None if !size.width().is_multiple_of(timing::CELL) => return Err(ModeError::Width(size)),
            None => Timing::reduced_blanking(size),
        };
        if timing.clock > PIXEL_CLOCK_MAX {
            return Err(ModeError::Clock { size, clock: timing.clock });
        }
        Ok(Self { size, timing })
    }

    /// Visible pixels.
    pub fn size(self) -> Size {
        self.size
    }

    /// How the mode is sent.
    pub fn timing(self) -> Timing {
        self.timing
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.size.fmt(f)
    }
}

impl FromStr for Mode {
    type Err = ModeTextError;

    /// A mode by its size, as `1280x800`.
    fn from_str(text: &str) -> Result<Self, ModeTextError> {
        Ok(Self::new(text.parse()?)?)
    }
}

/// The modes of a monitor that prefers one: that one first, then the usual ones, each once.
pub fn modes(preferred: Mode) -> Vec<Mode> {
    let usual = USUAL.into_iter().filter(|size| *size != preferred.size);
    let usual = usual.filter_map(|size| Mode::new(size).ok());
    std::iter::once(preferred).chain(usual).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn usual_sizes_are_modes_and_come_once() {
        let preferred: Mode = "1280x800".parse().unwrap();
        let sizes: Vec<_> = modes(preferred).into_iter().map(|mode| mode.to_string()).collect();
        assert_eq!(sizes, ["1280x800", "640x480", "800x600", "1024x768", "1280x720", "1920x1080"]);
        let preferred: Mode = "1024x768".parse().unwrap();
        let sizes: Vec<_> = modes(preferred).into_iter().map(|mode| mode.to_string()).collect();
        assert_eq!(sizes, ["1024x768", "640x480", "800x600", "1280x720", "1920x1080"]);
    }

    #[test]
    fn sizes_that_are_no_modes_say_why() {
        let why = |text: &str| text.parse::<Mode>().unwrap_err().to_string();
        assert_eq!(why("320x200"), "a screen of 320x200 is smaller than 640x400");
        assert_eq!(why("1280x399"), "a screen of 1280x399 is smaller than 640x400");
        assert_eq!(why("4096x600"), "a screen of 4096x600 has a side of more than 4095 pixels");
        assert_eq!(why("1281x800"), "a screen of 1281x800 has a width that is not a multiple of 8");
        assert_eq!(
            why("2560x1440"),
            "a screen of 2560x1440 needs a pixel clock of 241.500 MHz, and 165.000 MHz is the limit"
        );
    }

    #[test]
    fn width_that_the_standard_lists_need_not_be_whole_characters() {
        assert_eq!("1366x768".parse::<Mode>().unwrap().timing().clock.kilohertz(), 72_000);
    }

    proptest! {
        #[test]
        fn every_mode_is_sent_at_about_60_hertz_within_the_limit(
            width in 0_u16..5000, height in 0_u16..5000,
        ) {
            let Ok(mode) = Mode::new(Size::new(width, height)) else { return Ok(()) };
            let timing = mode.timing();
            prop_assert!(timing.clock <= PIXEL_CLOCK_MAX);
            prop_assert_eq!((timing.horizontal.active, timing.vertical.active), (width, height));
            // A step of the clock is 0.25 MHz, which is much for the smallest screens.
            prop_assert!((57_000..=60_500).contains(&timing.millihertz()), "{}", timing.millihertz());
        }
    }
}
