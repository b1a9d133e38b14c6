//! What a request of the guest needs to be carried out: the link to the aggregator, the guest's memory,
//! counters.

use std::cell::Cell;
use std::fmt;
use std::os::fd::OwnedFd;
use std::time::Instant;

use super::bar3::Homes;
use super::channel_flags::ChannelFlags;
use super::copies::Copies;
use super::memory::Memory;
use super::quotas::Meters;
use super::status::Counters;
use gpuvmk_aggregator::link::{AggregatorLink, LinkError};
use gpuvmk_aggregator::protocol::{
    Doorbell, GuestMapping, GuestRange, GuestTarget, MAX_UPDATE_RUNS, RefusalKind, Request, SpaceId,
};
use gpuvmk_chip::addr::{Gpa, GpuVa, GuestVram};
use gpuvmk_chip::{Aperture, EngineSet};
use gpuvmk_shadow_pagetable::{MapRun, RunSink, UnmapRun};
use gpuvmk_trace::Tracer;

/// What the aggregator granted, besides memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Guest channel numbers are below this.
    pub channels: u16,
    /// Address-space numbers are below this.
    pub spaces: u16,
    /// Engines of the physical GPU.
    pub engines: EngineSet,
    /// Virtual addresses are below 2 to this.
    pub va_bits: u8,
    /// Page sizes of the physical GPU, as log2.
    pub page_shifts: Vec<u8>,
}

/// The host side, as one request of the guest uses it.
pub struct Host<'a> {
    pub terms: &'a Terms,
    pub link: &'a dyn AggregatorLink,
    pub memory: Memory<'a>,
    /// Where pages that BAR3 shows are, if that is memory.
    pub homes: Option<&'a Homes>,
    pub live: &'a ChannelFlags,
    pub copies: &'a Copies,
    pub counters: &'a Counters,
    pub meters: &'a Meters,
    pub tracer: &'a Tracer,
    /// When the step began that is under way: the guest's request, or the last one to the aggregator since.
    /// What leads to fail-safe state happened no earlier.
    pub step: Cell<Instant>,
}

impl fmt::Debug for Host<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("terms", &self.terms).finish_non_exhaustive()
    }
}

impl Host<'_> {
    /// Tells the physical GPU of new work, and counts what it copies.
    pub fn ring(&self, doorbell: Doorbell) {
        self.link.doorbell(doorbell);
        self.copies.count(doorbell, &self.memory, self.link);
    }

    /// Sends a request and waits for the answer.
    pub fn request(&self, request: &Request) -> Result<(), LinkError> {
        self.request_with(request, None)
    }

    /// Sends a request with a file and waits for the answer.
    pub fn request_with(&self, request: &Request, file: Option<OwnedFd>) -> Result<(), LinkError> {
        self.counters.requests.one();
        self.meters.requests.admit();
        self.step.set(Instant::now());
        let result = self.link.request(request, file);
        if let Err(LinkError::Refused { message, .. }) = &result {
            self.counters.refusals.one();
            log::debug!("The aggregator refused {request:?}: {message}");
        }
        result
    }
}

/// Most runs that are held back in order to come after all that is unmapped.
const MAX_HELD: usize = 1 << 16;

/// Sends the changes of one address space.
///
/// What a synchronisation maps is held back until all that it unmaps is sent: page sizes are layers in the
/// guest's tables, but an address that changes from one to another is one address on the host, where a
/// physical GPU need not keep layers apart. Where a guest maps an address by two layers, the last change
/// counts.
///
/// Pages of a size that the physical GPU does not have are mapped as smaller ones (a GF100's MMU has either
/// 64 KiB or 128 KiB pages, and the physical one's are 128 KiB). What lies beyond the physical GPU's virtual
/// addresses is left out: its accesses fault.
pub(super) struct SpaceSink<'a, 'h> {
    host: &'a Host<'h>,
    space: SpaceId,
    unmap: Vec<GuestRange>,
    map: Vec<GuestMapping>,
}

impl<'a, 'h> SpaceSink<'a, 'h> {
    pub fn new(host: &'a Host<'h>, space: SpaceId) -> Self {
        Self { host, space, unmap: Vec::new(), map: Vec::new() }
    }

    /// Sends what was held back.
    pub fn finish(mut self) -> Result<(), LinkError> {
        self.send_all()
    }

    fn send_all(&mut self) -> Result<(), LinkError> {
        self.send_full()?;
        let unmap = std::mem::take(&mut self.unmap);
        let map = std::mem::take(&mut self.map);
        // The last of what is unmapped shares a request with the first of what is mapped.
        let (first, rest) = map.split_at(map.len().min(MAX_UPDATE_RUNS.saturating_sub(unmap.len())));
        if !unmap.is_empty() || !first.is_empty() {
            self.send(unmap, first.to_vec())?;
        }
        for runs in rest.chunks(MAX_UPDATE_RUNS) {
            self.send(Vec::new(), runs.to_vec())?;
        }
        Ok(())
    }

    /// Sends whole requests of what is unmapped.
    fn send_full(&mut self) -> Result<(), LinkError> {
        while self.unmap.len() >= MAX_UPDATE_RUNS {
            let rest = self.unmap.split_off(MAX_UPDATE_RUNS);
            let full = std::mem::replace(&mut self.unmap, rest);
            self.send(full, Vec::new())?;
        }
        Ok(())
    }

    /// Gets the memory that is to be mapped in this process's name: what an engine touches first is accounted
    /// to the aggregator, and what cannot be had then is a page that is lost.
    fn populate(&self, map: &[GuestMapping]) -> Result<(), LinkError> {
        for run in map {
            let GuestTarget::System { address, .. } = run.target else { continue };
            let size = u64::from(run.pages) << run.page_shift;
            if let Err(error) = self.host.memory.system.populate(address.0, size) {
                let message = format!("{address}+{size:#x} of the guest's memory: {error}");
                log::error!("No memory can be had for {message}");
                return Err(LinkError::Refused { kind: RefusalKind::MemoryLost, message });
            }
        }
        Ok(())
    }

    fn send(&self, unmap: Vec<GuestRange>, map: Vec<GuestMapping>) -> Result<(), LinkError> {
        self.populate(&map)?;
        let start = Instant::now();
        let result = self.host.request(&Request::UpdateSpace { space: self.space, unmap, map });
        let nanos = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.host.counters.update_nanos.add(nanos);
        match result {
            // The aggregator knows better which targets are the guest's: it made faults of the others.
            Err(LinkError::Refused { kind: RefusalKind::OutsidePartition, .. }) => Ok(()),
            result => result,
        }
    }
}

impl RunSink for SpaceSink<'_, '_> {
    type Error = LinkError;

    fn batch(&mut self, unmap: Vec<UnmapRun>, map: Vec<MapRun>) -> Result<(), LinkError> {
        let terms = self.host.terms;
        self.unmap.extend(unmap.into_iter().filter_map(|run| terms.guest_range(run)));
        for run in map {
            let mut add = |run| match terms.guest_mapping(run) {
                Some(mapping) => self.map.push(mapping),
                None => self.host.counters.runs_unreachable.one(),
            };
            match self.host.homes {
                Some(homes) => homes.split(run, self.host, &mut add)?,
                None => add(run),
            }
        }
        if self.map.len() > MAX_HELD { self.send_all() } else { self.send_full() }
    }
}

impl Terms {
    /// The page size that pages of 2^`shift` bytes are mapped with: their own where the physical GPU has it,
    /// else the next smaller one.
    fn host_shift(&self, shift: u8) -> u8 {
        self.page_shifts.iter().copied().filter(|has| *has <= shift).max().unwrap_or(shift)
    }

    /// The run in the physical GPU's pages, cut where its virtual addresses end: page size and pages.
    fn host_pages(&self, va: GpuVa, pages: u32, shift: u8) -> Option<(u8, u32)> {
        let limit = 1_u64.checked_shl(u32::from(self.va_bits)).unwrap_or(u64::MAX);
        let bytes = (u64::from(pages) << shift).min(limit.checked_sub(va.0)?);
        let host_shift = self.host_shift(shift);
        // A run that is too long even so has more pages than the tables of a guest may have entries.
        let pages = u32::try_from(bytes >> host_shift).unwrap_or(u32::MAX);
        (pages > 0).then_some((host_shift, pages))
    }

    fn guest_range(&self, run: UnmapRun) -> Option<GuestRange> {
        let (page_shift, pages) = self.host_pages(run.va, run.pages, run.page_shift)?;
        Some(GuestRange { va: run.va, pages, page_shift })
    }

    fn guest_mapping(&self, run: MapRun) -> Option<GuestMapping> {
        let (page_shift, pages) = self.host_pages(run.va, run.pages, run.page_shift)?;
        let address = run.target.address;
        let target = match run.target.aperture {
            Aperture::Vram => GuestTarget::Vram(GuestVram(address)),
            Aperture::SystemCoherent => GuestTarget::System { address: Gpa(address), coherent: true },
            Aperture::SystemNonCoherent => GuestTarget::System { address: Gpa(address), coherent: false },
        };
        Some(GuestMapping { va: run.va, pages, page_shift, target, read_only: run.read_only, kind: run.kind })
    }
}
