//! Timings: VESA's DMT (Display Monitor Timings 1.0 revision 13) for the sizes that are listed here, and
//! reduced blanking by VESA's CVT (Coordinated Video Timings 1.1) for all others. All are of 60 Hz.

use std::fmt;

use super::size::Size;

/// Pixels of a character, in which CVT counts a line.
pub(super) const CELL: u16 = 8;

/// A pixel clock. Counted in kHz, as EDIDs and drivers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PixelClock(u32);

impl PixelClock {
    /// A clock of this many thousand pixels a second.
    pub const fn from_kilohertz(kilohertz: u32) -> Self {
        Self(kilohertz)
    }

    /// Thousand pixels a second.
    pub const fn kilohertz(self) -> u32 {
        self.0
    }

    /// Pixels a second.
    pub const fn hertz(self) -> u64 {
        self.0 as u64 * 1000
    }
}

impl fmt::Display for PixelClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03} MHz", self.0 / 1000, self.0 % 1000)
    }
}

/// The level of a sync pulse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polarity {
    /// The pulse is high.
    Positive,
    /// The pulse is low.
    Negative,
}

/// One direction of a timing: pixels of a line, or lines of a picture. After what is visible come the front
/// porch, the sync pulse and the back porch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// What is visible.
    pub active: u16,
    /// From the end of what is visible to the pulse.
    pub front_porch: u16,
    /// The pulse.
    pub sync: u16,
    /// From the end of the pulse to what is visible next.
    pub back_porch: u16,
    /// The pulse's level.
    pub polarity: Polarity,
}

impl Axis {
    const fn new(active: u16, [front_porch, sync, back_porch]: [u16; 3], polarity: Polarity) -> Self {
        Self { active, front_porch, sync, back_porch, polarity }
    }

    /// What is not visible.
    pub const fn blanking(self) -> u16 {
        self.front_porch + self.sync + self.back_porch
    }

    /// All of it.
    pub const fn total(self) -> u16 {
        self.active + self.blanking()
    }
}

/// How a mode is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Pixels a second.
    pub clock: PixelClock,
    /// Pixels of a line.
    pub horizontal: Axis,
    /// Lines of a picture.
    pub vertical: Axis,
}

use Polarity::{Negative, Positive};

/// Clock in kHz, line and picture of the sizes that are taken from DMT. It names them by number: 04, 09, 10,
/// 55, 51 and 52 (hexadecimal, in this order).
const DMT: [(u32, Axis, Axis); 6] = [
    (25_175, Axis::new(640, [16, 96, 48], Negative), Axis::new(480, [10, 2, 33], Negative)),
    (40_000, Axis::new(800, [40, 128, 88], Positive), Axis::new(600, [1, 4, 23], Positive)),
    (65_000, Axis::new(1024, [24, 136, 160], Negative), Axis::new(768, [3, 6, 29], Negative)),
    (74_250, Axis::new(1280, [110, 40, 220], Positive), Axis::new(720, [5, 5, 20], Positive)),
    // With reduced blanking; 51 has the same size and needs a clock of 85.5 MHz.
    (72_000, Axis::new(1366, [14, 56, 64], Positive), Axis::new(768, [1, 3, 28], Positive)),
    (148_500, Axis::new(1920, [88, 44, 148], Positive), Axis::new(1080, [4, 5, 36], Positive)),
];

impl Timing {
    /// Longest side: what an EDID's detailed timing has room for.
    pub const SIDE_MAX: u16 = 0xfff;

    /// DMT's timing of a size, if it is one of those above.
    pub(super) fn of_dmt(size: Size) -> Option<Self> {
        let fits =
            |line: &Axis, picture: &Axis| line.active == size.width() && picture.active == size.height();
        let (clock, horizontal, vertical) = DMT.into_iter().find(|(_, line, picture)| fits(line, picture))?;
        Some(Self { clock: PixelClock(clock), horizontal, vertical })
    }

    /// CVT's timing of a size with reduced blanking, version 1.
    pub(super) fn reduced_blanking(size: Size) -> Self {
        /// Pixels that are not visible: front porch, pulse, back porch.
        const LINE: [u16; 3] = [48, 32, 80];
        /// Lines before the pulse, and the fewest behind it.
        const FRONT: u16 = 3;
        const BACK_MIN: u16 = 6;
        /// Pictures a second.
        const RATE: u32 = 60;
        /// The shortest time without visible lines, in microseconds.
        const BLANK_TIME: u32 = 460;
        /// Clocks are multiples of this many kHz.
        const STEP: u32 = 250;
        let height = u32::from(size.height());
        // Lines that a period of (1 / RATE - BLANK_TIME) / height fits BLANK_TIME in, and one more.
        let blank = BLANK_TIME * height * RATE / (1_000_000 - BLANK_TIME * RATE) + 1;
        // A side has 12 bits, so that this is far below 16 bits.
        let blank = u16::try_from(blank).unwrap_or(u16::MAX / 2);
        let sync = sync_lines(size);
        let blank = blank.max(FRONT + sync + BACK_MIN);
        let horizontal = Axis::new(size.width(), LINE, Positive);
        let vertical = Axis::new(size.height(), [FRONT, sync, blank - FRONT - sync], Negative);
        let pixels = u32::from(horizontal.total()) * u32::from(vertical.total());
        // 5000 by 5000 pixels a picture are 1.5 million kHz.
        let clock = u64::from(pixels) * u64::from(RATE) / 1000 / u64::from(STEP) * u64::from(STEP);
        let clock = PixelClock(u32::try_from(clock).unwrap_or(u32::MAX));
        Self { clock, horizontal, vertical }
    }

    /// Pictures in 1000 seconds.
    pub fn millihertz(&self) -> u64 {
        let pixels = u64::from(self.horizontal.total()) * u64::from(self.vertical.total());
        self.clock.hertz() * 1000 / pixels.max(1)
    }

    /// Lines a second.
    pub fn line_hertz(&self) -> u64 {
        self.clock.hertz() / u64::from(self.horizontal.total()).max(1)
    }
}

/// Lines of the vertical pulse, by which CVT tells a monitor the shape of the picture.
fn sync_lines(size: Size) -> u16 {
    let (width, height) = (u32::from(size.width()), u32::from(size.height()));
    // The width in whole characters is what CVT compares.
    let is = |across: u32, down: u32| {
        let exact = height * across / down;
        exact - exact % u32::from(CELL) == width
    };
    match () {
        () if is(4, 3) => 4,
        () if is(16, 9) => 5,
        () if is(16, 10) => 6,
        () if is(5, 4) || is(15, 9) => 7,
        () => 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reduced(width: u16, height: u16) -> (u32, [u16; 4], [u16; 4]) {
        let timing = Timing::reduced_blanking(Size::new(width, height));
        let figures = |axis: Axis| [axis.front_porch, axis.sync, axis.back_porch, axis.total()];
        (timing.clock.kilohertz(), figures(timing.horizontal), figures(timing.vertical))
    }

    /// DMT lists these as made by CVT's formula with reduced blanking: 1280x768 (16), 1280x800 (1b),
    /// 1400x1050 (29), 1440x900 (2e), 1680x1050 (39), 1920x1200 (44).
    #[test]
    fn reduced_blanking_gives_what_the_standard_lists() {
        let line = |total| [48, 32, 80, total];
        assert_eq!(reduced(1280, 768), (68_250, line(1440), [3, 7, 12, 790]));
        assert_eq!(reduced(1280, 800), (71_000, line(1440), [3, 6, 14, 823]));
        assert_eq!(reduced(1400, 1050), (101_000, line(1560), [3, 4, 23, 1080]));
        assert_eq!(reduced(1440, 900), (88_750, line(1600), [3, 6, 17, 926]));
        assert_eq!(reduced(1680, 1050), (119_000, line(1840), [3, 6, 21, 1080]));
        assert_eq!(reduced(1920, 1200), (154_000, line(2080), [3, 6, 26, 1235]));
    }

    #[test]
    fn listed_timings_are_of_60_hertz() {
        for (clock, horizontal, vertical) in DMT {
            let timing = Timing { clock: PixelClock(clock), horizontal, vertical };
            assert!((59_790..=60_320).contains(&timing.millihertz()), "{}", timing.millihertz());
        }
    }
}
