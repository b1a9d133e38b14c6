//! Registers' names of other chips, from a register database that the user has (envytools' rnndb, in its
//! XML): read when it is asked for, never a part of gpuvmk.
//!
//! Variants other than chips (`varset` of another name) are not told apart: all of them are there.

mod variants;
mod walk;
mod xml;

use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use self::walk::{CHIPS, Walk};
pub use self::xml::RnndbError;
use self::xml::Tree;
use gpuvmk_chip::gf100::regs::pmc::NV_PMC_BOOT_0;
use gpuvmk_chip::register_index::BAR0_SIZE;
use gpuvmk_chip::register_sets::{Definitions, RegisterSet};
use gpuvmk_chip::registers::{Reg, RegisterDef};

/// The domain of BAR0.
const MMIO: &str = "NV_MMIO";

/// A register database.
#[derive(Debug)]
pub struct Rnndb {
    tree: Tree,
    /// Names and numbers, oldest first; the first chips have no number.
    chips: Vec<(String, Option<u32>)>,
    /// Those that were asked for.
    made: Mutex<BTreeMap<usize, &'static RegisterSet>>,
}

impl Rnndb {
    /// Reads `root.xml` and what it imports, each from the first of these folders that has it.
    ///
    /// # Errors
    /// A file is not there, cannot be read or is no XML, or there are no chips.
    pub fn read(folders: &[PathBuf]) -> Result<Self, RnndbError> {
        let tree = Tree::read(folders)?;
        let chips = tree.find("enum", CHIPS).ok_or(RnndbError::Missing("enum of chips (`chipset`)"))?;
        let chips: Vec<_> = chips
            .children
            .iter()
            .filter(|value| value.tag == "value")
            .filter_map(|value| {
                let number = value.number("value").and_then(|number| u32::try_from(number).ok());
                Some((value.get("name")?.to_owned(), number))
            })
            .collect();
        tree.find("domain", MMIO).ok_or(RnndbError::Missing("domain NV_MMIO"))?;
        Ok(Self { tree, chips, made: Mutex::default() })
    }

    /// The registers of the chip of that name, in any case. They stay for the rest of the process.
    pub fn by_name(&'static self, name: &str) -> Option<&'static RegisterSet> {
        self.set(self.chips.iter().position(|(known, _)| known.eq_ignore_ascii_case(name))?)
    }

    /// The same by what NV_PMC_BOOT_0 reads.
    pub fn by_boot_0(&'static self, boot_0: u32) -> Option<&'static RegisterSet> {
        // Where it has been since Tesla.
        let number = NV_PMC_BOOT_0::CHIPSET.get(boot_0);
        self.set(self.chips.iter().position(|(_, known)| *known == Some(number))?)
    }

    fn set(&'static self, place: usize) -> Option<&'static RegisterSet> {
        let mut made = locked(&self.made);
        if let Some(set) = made.get(&place) {
            return Some(set);
        }
        let (name, number) = self.chips.get(place)?;
        let chips = self.chips.iter().map(|(name, _)| name.as_str()).collect();
        let chip = Chip { tree: &self.tree, chips, place, known: Mutex::default() };
        let set =
            RegisterSet::of(name, NV_PMC_BOOT_0::CHIPSET.of(number.unwrap_or(0)), Box::leak(Box::new(chip)));
        let set: &'static RegisterSet = Box::leak(Box::new(set));
        made.insert(place, set);
        Some(set)
    }
}

/// The database's view of one chip.
#[derive(Debug)]
struct Chip {
    tree: &'static Tree,
    chips: Vec<&'static str>,
    place: usize,
    /// Results of earlier lookups, found or not: at most one for each word of BAR0.
    known: Mutex<HashMap<u32, Option<&'static RegisterDef>>>,
}

impl Definitions for Chip {
    fn definition(&self, reg: Reg) -> Option<&'static RegisterDef> {
        if reg.0 >= BAR0_SIZE {
            return None;
        }
        let look = || {
            let walk = Walk::new(self.tree, &self.chips, self.place);
            walk.register(self.tree.find("domain", MMIO)?, reg).map(|found| &*Box::leak(Box::new(found)))
        };
        *locked(&self.known).entry(reg.0).or_insert_with(look)
    }

    fn units(&self) -> Vec<(&'static str, RangeInclusive<u64>)> {
        let domain = self.tree.find("domain", MMIO);
        let units = domain.map(|domain| Walk::new(self.tree, &self.chips, self.place).units(domain));
        let range = |(name, first, last): (_, u32, u32)| (name, u64::from(first)..=u64::from(last));
        units.into_iter().flatten().map(range).collect()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = r#"<?xml version="1.0"?>
        <database xmlns="http://nouveau.freedesktop.org/"><import file="chips.xml"/><import file="bus.xml"/>
        <domain name="NV_MMIO" bare="yes" varset="chipset">
          <reg32 offset="0x0" name="ID"><bitfield low="20" high="28" name="CHIP"/><bitfield pos="3" name="ODD"/></reg32>
        </domain></database>"#;
    const CHIPS: &str = r#"<database><enum name="chipset" inline="yes">
        <value name="NV1"/><value value="0x50" name="NV50"/><value value="0xc0" name="GF100"/><value value="0xe4" name="GK104"/>
        <value value="0x117" name="GM107"/></enum></database>"#;
    const BUS: &str = r#"<database>
        <bitset name="flags"><bitfield low="0" high="3" name="LOW"/><bitfield low="8" high="15" name="HIGH" variants="GK104-"/></bitset>
        <domain name="NV_MMIO">
          <array name="PBUS" offset="0x1000" stride="0x1000" length="1">
            <reg32 offset="0x100" name="INTR" type="flags"/>
            <reg32 offset="0x200" name="OLD" variants="NV50:GF100"/>
            <reg32 offset="0x200" name="NEW" variants="GF100-"/>
            <reg32 offset="0x400" name="ALWAYS" variants="NV1-"/>
            <reg32 offset="0x300" name="LIST" length="4"/>
            <stripe offset="0x500" stride="4" length="8"><reg32 offset="0" name="LOW"/><reg32 offset="0x40" name="FAR" type="near"/></stripe>
            <bitset name="near"><bitfield pos="1" name="ONE"/></bitset>
            <array name="UNIT" offset="0x800" stride="0x40" length="2">
              <reg32 offset="0x4" name="STATE" stride="8" length="3"/>
            </array>
          </array>
          <group name="ignored"><reg32 offset="0" name="NO"/></group>
        </domain></database>"#;

    fn database(root: &str) -> (tempfile::TempDir, Result<&'static Rnndb, RnndbError>) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("units")).unwrap();
        for (name, text) in [("root.xml", root), ("chips.xml", CHIPS), ("units/bus.xml", BUS)] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let read = Rnndb::read(&[folder.path().join("units"), folder.path().to_owned()]);
        (folder, read.map(|database| &*Box::leak(Box::new(database))))
    }

    fn name(set: &RegisterSet, offset: u32) -> Option<&'static str> {
        Some(set.definition(Reg(offset))?.name)
    }

    #[test]
    fn registers_are_those_of_the_chip() {
        let (_folder, database) = database(ROOT);
        let database = database.unwrap();
        let set = database.by_name("gf100").unwrap();
        for (offset, wanted) in [
            (0, Some("ID")),
            (0x1100, Some("PBUS.INTR")),
            (0x1200, Some("PBUS.NEW")),
            (0x130c, Some("PBUS.LIST[3]")),
            (0x1310, None),
            (0x1400, Some("PBUS.ALWAYS")),
            (0x151c, Some("PBUS.LOW[7]")),
            (0x1520, None),
            (0x1544, Some("PBUS.FAR[1]")),
            (0x1804, Some("PBUS.UNIT[0].STATE[0]")),
            (0x1854, Some("PBUS.UNIT[1].STATE[2]")),
            (0x1808, None),
        ] {
            assert_eq!(name(set, offset), wanted, "{offset:#x}");
        }
        let old = database.by_name("NV50").unwrap();
        assert_eq!(name(old, 0x1200), Some("PBUS.OLD"));
        let fields = |set: &RegisterSet, offset| -> Vec<(&str, u8, u8)> {
            let fields = set.definition(Reg(offset)).unwrap().fields;
            fields.iter().map(|field| (field.name, field.high, field.low)).collect()
        };
        assert_eq!(fields(set, 0), [("CHIP", 28, 20), ("ODD", 3, 3)]);
        assert_eq!(fields(set, 0x1100), [("LOW", 3, 0)]);
        assert_eq!(fields(set, 0x1544), [("ONE", 1, 1)]);
        assert_eq!(set.units(), [("PBUS", 0x1000..=0x1fff)]);
        let newer = database.by_boot_0(0x0e40_00a2).unwrap();
        assert_eq!((newer.chip, fields(newer, 0x1100).len()), ("GK104", 2));
        assert!(
            database.by_boot_0(0x1800_0000).is_none(),
            "GH100 is not in it, and gets no other chip's names"
        );
    }

    #[test]
    fn databases_that_are_none_are_refused_with_the_file() {
        let said = |root: &str| database(root).1.unwrap_err().to_string();
        assert!(said("<database>").contains("root.xml"), "{}", said("<database>"));
        assert!(said("<database/>").contains("chipset"));
        assert!(said(r#"<database><import file="absent.xml"/></database>"#).contains("absent.xml"));
        assert!(said(r#"<database><import file="../chips.xml"/></database>"#).contains("not below"));
        // A file that imports itself is read once.
        let (_folder, read) = database(&ROOT.replace(
            "<import file=\"chips.xml\"/>",
            "<import file=\"root.xml\"/><import file=\"chips.xml\"/>",
        ));
        assert!(read.is_ok());
    }
}
