//! Everything that carrying out a guest's request needs: the link to the aggregator, the guest's memory,
//! counters.

use std::cell::Cell;
use std::fmt;
use std::os::fd::OwnedFd;
use std::time::Instant;

use super::channel_flags::ChannelFlags;
use super::copies::Copies;
use super::memory::Memory;
use super::placement::{Engines, PagePlacement, Requests, Surroundings};
use super::quotas::Meters;
use super::status::Counters;
use gpuvmk_aggregator::link::{AggregatorLink, LinkError};
use gpuvmk_aggregator::protocol::{Doorbell, Request};
use gpuvmk_chip::{EngineSet, TextureClusters};
use gpuvmk_trace::Tracer;

/// The aggregator's grant, besides memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Guest channel numbers are below this.
    pub channels: u16,
    /// Address-space numbers are below this.
    pub spaces: u16,
    /// Engines of the physical GPU.
    pub engines: EngineSet,
    /// What its graphics engine has, where that is not all of its chip.
    pub texture_clusters: Option<TextureClusters>,
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
    /// Where pages that BAR3 and PRAMIN show are, if those are memory.
    pub placement: Option<&'a PagePlacement>,
    pub live: &'a ChannelFlags,
    pub copies: &'a Copies,
    pub counters: &'a Counters,
    pub meters: &'a Meters,
    pub tracer: &'a Tracer,
    /// Start of the step under way: the guest's request, or the last request to the aggregator since. A cause
    /// of fail-safe state is no older.
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

    /// The surroundings for moving pages, with the address spaces that `engines` knows.
    pub fn surroundings<'b>(&'b self, engines: &'b dyn Engines) -> Surroundings<'b> {
        Surroundings { window: self.memory.window, counters: self.counters, meters: self.meters, engines }
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

impl Requests for Host<'_> {
    fn send(&self, request: &Request, file: Option<OwnedFd>) -> Result<(), LinkError> {
        self.request_with(request, file)
    }
}
