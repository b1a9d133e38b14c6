//! How a vGPU reaches its aggregator: in process (tests, the own VMM) or through a socket and shared rings.

use std::os::fd::OwnedFd;

use super::protocol::{Doorbell, Event, RefusalKind, Request};
use super::report::Report;
use gpuvmk_chip::EngineSet;
use gpuvmk_fifo_virt::CopiedBytes;
use gpuvmk_pci::SharedMemory;
use gpuvmk_units::backend::InterruptInterest;

/// Why a request to the aggregator failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The aggregator said no; the tenant's state is unchanged but for what the request's text says.
    #[error("The aggregator refused: {message}")]
    Refused {
        /// Class of refusal.
        kind: RefusalKind,
        /// What, where, what was allowed.
        message: String,
    },
    /// The aggregator is gone.
    #[error("The aggregator is gone: {0}")]
    Lost(String),
}

/// What admission granted.
#[derive(Debug)]
pub struct Grant {
    /// VRAM in bytes.
    pub vram: u64,
    /// Guest channel numbers are below this.
    pub channels: u16,
    /// Address-space numbers are below this.
    pub spaces: u16,
    /// Engines of the physical GPU.
    pub engines: EngineSet,
    /// Virtual addresses are below 2 to this.
    pub va_bits: u8,
    /// Page sizes of the physical GPU, as log2, smallest first.
    pub page_shifts: Vec<u8>,
    /// True when CPU reads of the window are slow.
    pub slow_vram_reads: bool,
    /// The partition's memory, in order and without gaps.
    pub window: Vec<SharedMemory>,
}

/// Notifications of finished work that were not told when they came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deferred {
    /// The work's engines.
    pub engines: EngineSet,
    /// The aggregator has sent the vGPU's message.
    pub sent: bool,
}

/// Receives what the aggregator tells a tenant. Called from the link's own thread (or the caller's, in
/// process); must not call the link back from within.
pub trait EventHandler: Send + Sync {
    /// An event arrived.
    fn event(&self, event: Event);
    /// The aggregator is gone; nothing follows.
    fn lost(&self, reason: &str);
}

/// A tenant's connection to its aggregator, after admission.
///
/// Every method may be called from any thread. Only [`Self::request`] waits for an answer. No method has a
/// default: whoever wraps a link says what becomes of each.
pub trait AggregatorLink: Send + Sync {
    /// Sends a request, with the file of a [`Request::DmaMap`] or [`Request::MessageEvent`], and waits for
    /// the answer. The aggregator answers without waiting for GPU work.
    ///
    /// # Errors
    /// Refused, or the aggregator is gone.
    fn request(&self, request: &Request, file: Option<OwnedFd>) -> Result<(), LinkError>;

    /// True once this side is to end: no request is answered any more, and what the aggregator has of this
    /// tenant is taken back when the connection closes.
    fn is_ending(&self) -> bool;

    /// Tells of new work: no lock shared with other tenants, no answer.
    fn doorbell(&self, doorbell: Doorbell);

    /// Tells operators how this side is. No answer.
    fn report(&self, report: &Report);

    /// Tells operators how much the guest copied so far. No answer; calls must not overlap.
    fn report_copied(&self, copied: &CopiedBytes);

    /// Tells operators how many accesses of the guest were answered so far. No answer; calls must not
    /// overlap.
    fn report_trapped(&self, accesses: u64);

    /// Says what the driver would notice of a notification of finished work now. Before the first call it
    /// notices all.
    ///
    /// A notification that it would not notice wakes nobody up, and is kept. The next call with something
    /// else answers with those that were kept. One that is a message to the driver is sent by the aggregator,
    /// once, if it knows how ([`Request::MessageEvent`]).
    fn set_notification_interest(&self, interest: InterruptInterest) -> Deferred;

    /// Notifications of finished work that were not told so far. If a message was sent for them, there is
    /// none again before [`Self::set_notification_interest`] says so.
    fn take_notifications(&self) -> Deferred;

    /// Connects the receiver of events; the link delivers nothing before.
    fn connect(&self, handler: std::sync::Arc<dyn EventHandler>);
}
