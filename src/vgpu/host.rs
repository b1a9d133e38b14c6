//! What a request of the guest needs to be carried out: the link to the aggregator, the guest's memory, counters.

use std::os::fd::OwnedFd;

use super::live::LiveChannels;
use super::memory::Memory;
use super::status::Counters;
use crate::addr::{Gpa, GuestVram};
use crate::aggregator::link::{AggregatorLink, LinkError};
use crate::aggregator::protocol::{
    GuestMapping, GuestRange, GuestTarget, MAX_UPDATE_RUNS, RefusalKind, Request, SpaceId,
};
use crate::chip::Aperture;
use crate::shadow_pagetable::{MAX_BATCH, MapRun, RunSink, UnmapRun};

const _: () = assert!(MAX_BATCH <= MAX_UPDATE_RUNS);

/// The host side, as one request of the guest uses it.
pub(super) struct Host<'a> {
    pub link: &'a dyn AggregatorLink,
    pub memory: Memory<'a>,
    pub live: &'a LiveChannels,
    pub counters: &'a Counters,
}

impl Host<'_> {
    /// Sends a request and waits for the answer.
    pub fn request(&self, request: &Request) -> Result<(), LinkError> {
        self.request_with(request, None)
    }

    /// Sends a request with a file and waits for the answer.
    pub fn request_with(&self, request: &Request, file: Option<OwnedFd>) -> Result<(), LinkError> {
        self.counters.requests.one();
        let result = self.link.request(request, file);
        if let Err(LinkError::Refused { message, .. }) = &result {
            self.counters.refusals.one();
            log::debug!("The aggregator refused {request:?}: {message}");
        }
        result
    }
}

/// Page size that every physical GPU has, as log2.
const SMALL_SHIFT: u8 = 12;
/// Fermi's other size of large pages. It is a setting of the whole MMU: the physical GPU's is 128 KiB.
const SPLIT_SHIFT: u8 = 16;
/// Most runs that are held back in order to come after all that is unmapped.
const MAX_HELD: usize = 1 << 16;

/// Sends the changes of one address space.
///
/// Pages of 64 KiB are mapped as small pages. Both layers of a guest's tables then become one: what a
/// synchronisation maps must come after everything that it unmaps, so these runs are held back. Where a guest
/// maps an address by both tables, the last change counts instead of the small table.
pub(super) struct SpaceSink<'a, 'h> {
    host: &'a Host<'h>,
    space: SpaceId,
    held: Vec<GuestMapping>,
}

impl<'a, 'h> SpaceSink<'a, 'h> {
    pub fn new(host: &'a Host<'h>, space: SpaceId) -> Self {
        Self { host, space, held: Vec::new() }
    }

    /// Sends what was held back.
    pub fn finish(mut self) -> Result<(), LinkError> {
        self.send_held()
    }

    fn send_held(&mut self) -> Result<(), LinkError> {
        for runs in std::mem::take(&mut self.held).chunks(MAX_UPDATE_RUNS) {
            self.send(Vec::new(), runs.to_vec())?;
        }
        Ok(())
    }

    fn send(&self, unmap: Vec<GuestRange>, map: Vec<GuestMapping>) -> Result<(), LinkError> {
        match self.host.request(&Request::UpdateSpace { space: self.space, unmap, map }) {
            // The aggregator knows better which targets are the guest's: it made faults of the others.
            Err(LinkError::Refused { kind: RefusalKind::OutsidePartition, .. }) => Ok(()),
            result => result,
        }
    }
}

impl RunSink for SpaceSink<'_, '_> {
    type Error = LinkError;

    fn batch(&mut self, unmap: Vec<UnmapRun>, map: Vec<MapRun>) -> Result<(), LinkError> {
        let shifts = unmap.iter().map(|run| run.page_shift).chain(map.iter().map(|run| run.page_shift));
        let split = !self.held.is_empty() || shifts.into_iter().any(|shift| shift == SPLIT_SHIFT);
        let unmap: Vec<_> = unmap.into_iter().map(guest_range).collect();
        let mut map: Vec<_> = map.into_iter().map(guest_mapping).collect();
        if split {
            self.held.append(&mut map);
            if self.held.len() > MAX_HELD {
                self.send_held()?;
            }
        }
        if unmap.is_empty() && map.is_empty() { Ok(()) } else { self.send(unmap, map) }
    }
}

fn guest_range(run: UnmapRun) -> GuestRange {
    let (page_shift, pages) = split_pages(run.page_shift, run.pages);
    GuestRange { va: run.va, pages, page_shift }
}

fn guest_mapping(run: MapRun) -> GuestMapping {
    let (page_shift, pages) = split_pages(run.page_shift, run.pages);
    let address = run.target.address;
    let target = match run.target.aperture {
        Aperture::Vram => GuestTarget::Vram(GuestVram(address)),
        Aperture::SystemCoherent => GuestTarget::System { address: Gpa(address), coherent: true },
        Aperture::SystemNonCoherent => GuestTarget::System { address: Gpa(address), coherent: false },
    };
    GuestMapping { va: run.va, pages, page_shift, target, read_only: run.read_only, kind: run.kind }
}

/// Makes small pages of 64 KiB pages.
const fn split_pages(page_shift: u8, pages: u32) -> (u8, u32) {
    if page_shift == SPLIT_SHIFT {
        // A virtual range of 40 bits has 2^28 small pages.
        (SMALL_SHIFT, pages.saturating_mul(1 << (SPLIT_SHIFT - SMALL_SHIFT)))
    } else {
        (page_shift, pages)
    }
}
