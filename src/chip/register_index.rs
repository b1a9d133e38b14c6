//! Finds the declaration of a register by its offset, fast enough for every trapped access.
//!
//! BAR0 has 4 Mi registers of which some thousands are declared. The index has a page of entries for every
//! 4 KiB that declares anything, so that a lookup is two array accesses.

use super::registers::{Reg, RegArray, RegisterDef};

/// Bytes of BAR0 that an index covers.
pub const BAR0_SIZE: u32 = 16 << 20;

/// log2 of the bytes of a page of the index.
const PAGE_SHIFT: u32 = 12;

/// Registers on a page.
const REGISTERS_PER_PAGE: usize = 1 << (PAGE_SHIFT - 2);

/// No declaration.
const NONE: u16 = u16::MAX;

/// Two declarations that claim the same register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("Registers {first} and {second} are both declared at {offset:#08x}")]
pub struct Overlap {
    /// Name declared first.
    pub first: &'static str,
    /// Name declared later.
    pub second: &'static str,
    /// The register.
    pub offset: u32,
}

/// Declarations by offset.
#[derive(Debug)]
pub struct RegisterIndex {
    definitions: Vec<&'static RegisterDef>,
    pages: Vec<Option<Box<[u16; REGISTERS_PER_PAGE]>>>,
    overlaps: Vec<Overlap>,
}

impl RegisterIndex {
    /// Indexes tables. Where two declarations claim a register the first one counts; see
    /// [`RegisterIndex::overlaps`].
    pub fn new(tables: &[&'static [RegisterDef]]) -> Self {
        let pages = (0..BAR0_SIZE >> PAGE_SHIFT).map(|_| None).collect();
        let mut index = Self { definitions: Vec::new(), pages, overlaps: Vec::new() };
        for definition in tables.iter().flat_map(|table| table.iter()) {
            index.add(definition);
        }
        index
    }

    fn add(&mut self, definition: &'static RegisterDef) {
        let Ok(number) = u16::try_from(self.definitions.len()) else { return };
        self.definitions.push(definition);
        let family = RegArray { base: definition.offset, count: definition.count, stride: definition.stride };
        for instance in 0..definition.count {
            let Reg(offset) = family.at(instance);
            let mut taken = NONE;
            if let Some(slot) = self.slot(offset) {
                taken = *slot;
                if taken == NONE {
                    *slot = number;
                }
            }
            if let Some(first) = self.definitions.get(usize::from(taken)) {
                self.overlaps.push(Overlap { first: first.name, second: definition.name, offset });
            }
        }
    }

    fn slot(&mut self, offset: u32) -> Option<&mut u16> {
        let (page, entry) = place(offset);
        self.pages.get_mut(page)?.get_or_insert_with(|| Box::new([NONE; REGISTERS_PER_PAGE])).get_mut(entry)
    }

    /// The declaration that covers a register.
    pub fn definition(&self, reg: Reg) -> Option<&'static RegisterDef> {
        let (page, entry) = place(reg.0);
        let number = *self.pages.get(page)?.as_ref()?.get(entry)?;
        self.definitions.get(usize::from(number)).copied()
    }

    /// Every declaration, in the order of the tables.
    pub fn definitions(&self) -> impl Iterator<Item = &'static RegisterDef> + '_ {
        self.definitions.iter().copied()
    }

    /// Registers that were declared twice: mistakes in the tables.
    pub fn overlaps(&self) -> &[Overlap] {
        &self.overlaps
    }
}

/// Page and entry of a register; offsets that are no multiple of 4 count as the register that they are in.
const fn place(offset: u32) -> (usize, usize) {
    ((offset >> PAGE_SHIFT) as usize, (offset as usize >> 2) % REGISTERS_PER_PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    mod first {
        crate::registers! {
            unit "A", source "test";
            /// One.
            ONE @ 0x000100, reset 0, Scratch, {};
            /// Many.
            MANY[4; 8] @ 0x000ff8, reset 0, Scratch, {};
        }
    }

    mod second {
        crate::registers! {
            unit "B", source "test";
            /// On top of one of the many.
            CLASH @ 0x001000, reset 0, Scratch, {};
        }
    }

    #[test]
    fn registers_of_a_family_are_found_and_gaps_are_not() {
        let index = RegisterIndex::new(&[first::TABLE]);
        let name = |offset| index.definition(Reg(offset)).map(|d| d.name);
        assert_eq!(name(first::ONE.0), Some("ONE"));
        assert_eq!(name(first::MANY.at(0).0), Some("MANY"));
        assert_eq!(name(0xffc), None);
        assert_eq!(name(0x1010), Some("MANY"));
        assert_eq!(name(0x1018), None);
        assert_eq!(name(0xffff_fffc), None);
    }

    #[test]
    fn double_declaration_is_reported_and_the_first_one_counts() {
        let index = RegisterIndex::new(&[first::TABLE, second::TABLE]);
        assert_eq!(index.overlaps(), [Overlap { first: "MANY", second: "CLASH", offset: 0x1000 }]);
        assert_eq!(index.definition(second::CLASH).map(|d| d.name), Some("MANY"));
    }
}
