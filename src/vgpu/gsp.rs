//! GH100's channels: the driver asks the virtual GSP for them, which asks here, slot by slot.
//!
//! The driver never sees a runlist: a channel runs from when it is scheduled to when it is not, so the list
//! that the aggregator gets is that of all scheduled slots. Refusals are the driver's to handle; only what
//! the aggregator may not refuse puts the vGPU into its fail-safe state.

use super::control::{ChannelControl, Control, UserdOffsets, ring_if_pending};
use super::copies::{Ring, Tables};
use super::host::{Host, Terms};
use super::status::FailSafe;
use gpuvmk_aggregator::link::LinkError;
use gpuvmk_aggregator::protocol::{RefusalKind, Request};
use gpuvmk_backend::{ChannelRefusal, GspChannel};
use gpuvmk_chip::addr::{GuestChannel, GuestVram};
use gpuvmk_chip::gh100::userd::{USERD_GP_GET, USERD_GP_PUT, USERD_SIZE};
use gpuvmk_chip::gmmu::Gmmu;
use gpuvmk_chip::stream::{GPFIFO_ENTRY_SIZE, MAX_GPFIFO_ENTRIES_LOG2};
use gpuvmk_chip::{Engine, EngineSet, PhysicalAddress};

/// GP_GET and GP_PUT of a USERD, as on every chip since GK104.
const USERD: UserdOffsets = UserdOffsets { get: USERD_GP_GET, put: USERD_GP_PUT };

/// Result of a step on a slot: done, refused to the driver, or the end of the vGPU.
type Step = Result<Result<(), ChannelRefusal>, FailSafe>;

#[derive(Clone, Copy, Debug)]
struct Slot {
    directory: PhysicalAddress,
    userd: GuestVram,
    engines: EngineSet,
    scheduled: bool,
}

/// The channel slots of a GH100.
#[derive(Debug)]
pub struct GspChannels {
    slots: Vec<Option<Slot>>,
}

impl ChannelControl for GspChannels {
    type Format = Gmmu;

    fn new(terms: &Terms) -> Self {
        Self { slots: vec![None; usize::from(terms.channels)] }
    }

    fn forget_all(&mut self) {
        self.slots.fill(None);
    }

    fn bound(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    fn placed(&self) -> usize {
        self.bound()
    }
}

impl Control<GspChannels> {
    /// A new channel in a free slot.
    pub fn create_channel(&mut self, slot: GuestChannel, channel: GspChannel, host: &Host<'_>) -> Step {
        if !matches!(self.chip.slots.get(usize::from(slot.0)), Some(None)) || !is_sound(&channel, host) {
            return Ok(Err(ChannelRefusal::Invalid));
        }
        if channel.engines.is_empty() || !host.terms.engines.contains(channel.engines) {
            return Ok(Err(ChannelRefusal::Unsupported));
        }
        let directory = channel.page_directory;
        let Some(space) = self.spaces.acquire(directory, host)? else {
            return Ok(Err(ChannelRefusal::Exhausted));
        };
        let userd = GuestVram(channel.userd);
        // What is not there, or has no graphics, has no graphics context.
        let context_of = channel.context_of.filter(|other| {
            self.chip.slot(*other).is_some_and(|known| known.engines.contains(Engine::Graphics.into()))
        });
        if context_of != channel.context_of {
            return Ok(Err(ChannelRefusal::Invalid));
        }
        let request = Request::CreateChannel {
            channel: slot,
            space,
            gpfifo: channel.gpfifo,
            gpfifo_entries_log2: channel.gpfifo_entries_log2,
            userd,
            engines: channel.engines,
            context_of,
        };
        self.begin_userd(userd, USERD_SIZE, host)?;
        if let Err(refusal) = answer(host.request(&request))? {
            self.end_userd(userd, host)?;
            self.spaces.release(directory, host)?;
            return Ok(Err(refusal));
        }
        if let Some(place) = self.chip.slots.get_mut(usize::from(slot.0)) {
            *place = Some(Slot { directory, userd, engines: channel.engines, scheduled: false });
        }
        let ring = Ring {
            tables: Tables::Gmmu(self.spaces.format()),
            directory,
            gpfifo: channel.gpfifo,
            entries_log2: channel.gpfifo_entries_log2,
            engines: channel.engines,
        };
        host.copies.begin(slot, ring);
        host.live.set(slot);
        Ok(Ok(()))
    }

    /// An object of a class on a channel.
    pub fn create_object(&mut self, slot: GuestChannel, class: u32, engine: Engine, host: &Host<'_>) -> Step {
        let Some(known) = self.chip.slot(slot) else { return Ok(Err(ChannelRefusal::Invalid)) };
        if !known.engines.contains(engine.into()) {
            return Ok(Err(ChannelRefusal::Unsupported));
        }
        answer(host.request(&Request::CreateObject { channel: slot, class, engine }))
    }

    /// Lets a channel run, or holds it back.
    pub fn schedule_channel(&mut self, slot: GuestChannel, scheduled: bool, host: &Host<'_>) -> Step {
        let Some(known) = self.chip.slot_mut(slot) else { return Ok(Err(ChannelRefusal::Invalid)) };
        let request = Request::EnableChannel { channel: slot, enabled: scheduled };
        if let Err(refusal) = answer(host.request(&request))? {
            return Ok(Err(refusal));
        }
        let changed = known.scheduled != scheduled;
        known.scheduled = scheduled;
        let userd = known.userd;
        if changed {
            host.request(&Request::SetRunlist(self.chip.scheduled()))?;
        }
        if changed && scheduled {
            ring_if_pending(slot, userd, USERD, host);
        }
        Ok(Ok(()))
    }

    /// Takes a channel away.
    pub fn destroy_channel(&mut self, slot: GuestChannel, host: &Host<'_>) -> Result<(), FailSafe> {
        let Some(known) = self.chip.slots.get_mut(usize::from(slot.0)).and_then(Option::take) else {
            return Ok(());
        };
        host.live.clear(slot);
        match host.request(&Request::DestroyChannel(slot)) {
            // The aggregator handles a channel that hardware did not let go.
            Ok(()) | Err(LinkError::Refused { kind: RefusalKind::BadId, .. }) => {}
            Err(error) => return Err(error.into()),
        }
        self.end_userd(known.userd, host)?;
        self.spaces.release(known.directory, host)
    }
}

impl GspChannels {
    fn slot(&self, slot: GuestChannel) -> Option<&Slot> {
        self.slots.get(usize::from(slot.0)).and_then(Option::as_ref)
    }

    fn slot_mut(&mut self, slot: GuestChannel) -> Option<&mut Slot> {
        self.slots.get_mut(usize::from(slot.0)).and_then(Option::as_mut)
    }

    fn scheduled(&self) -> Vec<GuestChannel> {
        (0..)
            .map(GuestChannel)
            .zip(&self.slots)
            .filter(|(_, slot)| slot.is_some_and(|slot| slot.scheduled))
            .map(|(channel, _)| channel)
            .collect()
    }
}

/// True if the aggregator will find no mistake in the request. A mistake here is the driver's, and is refused
/// to it.
fn is_sound(channel: &GspChannel, host: &Host<'_>) -> bool {
    let ring_end = channel
        .gpfifo
        .0
        .checked_add(GPFIFO_ENTRY_SIZE << channel.gpfifo_entries_log2.min(MAX_GPFIFO_ENTRIES_LOG2));
    let reach = 1_u64.checked_shl(u32::from(host.terms.va_bits)).unwrap_or(u64::MAX);
    channel.gpfifo_entries_log2 <= MAX_GPFIFO_ENTRIES_LOG2
        && channel.gpfifo.is_aligned(GPFIFO_ENTRY_SIZE)
        && ring_end.is_some_and(|end| end <= reach)
        && channel.userd.is_multiple_of(USERD_SIZE)
        && channel.userd.checked_add(USERD_SIZE).is_some_and(|end| end <= host.memory.window.size())
}

/// Separates errors that the driver can handle from those that end the vGPU.
fn answer(result: Result<(), LinkError>) -> Step {
    let Err(error) = result else { return Ok(Ok(())) };
    let LinkError::Refused { kind, .. } = &error else { return Err(error.into()) };
    Ok(Err(match kind {
        // A physical GPU that fails to make something has not lost what it made before: if it is gone
        // altogether, the event that says so is on its way.
        RefusalKind::Exhausted | RefusalKind::Quota | RefusalKind::Hardware | RefusalKind::MemoryLost => {
            ChannelRefusal::Exhausted
        }
        RefusalKind::OutsidePartition | RefusalKind::BadId => ChannelRefusal::Invalid,
        RefusalKind::Class => ChannelRefusal::Unsupported,
        RefusalKind::Protocol | RefusalKind::Version | RefusalKind::Name | RefusalKind::Chip => {
            return Err(error.into());
        }
    }))
}
