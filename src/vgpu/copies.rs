//! How much the guest copies: its rings are followed, and what was submitted is looked through, after the
//! doorbell was passed on, so that no work waits for it.
//!
//! The guest can change everything that is read here at any time. So the result is a figure for operators and
//! for nothing else. The cost of a doorbell is bounded; ring entries beyond that are counted, not read.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::memory::Memory;
use gpuvmk_aggregator::link::AggregatorLink;
use gpuvmk_aggregator::protocol::Doorbell;
use gpuvmk_chip::addr::{GpuVa, GuestChannel};
use gpuvmk_chip::gh100::methods::host::segment_base;
use gpuvmk_chip::gmmu::Gmmu;
use gpuvmk_chip::stream::{GPFIFO_ENTRY_SIZE, RingEntry};
use gpuvmk_chip::{EngineSet, PhysicalAddress, Subchannels};
use gpuvmk_fifo_virt::{CopiedBytes, CopyMeter};
use gpuvmk_shadow_pagetable::{Fermi, translate};

/// Most ring entries that are looked through for a doorbell.
const ENTRIES: u32 = 64;
/// Limit of command bytes that are read for a doorbell: a tenth of a millisecond at worst. Data words are
/// skipped.
const BYTES: u64 = 64 << 10;
/// Bytes that are read at once.
const CHUNK: usize = 1024;

/// The guest's page tables.
#[derive(Clone, Copy, Debug)]
pub enum Tables {
    /// Of Fermi.
    Fermi(Fermi),
    /// Since Pascal.
    Gmmu(Gmmu),
}

impl Tables {
    /// Those of the chips that have these tables.
    const fn subchannels(self) -> Subchannels {
        match self {
            Self::Fermi(_) => Subchannels::ByClass,
            Self::Gmmu(_) => Subchannels::ByRunlist,
        }
    }
}

/// Where a channel's commands are.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    /// The format of its page tables.
    pub tables: Tables,
    /// Root of their page tables.
    pub directory: PhysicalAddress,
    /// Virtual address of the ring.
    pub gpfifo: GpuVa,
    /// log2 of its entries.
    pub entries_log2: u8,
    /// Engines of the channel.
    pub engines: EngineSet,
}

/// The sums, and the position in the rings of all channels.
#[derive(Debug)]
pub struct Copies {
    followers: Box<[Mutex<Option<Box<Follower>>>]>,
    /// Held while they are reported, so that the last report is the newest.
    sums: Mutex<CopiedBytes>,
}

impl Copies {
    /// No channel yet; their numbers are below `channels`.
    pub fn new(channels: u16) -> Self {
        let followers = (0..channels).map(|_| Mutex::default()).collect();
        Self { followers, sums: Mutex::default() }
    }

    /// A channel begins, at the start of its ring.
    pub fn begin(&self, channel: GuestChannel, ring: Ring) {
        if let Some(place) = self.followers.get(usize::from(channel.0)) {
            *locked(place) = Some(Box::new(Follower::new(ring)));
        }
    }

    /// Parses the commands that a doorbell submitted, and counts copied bytes for operators.
    pub fn count(&self, doorbell: Doorbell, memory: &Memory<'_>, link: &dyn AggregatorLink) {
        let Some(place) = self.followers.get(usize::from(doorbell.channel.0)) else { return };
        let mut found = CopiedBytes::default();
        if let Some(follower) = &mut *locked(place) {
            follower.follow(doorbell.gp_put, memory, &mut found);
        }
        if !found.is_empty() {
            let mut sums = locked(&self.sums);
            sums.add_all(&found);
            link.report_copied(&sums);
        }
    }

    /// All so far.
    pub fn sums(&self) -> CopiedBytes {
        *locked(&self.sums)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why commands are not looked through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unread {
    /// They are nowhere, or where reading takes long.
    Memory,
    /// There are too many.
    Budget,
}

#[derive(Debug)]
struct Follower {
    ring: Ring,
    /// The ring entry after the last that was followed.
    next: u32,
    /// Address bits above 39 of the next segments.
    segment_base: u64,
    meter: CopyMeter,
}

impl Follower {
    fn new(ring: Ring) -> Self {
        let meter = CopyMeter::new(ring.tables.subchannels(), ring.engines);
        Self { ring, next: 0, segment_base: 0, meter }
    }

    /// Looks through all entries before `gp_put`.
    fn follow(&mut self, gp_put: u32, memory: &Memory<'_>, copied: &mut CopiedBytes) {
        let last = 1_u32.checked_shl(self.ring.entries_log2.into()).unwrap_or(0).wrapping_sub(1);
        if gp_put > last {
            // Hardware stops the channel.
            return;
        }
        let mut left = gp_put.wrapping_sub(self.next) & last;
        let mut reader = Reader { memory, ring: self.ring, page: None, budget: BYTES };
        let mut unread = left.saturating_sub(ENTRIES);
        left = left.min(ENTRIES);
        while left > 0 {
            match self.entry(&mut reader, copied) {
                Ok(()) => {}
                Err(Unread::Memory) => unread = unread.saturating_add(1),
                Err(Unread::Budget) => {
                    unread = unread.saturating_add(left);
                    break;
                }
            }
            self.next = self.next.wrapping_add(1) & last;
            left = left.saturating_sub(1);
        }
        self.next = gp_put;
        if unread > 0 {
            self.meter.skip();
        }
        copied.unread_entries = copied.unread_entries.saturating_add(unread.into());
    }

    fn entry(&mut self, reader: &mut Reader<'_>, copied: &mut CopiedBytes) -> Result<(), Unread> {
        let place = u64::from(self.next).saturating_mul(GPFIFO_ENTRY_SIZE);
        let mut raw = [0; 8];
        reader.read(self.ring.gpfifo.0.saturating_add(place), &mut raw)?;
        let raw = u64::from_le_bytes(raw);
        match RingEntry::decode(raw) {
            RingEntry::Segment { address, words } => {
                let result = self.segment(reader, self.segment_base | address, words, copied);
                if result.is_err() {
                    self.meter.skip();
                }
                result
            }
            RingEntry::Control(raw) => {
                if let (Tables::Gmmu(_), Some(base)) = (self.ring.tables, segment_base(raw)) {
                    self.segment_base = base;
                }
                Ok(())
            }
        }
    }

    fn segment(
        &mut self,
        reader: &mut Reader<'_>,
        start: u64,
        words: u64,
        copied: &mut CopiedBytes,
    ) -> Result<(), Unread> {
        let mut buffer = [0; CHUNK];
        let (mut at, mut left) = (start, words.saturating_mul(4));
        while left > 0 {
            let pass = self.meter.indifferent();
            // Passed over until a header comes, which has to be read: so this ends with the budget.
            let mut done = u64::from(pass).saturating_mul(4).min(left);
            self.meter.pass(usize::try_from(done / 4).unwrap_or(0));
            if pass == 0 {
                let part = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
                let part = buffer.get_mut(..part).unwrap_or_default();
                let part = reader.read_some(at, part)?;
                done = part.len() as u64;
                if !self.meter.read(part.as_chunks().0, copied) {
                    return Ok(());
                }
            }
            at = at.saturating_add(done);
            left = left.saturating_sub(done);
        }
        Ok(())
    }
}

/// Reads what the channel reads, during one doorbell.
#[derive(Debug)]
struct Reader<'a> {
    memory: &'a Memory<'a>,
    ring: Ring,
    /// The last page: its end, and where it leads.
    page: Option<Page>,
    budget: u64,
}

/// A translation that is used again.
#[derive(Clone, Copy, Debug)]
struct Page {
    va: u64,
    bytes: u64,
    target: PhysicalAddress,
}

impl Page {
    /// Where an address in it leads, and what follows there.
    fn at(self, va: u64) -> Option<(PhysicalAddress, u64)> {
        let inside = va.checked_sub(self.va)?;
        let left = self.bytes.checked_sub(inside).filter(|left| *left > 0)?;
        let address = self.target.address.checked_add(inside)?;
        Some((PhysicalAddress { address, ..self.target }, left))
    }
}

impl Reader<'_> {
    fn locate(&mut self, va: u64) -> Option<(PhysicalAddress, u64)> {
        if let Some(found) = self.page.and_then(|page| page.at(va)) {
            return Some(found);
        }
        let Ring { tables, directory, .. } = self.ring;
        let (target, bytes) = match tables {
            Tables::Fermi(format) => translate(&format, directory, GpuVa(va), self.memory),
            Tables::Gmmu(format) => translate(&format, directory, GpuVa(va), self.memory),
        }?;
        self.page = Some(Page { va, bytes, target });
        Some((target, bytes))
    }

    /// Reads the beginning of a range: at least a word, and all that lies in one page.
    fn read_some<'d>(&mut self, va: u64, data: &'d mut [u8]) -> Result<&'d [u8], Unread> {
        let (target, left) = self.locate(va).ok_or(Unread::Memory)?;
        let size = left.min(data.len() as u64);
        self.budget = self.budget.checked_sub(size).ok_or(Unread::Budget)?;
        let size = usize::try_from(size).unwrap_or(0);
        let data = data.get_mut(..size).filter(|data| !data.is_empty()).ok_or(Unread::Memory)?;
        self.memory.load_commands(target, data).map_err(|_| Unread::Memory)?;
        Ok(data)
    }

    /// Reads what does not cross a page.
    fn read(&mut self, va: u64, data: &mut [u8]) -> Result<(), Unread> {
        let size = data.len();
        let read = self.read_some(va, data)?;
        if read.len() == size { Ok(()) } else { Err(Unread::Memory) }
    }
}
