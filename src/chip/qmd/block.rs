//! A block as words, with fields anywhere in it.

use super::layout::{self, Bits, Layout, Number};

/// Where a block may lie: methods name it by bits 39:8 of its address.
pub const ALIGNMENT: u64 = 256;

/// Words of the largest block.
pub const MAX_WORDS: usize = 96;

/// A block. Blocks of the shorter versions leave the last words zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qmd {
    words: [u32; MAX_WORDS],
}

impl Default for Qmd {
    fn default() -> Self {
        Self { words: [0; MAX_WORDS] }
    }
}

impl From<[u32; MAX_WORDS]> for Qmd {
    fn from(words: [u32; MAX_WORDS]) -> Self {
        Self { words }
    }
}

impl Qmd {
    /// The value of a field, its lowest 64 bits. Bits beyond the block are zeros.
    pub fn get(&self, field: Bits) -> u64 {
        let bits = (field.low..=field.high).take(64).enumerate();
        bits.fold(0, |value, (index, bit)| {
            let word = self.words.get(usize::from(bit / 32)).copied().unwrap_or(0);
            value | u64::from(word >> (bit % 32) & 1) << index
        })
    }

    /// The value of a field of at most 32 bits.
    pub fn get_u32(&self, field: Bits) -> u32 {
        let [a, b, c, d, ..] = self.get(field).to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }

    /// True if any bit of the field is set.
    pub fn is_set(&self, field: Bits) -> bool {
        self.get(field) != 0
    }

    /// A number, in units of 1. What does not fit into 64 bits is cut off.
    pub fn number(&self, number: Number) -> u64 {
        let upper = number.upper.map_or(0, |bits| {
            let width = number.lower.high.saturating_sub(number.lower.low).saturating_add(1);
            self.get(bits).checked_shl(width.into()).unwrap_or(0)
        });
        (self.get(number.lower) | upper).checked_shl(number.shift.into()).unwrap_or(0)
    }

    /// The same block with a field set. Bits of `value` beyond the field are dropped.
    #[must_use]
    pub fn with(mut self, field: Bits, value: u64) -> Self {
        for (index, bit) in (field.low..=field.high).enumerate() {
            if let Some(word) = self.words.get_mut(usize::from(bit / 32)) {
                let mask = 1 << (bit % 32);
                let set = index < 64 && value >> index & 1 != 0;
                *word = if set { *word | mask } else { *word & !mask };
            }
        }
        self
    }

    /// The same block with a number set, given in units of 1. What the unit does not hold is dropped.
    #[must_use]
    pub fn with_number(self, number: Number, value: u64) -> Self {
        let value = value.checked_shr(number.shift.into()).unwrap_or(0);
        let width = number.lower.high.saturating_sub(number.lower.low).saturating_add(1);
        let qmd = self.with(number.lower, value);
        match number.upper {
            Some(upper) => qmd.with(upper, value.checked_shr(width.into()).unwrap_or(0)),
            None => qmd,
        }
    }

    /// A block that says that it is of this version, and a grid.
    pub fn new(layout: &Layout) -> Self {
        let (major, minor) = layout.version;
        let [major_field, minor_field] = layout.version_fields;
        let qmd = Self::default().with(major_field, major.into()).with(minor_field, minor.into());
        match layout.kind {
            layout::Kind::Type(bits) => qmd.with(bits, layout::GRID_CTA),
            layout::Kind::IsQueue(_) => qmd,
        }
    }

    /// Its words.
    pub fn words(&self) -> &[u32; MAX_WORDS] {
        &self.words
    }

    /// The layout that the block says it has, the first that fits of those that a distributor knows. Versions
    /// have their number in one of two places.
    pub fn layout(&self, known: &[&'static Layout]) -> Option<&'static Layout> {
        let is = |layout: &&&'static Layout| {
            let (major, minor) = layout.version;
            let [major_field, minor_field] = layout.version_fields;
            self.get(major_field) == u64::from(major) && self.get(minor_field) == u64::from(minor)
        };
        known.iter().find(is).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::{ALL, V4_0, V5_0};
    use super::*;

    #[test]
    fn fields_cross_words() {
        let address = 0x1ab_cdef_0123_4567 & ((1 << 57) - 1);
        let qmd = Qmd::default().with_number(V4_0.program, address);
        assert_eq!((qmd.words()[38], qmd.words()[39]), (0x0123_4567, 0x1ab_cdef));
        assert_eq!(qmd.number(V4_0.program), address);
    }

    #[test]
    fn a_field_keeps_its_neighbours() {
        let [min, target, max] = V4_0.shared_config;
        let qmd = Qmd::default().with(min, 3).with(max, 58).with(target, 3);
        assert_eq!(qmd.words()[19], 3 | 58 << 6 | 3 << 12);
        assert_eq!(qmd.with(max, 0).words()[19], 3 | 3 << 12);
    }

    #[test]
    fn units_are_shifted() {
        let qmd = Qmd::default().with_number(V5_0.shared, 0x380).with_number(V5_0.program, 0x1234_5678_9ab0);
        assert_eq!(qmd.get(V5_0.shared.lower), 7);
        assert_eq!((qmd.number(V5_0.shared), qmd.number(V5_0.program)), (0x380, 0x1234_5678_9ab0));
    }

    #[test]
    fn no_two_fields_of_a_version_overlap() {
        for layout in ALL {
            let mut fields = vec![layout.kind.bits(), layout.sass_version, layout.call_limit, layout.membar];
            fields.extend(layout.version_fields.into_iter().chain(layout.invalidate));
            fields.extend(layout.grid.into_iter().chain(layout.block).chain(layout.shared_config));
            fields.extend(layout.cluster.into_iter().chain(layout.gpu_cluster).flatten());
            if let Some(turn) = layout.turn {
                fields.extend([turn.counter, turn.counter_kept, turn.held, turn.held_kept, turn.begins_anew]);
            }
            fields.extend([layout.registers, layout.barriers].into_iter().chain(layout.program_offset));
            let mut numbers = vec![layout.shared, layout.program];
            numbers.extend(layout.local);
            for index in 0..8 {
                let banks = layout.banks;
                fields.push(banks.valid.0.element(index, banks.valid.1));
                fields.push(banks.invalidate.0.element(index, banks.invalidate.1));
                fields.push(banks.size.element(index, 64));
                fields.push(banks.address.lower.element(index, 64));
                fields.extend(banks.address.upper.map(|bits| bits.element(index, 64)));
            }
            for release in layout.releases {
                fields.extend(release.reduction.into_iter().chain(release.payload64));
                fields.extend([release.enable, release.structure_size]);
                numbers.extend([release.address, release.payload]);
            }
            for dependent in layout.dependents {
                fields.extend([dependent.enable, dependent.pointer].into_iter().chain(dependent.action));
            }
            fields.extend(numbers.iter().flat_map(|number| [Some(number.lower), number.upper]).flatten());
            let mut owner = vec![None; layout.words * 32];
            for field in fields {
                for bit in field.low..=field.high {
                    let taken = owner[usize::from(bit)].replace(field);
                    assert_eq!(taken, None, "{:?}: {field:?}, bit {bit}", layout.version);
                }
            }
        }
    }
}
