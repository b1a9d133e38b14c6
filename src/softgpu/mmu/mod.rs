//! The MMU that engines and the host unit look through: page tables are walked for real (by the chip's
//! [`Walker`]), results are remembered until flushed, and refusals have the reasons of hardware.
//!
//! An access holds its page tables *in use* from its translation to its last byte, for at most some tens of
//! KiB. A flush waits until nobody does, so when it returns, no access through an old translation of these
//! tables is under way. The same holds for a change of the large-page size, for all tables. Nobody waits for
//! accesses through somebody else's tables.
//!
//! Storage kinds other than the invalid one are taken as plain memory: surfaces in blocks are laid out by the
//! engines. Compression is not modelled.

pub(crate) mod channel_memory;
pub(crate) mod client;
pub(crate) mod fermi;
pub(crate) mod instance;
pub(crate) mod near;
pub(crate) mod system;
pub(crate) mod tlb;
pub(crate) mod walker;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossbeam_utils::sync::ShardedLockReadGuard;

use self::near::Near;
use self::tlb::{Buffer, Page, Space};
use self::walker::Walker;
use crate::vram::memory::Memory;
use crate::words::read_u64;
use gpuvmk_backend::FlushScope;
use gpuvmk_chip::gf100::ramin::{PAGE_DIRECTORY_LO, VA_LIMIT_LO, page_directory};
use gpuvmk_chip::{AccessKind, Aperture, FaultReason, PhysicalAddress};

/// Page directories with remembered translations; more than there are channels.
const MAX_SPACES: usize = 192;

/// An address space as an instance block describes it.
#[derive(Clone, Debug)]
pub(crate) struct AddressSpace {
    space: Option<Arc<Space>>,
    /// Last valid virtual address.
    limit: u64,
}

impl AddressSpace {
    /// To be held during an access, and not for longer.
    pub(crate) fn in_use(&self) -> InUse<'_> {
        self.space.as_ref().map(|space| space.in_use())
    }
}

/// Properties of an access besides its address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) buffer: Buffer,
    pub(crate) access: AccessKind,
    /// Privileged units may use privileged pages.
    pub(crate) privileged: bool,
}

/// Where a virtual address lies, and how many bytes follow it in its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) target: PhysicalAddress,
    pub(crate) run: u64,
}

/// Keeps flushes of some page tables waiting while an access is under way; nothing where there are no tables.
pub(crate) type InUse<'a> = Option<ShardedLockReadGuard<'a, ()>>;

/// The MMU. Lock order: one directory in use, then its buffers; the table of directories alone.
#[derive(Debug)]
pub(crate) struct Mmu {
    walker: Arc<dyn Walker>,
    /// Highest virtual address.
    va_max: u64,
    page_shifts: &'static [u8],
    spaces: Mutex<HashMap<PhysicalAddress, Arc<Space>>>,
}

impl Mmu {
    pub(crate) fn new(walker: Arc<dyn Walker>, va_max: u64, page_shifts: &'static [u8]) -> Self {
        Self { walker, va_max, page_shifts, spaces: Mutex::default() }
    }

    /// Highest virtual address.
    pub(crate) fn va_max(&self) -> u64 {
        self.va_max
    }

    fn table(&self) -> MutexGuard<'_, HashMap<PhysicalAddress, Arc<Space>>> {
        self.spaces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address space of an instance block, given its bytes.
    pub(crate) fn address_space(&self, instance: &[u8]) -> AddressSpace {
        let directory = read_u64(instance, PAGE_DIRECTORY_LO);
        let Some(directory) = page_directory(directory) else {
            return AddressSpace { space: None, limit: 0 };
        };
        let space = self.space(directory);
        AddressSpace { space: Some(space), limit: read_u64(instance, VA_LIMIT_LO) }
    }

    fn space(&self, directory: PhysicalAddress) -> Arc<Space> {
        let mut spaces = self.table();
        if spaces.len() >= MAX_SPACES && !spaces.contains_key(&directory) {
            // Few directories are in use now; the others only lose their remembered translations.
            spaces.retain(|_, space| Arc::strong_count(space) > 1);
        }
        Arc::clone(
            spaces.entry(directory).or_insert_with(|| Arc::new(Space::new(directory, self.page_shifts))),
        )
    }

    /// Drops translations; when it returns, none of them is in use. Waits for accesses through these page
    /// tables only.
    pub(crate) fn flush(&self, scope: FlushScope) {
        let in_vram = |address: PhysicalAddress| address.aperture == Aperture::Vram;
        let wanted = scope.page_directory;
        let is_meant = |space: &&Arc<Space>| {
            let directory = space.directory;
            directory.address == wanted.address && in_vram(directory) == in_vram(wanted)
        };
        let meant: Vec<_> = self.table().values().filter(is_meant).map(Arc::clone).collect();
        meant.iter().for_each(|space| space.flush(scope.hub_only));
    }

    /// Drops a page directory that nobody will use again, translations and all.
    pub(crate) fn forget(&self, directory: PhysicalAddress) {
        let space = self.table().remove(&directory);
        if let Some(space) = space {
            // A channel that still names it finds nothing there.
            space.flush(false);
        }
    }

    /// Page directories with remembered translations.
    #[cfg(test)]
    pub(crate) fn remembered(&self) -> usize {
        self.table().len()
    }

    /// Drops everything.
    pub(crate) fn flush_all(&self) {
        let all = std::mem::take(&mut *self.table());
        all.values().for_each(|space| space.flush(false));
    }

    /// Sets the size of large pages; remembered translations go when it changes.
    pub(crate) fn set_large_pages(&self, is_64k: bool) {
        if self.walker.set_large_pages(is_64k) {
            self.flush_all();
        }
    }

    /// Translates one address. `_in_use` proves that no flush can pass meanwhile. Who has translations of
    /// engines at hand gives them along.
    pub(crate) fn translate(
        &self,
        _in_use: &InUse<'_>,
        (memory, near): (&Memory, Option<&mut Near>),
        space: &AddressSpace,
        va: u64,
        request: Request,
    ) -> Result<Place, FaultReason> {
        let Some(directory) = &space.space else { return Err(FaultReason::NoChannel) };
        if va > self.va_max {
            return Err(FaultReason::PageTableTooShort);
        }
        if va > space.limit {
            return Err(FaultReason::VmLimitExceeded);
        }
        let remembered = || -> Result<Page, FaultReason> {
            if let Some(page) = directory.lookup(request.buffer, va) {
                return Ok(page);
            }
            let page = self.walker.walk(memory, directory.directory, va)?;
            directory.insert(request.buffer, page);
            Ok(page)
        };
        let page = match near {
            Some(near) if request.buffer == Buffer::Engines => match near.lookup(directory.age(), va) {
                Some(page) => page,
                None => {
                    let page = remembered()?;
                    near.insert(va, page);
                    page
                }
            },
            _ => remembered()?,
        };
        self.check(&page, request)?;
        let bytes = 1u64 << page.shift;
        let offset = va & (bytes - 1);
        let target = PhysicalAddress { address: page.target.address + offset, ..page.target };
        // The space may end inside the page.
        let run = (bytes - offset).min((space.limit - va).saturating_add(1));
        Ok(Place { target, run })
    }

    fn check(&self, page: &Page, request: Request) -> Result<(), FaultReason> {
        if page.privileged && !request.privileged {
            return Err(FaultReason::PageSystemOnly);
        }
        if page.read_only && request.access == AccessKind::Write {
            return Err(FaultReason::WriteToReadOnly);
        }
        if page.kind == self.walker.invalid_kind() {
            return Err(FaultReason::CompressionFault);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::time::Duration;

    use super::fermi::FermiTables;
    use super::*;

    fn instance(directory: u64) -> Vec<u8> {
        let mut bytes = vec![0; 0x1000];
        let place = usize::try_from(PAGE_DIRECTORY_LO).unwrap();
        bytes[place..place + 8].copy_from_slice(&directory.to_le_bytes());
        bytes
    }

    #[test]
    fn flush_waits_for_accesses_through_its_own_tables_only() {
        let mmu = Arc::new(Mmu::new(Arc::new(FermiTables::default()), (1 << 40) - 1, &[12, 17]));
        let [one, other] = [0x1000, 0x2000].map(|directory| mmu.address_space(&instance(directory)));
        let access = one.in_use();
        let flush = |address| {
            let (mmu, (told, done)) = (Arc::clone(&mmu), channel());
            let page_directory = PhysicalAddress { aperture: Aperture::Vram, address };
            std::thread::spawn(move || {
                mmu.flush(FlushScope { page_directory, hub_only: false });
                told.send(()).unwrap();
            });
            done
        };

        assert_eq!(flush(0x2000).recv_timeout(Duration::from_secs(10)), Ok(()), "nobody uses those");
        let waits = flush(0x1000);
        assert_eq!(waits.recv_timeout(Duration::from_millis(50)), Err(RecvTimeoutError::Timeout));
        drop(access);
        assert_eq!(waits.recv_timeout(Duration::from_secs(10)), Ok(()));
        drop(other);
    }
}
