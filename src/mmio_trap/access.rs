//! Accesses of any size and alignment, taken apart into 32-bit registers with byte lanes.
//!
//! Drivers access registers with 4 bytes, some with 1 (VGA ports, message rearm); compilers and emulators
//! merge or split. The bus hands a unit byte lanes: a narrow write leaves the other bytes of a plain register
//! alone, and writes no ones into the other bits of a register that clears by ones.

use gpuvmk_chip::registers::Reg;
use gpuvmk_pci::{AccessError, Region};

/// Data written to one register: which of its bits were driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    value: u32,
    mask: u32,
}

impl Word {
    /// A write of the whole register.
    pub const fn full(value: u32) -> Self {
        Self { value, mask: u32::MAX }
    }

    /// The driven bits; the others are zero. For registers in which ones set, clear or command.
    pub const fn bits(self) -> u32 {
        self.value & self.mask
    }

    /// `old` with the driven bits replaced. What plain registers take.
    pub const fn merge(self, old: u32) -> u32 {
        old & !self.mask | self.value & self.mask
    }

    /// True when the driven lanes include all of `bits`.
    pub const fn drives(self, bits: u32) -> bool {
        self.mask & bits == bits
    }
}

/// The part of an access that falls into one register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lanes {
    /// The register.
    pub reg: Reg,
    /// First byte inside the register (0 to 3).
    lane: usize,
    /// Length in bytes.
    len: usize,
}

impl Lanes {
    /// Bytes of the access in this register (1 to 4).
    pub const fn len(self) -> usize {
        self.len
    }

    /// Never: an access without bytes has no lanes.
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The data of a write: `data` are the bytes that belong to this register.
    pub fn word(self, data: &[u8]) -> Word {
        let mut value = [0; 4];
        let mut mask = [0; 4];
        for ((value, mask), byte) in value.iter_mut().zip(&mut mask).skip(self.lane).zip(data) {
            *value = *byte;
            *mask = 0xff;
        }
        Word { value: u32::from_le_bytes(value), mask: u32::from_le_bytes(mask) }
    }

    /// Stores the bytes of a register's value that a read asked for.
    pub fn store(self, value: u32, data: &mut [u8]) {
        for (byte, from) in data.iter_mut().zip(value.to_le_bytes().iter().skip(self.lane)) {
            *byte = *from;
        }
    }
}

/// The registers that an access of `len` bytes at `offset` touches, in ascending order. The access lies
/// inside a BAR (see [`check`]); offsets beyond 32 bits end the sequence.
pub fn lanes(offset: u64, len: usize) -> impl Iterator<Item = Lanes> {
    let mut next = u32::try_from(offset).ok();
    let mut left = len;
    std::iter::from_fn(move || {
        let at = next?;
        if left == 0 {
            return None;
        }
        let lane = (at & 3) as usize;
        let len = left.min(4 - lane);
        left -= len;
        next = (at & !3).checked_add(4);
        Some(Lanes { reg: Reg(at & !3), lane, len })
    })
}

/// Checks that an access lies inside its region of `limit` bytes.
///
/// # Errors
/// It does not.
pub fn check(region: Region, offset: u64, size: usize, limit: u64) -> Result<(), AccessError> {
    let end = u64::try_from(size).ok().and_then(|size| offset.checked_add(size));
    match end {
        Some(end) if end <= limit => Ok(()),
        _ if limit == 0 => Err(AccessError::NoRegion(region)),
        _ => Err(AccessError::OutOfRange { region, offset, size, limit }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn byte_write_drives_its_lane_only() {
        let lane = lanes(0x88705, 1).next().unwrap();
        let word = lane.word(&[0xab]);
        assert_eq!(lane.reg, Reg(0x88704));
        assert_eq!(word.bits(), 0xab00);
        assert_eq!(word.merge(0x1111_1111), 0x1111_ab11);
        assert!(word.drives(0xff00) && !word.drives(0xff));
    }

    #[test]
    fn wide_access_becomes_two_registers() {
        let parts: Vec<_> = lanes(0x100, 8).collect();
        assert_eq!(
            parts.iter().map(|l| (l.reg, l.len())).collect::<Vec<_>>(),
            [(Reg(0x100), 4), (Reg(0x104), 4)]
        );
    }

    #[test]
    fn access_that_wraps_or_leaves_the_region_is_refused() {
        assert!(check(Region::Bar(0), 0xfffffc, 4, 1 << 24).is_ok());
        assert!(matches!(check(Region::Bar(0), 0xfffffd, 4, 1 << 24), Err(AccessError::OutOfRange { .. })));
        assert!(matches!(check(Region::Bar(0), u64::MAX, 4, 1 << 24), Err(AccessError::OutOfRange { .. })));
        assert_eq!(check(Region::Bar(2), 0, 4, 0), Err(AccessError::NoRegion(Region::Bar(2))));
    }

    proptest! {
        #[test]
        fn lanes_cover_every_byte_once(offset in 0u64..0x100, data in prop::collection::vec(any::<u8>(), 0..20)) {
            let mut memory = [0u8; 0x140];
            let mut at = 0;
            for lane in lanes(offset, data.len()) {
                let part = &data[at..at + lane.len()];
                let base = lane.reg.0 as usize;
                let old = u32::from_le_bytes(memory[base..base + 4].try_into().unwrap());
                memory[base..base + 4].copy_from_slice(&lane.word(part).merge(old).to_le_bytes());
                let mut back = vec![0; lane.len()];
                lane.store(lane.word(part).merge(old), &mut back);
                prop_assert_eq!(&back, part);
                at += lane.len();
            }
            prop_assert_eq!(at, data.len());
            let start = usize::try_from(offset).unwrap();
            prop_assert_eq!(&memory[start..start + data.len()], &data[..]);
            prop_assert!(memory[..start].iter().all(|b| *b == 0));
        }
    }
}
