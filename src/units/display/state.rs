//! The display engine's saved state.

use std::collections::BTreeMap;

use gpuvmk_chip::display::memory::INSTANCE_BYTES;
use gpuvmk_gsp::abi::values::InstanceMemory;
use gpuvmk_saved_state::{Check, StateError};
use serde::{Deserialize, Serialize};

use super::channel::{Channel, ChannelState};
use super::engine::{CORE, Cursor, Display, DisplayCounters, Head};
use super::timing::Timing;

/// State of a [`Display`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DisplayState {
    /// Where objects are.
    pub instance: Option<InstanceMemory>,
    /// Channels with push buffers, in the order of their names.
    pub channels: Vec<ChannelState>,
    /// Where the cursor is, as was set and as has taken effect; none: it has no channel.
    pub cursor: Option<[u32; 2]>,
    /// Blanking interrupts.
    pub vblank_enabled: bool,
    /// One began since the driver has taken that back.
    pub vblank: bool,
    /// Nanoseconds since blanking began, below those of a frame; 0 where the head is not lit.
    pub since_blanking: u64,
    /// What was counted.
    pub counters: DisplayCounters,
}

impl Display {
    /// The state to save, at a time.
    pub fn state(&self, now: u64) -> DisplayState {
        // The monitor is of the function's configuration.
        let Self { edid: _, instance, channels, cursor, head, counters } = self;
        // Who waits for the next blanking is said by the rest.
        let Head { timing, since, next: _, enabled, event } = head;
        DisplayState {
            instance: *instance,
            channels: channels.iter().map(|(name, channel)| channel.state(*name)).collect(),
            cursor: cursor.map(|Cursor { assembly, armed }| [assembly, armed]),
            vblank_enabled: *enabled,
            vblank: *event,
            since_blanking: timing.map_or(0, |timing| now.wrapping_sub(*since) % timing.frame),
            counters: *counters,
        }
    }

    /// The display engine in a saved state, at a time.
    ///
    /// # Errors
    /// Instance memory has a size that it cannot have, or a channel refuses its state.
    pub fn from_state(state: &DisplayState, edid: Option<Vec<u8>>, now: u64) -> Result<Self, StateError> {
        let DisplayState { instance, channels, cursor, vblank_enabled, vblank, since_blanking, counters } =
            state;
        let check = Check("display");
        let (least, most) = INSTANCE_BYTES;
        let is_whole = instance.is_none_or(|memory| (least..=most).contains(&memory.size));
        check.that(is_whole, || format!("its instance memory is {instance:?}"))?;
        check.that(channels.is_sorted_by(|one, next| one.name < next.name), || {
            "its channels are not in their order".to_owned()
        })?;
        let channels = channels
            .iter()
            .map(|state| Ok((state.name, Channel::from_state(state)?)))
            .collect::<Result<BTreeMap<_, _>, StateError>>()
            .map_err(|error| error.within("display"))?;
        let timing = channels.get(&CORE).and_then(|core| Timing::of(&core.methods, 0));
        check.that(*since_blanking < timing.map_or(1, |timing| timing.frame), || {
            format!("a frame takes {since_blanking} ns and more")
        })?;
        let head = Head {
            timing,
            since: now.wrapping_sub(*since_blanking),
            next: None,
            enabled: *vblank_enabled,
            event: *vblank,
        };
        let mut display = Self {
            edid,
            instance: *instance,
            channels,
            cursor: cursor.map(|[assembly, armed]| Cursor { assembly, armed }),
            head,
            counters: *counters,
        };
        display.schedule(now);
        Ok(display)
    }
}
