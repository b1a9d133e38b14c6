//! Second places of pages in BAR3.
//!
//! A page has one home. Where BAR3 shows it at another place as well, that place has a copy, an echo. What
//! processors stored to either is carried to the other when the guest's next trapped access begins, and when
//! it ends. A driver that makes, changes or withdraws a place of BAR3 makes such an access. Between two of
//! them it sees at each place what was stored there: a driver that stores to one and loads from another at
//! once is not served by this, and none is known.

use std::ops::Range;

use gpuvmk_chip::addr::PAGE_SIZE;
use gpuvmk_ordered::OrderedMap;
use gpuvmk_pci::mapping::{Mapping, MemoryError};

use super::words::{buffer, changed_words};

/// As many echoes are kept at most: each costs two looks at a page for each trapped access.
pub const MOST: usize = 64;

#[derive(Debug)]
struct Echo {
    /// Address of the page in VRAM, and offset of its home.
    page: u64,
    home: u64,
    /// What both were when they were last alike.
    content: Vec<u8>,
}

/// All echoes, by their offset in BAR3.
#[derive(Debug, Default)]
pub struct Echoes {
    all: OrderedMap<u64, Echo>,
}

impl Echoes {
    /// True while there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Shows the page whose home is at `home` at `offset` too. False if there are too many.
    pub fn add(
        &mut self,
        memory: &Mapping,
        offset: u64,
        (page, home): (u64, u64),
    ) -> Result<bool, MemoryError> {
        if self.all.len() >= MOST {
            return Ok(false);
        }
        let mut content = buffer(PAGE_SIZE);
        memory.read(home, &mut content)?;
        memory.write(offset, &content)?;
        self.all.insert(offset, Echo { page, home, content });
        Ok(true)
    }

    /// Carries stores to the echoes of some pages to their homes.
    fn carry_home(&mut self, memory: &Mapping, of: impl Fn(u64, u64) -> bool) -> Result<(), MemoryError> {
        let mut here = buffer(PAGE_SIZE);
        for (offset, echo) in self.all.iter_mut().filter(|(offset, echo)| of(**offset, echo.page)) {
            memory.read(*offset, &mut here)?;
            for (at, _, is) in changed_words(&echo.content, &here) {
                memory.write_u32(echo.home.saturating_add(at), is)?;
            }
            // Its own stores are no news of home's.
            echo.content.copy_from_slice(&here);
        }
        Ok(())
    }

    /// Makes all places of each page alike.
    pub fn settle(&mut self, memory: &Mapping) -> Result<(), MemoryError> {
        self.carry_home(memory, |_, _| true)?;
        let mut home = buffer(PAGE_SIZE);
        for (offset, echo) in &mut self.all {
            memory.read(echo.home, &mut home)?;
            for (at, _, is) in changed_words(&echo.content, &home) {
                memory.write_u32(offset.saturating_add(at), is)?;
            }
            echo.content.copy_from_slice(&home);
        }
        Ok(())
    }

    /// Places in a range are echoes no more; what was stored to them is at home.
    pub fn withdraw(&mut self, memory: &Mapping, offsets: Range<u64>) -> Result<(), MemoryError> {
        self.carry_home(memory, |offset, _| offsets.contains(&offset))?;
        self.all.retain(|offset, _| !offsets.contains(offset));
        Ok(())
    }

    /// What was stored to the echoes of a page is at home, which is about to go.
    pub fn bring_home(&mut self, memory: &Mapping, page: u64) -> Result<(), MemoryError> {
        self.carry_home(memory, |_, other| other == page)
    }

    /// An echo of a page whose home is gone, to be the next one; it is an echo no more.
    pub fn take_heir(&mut self, page: u64) -> Option<u64> {
        let heir = self.all.iter().find(|(_, echo)| echo.page == page).map(|(offset, _)| *offset)?;
        self.all.remove(&heir);
        self.all.values_mut().filter(|echo| echo.page == page).for_each(|echo| echo.home = heir);
        Some(heir)
    }

    /// No place is an echo any more.
    pub fn clear(&mut self) {
        self.all.clear();
    }
}
