//! Engines that copy, in the words of each: on which channel, and the methods of its copies.
//!
//! All of them copy a rectangle: lines of a length, `count` times, with a pitch on either side. Linear bytes
//! go as lines of one page, and the rest as one shorter line.

mod fermi;
pub mod turing;

use crate::push::{Commands, Subchannel};

/// The line that linear bytes are cut into.
const LINE: u64 = 4096;

/// The engines that a channel is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runlist {
    /// Graphics and compute, and the copy engine beside them.
    Graphics,
    /// A copy engine alone.
    Copy,
}

/// An engine that copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// Fermi: memory to memory format, a part of the graphics engine.
    M2mf,
    /// Fermi: the first copy engine.
    Copy0,
    /// Fermi: the second copy engine.
    Copy1,
    /// Since Turing: a copy engine with channels of its own.
    Copy,
    /// Since Turing: the copy engine that serves graphics channels.
    GraphicsCopy,
}

/// Lines that a copy consists of: where to, where from, how long each, how many.
struct Lines {
    to: u64,
    from: u64,
    length: u64,
    count: u64,
}

impl Engine {
    /// The channel that it is reached by.
    pub fn runlist(self) -> Runlist {
        match self {
            Self::Copy => Runlist::Copy,
            Self::M2mf | Self::Copy0 | Self::Copy1 | Self::GraphicsCopy => Runlist::Graphics,
        }
    }

    /// The subchannel that this program binds it to.
    pub fn subchannel(self) -> Subchannel {
        match self {
            Self::M2mf => Subchannel(2),
            Self::Copy0 | Self::Copy1 | Self::Copy | Self::GraphicsCopy => Subchannel(4),
        }
    }

    /// Lines that one launch may copy.
    fn most_lines(self) -> u64 {
        match self {
            Self::M2mf => 2047,
            Self::Copy0 | Self::Copy1 => 8191,
            // The count has 32 bits; this keeps every number far below.
            Self::Copy | Self::GraphicsCopy => 1 << 20,
        }
    }

    /// Adds the words that copy `length` bytes.
    pub fn copy(self, commands: &mut Commands, to: u64, from: u64, length: u64) {
        let (mut done, lines) = (0, length / LINE);
        while done < lines {
            let count = (lines - done).min(self.most_lines());
            let lines = Lines { to: to + done * LINE, from: from + done * LINE, length: LINE, count };
            self.lines(commands, &lines);
            done += count;
        }
        if !length.is_multiple_of(LINE) {
            let (to, from) = (to + done * LINE, from + done * LINE);
            self.lines(commands, &Lines { to, from, length: length % LINE, count: 1 });
        }
    }

    fn lines(self, commands: &mut Commands, lines: &Lines) {
        match self {
            Self::M2mf => fermi::m2mf(commands, self.subchannel(), lines),
            Self::Copy0 | Self::Copy1 => fermi::copy(commands, self.subchannel(), lines),
            Self::Copy | Self::GraphicsCopy => turing::copy(commands, lines),
        }
    }

    /// Adds one launch that copies the page at `from` to `to`, `count` times over.
    pub fn copy_again_and_again(self, commands: &mut Commands, to: u64, from: u64, count: u64) {
        let lines = Lines { to, from, length: LINE, count };
        match self {
            Self::M2mf => fermi::m2mf_with_pitch(commands, self.subchannel(), &lines, 0),
            // A count that their method has no room for is cut off.
            Self::Copy0 | Self::Copy1 => fermi::copy(commands, self.subchannel(), &lines),
            Self::Copy | Self::GraphicsCopy => turing::copy_with_pitch(commands, &lines, 0),
        }
    }

    /// Adds the words by which the host unit waits until `payload` stands at `address`.
    pub fn acquire(self, commands: &mut Commands, address: u64, payload: u32) {
        match self {
            Self::M2mf | Self::Copy0 | Self::Copy1 => {
                fermi::acquire(commands, self.subchannel(), address, payload);
            }
            Self::Copy | Self::GraphicsCopy => turing::acquire(commands, address, payload),
        }
    }

    /// Adds the words by which the host unit writes `payload` to `address`, and the GPU's time to `address +
    /// 8`, once all before is done.
    pub fn release_with_time(self, commands: &mut Commands, address: u64, payload: u32) {
        match self {
            Self::M2mf | Self::Copy0 | Self::Copy1 => {
                fermi::release_with_time(commands, self.subchannel(), address, payload);
            }
            Self::Copy | Self::GraphicsCopy => turing::release_with_time(commands, address, payload),
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
        for engine in [Engine::M2mf, Engine::Copy0, Engine::Copy] {
            assert_eq!(launches(engine, 1), 1);
            assert_eq!(launches(engine, 4096), 1);
            assert_eq!(launches(engine, 4097), 2);
        }
    }

    #[test]
    fn long_copy_is_cut_where_the_line_count_ends() {
        assert_eq!(launches(Engine::M2mf, 2047 * 4096), 1);
        assert_eq!(launches(Engine::M2mf, 2048 * 4096), 2);
        assert_eq!(launches(Engine::Copy0, 8191 * 4096), 1);
        assert_eq!(launches(Engine::Copy1, 8192 * 4096), 2);
        assert_eq!(launches(Engine::GraphicsCopy, 8192 * 4096), 1);
    }
}
