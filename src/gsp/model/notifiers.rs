//! Where NVIDIA's own driver looks for errors of its channels: a notifier each, in memory that it names when
//! it makes a channel. Firmware writes there; the driver's kernel only wakes up who waits.
//!
//! A debugger of the driver's libraries asks for the fault that ended a channel's context.

use zerocopy::{Immutable, IntoBytes};

use crate::abi::values::FaultOfChannel;
use crate::model::channel::Channels;
use crate::model::robust_channel::RobustChannelError;
use crate::model::token::Token;
use gpuvmk_backend::GspBackend;
use gpuvmk_chip::PhysicalAddress;
use gpuvmk_chip::addr::Chid;
use gpuvmk_ordered::OrderedMap;
use gpuvmk_saved_state::{Check, StateError};
use serde::{Deserialize, Serialize};

/// State of [`Notifiers`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NotifiersState {
    /// Runlist and number of each channel that has one, in their order, and where.
    pub places: Vec<(u16, Chid, PhysicalAddress)>,
    /// The same of those that a fault ended, and the fault.
    pub faults: Vec<(u16, Chid, FaultOfChannel)>,
}

/// `NvNotification`.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
struct NvNotification {
    nanoseconds: [u32; 2],
    info32: u32,
    info16: u16,
    status: u16,
}

/// `status` of an error.
const ERROR: u16 = 0xffff;

/// The notifiers of all channels that have one, and the faults of all that had one.
#[derive(Debug, Default)]
pub(super) struct Notifiers {
    places: OrderedMap<Token, PhysicalAddress>,
    faults: OrderedMap<Token, FaultOfChannel>,
}

impl Notifiers {
    /// The state to save.
    pub(super) fn state(&self) -> NotifiersState {
        let Self { places, faults } = self;
        NotifiersState {
            places: places.iter().map(|(token, place)| (token.runlist, token.chid, *place)).collect(),
            faults: faults.iter().map(|(token, fault)| (token.runlist, token.chid, *fault)).collect(),
        }
    }

    /// Those of a saved state, of these channels.
    ///
    /// # Errors
    /// They are not of channels, each once and in their order.
    pub(super) fn from_state(state: &NotifiersState, channels: &Channels) -> Result<Self, StateError> {
        Ok(Self { places: by_token(&state.places, channels)?, faults: by_token(&state.faults, channels)? })
    }

    /// A channel has its notifier there.
    pub(super) fn set(&mut self, token: Token, place: PhysicalAddress) {
        self.places.insert(token, place);
    }

    /// A channel is gone.
    pub(super) fn remove(&mut self, token: Token) {
        self.places.remove(&token);
        self.faults.remove(&token);
    }

    /// All are gone.
    pub(super) fn clear(&mut self) {
        self.places.clear();
        self.faults.clear();
    }

    /// Writes an error into the notifiers of these channels. What a driver names and does not have stays
    /// unwritten.
    pub(super) fn write(&mut self, back: &dyn GspBackend, tokens: &[Token], error: RobustChannelError) {
        let engine = u16::try_from(error.engine.nv2080_type()).unwrap_or(0);
        let said = NvNotification { nanoseconds: [0; 2], info32: error.code, info16: engine, status: ERROR };
        for place in tokens.iter().filter_map(|token| self.places.get(token)) {
            let _ = back.write_memory(*place, said.as_bytes());
        }
        if let Some(fault) = error.fault() {
            // The first is what ended the context.
            for token in tokens {
                self.faults.entry(*token).or_insert(fault);
            }
        }
    }

    /// The fault that ended a channel's context.
    pub(super) fn fault(&self, token: Token) -> Option<FaultOfChannel> {
        self.faults.get(&token).copied()
    }
}

fn by_token<T: Copy>(
    list: &[(u16, Chid, T)],
    channels: &Channels,
) -> Result<OrderedMap<Token, T>, StateError> {
    let mut all: OrderedMap<Token, T> = OrderedMap::new();
    for (runlist, chid, one) in list {
        let token = Token { runlist: *runlist, chid: *chid };
        let ascends = all.last_key_value().is_none_or(|(last, _)| *last < token);
        Check("notifiers").that(ascends && channels.has(token), || {
            format!("{token:?} is not in its place, or no channel")
        })?;
        all.insert(token, *one);
    }
    Ok(all)
}
