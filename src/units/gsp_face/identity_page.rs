//! The first page of BAR0 as memory: the identity of the chip, which a driver reads in every interrupt, and
//! scratch. It begins with what the table of registers says; none of it has behaviour.
//!
//! A front end may map the page, so that reading it costs nothing. A driver's writes there read back, until
//! the function is reset. Where the host has no memory for it, the registers are trapped as all others.

use std::os::fd::{AsFd, OwnedFd};

use gpuvmk_chip::addr::PAGE_SIZE;
use gpuvmk_chip::register_index::RegisterIndex;
use gpuvmk_chip::registers::Reg;
use gpuvmk_pci::mapping::{Access, Mapping, create_memory_file};
use gpuvmk_pci::{PlainMemory, SharedMemory};
use gpuvmk_saved_state::{Check, StateError, Words};

/// The page, if there is one.
#[derive(Debug)]
pub struct IdentityPage {
    /// None where the host has no memory for it.
    page: Option<(Mapping, OwnedFd)>,
    registers: &'static RegisterIndex,
}

impl IdentityPage {
    /// A page as after power-on.
    pub fn new(registers: &'static RegisterIndex) -> Self {
        let create = || -> anyhow::Result<_> {
            let file = create_memory_file(c"gpuvmk-identity", PAGE_SIZE)?;
            let memory = Mapping::of_file(file.as_fd(), 0, PAGE_SIZE, Access::ReadWrite)?;
            Ok((memory, file))
        };
        let page = create().inspect_err(|error| log::warn!("BAR0 is trapped as a whole: {error}")).ok();
        let page = Self { page, registers };
        page.reset();
        page
    }

    /// Handles a function reset.
    pub fn reset(&self) {
        let registers = (0..PAGE_SIZE).step_by(4).filter_map(|offset| u32::try_from(offset).ok()).map(Reg);
        let reset = |reg| self.registers.definition(reg).map_or(0, |definition| definition.reset);
        self.write(0, &registers.flat_map(|reg| reset(reg).to_le_bytes()).collect::<Vec<_>>());
    }

    /// The back is gone: ones, as of a device that does not answer.
    pub fn lose(&self) {
        self.write(0, &vec![0xff; usize::try_from(PAGE_SIZE).unwrap_or(0)]);
    }

    /// Reads. False when the registers must answer.
    pub fn read(&self, offset: u64, data: &mut [u8]) -> bool {
        self.page.as_ref().is_some_and(|(memory, _)| memory.read(offset, data).is_ok())
    }

    /// Writes. False when the registers must handle the write.
    pub fn write(&self, offset: u64, data: &[u8]) -> bool {
        self.page.as_ref().is_some_and(|(memory, _)| memory.write(offset, data).is_ok())
    }

    /// The page for a front end to map.
    pub fn share(&self) -> std::io::Result<Option<PlainMemory>> {
        let Some((_, file)) = &self.page else { return Ok(None) };
        let memory = SharedMemory { fd: file.try_clone()?, offset: 0, size: PAGE_SIZE };
        Ok(Some(PlainMemory { offset: 0, memory }))
    }
}

impl IdentityPage {
    /// The state to save: the page; `None` where the registers are trapped. A guest that has it mapped may
    /// write meanwhile.
    pub fn state(&self) -> Option<Words> {
        let Self { page, registers: _ } = self;
        let (memory, _) = page.as_ref()?;
        let mut bytes = vec![0; usize::try_from(PAGE_SIZE).unwrap_or(0)];
        memory.read(0, &mut bytes).ok()?;
        let words: Vec<_> = bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
        Some(Words::of(&words))
    }

    /// A page in a saved state.
    ///
    /// # Errors
    /// More than a page was saved, or there is no memory for it here.
    pub fn from_state(state: Option<&Words>, registers: &'static RegisterIndex) -> Result<Self, StateError> {
        let check = Check("first page of BAR0");
        // Its registers were trapped, and are in the register file.
        let Some(words) = state else { return Ok(Self { page: None, registers }) };
        let words = words.memory(check, "memory", usize::try_from(PAGE_SIZE / 4).unwrap_or(0))?;
        let bytes: Vec<_> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let page = Self::new(registers);
        check.that(page.write(0, &bytes), || "it was in memory, and here is none for it".to_owned())?;
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuvmk_chip::gh100::{BOOT_0, regs};

    fn word(page: &IdentityPage, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        assert!(page.read(offset, &mut bytes));
        u32::from_le_bytes(bytes)
    }

    #[test]
    fn whoever_maps_the_page_reads_what_a_trapped_access_reads() {
        let page = IdentityPage::new(regs::index());
        let shared = page.share().unwrap().unwrap();
        let view = Mapping::of_file(shared.memory.fd.as_fd(), 0, PAGE_SIZE, Access::ReadWrite).unwrap();
        assert_eq!((view.read_u32(0).unwrap(), word(&page, 0)), (BOOT_0, BOOT_0));

        view.write(0x40, &7u32.to_le_bytes()).unwrap();
        assert_eq!(word(&page, 0x40), 7);
        page.lose();
        assert_eq!((view.read_u32(0).unwrap(), view.read_u32(0xffc).unwrap()), (u32::MAX, u32::MAX));
        page.reset();
        assert_eq!((word(&page, 0), word(&page, 0x40)), (BOOT_0, 0));
    }

    #[test]
    fn an_access_that_leaves_the_page_is_not_its_business() {
        let page = IdentityPage::new(regs::index());
        assert!(!page.read(PAGE_SIZE - 2, &mut [0; 4]));
        assert!(!page.write(PAGE_SIZE, &[1]));
    }
}
