//! The saved state of the channels.

use crate::abi::values::{ChannelParameters, Id};
use gpuvmk_chip::addr::{Chid, GpuVa, GuestChannel};
use gpuvmk_chip::stream::MAX_GPFIFO_ENTRIES_LOG2;
use gpuvmk_chip::{Aperture, Engine, PhysicalAddress};
use gpuvmk_ordered::OrderedMap;
use gpuvmk_saved_state::{Check, StateError};
use serde::{Deserialize, Serialize};

use super::{Begun, Channel, Channels, State, Wanted, check};
use crate::model::GspConfig;
use crate::model::token::Token;

/// State of [`Channels`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChannelsState {
    /// All channels, by runlist and number.
    pub channels: Vec<ChannelState>,
    /// Where the search for a free slot begins.
    pub next_slot: u16,
    /// Channels are held back all together.
    pub held: bool,
    /// How far rings were read and written of channels that were made anew and have not run since.
    pub positions: Vec<PositionState>,
}

/// A channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChannelState {
    /// Its runlist.
    pub runlist: u16,
    /// Its number there.
    pub chid: Chid,
    /// Its slot at the back; none for a channel without a ring.
    pub slot: Option<GuestChannel>,
    /// Its engine.
    pub engine: Engine,
    /// Address of its USERD.
    pub userd: u64,
    /// It is one of system memory, and not of VRAM. Since version 4.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub userd_in_system: bool,
    /// What it shares its graphics context by: client and handle of a share of its group's, or of the group.
    #[serde(default)]
    pub context: Option<(u32, u32)>,
    /// Its ring.
    pub ring: Option<RingState>,
    /// What it does.
    pub phase: Phase,
}

/// A channel's ring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RingState {
    /// Virtual address.
    pub address: u64,
    /// log2 of its entries.
    pub entries_log2: u8,
}

/// What a channel does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Held back by the driver.
    Idle,
    /// May run.
    Scheduled,
    /// Stopped by an error, for good.
    Stopped,
}

/// How far a channel's ring was read and written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PositionState {
    /// Runlist of the channel.
    pub runlist: u16,
    /// Its number there.
    pub chid: Chid,
    /// GP_GET.
    pub get: u32,
    /// GP_PUT.
    pub put: u32,
}

impl Channels {
    /// The state to save.
    pub(in super::super) fn state(&self) -> ChannelsState {
        // The slots follow from the channels.
        let Self { table, slots: _, next_slot, held, positions } = self;
        let channel = |(token, channel): (&Token, &Channel)| {
            let Channel { slot, wanted, context, state } = *channel;
            // Its number is known by now, and the engines are those of its runlist.
            // What its driver's kernel told it is kept elsewhere, with its ring.
            let Wanted { runlist: _, chid: _, engine, engines: _, userd, ring, own_ring: _ } = wanted;
            ChannelState {
                runlist: token.runlist,
                chid: token.chid,
                slot,
                engine,
                userd: userd.address,
                userd_in_system: userd.aperture != Aperture::Vram,
                context: context.map(|Id { client, handle }| (client, handle)),
                ring: ring.map(|(address, entries_log2)| RingState { address: address.0, entries_log2 }),
                phase: match state {
                    State::Idle => Phase::Idle,
                    State::Scheduled => Phase::Scheduled,
                    State::Stopped => Phase::Stopped,
                },
            }
        };
        let position = |(token, (get, put)): (&Token, &(u32, u32))| PositionState {
            runlist: token.runlist,
            chid: token.chid,
            get: *get,
            put: *put,
        };
        ChannelsState {
            channels: table.iter().map(channel).collect(),
            next_slot: *next_slot,
            held: *held,
            positions: positions.iter().map(position).collect(),
        }
    }

    /// Channels in a saved state, which the back has already.
    ///
    /// # Errors
    /// A channel is not one that a driver can have, two have the same slot, or a position is of no ring.
    pub(in super::super) fn from_state(
        state: &ChannelsState,
        config: &GspConfig,
    ) -> Result<Self, StateError> {
        let rule = Check("channels");
        let mut channels = Self { next_slot: state.next_slot, held: state.held, ..Self::default() };
        rule.that(state.next_slot <= config.channels, || format!("the next slot is {}", state.next_slot))?;
        for saved in &state.channels {
            let token = Token { runlist: saved.runlist, chid: saved.chid };
            let ascends = channels.table.last_key_value().is_none_or(|(last, _)| *last < token);
            rule.that(ascends, || format!("{token:?} is not in its place"))?;
            let channel = channel(config, token, saved);
            let channel = channel.ok_or_else(|| {
                StateError::new("channels", format!("no driver can have {saved:?}, of {}", config.channels))
            })?;
            if let Some(slot) = channel.slot {
                let before = channels.slots.insert(slot, token);
                rule.that(before.is_none(), || format!("{slot:?} is taken twice"))?;
            }
            channels.table.insert(token, channel);
        }
        channels.positions = channels.positions_of(rule, &state.positions)?;
        Ok(channels)
    }

    fn positions_of(
        &self,
        rule: Check,
        state: &[PositionState],
    ) -> Result<OrderedMap<Token, (u32, u32)>, StateError> {
        let mut positions: OrderedMap<Token, (u32, u32)> = OrderedMap::new();
        for PositionState { runlist, chid, get, put } in state {
            let token = Token { runlist: *runlist, chid: *chid };
            let ring = self.table.get(&token).and_then(|channel| channel.wanted.ring);
            let fits = ring.is_some_and(|(_, log2)| get >> log2 == 0 && put >> log2 == 0);
            let ascends = positions.last_key_value().is_none_or(|(last, _)| *last < token);
            rule.that(fits && ascends, || format!("{token:?} is at no place of a ring"))?;
            positions.insert(token, (*get, *put));
        }
        Ok(positions)
    }

    /// True when there is such a channel.
    pub(in super::super) fn has(&self, token: Token) -> bool {
        self.table.contains_key(&token)
    }

    /// True when the channel has a ring.
    pub(in super::super) fn has_ring(&self, token: Token) -> bool {
        self.table.get(&token).is_some_and(|channel| channel.wanted.runs())
    }

    /// A channel as one of its driver's kernel: that object, with a ring; none if it is none that could be.
    pub(in super::super) fn begun(
        &self,
        token: Token,
        id: Id,
        space: u32,
        ring: (GpuVa, u8),
    ) -> Option<Begun> {
        let wanted = self.table.get(&token)?.wanted;
        let wanted = Wanted { own_ring: Some(ring), ..wanted };
        wanted.begun(id, space).filter(|_| !wanted.runs())
    }

    /// All of them.
    pub(in super::super) fn tokens(&self) -> impl Iterator<Item = Token> {
        self.table.keys().copied()
    }
}

/// The channel, as the driver would have to ask for it, if it can.
fn channel(config: &GspConfig, token: Token, saved: &ChannelState) -> Option<Channel> {
    let log2 = saved.ring.as_ref().map_or(0, |ring| u32::from(ring.entries_log2));
    let aperture = if saved.userd_in_system { Aperture::SystemCoherent } else { Aperture::Vram };
    let parameters = ChannelParameters {
        space: 0,
        engine: Some(saved.engine),
        chid: Some(token.chid),
        ring: saved.ring.as_ref().map_or(0, |ring| ring.address),
        entries: 1u32.checked_shl(log2).filter(|_| log2 <= MAX_GPFIFO_ENTRIES_LOG2.into())?,
        userd: Some(PhysicalAddress { aperture, address: saved.userd }),
        // Only those have it there.
        is_drivers_own: saved.userd_in_system,
        ..ChannelParameters::default()
    };
    let wanted = check(config, &parameters).ok()?;
    let same = wanted.runlist == token.runlist
        && wanted.chid == Some(token.chid)
        && wanted.ring.is_some() == saved.ring.is_some()
        && saved.slot.is_some() == saved.ring.is_some()
        && saved.slot.is_none_or(|slot| slot.0 < config.channels);
    let state = match saved.phase {
        Phase::Idle => State::Idle,
        Phase::Scheduled => State::Scheduled,
        Phase::Stopped => State::Stopped,
    };
    let context = saved.context.map(|(client, handle)| Id { client, handle });
    same.then_some(Channel { slot: saved.slot, wanted, context, state })
}
