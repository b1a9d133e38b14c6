//! How a vGPU reaches its aggregator: in process (tests, the own VMM) or through a socket and shared rings.

use std::os::fd::OwnedFd;

use super::protocol::{Doorbell, Event, RefusalKind, Request};
use super::report::Report;
use gpuvmk_backend::{EngineTime, InterruptInterest};
use gpuvmk_chip::{EngineSet, TextureClusters};
use gpuvmk_control_client::DriverCounters;
use gpuvmk_fifo_virt::CopiedBytes;
use gpuvmk_pci::SharedMemory;

/// Why a request to the aggregator failed. The text is for people; a program decides by `kind`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The aggregator answered and did not carry the request out. The tenant's state is unchanged,
    /// except after a [`Request::UpdateSpace`], and where hardware failed: a part may be done then.
    #[error("The aggregator refused: {message}")]
    Refused {
        /// The kind of refusal, by which the caller chooses its guest's error.
        kind: RefusalKind,
        /// A sentence: what was refused, where, and what is allowed.
        message: String,
    },
    /// There is no aggregator any more: its process ended, or it closed the connection. Every later request
    /// fails so too.
    #[error("The aggregator is gone: {0}")]
    Lost(String),
}

/// The grant of an admission. It is valid as long as the connection, and no request may go beyond it.
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
    /// True when loads from the window are slow, as over a bus.
    pub slow_vram_reads: bool,
    /// What the graphics engine has, where that is not all of its chip.
    pub texture_clusters: Option<TextureClusters>,
    /// The partition's memory as files: in order, without gaps, `vram` bytes together. The caller owns the
    /// descriptors.
    pub window: Vec<SharedMemory>,
}

/// Notifications of finished work that were held back until they were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deferred {
    /// Engines on which work ended. Empty: none was held back.
    pub engines: EngineSet,
    /// The aggregator has sent the vGPU's message to the driver for them. The caller must not send it again.
    pub sent: bool,
}

/// Receives a tenant's events.
///
/// The link calls it, mostly on its own thread, one call at a time and in the order of the events.
/// Notifications of finished work are the exception: they may come after later events. A handler must not
/// call the link: it may hold locks that the link needs.
pub trait EventHandler: Send + Sync {
    /// An event arrived. Its channel numbers are the guest's.
    fn event(&self, event: Event);
    /// The aggregator is gone. This is the last call. `reason` is a text for the log.
    fn lost(&self, reason: &str);
}

/// A tenant's connection to its aggregator, after admission.
///
/// Every method may be called from any thread. Only [`Self::request`] waits for an answer. Dropping the link
/// ends the tenancy. No method has a default, so a wrapper must decide about each.
pub trait AggregatorLink: Send + Sync {
    /// Sends a request and waits for its answer. Requests of several threads go one after the other.
    ///
    /// `file` comes with [`Request::DmaMap`] and with a [`Request::MessageEvent`] that gives an eventfd, and
    /// with no other request. The aggregator gets a duplicate of it. An answer does not wait for a guest's
    /// work. But a long request is carried out in slices between those of other tenants, and
    /// [`Request::Reset`] is answered when none of the tenant's channels is on hardware any more.
    ///
    /// # Errors
    /// [`LinkError::Refused`]: it was not carried out. [`LinkError::Lost`]: it may or may not have been.
    fn request(&self, request: &Request, file: Option<OwnedFd>) -> Result<(), LinkError>;

    /// True once this process was ordered to end. Requests fail from then on, so the caller should neither
    /// retry nor report them. The aggregator takes everything of the tenant back when the connection closes.
    fn is_ending(&self) -> bool;

    /// Rings the doorbell of a channel. Returns at once: it takes no lock that another tenant can hold, and
    /// has no answer. Doorbells of one channel may merge into the last one. One for a channel that does not
    /// exist is ignored.
    fn doorbell(&self, doorbell: Doorbell);

    /// Publishes this side's state for operators: fail-safe state and use of its limits. The last report
    /// counts. It has no answer, and nothing but the status depends on it.
    fn report(&self, report: &Report);

    /// Publishes for operators how many bytes the guest's engines have copied since the vGPU was made.
    /// It has no answer. Calls must not overlap.
    fn report_copied(&self, copied: &CopiedBytes);

    /// Publishes for operators how many accesses of the guest have been answered since the vGPU was
    /// made. It has no answer. Calls must not overlap.
    fn report_trapped(&self, accesses: u64);

    /// Publishes for operators what was counted of the guest's driver since the vGPU was made. It has no
    /// answer. Calls must not overlap.
    fn report_driver(&self, counters: &DriverCounters);

    /// Sets the interest of the guest's driver in notifications of finished work. Call it whenever that
    /// changes.
    ///
    /// With [`InterruptInterest::Masked`] notifications are held back and wake no thread. With
    /// [`InterruptInterest::Wake`], as at the beginning, they come as [`Event::NonStall`]. With
    /// [`InterruptInterest::Message`] the aggregator sends the message itself, once, if it has an eventfd for
    /// it ([`Request::MessageEvent`]), and holds back the notifications that it sent the message for.
    ///
    /// Returns the notifications that were held back until now. The caller must handle them: they do not come
    /// again. With `Masked`, `engines` is empty, and they stay held back.
    fn set_notification_interest(&self, interest: InterruptInterest) -> Deferred;

    /// Takes the notifications that are held back, for instance when the driver reads what is pending. If a
    /// message was sent for them, the interest is [`InterruptInterest::Wake`] from now on, until
    /// [`Self::set_notification_interest`] says otherwise. The result is empty where nothing was held back.
    fn take_notifications(&self) -> Deferred;

    /// For how long engines have worked for the guest, as the aggregator counts it. It is some hundredths of
    /// a second late.
    fn engine_time(&self) -> EngineTime;

    /// Connects the receiver of events, once. Events that came before are kept, within the size of the ring,
    /// and delivered then.
    fn connect(&self, handler: std::sync::Arc<dyn EventHandler>);
}
