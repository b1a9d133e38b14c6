//! What a channel's commands work on, and accesses to it: checked page by page, whatever the guest changes
//! meanwhile.

use super::refusal::Refusal;
use gpuvmk_chip::addr::GpuVa;
use gpuvmk_chip::{AccessKind, Aperture, PhysicalAddress};

/// Memory that is not the guest's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotGuests;

/// Where a virtual address leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// What is there.
    pub address: PhysicalAddress,
    /// Bytes of the page from there on, at least 1.
    pub bytes: u64,
    /// It may not be written.
    pub read_only: bool,
}

/// Translations that are to be forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invalidation {
    /// Whose; none: those of every page directory.
    pub directory: Option<PhysicalAddress>,
    /// First address and number of bytes; none: all.
    pub range: Option<(GpuVa, u64)>,
}

/// A guest's memory, and what else its kernel's channels reach. Everything that is not the guest's is refused
/// there.
pub trait KernelMemory {
    /// Where an address of the channel's space leads now.
    fn translate(&mut self, va: GpuVa) -> Option<Target>;

    /// Copies memory out.
    ///
    /// # Errors
    /// Not all of it is the guest's.
    fn read(&mut self, address: PhysicalAddress, data: &mut [u8]) -> Result<(), NotGuests>;

    /// Copies memory in.
    ///
    /// # Errors
    /// Not all of it is the guest's; part of it may have been written then.
    fn write(&mut self, address: PhysicalAddress, data: &[u8]) -> Result<(), NotGuests>;

    /// Page tables have changed. All writes before it are in memory.
    fn invalidate(&mut self, what: Invalidation);

    /// Tells the driver that work is done.
    fn notify(&mut self);

    /// Nanoseconds, for what is stamped with the time.
    fn now(&mut self) -> u64;
}

/// Where a copy reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// An address of the channel's space.
    Virtual(GpuVa),
    /// Memory itself.
    Physical(PhysicalAddress),
}

impl Place {
    /// The place `bytes` further on, which may be negative as a number of 64 bits that wraps.
    ///
    /// # Errors
    /// It is beyond the end of all addresses.
    pub fn moved(self, bytes: i64) -> Result<Self, Refusal> {
        let moved = |address: u64| address.checked_add_signed(bytes).ok_or(Refusal::Address(address));
        Ok(match self {
            Self::Virtual(va) => Self::Virtual(GpuVa(moved(va.0)?)),
            Self::Physical(at) => {
                Self::Physical(PhysicalAddress { aperture: at.aperture, address: moved(at.address)? })
            }
        })
    }
}

/// Accesses in pieces that do not cross a page.
pub struct Access<'a, M> {
    memory: &'a mut M,
}

impl<M> std::fmt::Debug for Access<'_, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").finish_non_exhaustive()
    }
}

impl<'a, M: KernelMemory> Access<'a, M> {
    /// Accesses to `memory`.
    pub const fn new(memory: &'a mut M) -> Self {
        Self { memory }
    }

    /// Reads all of `data`.
    ///
    /// # Errors
    /// A part of it is nowhere.
    pub fn read(&mut self, mut place: Place, mut data: &mut [u8]) -> Result<(), Refusal> {
        while !data.is_empty() {
            let (address, size) = self.locate(place, data.len(), AccessKind::Read)?;
            let (part, rest) = data.split_at_mut(size);
            self.memory.read(address, part).map_err(|NotGuests| refused(address, AccessKind::Read))?;
            (place, data) = (behind(place, size)?, rest);
        }
        Ok(())
    }

    /// Writes all of `data`.
    ///
    /// # Errors
    /// A part of it is nowhere. What comes before may have been written then.
    pub fn write(&mut self, mut place: Place, mut data: &[u8]) -> Result<(), Refusal> {
        while !data.is_empty() {
            let (address, size) = self.locate(place, data.len(), AccessKind::Write)?;
            let (part, rest) = data.split_at(size);
            self.memory.write(address, part).map_err(|NotGuests| refused(address, AccessKind::Write))?;
            (place, data) = (behind(place, size)?, rest);
        }
        Ok(())
    }

    /// What is behind it.
    pub const fn memory(&mut self) -> &mut M {
        self.memory
    }

    /// Where a place is in memory, and how many bytes can be accessed there at once: at least one.
    fn locate(
        &mut self,
        place: Place,
        bytes: usize,
        kind: AccessKind,
    ) -> Result<(PhysicalAddress, usize), Refusal> {
        match place {
            Place::Physical(address) => Ok((address, bytes)),
            Place::Virtual(va) => {
                let fits = |target: &Target| !(target.read_only && kind == AccessKind::Write);
                let target = self.memory.translate(va).filter(|target| target.bytes > 0 && fits(target));
                let target = target.ok_or(Refusal::Virtual { va, kind })?;
                let size = usize::try_from(target.bytes).map_or(bytes, |left| left.min(bytes));
                Ok((target.address, size))
            }
        }
    }
}

fn behind(place: Place, bytes: usize) -> Result<Place, Refusal> {
    place.moved(i64::try_from(bytes).unwrap_or(i64::MAX))
}

const fn refused(address: PhysicalAddress, kind: AccessKind) -> Refusal {
    Refusal::Physical { address, kind }
}

/// Memory by its number in a command.
pub const fn physical(aperture: Aperture, address: u64) -> Place {
    Place::Physical(PhysicalAddress { aperture, address })
}
