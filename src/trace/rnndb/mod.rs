//! Registers' names of other chips, from a register database that the user has (envytools' rnndb, in its XML): read when it is
//! asked for, never a part of gpuvmk.
//!
//! Not handled: variants other than chips (`varset` of another name), stripes in stripes beyond three levels, and registers
//! wider or narrower than 32 bits beyond their place.

mod flatten;
mod variants;
mod xml;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use self::flatten::Flattener;
pub use self::xml::RnndbError;
use self::xml::Tree;
use crate::chip::register_sets::RegisterSet;

/// The domain of BAR0, and the enum of chips.
const MMIO: &str = "NV_MMIO";
const CHIPS: &str = "chipset";

/// Chips' numbers in NV_PMC_BOOT_0 since Tesla.
const CHIP_SHIFT: u32 = 20;
const CHIP_MASK: u32 = 0x1ff;

/// A database.
#[derive(Debug)]
pub struct Rnndb {
    folder: PathBuf,
    tree: Tree,
    /// Names and numbers, oldest first.
    chips: Vec<(String, u32)>,
    /// Those that were asked for.
    made: Mutex<BTreeMap<usize, &'static RegisterSet>>,
}

impl Rnndb {
    /// Reads a folder with `root.xml`.
    ///
    /// # Errors
    /// A file cannot be read or is no XML, or there are no chips.
    pub fn read(folder: &Path) -> Result<Self, RnndbError> {
        let tree = Tree::read(folder)?;
        let missing = |what| RnndbError::Missing { path: folder.to_owned(), what };
        let chips = tree.find("enum", CHIPS).ok_or_else(|| missing("enum of chips (`chipset`)"))?;
        let chips: Vec<_> = chips
            .children
            .iter()
            .filter(|value| value.tag == "value")
            .filter_map(|value| {
                Some((value.get("name")?.to_owned(), u32::try_from(value.number("value")?).ok()?))
            })
            .collect();
        tree.find("domain", MMIO).ok_or_else(|| missing("domain NV_MMIO"))?;
        Ok(Self { folder: folder.to_owned(), tree, chips, made: Mutex::default() })
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Names of all chips.
    pub fn chips(&self) -> impl Iterator<Item = &str> {
        self.chips.iter().map(|(name, _)| name.as_str())
    }

    /// The registers of the chip of that name, in any case. They stay for the rest of the process.
    pub fn by_name(&self, name: &str) -> Option<&'static RegisterSet> {
        let place = self.chips.iter().position(|(known, _)| known.eq_ignore_ascii_case(name))?;
        self.set(place)
    }

    /// The same by what NV_PMC_BOOT_0 reads.
    pub fn by_boot_0(&self, boot_0: u32) -> Option<&'static RegisterSet> {
        let number = boot_0 >> CHIP_SHIFT & CHIP_MASK;
        self.set(self.chips.iter().position(|(_, known)| *known == number)?)
    }

    fn set(&self, place: usize) -> Option<&'static RegisterSet> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(set) = made.get(&place) {
            return Some(set);
        }
        let (name, number) = self.chips.get(place)?;
        let names: Vec<&str> = self.chips.iter().map(|(name, _)| name.as_str()).collect();
        let table = Flattener::new(&self.tree, &names, place).registers(self.tree.find("domain", MMIO)?);
        let set = RegisterSet::leak(name, number << CHIP_SHIFT, table);
        made.insert(place, set);
        Some(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chip::registers::Reg;

    const ROOT: &str = r#"<?xml version="1.0"?>
        <database xmlns="http://nouveau.freedesktop.org/"><import file="chips.xml"/><import file="units/bus.xml"/>
        <domain name="NV_MMIO" bare="yes" varset="chipset">
          <reg32 offset="0x0" name="ID"><bitfield low="20" high="28" name="CHIP"/><bitfield pos="3" name="ODD"/></reg32>
        </domain></database>"#;
    const CHIPS: &str = r#"<database><enum name="chipset" inline="yes">
        <value value="0x50" name="NV50"/><value value="0xc0" name="GF100"/><value value="0xe4" name="GK104"/>
        <value value="0x117" name="GM107"/></enum></database>"#;
    const BUS: &str = r#"<database>
        <bitset name="flags"><bitfield low="0" high="3" name="LOW"/><bitfield low="8" high="15" name="HIGH" variants="GK104-"/></bitset>
        <domain name="NV_MMIO">
          <array name="PBUS" offset="0x1000" stride="0x1000" length="1">
            <reg32 offset="0x100" name="INTR" type="flags"/>
            <reg32 offset="0x200" name="OLD" variants="NV50:GF100"/>
            <reg32 offset="0x200" name="NEW" variants="GF100-"/>
            <reg32 offset="0x300" name="LIST" length="4"/>
            <array name="UNIT" offset="0x800" stride="0x40" length="2">
              <reg32 offset="0x4" name="STATE" stride="8" length="3"/>
            </array>
          </array>
          <group name="ignored"><reg32 offset="0" name="NO"/></group>
        </domain></database>"#;

    fn database(root: &str) -> (tempfile::TempDir, Result<Rnndb, RnndbError>) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("units")).unwrap();
        for (name, text) in [("root.xml", root), ("chips.xml", CHIPS), ("units/bus.xml", BUS)] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let read = Rnndb::read(folder.path());
        (folder, read)
    }

    fn name(set: &RegisterSet, offset: u32) -> Option<String> {
        let definition = set.definition(Reg(offset))?;
        let index = offset.saturating_sub(definition.offset).checked_div(definition.stride)?;
        Some(if definition.count > 1 {
            format!("{}[{index}]", definition.name)
        } else {
            definition.name.to_owned()
        })
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
            (0x1804, Some("PBUS.UNIT[0].STATE[0]")),
            (0x1854, Some("PBUS.UNIT[1].STATE[2]")),
            (0x1808, None),
        ] {
            assert_eq!(name(set, offset).as_deref(), wanted, "{offset:#x}");
        }
        let old = database.by_name("NV50").unwrap();
        assert_eq!(name(old, 0x1200).as_deref(), Some("PBUS.OLD"));
        let fields = |set: &RegisterSet, offset| -> Vec<(&str, u8, u8)> {
            let fields = set.definition(Reg(offset)).unwrap().fields;
            fields.iter().map(|field| (field.name, field.high, field.low)).collect()
        };
        assert_eq!(fields(set, 0), [("CHIP", 28, 20), ("ODD", 3, 3)]);
        assert_eq!(fields(set, 0x1100), [("LOW", 3, 0)]);
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
