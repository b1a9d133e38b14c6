//! Commands for the copy engine to zero a piece of VRAM: mark some places, write zeros everywhere, copy the
//! marked places out, report.
//!
//! Two forms are known. Fermi's copy engines have no fill and copy a line of zeros many times instead (a
//! source pitch of 0). Those since Kepler fill with a constant. Fermi's graphics engine copies too, for the
//! test of all engines.

use super::layout::{LINE, MARK, STRIDE};
use gpuvmk_chip::gf100::methods::{host, m2mf, pcopy};
use gpuvmk_chip::gh100::methods::copy;
use gpuvmk_chip::gh100::methods::copy::SET_REMAP_COMPONENTS as REMAP;
use gpuvmk_chip::nv::classes::{Class, Role};
use gpuvmk_chip::stream::DMA::SEC_OP;
use gpuvmk_chip::stream::header;
use gpuvmk_chip::{Chip, Engine};

/// Subchannel of the copy object; where the runlist decides, one that a copy channel's engine is behind.
const SUBCHANNEL: u8 = 4;

/// LAUNCH_DMA: copies when everything before is done, and makes the result visible.
const ORDERED: u32 = copy::LAUNCH_DMA::DATA_TRANSFER_TYPE
    .of(copy::LAUNCH_DMA::DATA_TRANSFER_TYPE::NON_PIPELINED)
    | copy::LAUNCH_DMA::FLUSH_ENABLE.mask();
/// A fill's elements: four words, all of them the first constant.
const FOUR_WORDS: u32 = REMAP::DST_X.of(REMAP::DST_X::CONST_A)
    | REMAP::DST_Y.of(REMAP::DST_X::CONST_A)
    | REMAP::DST_Z.of(REMAP::DST_X::CONST_A)
    | REMAP::DST_W.of(REMAP::DST_X::CONST_A)
    | REMAP::COMPONENT_SIZE.of(3)
    | REMAP::NUM_DST_COMPONENTS.of(3);

/// The commands of a chip's engine that copies, with its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandFormat {
    /// Fermi's copy engines.
    Fermi(Class),
    /// Fermi's graphics engine.
    FermiM2mf(Class),
    /// Copy engines since Kepler.
    Copy(Class),
}

impl CommandFormat {
    /// That of an engine of a chip.
    pub(crate) fn of(chip: Chip, engine: Engine) -> Option<Self> {
        let classes = &chip.classes;
        let class = match engine {
            // One class for all engines, or one for each.
            Engine::Copy(number) => match classes.copy {
                [class] => *class,
                each => *each.get(usize::from(number.get()))?,
            },
            Engine::Graphics => classes.to_memory,
            _ => return None,
        };
        match class.role {
            Role::Copy => Some(Self::Copy(class)),
            Role::FermiCopy => Some(Self::Fermi(class)),
            Role::MemoryToMemory => Some(Self::FermiM2mf(class)),
            _ => None,
        }
    }

    /// The class that copies.
    pub(crate) const fn class(self) -> u16 {
        match self {
            Self::Fermi(class) | Self::FermiM2mf(class) | Self::Copy(class) => class.method_class(),
        }
    }
}

/// One piece: virtual addresses, and what is reported at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// The piece itself.
    pub(super) target: u64,
    /// Its bytes, a multiple of [`STRIDE`].
    pub(super) size: u64,
    /// Where in each [`STRIDE`] the marked place is.
    pub(super) place: u64,
    /// A line of zeros.
    pub(super) zeros: u64,
    /// A mark for each place.
    pub(super) marks: u64,
    /// Where the marked places are copied to.
    pub(super) seen: u64,
    /// Where `sequence` is written at the end.
    pub(super) semaphore: u64,
    /// The value that is written there.
    pub(super) sequence: u32,
}

/// The words for one piece.
pub(super) fn words(dialect: CommandFormat, piece: &Piece) -> Vec<u32> {
    let mut words = Words { dialect, words: Vec::new() };
    words.method(host::SET_OBJECT, &[dialect.class().into()]);
    let places = low(piece.size / STRIDE);
    let marked = piece.target.saturating_add(piece.place);
    words.copy((piece.marks, MARK), (marked, STRIDE), low(MARK), places, None);
    match dialect {
        CommandFormat::Fermi(_) | CommandFormat::FermiM2mf(_) => {
            let lines = low(piece.size / LINE);
            words.copy((piece.zeros, 0), (piece.target, LINE), low(LINE), lines, None);
        }
        CommandFormat::Copy(_) => words.fill(piece.target, low(piece.size / 16)),
    }
    let report = Some((piece.semaphore, piece.sequence));
    words.copy((marked, STRIDE), (piece.seen, MARK), low(MARK), places, report);
    words.words
}

/// The words for a copy of `size` bytes, a multiple of [`LINE`], and a report at its end: where, and what.
pub(crate) fn copy_words(
    dialect: CommandFormat,
    from: u64,
    to: u64,
    size: u64,
    report: (u64, u32),
) -> Vec<u32> {
    let mut words = Words { dialect, words: Vec::new() };
    words.method(host::SET_OBJECT, &[dialect.class().into()]);
    words.copy((from, LINE), (to, LINE), low(LINE), low(size / LINE), Some(report));
    words.words
}

/// A command stream under construction.
struct Words {
    dialect: CommandFormat,
    words: Vec<u32>,
}

impl Words {
    fn method(&mut self, method: u16, data: &[u32]) {
        let count = u16::try_from(data.len()).unwrap_or(0);
        self.words.push(header(SEC_OP::INC_METHOD, SUBCHANNEL, method, count));
        self.words.extend_from_slice(data);
    }

    /// Copies `count` lines of `length` bytes; addresses come with their pitches. Reports afterwards.
    fn copy(
        &mut self,
        (from, from_pitch): (u64, u64),
        (to, to_pitch): (u64, u64),
        length: u32,
        count: u32,
        report: Option<(u64, u32)>,
    ) {
        let [from_high, from_low] = halves(from);
        let [to_high, to_low] = halves(to);
        let pitches = [low(from_pitch), low(to_pitch)];
        let lines = [from_high, from_low, to_high, to_low, pitches[0], pitches[1], length, count];
        match self.dialect {
            CommandFormat::Fermi(_) => {
                self.method(pcopy::SRC_ADDRESS_HIGH, &lines);
                let mut exec = pcopy::EXEC::SRC_LINEAR.mask() | pcopy::EXEC::DST_LINEAR.mask();
                if let Some((semaphore, sequence)) = report {
                    let [high, low] = halves(semaphore);
                    self.method(pcopy::QUERY_ADDRESS_HIGH, &[high, low, sequence]);
                    exec |= pcopy::EXEC::QUERY.mask() | pcopy::EXEC::QUERY_SHORT.mask();
                }
                self.method(pcopy::EXEC, &[exec]);
            }
            CommandFormat::FermiM2mf(_) => {
                let [_, _, _, _, from_pitch, to_pitch, length, count] = lines;
                self.method(m2mf::OFFSET_OUT_HIGH, &[to_high, to_low]);
                let source = [from_high, from_low, from_pitch, to_pitch, length, count];
                self.method(m2mf::OFFSET_IN_HIGH, &source);
                let mut exec = m2mf::EXEC::LINEAR_IN.mask() | m2mf::EXEC::LINEAR_OUT.mask();
                if let Some((semaphore, sequence)) = report {
                    let [high, low] = halves(semaphore);
                    self.method(m2mf::QUERY_ADDRESS_HIGH, &[high, low, sequence]);
                    exec |= m2mf::EXEC::QUERY.of(m2mf::EXEC::QUERY::WRITE) | m2mf::EXEC::QUERY_SHORT.mask();
                }
                self.method(m2mf::EXEC, &[exec]);
            }
            CommandFormat::Copy(_) => {
                self.method(copy::OFFSET_IN_UPPER, &lines);
                let mut launch = ORDERED
                    | copy::LAUNCH_DMA::SRC_MEMORY_LAYOUT.mask()
                    | copy::LAUNCH_DMA::DST_MEMORY_LAYOUT.mask()
                    | copy::LAUNCH_DMA::MULTI_LINE_ENABLE.mask();
                if let Some((semaphore, sequence)) = report {
                    let [high, low] = halves(semaphore);
                    self.method(copy::SET_SEMAPHORE_A, &[high, low, sequence]);
                    launch |= copy::LAUNCH_DMA::SEMAPHORE_TYPE
                        .of(copy::LAUNCH_DMA::SEMAPHORE_TYPE::RELEASE_ONE_WORD_SEMAPHORE);
                }
                self.method(copy::LAUNCH_DMA, &[launch]);
            }
        }
    }

    /// Writes zeros: elements of 16 bytes. GH100 only.
    fn fill(&mut self, to: u64, elements: u32) {
        let [high, low] = halves(to);
        self.method(copy::SET_REMAP_CONST_A, &[0]);
        self.method(REMAP, &[FOUR_WORDS]);
        self.method(copy::OFFSET_OUT_UPPER, &[high, low]);
        self.method(copy::LINE_LENGTH_IN, &[elements, 1]);
        let linear = copy::LAUNCH_DMA::SRC_MEMORY_LAYOUT.mask() | copy::LAUNCH_DMA::DST_MEMORY_LAYOUT.mask();
        self.method(copy::LAUNCH_DMA, &[ORDERED | linear | copy::LAUNCH_DMA::REMAP_ENABLE.mask()]);
    }
}

/// Upper and lower word.
fn halves(address: u64) -> [u32; 2] {
    [low(address >> 32), low(address & 0xffff_ffff)]
}

/// CAST: sizes and pitches of pieces are far below 2^32; addresses come in halves.
fn low(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuvmk_chip::nv::classes::{FERMI_DECOMPRESS, FERMI_DMA, HOPPER_DMA_COPY_A};

    fn piece() -> Piece {
        Piece {
            target: 0x400_0000,
            size: 0x40_0000,
            place: 0x120,
            zeros: 0x10_8000,
            marks: 0x10_2000,
            seen: 0x10_4000,
            semaphore: 0x1_0010_1800,
            sequence: 9,
        }
    }

    #[test]
    fn gf100_copies_a_line_of_zeros_with_pitch_0_between_marks_and_check() {
        let words = words(CommandFormat::Fermi(FERMI_DMA), &piece());

        assert_eq!(words[..2], [0x2001_8000, 0x90b5]);
        // Source, target, pitches, bytes of a line, lines; then start.
        let at = |n: usize| &words[2 + n * 11..2 + (n + 1) * 11];
        assert_eq!(at(0)[..9], [0x2008_80c3, 0, 0x10_2000, 0, 0x400_0120, 0x10, 0x1_0000, 0x10, 64]);
        assert_eq!(at(1)[..9], [0x2008_80c3, 0, 0x10_8000, 0, 0x400_0000, 0, 0x8000, 0x8000, 128]);
        assert_eq!(at(1)[9..], [0x2001_80c0, 0x110]);
        assert_eq!(words[24..29], [0x2008_80c3, 0, 0x400_0120, 0, 0x10_4000]);
        assert_eq!(words[33..], [0x2003_80ce, 1, 0x10_1800, 9, 0x2001_80c0, 0x3110]);
    }

    #[test]
    fn gh100_fills_with_a_constant_and_reports_one_word() {
        let words = words(CommandFormat::Copy(HOPPER_DMA_COPY_A), &piece());

        let fill: Vec<u32> = words.iter().copied().skip(13).take(12).collect();
        assert_eq!(fill[..4], [0x2001_81c0, 0, 0x2001_81c2, 0x0303_4444]);
        assert_eq!(fill[4..10], [0x2002_8102, 0, 0x400_0000, 0x2002_8106, 0x4_0000, 1]);
        assert_eq!(fill[10..], [0x2001_80c0, 0x586]);
        assert_eq!(words.last(), Some(&0x38e));
    }

    #[test]
    fn engines_without_a_known_class_have_no_dialect() {
        assert_eq!(
            CommandFormat::of(Chip::GF100, Engine::COPY1),
            Some(CommandFormat::Fermi(FERMI_DECOMPRESS))
        );
        assert_eq!(CommandFormat::of(Chip::GF100, Engine::Graphics).map(CommandFormat::class), Some(0x9039));
        assert_eq!(CommandFormat::of(Chip::GH100, Engine::COPY2).map(CommandFormat::class), Some(0xc8b5));
        for (chip, engine) in [(Chip::GH100, Engine::Graphics), (Chip::GF100, Engine::COPY2)] {
            assert_eq!(CommandFormat::of(chip, engine), None);
        }
    }
}
