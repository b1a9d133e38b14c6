//! The register tables of every chip, for tools that show registers by name.

use super::register_index::RegisterIndex;
use super::registers::{Reg, RegisterDef};
use super::{gf100, gh100};

/// One chip's tables.
#[derive(Clone, Copy, Debug)]
pub struct RegisterSet {
    /// The chip as users write it.
    pub chip: &'static str,
    /// Value of NV_PMC_BOOT_0, by which a chip tells what it is.
    pub boot_0: u32,
    /// The tables, by unit.
    pub tables: &'static [&'static [RegisterDef]],
    index: Index,
}

/// Where the index comes from.
#[derive(Clone, Copy, Debug)]
enum Index {
    /// Made when it is first asked for.
    Later(fn() -> &'static RegisterIndex),
    /// Made with the set.
    Made(&'static RegisterIndex),
}

/// All chips, oldest first.
pub static ALL: [RegisterSet; 2] = [
    RegisterSet {
        chip: gf100::NAME,
        boot_0: gf100::BOOT_0,
        tables: gf100::regs::TABLES,
        index: Index::Later(gf100::regs::index),
    },
    RegisterSet {
        chip: gh100::NAME,
        boot_0: gh100::BOOT_0,
        tables: gh100::regs::TABLES,
        index: Index::Later(gh100::regs::index),
    },
];

impl RegisterSet {
    /// A set from elsewhere, which stays for the rest of the process. `table` is sorted by offset.
    pub fn leak(chip: &str, boot_0: u32, table: Vec<RegisterDef>) -> &'static Self {
        let table: &'static [RegisterDef] = Box::leak(table.into_boxed_slice());
        let tables: &'static [&'static [RegisterDef]] = Box::leak(Box::new([table]));
        let index: &'static RegisterIndex = Box::leak(Box::new(RegisterIndex::new(tables)));
        let chip: &'static str = Box::leak(chip.to_owned().into_boxed_str());
        Box::leak(Box::new(Self { chip, boot_0, tables, index: Index::Made(index) }))
    }

    /// The tables by offset.
    pub fn index(&self) -> &'static RegisterIndex {
        match self.index {
            Index::Later(make) => make(),
            Index::Made(index) => index,
        }
    }

    /// The declaration that covers a register.
    pub fn definition(&self, reg: Reg) -> Option<&'static RegisterDef> {
        self.index().definition(reg)
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
            assert_eq!(set.index().overlaps(), [], "{}", set.chip);
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
        for entry in ALL.iter().flat_map(|set| set.index().definitions()) {
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
