//! The saved state of what a channel was told.

use gpuvmk_chip::stream::{Header, METHOD_MAX, Stepping};
use serde::{Deserialize, Serialize};

use super::super::copy_engine::CopyEngine;
use super::{Decoder, Object};

/// State of a [`Decoder`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecoderState {
    /// A header whose words are still to come.
    pub pending: Option<HeaderState>,
    /// What subchannels are bound to.
    pub objects: [Object; 8],
    /// Methods of the host unit, in their order, with the last word of each that is not 0.
    pub host: Vec<(u16, u32)>,
    /// The same of the copy engine, of what is not as it was at first.
    pub copy: Vec<(u16, u32)>,
    /// Where a notifier is: both halves.
    pub notifier: [u32; 2],
}

/// A header whose words are still to come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeaderState {
    /// How the address moves.
    pub moves: Moves,
    /// Whose method.
    pub subchannel: u8,
    /// Byte address of the next word's method.
    pub method: u16,
    /// Words to come.
    pub remaining: u16,
}

/// How the address of a header's method moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Moves {
    /// By one method with every word.
    Always,
    /// Never.
    Never,
    /// With the next word alone.
    Once,
}

impl Decoder {
    /// The state to save.
    pub fn state(&self) -> DecoderState {
        let Self { pending, objects, host, copy, notifier } = self;
        let Header { stepping, subchannel, method, remaining } = *pending;
        let moves = match stepping {
            Stepping::Increment => Moves::Always,
            Stepping::Fixed => Moves::Never,
            Stepping::IncrementOnce => Moves::Once,
        };
        let words = host.iter().zip((0..).step_by(4)).filter(|(word, _)| **word != 0);
        DecoderState {
            pending: (remaining > 0).then_some(HeaderState { moves, subchannel, method, remaining }),
            objects: *objects,
            host: words.map(|(word, method)| (method, *word)).collect(),
            copy: copy.state(),
            notifier: *notifier,
        }
    }

    /// What a channel was told, in a saved state; none if no channel could have been told that.
    pub fn from_state(state: &DecoderState) -> Option<Self> {
        let DecoderState { pending, objects, host, copy, notifier } = state;
        let mut decoder = Self {
            objects: *objects,
            notifier: *notifier,
            copy: CopyEngine::from_state(copy)?,
            ..Self::default()
        };
        if let Some(HeaderState { moves, subchannel, method, remaining }) = pending {
            let stepping = match moves {
                Moves::Always => Stepping::Increment,
                Moves::Never => Stepping::Fixed,
                Moves::Once => Stepping::IncrementOnce,
            };
            decoder.pending =
                Header { stepping, subchannel: *subchannel, method: *method, remaining: *remaining };
            let is_one = usize::from(*subchannel) < objects.len() && method % 4 == 0 && *method <= METHOD_MAX;
            is_one.then_some(())?;
        }
        for (method, word) in host {
            *decoder.host.get_mut(usize::from(method / 4))? = *word;
        }
        // In order, each once, and none of 0.
        (decoder.state() == *state).then_some(decoder)
    }
}
