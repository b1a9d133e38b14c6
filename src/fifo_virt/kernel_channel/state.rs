//! The saved state of a channel.
//!
//! What is under way is written down as the method that began it: what it asks for follows from the method
//! and from what the channel had been told before.

use gpuvmk_chip::addr::GpuVa;
use gpuvmk_chip::stream::Method;
use serde::{Deserialize, Serialize};

use super::action::Action;
use super::decoder::{Decoder, DecoderState};
use super::transfer::Progress;
use super::{CHUNK, KernelChannel, Segment, Work};

/// State of a [`KernelChannel`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelChannelState {
    /// GP_GET.
    pub get: u32,
    /// Address bits above 39 of the next segments.
    pub segment_base: u64,
    /// The part of a segment that is not done.
    pub segment: Option<SegmentState>,
    /// What it was told.
    pub told: DecoderState,
    /// What is under way.
    pub under_way: Option<UnderWayState>,
}

/// The part of a segment that is not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SegmentState {
    /// Words that were read.
    pub words: Vec<u32>,
    /// Where those behind them are.
    pub address: u64,
    /// How many these are.
    pub left: u64,
}

/// A wait, or a launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnderWayState {
    /// Subchannel of the method that began it.
    pub subchannel: u8,
    /// The method.
    pub method: u16,
    /// Its data.
    pub data: u32,
    /// Lines that are transferred, and elements of the next.
    pub done: Option<(u32, u32)>,
}

impl KernelChannel {
    /// The state to save.
    pub fn state(&self) -> KernelChannelState {
        // Where its ring is, its holder says.
        let Self { gpfifo: _, entries_log2: _, get, segment_base, segment, decoder, work } = self;
        let segment = segment.as_deref().map(|Segment { address, left, words, from, to }| SegmentState {
            words: words.get(*from..*to).unwrap_or_default().to_vec(),
            address: *address,
            left: *left,
        });
        let under_way = work.as_ref().map(|(Method { subchannel, method, data }, work)| UnderWayState {
            subchannel: *subchannel,
            method: *method,
            data: *data,
            done: match work {
                Work::Acquire(_) => None,
                Work::Launch { transfer, .. } => transfer.as_ref().map(Progress::done),
            },
        });
        let (get, segment_base, told) = (*get, *segment_base, decoder.state());
        KernelChannelState { get, segment_base, segment, told, under_way }
    }

    /// A channel with this ring in a saved state; none if no channel could have come into it.
    pub fn from_state(gpfifo: GpuVa, entries_log2: u8, state: &KernelChannelState) -> Option<Self> {
        let mut channel = Self::new(gpfifo, entries_log2);
        let decoder = Decoder::from_state(&state.told)?;
        let work = match &state.under_way {
            Some(under_way) => Some(work(&decoder, under_way)?),
            None => None,
        };
        let segment = match &state.segment {
            Some(segment) => Some(Box::new(read(segment)?)),
            None => None,
        };
        let fits = u64::from(state.get) < 1 << channel.entries_log2;
        let (get, segment_base) = (state.get, state.segment_base);
        channel = Self { get, segment_base, segment, decoder, work, ..channel };
        fits.then_some(channel)
    }
}

fn read(state: &SegmentState) -> Option<Segment> {
    let mut words = [0; CHUNK];
    let to = state.words.len();
    words.get_mut(..to)?.copy_from_slice(&state.words);
    let is_some = to > 0 || state.left > 0;
    is_some.then_some(Segment { address: state.address, left: state.left, words, from: 0, to })
}

/// What a method asked for when it came.
fn work(decoder: &Decoder, state: &UnderWayState) -> Option<(Method, Work)> {
    let UnderWayState { subchannel, method, data, done } = *state;
    let method = Method { subchannel, method, data };
    let mut again = decoder.clone();
    let work = match (again.method(method).ok()??, done) {
        (Action::Acquire(acquire), None) => Work::Acquire(acquire),
        (Action::Launch(launch), Some(done)) => {
            Work::Launch { launch, transfer: Some(Progress::at(launch.transfer?, done)?) }
        }
        _ => return None,
    };
    // It told the channel nothing that it did not know by then.
    (again.state() == decoder.state()).then_some((method, work))
}
