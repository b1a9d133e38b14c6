//! From changes of a guest's page tables to requests: in the physical GPU's pages, unmapping first, in pieces
//! that fit a message.

use std::time::Instant;

use super::host::{Host, Terms};
use gpuvmk_aggregator::link::LinkError;
use gpuvmk_aggregator::protocol::{
    GuestMapping, GuestRange, GuestTarget, MAX_UPDATE_RUNS, RefusalKind, Request, SpaceId,
};
use gpuvmk_chip::Aperture;
use gpuvmk_chip::addr::{Gpa, GpuVa, GuestVram};
use gpuvmk_shadow_pagetable::{MapRun, RunSink, UnmapRun};

/// Most runs that are held back in order to come after all that is unmapped.
const MAX_HELD: usize = 1 << 16;

/// Sends the changes of one address space.
///
/// New mappings of a synchronisation are held back until all unmappings are sent. Page sizes are layers in
/// the guest's tables, but an address that changes from one to another is one address on the host, where a
/// physical GPU need not keep layers apart. Where a guest maps an address by two layers, the last change
/// counts.
///
/// Pages of a size that the physical GPU does not have are mapped as smaller ones (a GF100's MMU has either
/// 64 KiB or 128 KiB pages, and the physical one's are 128 KiB). Addresses beyond the physical GPU's virtual
/// addresses are left out: accesses to them fault.
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

    /// Allocates the memory to map in this process's name: what an engine touches first is accounted to the
    /// aggregator, and what cannot be had then is a page that is lost.
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
            match self.host.placement {
                Some(placement) => placement.split(run, self.host, &mut add)?,
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
