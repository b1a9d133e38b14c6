//! Carries a guest driver's actions out on the host: the part that all chips have in common.
//!
//! Pure bookkeeping over [`Host`]; the caller holds the mediator's lock. An error of any step puts the vGPU
//! into its fail-safe state. A [`ChannelControl`] inside has the channels of a chip.

use std::fmt;
use std::os::fd::OwnedFd;
use std::time::Instant;

use super::channel_flags::ChannelFlags;
use super::guest_ram::GuestRam;
use super::host::{Host, Terms};
use super::memory::Memory;
use super::placement::{BAR3_MAPPED, Tables};
use super::spaces::Spaces;
use super::status::{FailSafe, FailSafeRecord, State};
use gpuvmk_aggregator::link::LinkError;
use gpuvmk_aggregator::protocol::{Doorbell, RefusalKind, Request};
use gpuvmk_aggregator::report::FailSafeState;
use gpuvmk_backend::{FlushScope, WindowTables};
use gpuvmk_chip::EngineSet;
use gpuvmk_chip::addr::{GuestChannel, GuestVram};
use gpuvmk_shadow_pagetable::{Limits, MmuFormat};
use gpuvmk_trace::Event;

/// How the drivers of a chip get their channels: by registers and memory (GF100) or by asking firmware
/// (GH100).
pub trait ChannelControl: fmt::Debug + Send + Sized + 'static {
    /// The chip's page tables.
    type Format: MmuFormat + PartialEq + fmt::Debug + Send + Sync;

    /// No channels, as after power-on.
    fn new(terms: &Terms) -> Self;

    /// The host has dropped all channels.
    fn forget_all(&mut self);

    /// Channel numbers that the guest uses.
    fn bound(&self) -> usize;

    /// Channels that exist on the host.
    fn placed(&self) -> usize;

    /// Engines of a live channel that a doorbell is the first to show.
    fn new_engines(_channel: GuestChannel, _live: &ChannelFlags, _memory: &Memory<'_>) -> EngineSet {
        EngineSet::empty()
    }

    /// Gives a running channel contexts for more engines, and rings it.
    ///
    /// # Errors
    /// The vGPU must go into fail-safe state.
    fn add_engines(
        _control: &mut Control<Self>,
        _channel: GuestChannel,
        _engines: EngineSet,
        _host: &Host<'_>,
    ) -> Result<(), FailSafe> {
        Ok(())
    }
}

/// The front-end side's state.
#[derive(Debug)]
pub struct Control<C: ChannelControl> {
    pub(super) state: State,
    pub(super) record: FailSafeRecord,
    pub(super) ram: GuestRam,
    /// The eventfd that sends the guest's message.
    pub(super) message: Option<OwnedFd>,
    pub(super) spaces: Spaces<C::Format>,
    bar3: Bar3<C::Format>,
    pub(super) chip: C,
}

/// The tables of BAR3, and the mappings that were found in them.
#[derive(Debug)]
struct Bar3<F> {
    tables: Option<WindowTables>,
    followed: Tables<F>,
}

impl<C: ChannelControl> Control<C> {
    /// Everything as after power-on, which page tables of `format` are.
    pub fn new(terms: &Terms, limits: Option<Limits>, format: C::Format) -> Self {
        Self {
            state: State::Running,
            record: FailSafeRecord::default(),
            ram: GuestRam::default(),
            message: None,
            spaces: Spaces::new(format, limits, terms.spaces),
            bar3: Bar3 { tables: None, followed: Tables::new(format, BAR3_MAPPED) },
            chip: C::new(terms),
        }
    }

    /// As after power-on; memory and the message stay announced.
    pub fn reset(&mut self, terms: &Terms, limits: Option<Limits>, format: C::Format) {
        let ram = std::mem::take(&mut self.ram);
        let message = self.message.take();
        let record = FailSafeRecord { now: None, ..self.record };
        *self = Self { ram, message, record, ..Self::new(terms, limits, format) };
    }

    /// Stops serving the guest: everything of it goes off the hardware. `cause` is when what led here began.
    pub fn fail(&mut self, reason: FailSafe, cause: Instant, host: &Host<'_>) {
        // A process that is ordered to end loses its aggregator by that.
        let level = if host.link.is_ending() { log::Level::Debug } else { log::Level::Warn };
        log::log!(level, "The vGPU is in fail-safe state until its next reset: {reason}");
        self.record.now = Some(FailSafeState::new(reason.reason(), cause.elapsed()));
        self.record.count = self.record.count.saturating_add(1);
        host.tracer.event(|| Event::Refusal { reason: reason.reason().name().to_owned(), place: 0 });
        if !matches!(reason, FailSafe::AggregatorLost(_)) {
            // Only the link can still fail here, and then the aggregator drops everything anyway.
            let _ = host.request(&Request::Reset { scrub: false });
        }
        host.live.clear_all();
        self.spaces.forget_all();
        self.chip.forget_all();
        self.state = State::FailSafe(reason);
    }

    /// BAR3 goes through these tables now, or the same ones say something else.
    pub fn show_bar3(&mut self, tables: Option<WindowTables>, host: &Host<'_>) -> Result<(), FailSafe> {
        self.bar3.tables = tables;
        self.follow_bar3(host)
    }

    /// PRAMIN shows VRAM from an address on, or something else.
    pub fn show_pramin(&mut self, start: Option<u64>, host: &Host<'_>) -> Result<(), FailSafe> {
        host.placement.map_or(Ok(()), |placement| {
            placement.move_pramin(start, &host.surroundings(&self.spaces.mapped(host)))
        })
    }

    /// Brings pages to where BAR3 shows them.
    pub(super) fn follow_bar3(&mut self, host: &Host<'_>) -> Result<(), FailSafe> {
        let Some(placement) = host.placement else { return Ok(()) };
        let Bar3 { tables, followed } = &mut self.bar3;
        match followed.follow(*tables, self.spaces.format(), &host.memory) {
            Ok(changes) => placement.apply(&changes, &host.surroundings(&self.spaces.mapped(host))),
            Err(refusal) => {
                host.meters.too_many_tables();
                Err(FailSafe::QuotaExceeded(format!("BAR3's page tables: {refusal}")))
            }
        }
    }

    /// Hardware is to read a channel's USERD from now on.
    pub(super) fn begin_userd(&self, userd: GuestVram, size: u64, host: &Host<'_>) -> Result<(), FailSafe> {
        host.placement.map_or(Ok(()), |placement| {
            placement.begin_userd(userd, size, &host.surroundings(&self.spaces.mapped(host)))
        })
    }

    /// The channel is gone.
    pub(super) fn end_userd(&self, userd: GuestVram, host: &Host<'_>) -> Result<(), FailSafe> {
        host.placement.map_or(Ok(()), |placement| {
            placement.end_userd(userd, &host.surroundings(&self.spaces.mapped(host)))
        })
    }

    /// The TLB was invalidated.
    pub fn flush(&mut self, scope: FlushScope, host: &Host<'_>) -> Result<(), FailSafe> {
        host.counters.flushes.one();
        host.tracer.event(|| Event::Flush { directory: scope.page_directory.address });
        host.meters.flushes.admit();
        // The host unit fetches commands through the hub's TLB, so even a hub-only invalidation counts.
        self.spaces.sync(scope.page_directory, host)
    }
}

/// True when a refusal concerns one channel only, which then does not run; the vGPU goes on.
pub(super) fn is_about_channel(error: &LinkError) -> bool {
    match error {
        LinkError::Refused { kind, .. } => matches!(
            kind,
            RefusalKind::Exhausted | RefusalKind::Quota | RefusalKind::OutsidePartition | RefusalKind::BadId
        ),
        LinkError::Lost(_) => false,
    }
}

/// Where hardware has got to in a channel's ring, and where the driver wants it, in its USERD.
#[derive(Clone, Copy, Debug)]
pub(super) struct UserdOffsets {
    pub get: u64,
    pub put: u64,
}

/// Doorbells that came before hardware had the channel were lost: ring again if work waits.
pub(super) fn ring_if_pending(
    channel: GuestChannel,
    userd: GuestVram,
    offsets: UserdOffsets,
    host: &Host<'_>,
) {
    if let Some((get, put)) = progress(userd, offsets, host)
        && get != put
    {
        host.ring(Doorbell { channel, gp_put: put });
    }
}

/// The other doorbells, of work that hardware has done by now.
pub(super) fn ring_if_done(channel: GuestChannel, userd: GuestVram, offsets: UserdOffsets, host: &Host<'_>) {
    if let Some((get, put)) = progress(userd, offsets, host)
        && get == put
    {
        host.ring(Doorbell { channel, gp_put: put });
    }
}

/// GP_GET and GP_PUT.
fn progress(userd: GuestVram, offsets: UserdOffsets, host: &Host<'_>) -> Option<(u32, u32)> {
    let word = |offset| host.memory.vram_u32(userd.0, offset).ok();
    word(offsets.get).zip(word(offsets.put))
}
