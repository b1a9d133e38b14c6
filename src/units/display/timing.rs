//! When a head's frames begin, and which line it is at.

use gpuvmk_chip::display::OUTPUT_RESOURCES;
use gpuvmk_chip::display::core::{
    HEAD_SET_PIXEL_CLOCK_FREQUENCY, HEAD_SET_RASTER_BLANK_END, HEAD_SET_RASTER_BLANK_START,
    HEAD_SET_RASTER_SIZE, PAIR, SOR_CONTROL, head, sor_set_control,
};

use super::methods::Methods;

/// Times between frames, in nanoseconds, whatever a driver says: a head costs that much and no more.
const FRAME_LEAST: u64 = 4_000_000;
const FRAME_MOST: u64 = 200_000_000;

/// The frames of a head that is lit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Nanoseconds from frame to frame.
    pub frame: u64,
    /// Lines of a frame, and pixels of a line, those that are not seen included.
    pub total: (u32, u32),
    /// The line with which blanking begins.
    pub blank: u32,
}

impl Timing {
    /// The frames of a head, by what has taken effect; none: it is not lit.
    pub fn of(core: &Methods, number: u32) -> Option<Self> {
        let value = |method| core.armed(head(number, method));
        let owners = (0..OUTPUT_RESOURCES).map(|sor| core.armed(sor_set_control(sor)));
        let is_shown =
            owners.map(|word| SOR_CONTROL::OWNER_MASK.get(word)).any(|mask| mask >> number & 1 != 0);
        let size = value(HEAD_SET_RASTER_SIZE);
        let (pixels, lines) = (PAIR::X.get(size), PAIR::Y.get(size));
        let clock = u64::from(value(HEAD_SET_PIXEL_CLOCK_FREQUENCY));
        if !is_shown || pixels == 0 || lines == 0 || clock == 0 {
            return None;
        }
        let frame = u64::from(pixels) * u64::from(lines) * 1_000_000_000 / clock;
        let blank = PAIR::Y.get(value(HEAD_SET_RASTER_BLANK_START)) % lines;
        Some(Self { frame: frame.clamp(FRAME_LEAST, FRAME_MOST), total: (lines, pixels), blank })
    }

    /// The size of the picture, in pixels of a line and in lines, by what has taken effect.
    pub fn visible(core: &Methods, number: u32) -> (u32, u32) {
        let value = |method| core.armed(head(number, method));
        let (from, to) = (value(HEAD_SET_RASTER_BLANK_END), value(HEAD_SET_RASTER_BLANK_START));
        let length = |field: gpuvmk_chip::registers::Field| field.get(to).saturating_sub(field.get(from));
        (length(PAIR::X), length(PAIR::Y))
    }

    /// How long it is until the next blanking, `since` nanoseconds after one began.
    pub const fn until_blanking(&self, since: u64) -> u64 {
        self.frame - since % self.frame
    }

    /// The line and the pixel that it is at, `since` nanoseconds after blanking began.
    pub fn position(&self, since: u64) -> (u32, u32) {
        let (lines, pixels) = self.total;
        let all = u64::from(lines) * u64::from(pixels);
        let passed = u128::from(since % self.frame) * u128::from(all) / u128::from(self.frame);
        let passed = u64::try_from(passed).unwrap_or(0);
        let (line, pixel) = (passed / u64::from(pixels), passed % u64::from(pixels));
        let number = |value: u64| u32::try_from(value).unwrap_or(0);
        ((self.blank + number(line)) % lines, number(pixel))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuvmk_chip::display::ChannelKind;

    fn core(clock: u32, owner: u32) -> Methods {
        let mut core = Methods::new(ChannelKind::Core);
        for (method, value) in [
            (sor_set_control(2), owner),
            (head(0, HEAD_SET_RASTER_SIZE), 1000 << 16 | 1650),
            (head(0, HEAD_SET_RASTER_BLANK_END), 30 << 16 | 200),
            (head(0, HEAD_SET_RASTER_BLANK_START), 750 << 16 | 1480),
            (head(0, HEAD_SET_PIXEL_CLOCK_FREQUENCY), clock),
        ] {
            assert!(core.set(method, value));
        }
        core.arm();
        core
    }

    #[test]
    fn frames_come_at_the_modes_rate_and_lines_follow() {
        let core = core(82_500_000, 1);
        let timing = Timing::of(&core, 0).unwrap();
        assert_eq!((timing.frame, Timing::visible(&core, 0)), (20_000_000, (1280, 720)));
        assert_eq!(timing.position(0), (750, 0));
        assert_eq!(timing.position(10_000_000), (250, 0));
        assert_eq!(timing.position(19_999_999), (749, 1649));
        assert_eq!(timing.until_blanking(45_000_000), 15_000_000);
    }

    #[test]
    fn no_rate_costs_more_than_the_highest_one() {
        assert_eq!(Timing::of(&core(u32::MAX, 1), 0).unwrap().frame, FRAME_LEAST);
        assert_eq!(Timing::of(&core(1, 1), 0).unwrap().frame, FRAME_MOST);
        assert_eq!((Timing::of(&core(0, 1), 0), Timing::of(&core(82_500_000, 2), 0)), (None, None));
    }
}
