//! Variables in global memory, and what points to them.
//!
//! Compilers of CUDA put variables into `.nv.global` and `.nv.global.init`, and have code take their addresses
//! from constant banks, which a driver fills as relocations say.

use std::collections::HashMap;

use object::read::elf::ElfFile64;
use object::{
    Endianness, Object as _, ObjectSection, ObjectSymbol as _, RelocationFlags, RelocationTarget,
    SectionIndex,
};

use super::{CubinError, Link};

/// Most bytes of variables.
pub(super) const MOST: u64 = 256 << 20;

/// Sections begin at multiples of this.
const ALIGNMENT: usize = 256;

/// The relocation of 64 bits that hold a symbol's address (the name is that of NVIDIA's tools).
const R_CUDA_64: u32 = 2;

type File<'a> = ElfFile64<'a, Endianness>;

/// Sections with variables, one behind the other.
#[derive(Debug, Default)]
pub(super) struct Variables {
    bytes: Vec<u8>,
    starts: HashMap<SectionIndex, u64>,
}

impl Variables {
    /// Those of a file.
    pub(super) fn of(file: &File<'_>) -> Result<Self, CubinError> {
        let mut all = Self::default();
        for section in file.sections() {
            if !section.name()?.starts_with(".nv.global") {
                continue;
            }
            let start = all.bytes.len().next_multiple_of(ALIGNMENT);
            let end = section.size().saturating_add(start as u64);
            let size = usize::try_from(end).ok().filter(|_| end <= MOST);
            all.bytes.resize(start, 0);
            all.bytes.extend_from_slice(section.data()?);
            all.bytes.resize(size.ok_or(CubinError::Variables(end))?, 0);
            all.starts.insert(section.index(), start as u64);
        }
        Ok(all)
    }

    /// What a section of constants has of their addresses. `None` if it has other relocations.
    pub(super) fn links<'a>(
        &self,
        file: &File<'a>,
        section: &impl ObjectSection<'a>,
        bank: usize,
    ) -> Option<Vec<Link>> {
        let mut links = Vec::new();
        for (at, relocation) in section.relocations() {
            let RelocationTarget::Symbol(symbol) = relocation.target() else { return None };
            if relocation.flags() != (RelocationFlags::Elf { r_type: R_CUDA_64 }) {
                return None;
            }
            let symbol = file.symbol_by_index(symbol).ok()?;
            let start = self.starts.get(&symbol.section_index()?)?;
            let to = start.checked_add(symbol.address())?.checked_add_signed(relocation.addend())?;
            let at = usize::try_from(at).ok().filter(|at| at.saturating_add(8) as u64 <= section.size())?;
            links.push(Link { bank, at, to });
        }
        Some(links)
    }

    /// Their bytes.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}
