//! GF100: which registers belong to which part of a card's initialisation, and which are not to be done
//! again.
//!
//! Ranges are those of envytools' rnndb; the registers that hold addresses are named after nouveau's
//! `nvkm/engine/gr/gf100.c`, `ctxgf100.c`, `nvkm/subdev/{fb,ltc}/gf100.c`, which write them.

use std::fmt;

/// A part of the initialisation that is played by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Section {
    /// Memory, clocks, caches and the ring on which units are reached; once.
    Board,
    /// PGRAPH and the firmware of its falcons, up to their start.
    Graphics,
    /// The state that a new context of PGRAPH's begins with.
    Golden,
    /// The first copy engine.
    Copy0,
    /// The second one.
    Copy1,
}

impl Section {
    /// All, in the order in which they are played.
    pub const ALL: [Self; 5] = [Self::Board, Self::Graphics, Self::Golden, Self::Copy0, Self::Copy1];

    /// Its name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Board => "board",
            Self::Graphics => "graphics",
            Self::Golden => "golden",
            Self::Copy0 => "copy0",
            Self::Copy1 => "copy1",
        }
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// SkipReason an access is not to be done again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SkipReason {
    /// It holds an address in the memory of the guest that did it, or shows such memory.
    Memory,
    /// Channels, runlists and contexts: the aggregator has its own.
    Channels,
    /// Interrupts are the aggregator's.
    Interrupts,
    /// Which units are on is said by the script's head.
    Units,
    /// Page tables' flushes.
    Flushes,
    /// The time, or an alarm.
    Time,
    /// Fans, temperature, voltage and the processor that looks after them stay as firmware set them up.
    Power,
    /// Displays and their wires.
    Display,
    /// Video decoders, which no guest gets.
    Video,
    /// The part that it belongs to was complete before.
    Later,
    /// No rule knows it.
    Unknown,
}

impl SkipReason {
    /// In words, for reports.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Memory => "addresses in the guest's memory",
            Self::Channels => "channels and contexts",
            Self::Interrupts => "interrupts",
            Self::Units => "which units are on",
            Self::Flushes => "flushes of page tables",
            Self::Time => "time",
            Self::Power => "fans, temperature and power",
            Self::Display => "displays",
            Self::Video => "video decoders",
            Self::Later => "done after its part was complete",
            Self::Unknown => "registers that no rule knows",
        }
    }
}

/// How a register's accesses are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// It belongs to this part.
    Keep(Section),
    /// PGRAPH's: to the part that is open.
    Graphics,
    /// Not to be done again.
    Skip(SkipReason),
}

/// First and last register of a range, and what is done with it. The first that fits counts.
const RULES: &[(u32, u32, Rule)] = {
    use Rule::{Graphics, Keep, Skip};
    use Section::{Board, Copy0, Copy1};
    &[
        // PMC.
        (0x00_0100, 0x00_01ff, Skip(SkipReason::Interrupts)),
        (0x00_0200, 0x00_0203, Skip(SkipReason::Units)),
        (0x00_0260, 0x00_0263, Graphics),
        (0x00_0640, 0x00_06ff, Skip(SkipReason::Interrupts)),
        (0x00_0000, 0x00_0fff, Keep(Board)),
        // PBUS: its interrupts; the windows of BARs and PRAMIN.
        (0x00_1100, 0x00_11ff, Skip(SkipReason::Interrupts)),
        (0x00_1700, 0x00_17ff, Skip(SkipReason::Memory)),
        (0x00_1000, 0x00_1fff, Keep(Board)),
        (0x00_2000, 0x00_3fff, Skip(SkipReason::Channels)),
        // PTIMER: its numerator and denominator are the board's.
        (0x00_9200, 0x00_923f, Keep(Board)),
        (0x00_9100, 0x00_91ff, Skip(SkipReason::Interrupts)),
        (0x00_9000, 0x00_9fff, Skip(SkipReason::Time)),
        (0x00_d000, 0x00_ffff, Skip(SkipReason::Display)),
        (0x02_0000, 0x02_3fff, Skip(SkipReason::Power)),
        (0x04_0000, 0x05_ffff, Skip(SkipReason::Channels)),
        (0x07_0000, 0x07_0fff, Skip(SkipReason::Flushes)),
        (0x08_4000, 0x08_7fff, Skip(SkipReason::Video)),
        (0x08_8000, 0x08_8fff, Skip(SkipReason::Interrupts)),
        // PFB: where flushes go, flushes, and pages for faults.
        (0x10_0c10, 0x10_0c13, Skip(SkipReason::Memory)),
        (0x10_0c80, 0x10_0cbf, Skip(SkipReason::Flushes)),
        (0x10_0cc0, 0x10_0cdf, Skip(SkipReason::Memory)),
        (0x10_0000, 0x10_0fff, Keep(Board)),
        // Copy engines: interrupts and contexts; the rest is their firmware.
        (0x10_4000, 0x10_400f, Skip(SkipReason::Interrupts)),
        (0x10_4050, 0x10_4057, Skip(SkipReason::Channels)),
        (0x10_4000, 0x10_4fff, Keep(Copy0)),
        (0x10_5000, 0x10_500f, Skip(SkipReason::Interrupts)),
        (0x10_5050, 0x10_5057, Skip(SkipReason::Channels)),
        (0x10_5000, 0x10_5fff, Keep(Copy1)),
        (0x10_a000, 0x10_bfff, Skip(SkipReason::Power)),
        (0x10_e000, 0x13_ffff, Keep(Board)),
        // L2: where the tags of compressed memory are, and their clearing.
        (0x17_e8c0, 0x17_e8df, Skip(SkipReason::Memory)),
        (0x14_0000, 0x17_ffff, Keep(Board)),
        (0x30_0000, 0x37_ffff, Skip(SkipReason::Memory)),
        // PGRAPH: interrupts; FECS' commands, mailboxes and contexts; addresses of buffers, physical and
        // virtual.
        (0x40_0100, 0x40_014f, Skip(SkipReason::Interrupts)),
        (0x40_8004, 0x40_8013, Skip(SkipReason::Memory)),
        (0x40_9000, 0x40_900f, Skip(SkipReason::Interrupts)),
        (0x40_9500, 0x40_9507, Skip(SkipReason::Channels)),
        (0x40_9800, 0x40_98ff, Skip(SkipReason::Channels)),
        (0x40_9b00, 0x40_9b07, Skip(SkipReason::Channels)),
        (0x41_8808, 0x41_8813, Skip(SkipReason::Memory)),
        (0x41_88b4, 0x41_88bb, Skip(SkipReason::Memory)),
        (0x41_9004, 0x41_900b, Skip(SkipReason::Memory)),
        (0x41_9848, 0x41_984b, Skip(SkipReason::Memory)),
        (0x40_0000, 0x5f_ffff, Graphics),
        (0x60_0000, 0x6f_ffff, Skip(SkipReason::Display)),
        (0x70_0000, 0x7f_ffff, Skip(SkipReason::Memory)),
    ]
};

/// The rule of a register at an offset of BAR0.
pub fn rule(offset: u32) -> Rule {
    let found = RULES.iter().find(|(first, last, _)| (*first..=*last).contains(&offset));
    found.map_or(Rule::Skip(SkipReason::Unknown), |(.., rule)| *rule)
}
