//! What a request of the guest needs to be carried out: the link to the aggregator, the guest's memory, counters.

use std::os::fd::OwnedFd;

use super::events::EventPath;
use super::memory::Memory;
use super::status::Counters;
use crate::aggregator::link::{AggregatorLink, LinkError};
use crate::aggregator::protocol::{GuestMapping, GuestRange, RefusalKind, Request, SpaceId};
use crate::shadow_pagetable::RunSink;

/// The host side, as one request of the guest uses it.
pub(super) struct Host<'a> {
    pub link: &'a dyn AggregatorLink,
    pub memory: Memory<'a>,
    pub events: &'a EventPath,
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

/// Sends the changes of one address space.
pub(super) struct SpaceSink<'a, 'h> {
    pub host: &'a Host<'h>,
    pub space: SpaceId,
}

impl RunSink for SpaceSink<'_, '_> {
    type Error = LinkError;

    fn batch(&mut self, unmap: Vec<GuestRange>, map: Vec<GuestMapping>) -> Result<(), LinkError> {
        match self.host.request(&Request::UpdateSpace { space: self.space, unmap, map }) {
            // The aggregator knows better which targets are the guest's: it made faults of the others.
            Err(LinkError::Refused { kind: RefusalKind::OutsidePartition, .. }) => Ok(()),
            result => result,
        }
    }
}
