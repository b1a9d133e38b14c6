//! The register tables of every chip, for tools that show registers by name.

use std::ops::RangeInclusive;

use super::register_index::RegisterIndex;
use super::registers::{Reg, RegisterDef};
use super::{gf100, gsp};

/// Registers of a chip that gpuvmk has no tables of: each is looked for when it is asked for.
pub trait Definitions: std::fmt::Debug + Sync {
    /// The declaration that covers a register.
    fn definition(&self, reg: Reg) -> Option<&'static RegisterDef>;

    /// Units with their offsets.
    fn units(&self) -> Vec<(&'static str, RangeInclusive<u64>)>;
}

/// One chip's tables.
#[derive(Clone, Copy, Debug)]
pub struct RegisterSet {
    /// The chip as users write it.
    pub chip: &'static str,
    /// Value of NV_PMC_BOOT_0, by which a chip tells what it is.
    pub boot_0: u32,
    /// The tables, by unit; none if the registers come from elsewhere.
    pub tables: &'static [&'static [RegisterDef]],
    source: Registers,
}

/// Where registers come from.
#[derive(Clone, Copy, Debug)]
enum Registers {
    /// The tables; their index is made when it is first asked for.
    Tables(fn() -> &'static RegisterIndex),
    Elsewhere(&'static dyn Definitions),
}

/// GF100.
const GF100: RegisterSet = RegisterSet {
    chip: gf100::NAME,
    boot_0: gf100::BOOT_0,
    tables: gf100::regs::TABLES,
    source: Registers::Tables(gf100::regs::index),
};

/// All chips, oldest first.
pub static ALL: [RegisterSet; 1 + gsp::ALL.len()] = {
    let mut all = [GF100; 1 + gsp::ALL.len()];
    let mut place = 0;
    while place < gsp::ALL.len() {
        let chip = gsp::ALL[place];
        all[1 + place] = RegisterSet {
            chip: chip.name,
            boot_0: chip.boot_0,
            tables: chip.tables,
            source: Registers::Tables(chip.index),
        };
        place += 1;
    }
    all
};

impl RegisterSet {
    /// A chip whose registers come from elsewhere.
    pub const fn of(chip: &'static str, boot_0: u32, registers: &'static dyn Definitions) -> Self {
        Self { chip, boot_0, tables: &[], source: Registers::Elsewhere(registers) }
    }

    /// The tables by offset; none if the registers come from elsewhere.
    pub fn index(&self) -> Option<&'static RegisterIndex> {
        match self.source {
            Registers::Tables(index) => Some(index()),
            Registers::Elsewhere(_) => None,
        }
    }

    /// The declaration that covers a register.
    pub fn definition(&self, reg: Reg) -> Option<&'static RegisterDef> {
        match self.source {
            Registers::Tables(index) => index().definition(reg),
            Registers::Elsewhere(registers) => registers.definition(reg),
        }
    }

    /// Units with offsets of theirs, in any order: a unit may be there several times.
    pub fn units(&self) -> Vec<(&'static str, RangeInclusive<u64>)> {
        if let Registers::Elsewhere(registers) = self.source {
            return registers.units();
        }
        let of = |register: &RegisterDef| {
            let first = u64::from(register.offset);
            let more = u64::from(register.count.saturating_sub(1)) * u64::from(register.stride);
            (register.unit, first..=first + more + 3)
        };
        self.tables.iter().flat_map(|table| table.iter()).map(of).collect()
    }

    /// The chip of that name, in any case.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|set| set.chip.eq_ignore_ascii_case(name))
    }

    /// The chip whose NV_PMC_BOOT_0 reads `boot_0`.
    pub fn by_boot_0(boot_0: u32) -> Option<&'static Self> {
        ALL.iter().find(|set| set.boot_0 == boot_0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_declarations_claim_one_register() {
        for set in &ALL {
            assert_eq!(set.index().unwrap().overlaps(), [], "{}", set.chip);
        }
    }

    #[test]
    fn tables_are_sorted_inside_bar0_and_complete() {
        for table in ALL.iter().flat_map(|set| set.tables) {
            for pair in table.windows(2) {
                assert!(pair[0].offset < pair[1].offset, "{} is out of order", pair[1].name);
            }
            for entry in *table {
                let last = u64::from(entry.offset) + u64::from(entry.count - 1) * u64::from(entry.stride);
                assert!(last < 16 << 20 && entry.offset % 4 == 0, "{} leaves BAR0", entry.name);
                assert!(entry.name.starts_with("NV_"), "{} is no vendor name", entry.name);
                assert!(!entry.source.is_empty() && entry.doc.trim().ends_with('.'), "{}", entry.name);
                for field in entry.fields {
                    assert!(field.high >= field.low && field.high < 32, "{}.{}", entry.name, field.name);
                }
            }
        }
    }

    #[test]
    fn fields_do_not_overlap_and_most_significant_comes_first() {
        for entry in ALL.iter().flat_map(|set| set.index().unwrap().definitions()) {
            for pair in entry.fields.windows(2) {
                assert!(pair[0].low > pair[1].high, "{}.{}", entry.name, pair[1].name);
            }
        }
    }

    #[test]
    fn chips_are_found_by_name_and_by_what_they_say() {
        assert_eq!(RegisterSet::by_name("gh100").unwrap().chip, "GH100");
        assert_eq!(RegisterSet::by_boot_0(gf100::BOOT_0).unwrap().chip, "GF100");
        assert!(RegisterSet::by_name("GH200").is_none());
    }
}
