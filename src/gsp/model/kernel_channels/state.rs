//! The saved state of the channels of a driver's kernel.

use gpuvmk_chip::addr::{Chid, GpuVa};
use gpuvmk_chip::stream::MAX_GPFIFO_ENTRIES_LOG2;
use gpuvmk_fifo_virt::{KernelChannel, KernelChannelState};
use gpuvmk_saved_state::{Check, StateError};
use serde::{Deserialize, Serialize};

use super::{KernelChannels, KernelWork, MOST, Own};
use crate::model::channel::{Begun, Channels, RingState};
use crate::model::objects::{Kind, Objects};
use crate::model::token::Token;

/// State of [`KernelChannels`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelChannelsState {
    /// All of them, by runlist and number.
    pub channels: Vec<OwnState>,
    /// Runlist and number of the one that was carried out last: others come before it.
    pub last: Option<(u16, Chid)>,
}

/// A channel of a driver's kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnState {
    /// Its runlist.
    pub runlist: u16,
    /// Its number there.
    pub chid: Chid,
    /// Its ring.
    pub ring: RingState,
    /// It was told something that is not done.
    pub goes_on: bool,
    /// How far it is, and what it was told.
    pub channel: KernelChannelState,
}

impl KernelChannels {
    /// The state to save.
    pub(in super::super) fn state(&self) -> KernelChannelsState {
        // What is left follows: whoever waits is looked at anew.
        let Self { all, last, left: _ } = self;
        let own = |(token, own): (&Token, &Own)| {
            // Its object has the names, and its channel the rest.
            let Own { id: _, space: _, userd: _, engine: _, ring, channel, goes_on } = own;
            let (GpuVa(address), entries_log2) = *ring;
            OwnState {
                runlist: token.runlist,
                chid: token.chid,
                ring: RingState { address, entries_log2 },
                goes_on: *goes_on,
                channel: channel.state(),
            }
        };
        KernelChannelsState {
            channels: all.iter().map(own).collect(),
            last: last.map(|Token { runlist, chid }| (runlist, chid)),
        }
    }

    /// Channels in a saved state, of these objects.
    ///
    /// # Errors
    /// One is no channel that a driver can have for its kernel, or in a state that none comes into.
    pub(in super::super) fn from_state(
        state: &KernelChannelsState,
        objects: &Objects,
        channels: &Channels,
    ) -> Result<Self, StateError> {
        let rule = Check("kernel channels");
        let mut restored = Self::default();
        rule.at_most("it", state.channels.len(), MOST)?;
        for OwnState { runlist, chid, ring: RingState { address, entries_log2 }, goes_on, channel } in
            &state.channels
        {
            let token = Token { runlist: *runlist, chid: *chid };
            let problem = || StateError::new(rule.0, format!("no driver can have {token:?} so"));
            let ascends = restored.all.last_key_value().is_none_or(|(last, _)| *last < token);
            rule.that(ascends, || format!("{token:?} is not in its place"))?;
            let named = objects.iter().find_map(|(id, object)| match object.kind {
                Kind::Channel { token: of, space } if of == token => Some((id, space)),
                _ => None,
            });
            let (id, space) = named.ok_or_else(problem)?;
            let fits = *address != 0 && *entries_log2 <= MAX_GPFIFO_ENTRIES_LOG2;
            let ring = (GpuVa(*address), *entries_log2);
            let begun = channels.begun(token, id, space, ring).filter(|_| fits).ok_or_else(problem)?;
            let Begun { id, space, userd, engine, ring } = begun;
            let channel = KernelChannel::from_state(ring.0, ring.1, channel).ok_or_else(problem)?;
            restored.all.insert(token, Own { id, space, userd, engine, ring, channel, goes_on: *goes_on });
            if *goes_on {
                restored.left = KernelWork::More;
            }
        }
        restored.last = state.last.map(|(runlist, chid)| Token { runlist, chid });
        Ok(restored)
    }
}
