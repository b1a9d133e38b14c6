//! Operations of a micro guest's scripts.

/// Bytes of an operation in memory.
pub const OPERATION: usize = 32;

/// One thing that the guest's processor does. Addresses are the guest's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A load of 1, 2, 4 or 8 bytes; gives a result.
    Read { address: u64, size: usize },
    /// A store of 1, 2, 4 or 8 bytes.
    Write { address: u64, size: usize, value: u64 },
    /// Loads of 4 bytes until the bits of `mask` are `value`, at most `most` times; gives the last one.
    Poll { address: u64, mask: u32, value: u32, most: u32 },
    /// A copy of memory, in words of 8 bytes.
    Copy { from: u64, to: u64, size: u64 },
    /// The same load of 4 bytes again and again; gives the last one.
    Reads { address: u64, count: u64 },
    /// The same store of 4 bytes again and again.
    Writes { address: u64, value: u32, count: u64 },
    /// The time stamp counter; gives it.
    Clock,
    /// A load of 4 bytes from each of `pages` pages; gives their sum.
    Touch { address: u64, pages: u64 },
}

impl Operation {
    /// True if it leaves a result.
    pub fn gives(&self) -> bool {
        match self {
            Self::Read { .. } | Self::Poll { .. } | Self::Reads { .. } | Self::Clock | Self::Touch { .. } => {
                true
            }
            Self::Write { .. } | Self::Copy { .. } | Self::Writes { .. } => false,
        }
    }

    /// As the interpreter reads it.
    pub fn encode(&self) -> [u8; OPERATION] {
        let width = |size: usize| size.trailing_zeros();
        let (number, count, words) = match *self {
            Self::Read { address, size } => (1 + width(size), 0, [address, 0, 0]),
            Self::Write { address, size, value } => (5 + width(size), 0, [address, value, 0]),
            Self::Poll { address, mask, value, most } => (9, most, [address, value.into(), mask.into()]),
            Self::Copy { from, to, size } => (10, 0, [from, to, size]),
            Self::Reads { address, count } => (11, 0, [address, 0, count]),
            Self::Writes { address, value, count } => (12, 0, [address, value.into(), count]),
            Self::Clock => (13, 0, [0; 3]),
            Self::Touch { address, pages } => (14, 0, [address, 0, pages]),
        };
        let mut bytes = [0; OPERATION];
        bytes[..4].copy_from_slice(&u32::to_le_bytes(number));
        bytes[4..8].copy_from_slice(&u32::to_le_bytes(count));
        for (place, word) in bytes[8..].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&u64::to_le_bytes(word));
        }
        bytes
    }
}
