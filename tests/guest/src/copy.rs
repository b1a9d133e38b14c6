//! Copies as the engines of a Fermi take them.
//!
//! Both engines copy a rectangle: lines of a length, `count` times, with a pitch on either side. Linear bytes go
//! as lines of one page, and the rest as one shorter line.

use crate::push::{Commands, Subchannel, split};

/// The line that linear bytes are cut into.
const LINE: u64 = 4096;

/// An engine that copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// Memory to memory format, class 9039: part of the graphics engine.
    M2mf,
    /// The first copy engine, class 90b5.
    Copy0,
    /// The second copy engine, class 90b8.
    Copy1,
}

impl Engine {
    /// The object class.
    pub fn class(self) -> u16 {
        match self {
            Self::M2mf => 0x9039,
            Self::Copy0 => 0x90b5,
            Self::Copy1 => 0x90b8,
        }
    }

    /// The subchannel that this program binds it to.
    pub fn subchannel(self) -> Subchannel {
        match self {
            Self::M2mf => Subchannel(2),
            Self::Copy0 | Self::Copy1 => Subchannel(4),
        }
    }

    /// Lines that one launch may copy.
    fn most_lines(self) -> u64 {
        match self {
            Self::M2mf => 2047,
            Self::Copy0 | Self::Copy1 => 8191,
        }
    }

    /// Adds the words that copy `length` bytes.
    pub fn copy(self, commands: &mut Commands, to: u64, from: u64, length: u64) {
        let (mut done, lines) = (0, length / LINE);
        while done < lines {
            let count = (lines - done).min(self.most_lines());
            self.lines(commands, to + done * LINE, from + done * LINE, LINE, count);
            done += count;
        }
        if !length.is_multiple_of(LINE) {
            self.lines(commands, to + done * LINE, from + done * LINE, length % LINE, 1);
        }
    }

    fn lines(self, commands: &mut Commands, to: u64, from: u64, length: u64, count: u64) {
        // Both are at most a few thousand.
        let [length, count, pitch] = [length, count, LINE].map(|value| split(value)[1]);
        let ([to_high, to_low], [from_high, from_low]) = (split(to), split(from));
        let subchannel = self.subchannel();
        match self {
            Self::M2mf => {
                // OFFSET_OUT; OFFSET_IN, PITCH_IN, PITCH_OUT, LINE_LENGTH_IN, LINE_COUNT; LAUNCH_DMA with both
                // sides in pitch layout.
                commands.methods(subchannel, 0x238, &[to_high, to_low]);
                commands.methods(subchannel, 0x30c, &[from_high, from_low, pitch, pitch, length, count]);
                commands.methods(subchannel, 0x300, &[0x0010_0110]);
            }
            Self::Copy0 | Self::Copy1 => {
                // Source, destination, both pitches, length, count; launch with both sides in pitch layout.
                let data = [from_high, from_low, to_high, to_low, pitch, pitch, length, count];
                commands.methods(subchannel, 0x30c, &data);
                commands.immediate(subchannel, 0x300, 0x110);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launches(engine: Engine, length: u64) -> usize {
        let (mut all, mut one) = (Commands::new(), Commands::new());
        engine.copy(&mut all, 0, 0, length);
        engine.copy(&mut one, 0, 0, 1);
        all.to_bytes().len() / one.to_bytes().len()
    }

    #[test]
    fn odd_length_is_whole_lines_and_a_rest() {
        assert_eq!(launches(Engine::M2mf, 1), 1);
        assert_eq!(launches(Engine::M2mf, 4096), 1);
        assert_eq!(launches(Engine::M2mf, 4097), 2);
    }

    #[test]
    fn long_copy_is_cut_where_the_line_count_ends() {
        assert_eq!(launches(Engine::M2mf, 2047 * 4096), 1);
        assert_eq!(launches(Engine::M2mf, 2048 * 4096), 2);
        assert_eq!(launches(Engine::Copy0, 8191 * 4096), 1);
        assert_eq!(launches(Engine::Copy1, 8192 * 4096), 2);
    }

    #[test]
    fn m2mf_words_are_the_classs_methods() {
        let mut commands = Commands::new();
        Engine::M2mf.copy(&mut commands, 0x1_0000_2000, 0x3000, 8192);
        let mut expected = Commands::new();
        expected.methods(Subchannel(2), 0x238, &[1, 0x2000]);
        expected.methods(Subchannel(2), 0x30c, &[0, 0x3000, 4096, 4096, 4096, 2]);
        expected.methods(Subchannel(2), 0x300, &[0x0010_0110]);
        assert_eq!(commands, expected);
    }
}
