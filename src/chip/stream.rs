//! Command streams as all channels since Fermi have them: ring entries name segments, segments hold headers,
//! headers announce methods and their data (open-gpu-doc `cl906f.h` to `clc86f.h`).

use DMA::SEC_OP;

crate::fields! {
    /// A header.
    DMA {
        31:29 SEC_OP = {
            /// The old form, by bits 17:16.
            GRP0_USE_TERT: 0,
            /// The method address grows with every word.
            INC_METHOD: 1,
            /// Every word goes to the same method.
            NON_INC_METHOD: 3,
            /// The data is in the header, in place of the count.
            IMMD_DATA_METHOD: 4,
            /// The method address grows once, after the first word.
            ONE_INC: 5,
            /// The rest of the segment is skipped.
            END_PB_SEGMENT: 7,
        },
        28:16 METHOD_COUNT, 15:13 METHOD_SUBCHANNEL,
        /// In words.
        11:0 METHOD_ADDRESS
    }
    /// The second word of a GPFIFO entry. OPCODE is that of an entry without words.
    GP_ENTRY1 {
        30:10 LENGTH,
        7:0 OPCODE = {
            NOP: 0,
            /// The first word has address bits 56:40 of the segments that follow.
            SET_PB_SEGMENT_EXTENDED_BASE: 4,
        }
    }
}

/// A method's address as RAMFC, registers and headers have it, in words or as a byte address in the same
/// place.
const METHOD_WORD_SHIFT: u32 = 2;

/// A header for `count` words to a method, whose address moves as `operation` says.
pub const fn header(operation: u32, subchannel: u8, method: u16, count: u16) -> u32 {
    // CAST: widening.
    SEC_OP.of(operation)
        | DMA::METHOD_COUNT.of(count as u32)
        | DMA::METHOD_SUBCHANNEL.of(subchannel as u32)
        | DMA::METHOD_ADDRESS.of(method as u32 >> METHOD_WORD_SHIFT)
}

/// Bytes of a GPFIFO entry.
pub const GPFIFO_ENTRY_SIZE: u64 = 8;

/// log2 of the entries of the largest command ring that a guest may have: 4 MiB of entries, far above any
/// driver's (nouveau: 1024 to 2048 entries).
pub const MAX_GPFIFO_ENTRIES_LOG2: u8 = 19;

/// A segment's address in a GPFIFO entry.
const SEGMENT_ADDRESS: u64 = 0xff_ffff_fffc;

/// A GPFIFO entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingEntry {
    /// Words to execute.
    Segment {
        /// Bits 39:2 of their virtual address.
        address: u64,
        /// Number of words.
        words: u64,
    },
    /// An entry without words; what it says is the channel class's business.
    Control(u64),
}

/// The second word of a GPFIFO entry.
const fn entry1(raw: u64) -> u32 {
    // CAST: what is left has 32 bits.
    (raw >> 32) as u32
}

/// What an entry without words asks for.
pub const fn opcode(raw: u64) -> u32 {
    GP_ENTRY1::OPCODE.get(entry1(raw))
}

impl RingEntry {
    /// An entry for `words` words at `address`, of which bits 39:2 count.
    pub const fn segment(address: u64, words: u32) -> u64 {
        // CAST: widening.
        address & SEGMENT_ADDRESS | (GP_ENTRY1::LENGTH.of(words) as u64) << 32
    }

    /// What an entry says. Subroutines and privileged segments are flags of it that mean nothing here.
    pub const fn decode(raw: u64) -> Self {
        // CAST: widening.
        match GP_ENTRY1::LENGTH.get(entry1(raw)) as u64 {
            0 => Self::Control(raw),
            words => Self::Segment { address: raw & SEGMENT_ADDRESS, words },
        }
    }
}

/// How the method address moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Stepping {
    /// By one method with every word.
    Increment,
    /// Never.
    #[default]
    Fixed,
    /// Once.
    IncrementOnce,
}

/// A header that still has words to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Header {
    /// How the address moves.
    pub stepping: Stepping,
    /// Whose method.
    pub subchannel: u8,
    /// Byte address of the next word's method.
    pub method: u16,
    /// Words to come.
    pub remaining: u16,
}

/// A method with its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Method {
    /// The subchannel, whose class it belongs to.
    pub subchannel: u8,
    /// Byte address.
    pub method: u16,
    /// The word.
    pub data: u32,
}

impl Method {
    /// As RAMFC and error registers name it.
    pub const fn address_word(self) -> u32 {
        self.method as u32 | (self.subchannel as u32) << 16
    }
}

/// Highest address of a method.
pub const METHOD_MAX: u16 = 0x3ffc;

impl Header {
    /// The method that the next word is for.
    pub const fn take(&mut self, data: u32) -> Method {
        let method = Method { subchannel: self.subchannel, method: self.method, data };
        self.remaining = self.remaining.saturating_sub(1);
        match self.stepping {
            Stepping::Fixed => {}
            Stepping::Increment => self.method = self.method.wrapping_add(4) & METHOD_MAX,
            Stepping::IncrementOnce => {
                self.method = self.method.wrapping_add(4) & METHOD_MAX;
                self.stepping = Stepping::Fixed;
            }
        }
        method
    }
}

/// What a word is where a header is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Methods whose data follows.
    Methods(Header),
    /// A method with its data.
    Immediate(Method),
    /// The rest of the segment is skipped.
    EndSegment,
    /// The old form: padding, or subdevice masks that mean nothing with one GPU.
    Nothing,
    /// No header; with the method that it would name.
    Illegal(Method),
}

impl Command {
    /// What a header says.
    pub fn decode(word: u32) -> Self {
        let method = DMA::METHOD_ADDRESS.get_u16(word) << METHOD_WORD_SHIFT;
        let subchannel = DMA::METHOD_SUBCHANNEL.get_u8(word);
        let count = DMA::METHOD_COUNT.get_u16(word);
        let stepping = match SEC_OP.get(word) {
            SEC_OP::INC_METHOD => Stepping::Increment,
            SEC_OP::NON_INC_METHOD => Stepping::Fixed,
            SEC_OP::ONE_INC => Stepping::IncrementOnce,
            SEC_OP::IMMD_DATA_METHOD => {
                return Self::Immediate(Method { subchannel, method, data: u32::from(count) });
            }
            SEC_OP::END_PB_SEGMENT => return Self::EndSegment,
            SEC_OP::GRP0_USE_TERT if count & 3 != 0 || (count >> 2) & 0x7ff == 0 => return Self::Nothing,
            _ => return Self::Illegal(Method { subchannel, method, data: word }),
        };
        Self::Methods(Header { stepping, subchannel, method, remaining: count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring_entries_are_segments_or_controls() {
        let entry = RingEntry::decode(3 << 42 | 0x12_3456_7800 | 3);
        assert_eq!(entry, RingEntry::Segment { address: 0x12_3456_7800, words: 3 });
        assert_eq!(RingEntry::segment(0x12_3456_7803, 3), 3 << 42 | 0x12_3456_7800);
        let control = 4 << 32 | 0x100;
        assert_eq!(opcode(control), GP_ENTRY1::OPCODE::SET_PB_SEGMENT_EXTENDED_BASE);
        assert_eq!(RingEntry::decode(control), RingEntry::Control(control));
        let RingEntry::Segment { address, words } = RingEntry::decode(u64::MAX) else { panic!("no segment") };
        assert_eq!((address, words), (0xff_ffff_fffc, 0x1f_ffff));
    }

    #[test]
    fn methods_step_as_their_header_says() {
        for (operation, addresses) in [
            (SEC_OP::INC_METHOD, [0x300, 0x304, 0x308]),
            (SEC_OP::NON_INC_METHOD, [0x300; 3]),
            (SEC_OP::ONE_INC, [0x300, 0x304, 0x304]),
        ] {
            assert_eq!(header(operation, 4, 0x300, 3), operation << 29 | 3 << 16 | 4 << 13 | 0x300 >> 2);
            let Command::Methods(mut header) = Command::decode(header(operation, 4, 0x300, 3)) else {
                panic!("no header")
            };
            for (data, method) in (0..).zip(addresses) {
                assert_eq!(header.take(data), Method { subchannel: 4, method, data });
            }
            assert_eq!(header.remaining, 0);
        }
    }

    #[test]
    fn other_headers_are_told_apart() {
        let method = |data| Method { subchannel: 7, method: METHOD_MAX, data };
        assert_eq!(
            Command::decode(SEC_OP::IMMD_DATA_METHOD << 29 | 0x1fff_ffff),
            Command::Immediate(method(0x1fff))
        );
        assert_eq!(Command::decode(SEC_OP::END_PB_SEGMENT << 29), Command::EndSegment);
        for nothing in [0, 1 << 16, 0x3fff << 16 & 0x1fff_0000] {
            assert_eq!(Command::decode(nothing), Command::Nothing, "{nothing:#x}");
        }
        for illegal in [2 << 29 | 0xffff, 6 << 29 | 0xffff, 4 << 16 | 0xffff] {
            assert_eq!(Command::decode(illegal), Command::Illegal(method(illegal)), "{illegal:#x}");
        }
    }

    #[test]
    fn address_wraps_at_the_end() {
        let mut header =
            Header { stepping: Stepping::Increment, method: METHOD_MAX, remaining: 2, subchannel: 0 };
        header.take(0);
        assert_eq!(header.method, 0);
    }
}
