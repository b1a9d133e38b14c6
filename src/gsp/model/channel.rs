//! Channels: what a driver's channel of class c86f is at the back.
//!
//! The driver chooses a channel number for each runlist (by the USERD flags), the GPU behind has slots; a
//! token is the driver's name for a channel, which its doorbell writes hold as well. A channel without a ring
//! (nouveau's golden context) never runs and has no slot.

mod state;

use crate::abi::status::Status;
use crate::abi::values::{ChannelParameters, Id};
use crate::model::config::GspConfig;
use crate::model::engines;
use crate::model::token::{DoorbellTarget, Token};
use gpuvmk_backend::{ChannelRefusal, GspBackend, GspChannel};
use gpuvmk_chip::addr::{Chid, GpuVa, GuestChannel};
use gpuvmk_chip::gh100::userd::{USERD_GP_GET, USERD_GP_PUT, USERD_SIZE};
use gpuvmk_chip::stream::{GPFIFO_ENTRY_SIZE, MAX_GPFIFO_ENTRIES_LOG2};
use gpuvmk_chip::{Aperture, Engine, EngineSet, PhysicalAddress};
use gpuvmk_ordered::OrderedMap;
pub use state::{ChannelState, ChannelsState, Phase, PositionState, RingState};

/// Rings are addressed with 40 bits.
const RING_LIMIT: u64 = 1 << 40;

/// What a channel does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Held back by the driver.
    Idle,
    /// May run.
    Scheduled,
    /// Stopped by an error, for good.
    Stopped,
}

#[derive(Clone, Copy, Debug)]
struct Channel {
    slot: Option<GuestChannel>,
    wanted: Wanted,
    /// What it shares its graphics context by: a share of its group's, or the group.
    context: Option<Id>,
    state: State,
}

/// State of a channel that is kept over a suspension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeptState {
    Idle,
    Scheduled,
    Stopped,
}

/// A channel as it is kept over a suspension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Deferred {
    pub(super) chid: Chid,
    pub(super) engine_type: u32,
    pub(super) userd: u64,
    /// 0 where it never runs.
    pub(super) ring: u64,
    pub(super) ring_log2: u8,
    pub(super) state: KeptState,
    /// How far its ring was read, and written.
    pub(super) get: u32,
    pub(super) put: u32,
}

/// A channel that was made anew, before it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Revived {
    pub(super) slot: GuestChannel,
    pub(super) ring: u64,
    pub(super) get: u32,
    pub(super) put: u32,
}

/// A driver's request, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    runlist: u16,
    chid: Option<Chid>,
    engine: Engine,
    engines: EngineSet,
    userd: PhysicalAddress,
    ring: Option<(GpuVa, u8)>,
    /// The ring of a channel that the back does not have: its driver's kernel's.
    own_ring: Option<(GpuVa, u8)>,
}

/// A channel of its driver's kernel as it begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    pub(super) id: Id,
    pub(super) space: u32,
    pub(super) userd: PhysicalAddress,
    pub(super) engine: Engine,
    pub(super) ring: (GpuVa, u8),
}

/// The status that tells a driver of a refusal by the back.
pub(super) const fn status(refusal: ChannelRefusal) -> Status {
    match refusal {
        ChannelRefusal::Exhausted => Status::InsufficientResources,
        ChannelRefusal::Invalid => Status::InvalidArgument,
        ChannelRefusal::Unsupported => Status::NotSupported,
        ChannelRefusal::Lost => Status::GpuIsLost,
    }
}

/// Checks the parameters of a channel.
pub(super) fn check(config: &GspConfig, asked: &ChannelParameters) -> Result<Wanted, Status> {
    let ChannelParameters { engine, chid, ring, entries, userd, is_drivers_own, .. } = *asked;
    let engine =
        engine.filter(|engine| config.engines.contains((*engine).into())).ok_or(Status::InvalidArgument)?;
    let runlist = engines::runlist(engine);
    if chid.is_some_and(|chid| chid.0 >= config.hal.channels_per_runlist) {
        return Err(Status::InvalidArgument);
    }
    let userd =
        userd.filter(|userd| userd.address.is_multiple_of(USERD_SIZE)).ok_or(Status::InvalidArgument)?;
    match userd.aperture {
        Aperture::Vram if userd.address.checked_add(USERD_SIZE).is_none_or(|end| end > config.vram) => {
            return Err(Status::InvalidAddress);
        }
        Aperture::Vram => {}
        // Hardware reads it in VRAM alone here.
        _ if !is_drivers_own => return Err(Status::InvalidArgument),
        _ => {}
    }
    if !entries.is_power_of_two() || entries.ilog2() > MAX_GPFIFO_ENTRIES_LOG2.into() {
        return Err(Status::InvalidArgument);
    }
    let size = u64::from(entries).saturating_mul(GPFIFO_ENTRY_SIZE);
    if !ring.is_multiple_of(GPFIFO_ENTRY_SIZE) {
        return Err(Status::InvalidArgument);
    }
    if ring.checked_add(size).is_none_or(|end| end > RING_LIMIT) {
        return Err(Status::InvalidLimit);
    }
    // CAST: at most 19.
    #[allow(clippy::cast_possible_truncation, reason = "at most 19")]
    let log2 = entries.ilog2() as u8;
    // The driver's own work asks for what no tenant may do: it is carried out here.
    let ring = (ring != 0).then_some((GpuVa(ring), log2));
    let (ring, own_ring) = if is_drivers_own { (None, ring) } else { (ring, None) };
    let engines = engines::of_runlist(config.engines, runlist);
    Ok(Wanted { runlist, chid, engine, engines, userd, ring, own_ring })
}

impl Wanted {
    /// A channel that is not there.
    const NOTHING: Self = Self {
        runlist: 0,
        chid: None,
        engine: Engine::Graphics,
        engines: EngineSet::empty(),
        userd: PhysicalAddress { aperture: Aperture::Vram, address: 0 },
        ring: None,
        own_ring: None,
    };

    /// Forgets how far the ring of an earlier channel with this USERD was read and written.
    pub(super) fn clear_userd(&self, back: &dyn GspBackend) -> Result<(), Status> {
        const _: () = assert!(USERD_GP_PUT == USERD_GP_GET + 4);
        back.write_memory(inside(self.userd, USERD_GP_GET), &[0; 8]).map_err(|_| Status::InvalidAddress)
    }

    /// The channel, if it is its driver's kernel's and can run, as an object with an address space.
    pub(super) fn begun(&self, id: Id, space: u32) -> Option<Begun> {
        let Self { userd, engine, own_ring, .. } = *self;
        own_ring.map(|ring| Begun { id, space, userd, engine, ring })
    }

    /// True when it can run, and so needs a page directory.
    pub(super) const fn runs(&self) -> bool {
        self.ring.is_some()
    }
}

/// All channels.
#[derive(Debug, Default)]
pub(super) struct Channels {
    table: OrderedMap<Token, Channel>,
    /// The channel in each slot of the back.
    slots: OrderedMap<GuestChannel, Token>,
    /// Where the search for a free slot begins: behind the one used last, so that what comes late about a
    /// channel that is gone finds an empty slot and not its successor.
    next_slot: u16,
    /// Channels are held back all together (a suspend).
    held: bool,
    /// How far the rings of channels were read and written that were made anew and have not run since.
    positions: OrderedMap<Token, (u32, u32)>,
}

impl Channels {
    /// Makes a channel.
    pub(super) fn create(
        &mut self,
        back: &dyn GspBackend,
        config: &GspConfig,
        (wanted, context): (Wanted, Option<Id>),
        page_directory: Option<PhysicalAddress>,
    ) -> Result<Token, Status> {
        let runlist = wanted.runlist;
        let taken = |chid: Chid| self.table.contains_key(&Token { runlist, chid });
        let chid = match wanted.chid {
            Some(chid) if taken(chid) => return Err(Status::StateInUse),
            Some(chid) => chid,
            None => (0..config.hal.channels_per_runlist)
                .map(Chid)
                .find(|chid| !taken(*chid))
                .ok_or(Status::NoFreeFifos)?,
        };
        let token = Token { runlist, chid };
        let slot = match wanted.ring {
            None => None,
            Some((gpfifo, gpfifo_entries_log2)) => {
                let page_directory = page_directory.ok_or(Status::InvalidState)?;
                let slots = config.channels.min(back.channels());
                let start = self.next_slot.min(slots);
                let slot = (start..slots)
                    .chain(0..start)
                    .map(GuestChannel)
                    .find(|slot| !self.slots.contains_key(slot))
                    .ok_or(Status::NoFreeFifos)?;
                let Wanted { userd: PhysicalAddress { address: userd, .. }, engines, .. } = wanted;
                let context_of = context.filter(|_| engines.contains(Engine::Graphics.into()));
                let context_of = context_of.and_then(|context| self.slot_with(context));
                back.create_channel(
                    slot,
                    GspChannel { page_directory, gpfifo, gpfifo_entries_log2, userd, engines, context_of },
                )
                .map_err(status)?;
                self.slots.insert(slot, token);
                self.next_slot = slot.0.saturating_add(1);
                Some(slot)
            }
        };
        self.table.insert(token, Channel { slot, wanted, context, state: State::Idle });
        Ok(token)
    }

    /// The slot of a channel that has a graphics context by that share or group.
    fn slot_with(&self, context: Id) -> Option<GuestChannel> {
        let has_it = |channel: &&Channel| {
            channel.context == Some(context) && channel.wanted.engines.contains(Engine::Graphics.into())
        };
        self.table.values().filter(has_it).find_map(|channel| channel.slot)
    }

    /// Makes an object on a channel.
    pub(super) fn create_object(
        &self,
        back: &dyn GspBackend,
        token: Token,
        class: u32,
        engine: Engine,
    ) -> Result<(), Status> {
        let channel = self.table.get(&token).ok_or(Status::InvalidChannel)?;
        if !channel.wanted.engines.contains(engine.into()) {
            return Err(Status::InvalidClass);
        }
        match channel.slot {
            None => Ok(()),
            Some(slot) => back.create_object(slot, class, engine).map_err(|refusal| match refusal {
                ChannelRefusal::Unsupported => Status::InvalidClass,
                other => status(other),
            }),
        }
    }

    /// True when the back has the channel.
    pub(super) fn is_at_back(&self, token: Token) -> bool {
        self.table.get(&token).is_some_and(|channel| channel.slot.is_some())
    }

    /// True when the channel can use the engine.
    pub(super) fn has_engine(&self, token: Token, engine: Engine) -> bool {
        self.table.get(&token).is_some_and(|channel| channel.wanted.engines.contains(engine.into()))
    }

    /// Lets a channel run, or holds it back.
    pub(super) fn schedule(&mut self, back: &dyn GspBackend, token: Token, on: bool) -> Result<(), Status> {
        let held = self.held;
        let channel = self.table.get_mut(&token).ok_or(Status::InvalidChannel)?;
        if channel.state == State::Stopped {
            return if on { Err(Status::InvalidState) } else { Ok(()) };
        }
        if let Some(slot) = channel.slot
            && !held
        {
            back.schedule_channel(slot, on).map_err(status)?;
        }
        channel.state = if on { State::Scheduled } else { State::Idle };
        Ok(())
    }

    /// True while a channel may run.
    pub(super) fn may_run(&self, token: Token) -> bool {
        let is_scheduled = |channel: &Channel| channel.state == State::Scheduled;
        !self.held && self.table.get(&token).is_some_and(is_scheduled)
    }

    /// True while all channels are held back.
    pub(super) const fn is_held(&self) -> bool {
        self.held
    }

    /// Holds all channels back, or lets those run again that may.
    pub(super) fn hold(&mut self, back: &dyn GspBackend, held: bool) -> Result<(), Status> {
        if self.held == held {
            return Ok(());
        }
        self.held = held;
        let mut outcome = Ok(());
        for channel in self.table.values().filter(|channel| channel.state == State::Scheduled) {
            if let Some(slot) = channel.slot {
                outcome = outcome.and(back.schedule_channel(slot, !held).map_err(status));
            }
        }
        outcome
    }

    /// Takes a channel away.
    pub(super) fn destroy(&mut self, back: &dyn GspBackend, token: Token) {
        self.positions.remove(&token);
        if let Some(Channel { slot: Some(slot), .. }) = self.table.remove(&token) {
            self.slots.remove(&slot);
            back.destroy_channel(slot);
        }
    }

    /// Takes all channels away.
    pub(super) fn clear(&mut self, back: &dyn GspBackend) {
        while let Some(token) = self.table.keys().next().copied() {
            self.destroy(back, token);
        }
        self.held = false;
    }

    /// Notes that the back stopped a channel; `None` when there is none in the slot or it was stopped before.
    pub(super) fn stopped(&mut self, slot: GuestChannel) -> Option<Token> {
        let token = *self.slots.get(&slot)?;
        let channel = self.table.get_mut(&token)?;
        if channel.state == State::Stopped {
            return None;
        }
        channel.state = State::Stopped;
        Some(token)
    }

    /// The channel of a doorbell token. A stopped one has no doorbell any more.
    pub(super) fn doorbell_target(&self, token: Token) -> Option<DoorbellTarget> {
        let channel = self.table.get(&token).filter(|channel| channel.state != State::Stopped)?;
        channel.slot.map(|slot| DoorbellTarget { channel: slot, userd: channel.wanted.userd.address })
    }

    /// The state of a channel that a suspension keeps. The position in its ring is in its USERD, as on
    /// hardware.
    pub(super) fn kept(&self, back: &dyn GspBackend, token: Token) -> Deferred {
        let channel = self.table.get(&token);
        let Wanted { userd, ring, engine, .. } = channel.map_or(Wanted::NOTHING, |channel| channel.wanted);
        let state = match channel.map_or(State::Stopped, |channel| channel.state) {
            State::Idle => KeptState::Idle,
            State::Scheduled => KeptState::Scheduled,
            State::Stopped => KeptState::Stopped,
        };
        let (ring, ring_log2) = ring.map_or((0, 0), |(ring, log2)| (ring.0, log2));
        let (get, put) = if ring == 0 { (0, 0) } else { position(back, userd, ring_log2) };
        let (engine_type, userd) = (engine.nv2080_type(), userd.address);
        Deferred { chid: token.chid, engine_type, userd, ring, ring_log2, state, get, put }
    }

    /// Brings a channel that was just made into a state that was kept.
    pub(super) fn keep(
        &mut self,
        back: &dyn GspBackend,
        token: Token,
        state: KeptState,
    ) -> Result<(), Status> {
        match state {
            KeptState::Idle => Ok(()),
            KeptState::Scheduled => self.schedule(back, token, true),
            KeptState::Stopped => {
                self.stop(token);
                Ok(())
            }
        }
    }

    /// Stops a channel for good; returns its engine, for the driver, if the back has it.
    pub(super) fn stop(&mut self, token: Token) -> Option<Engine> {
        let channel = self.table.get_mut(&token)?;
        channel.state = State::Stopped;
        channel.slot.map(|_| channel.wanted.engine)
    }

    /// Notes how far rings were read and written that channels made anew go on with.
    pub(super) fn set_positions(&mut self, positions: OrderedMap<Token, (u32, u32)>) {
        self.positions = positions;
    }

    /// Takes what was noted, of channels that may run.
    pub(super) fn take_positions(&mut self) -> Vec<(Token, Revived)> {
        let revived = |(token, (get, put))| {
            let channel: &Channel = self.table.get(&token)?;
            let (ring, _) = channel.wanted.ring?;
            let runs = channel.state != State::Stopped;
            runs.then_some((token, Revived { slot: channel.slot?, ring: ring.0, get, put }))
        };
        std::mem::take(&mut self.positions).into_iter().filter_map(revived).collect()
    }
}

/// A place in a USERD.
pub(super) fn inside(userd: PhysicalAddress, offset: u64) -> PhysicalAddress {
    PhysicalAddress { address: userd.address.saturating_add(offset), ..userd }
}

/// GP_GET and GP_PUT from the guest's memory. Invalid numbers mean a ring that cannot be continued.
fn position(back: &dyn GspBackend, userd: PhysicalAddress, ring_log2: u8) -> (u32, u32) {
    let word = |offset: u64| {
        let mut word = [0; 4];
        let read = back.read_memory(inside(userd, offset), &mut word);
        read.ok().map(|()| u32::from_le_bytes(word)).filter(|place| place >> ring_log2 == 0)
    };
    match (word(USERD_GP_GET), word(USERD_GP_PUT)) {
        (Some(get), Some(put)) => (get, put),
        _ => ((1 << ring_log2) - 1, 0),
    }
}
