//! One trace of a page.

use gpuvmk_chip::register_sets::RegisterSet;
use gpuvmk_trace::Header;
use gpuvmk_trace::stat::Statistics;
use gpuvmk_trace::timeline::Timeline;
use gpuvmk_trace::turns::Turns;

/// The content of a page about one trace.
pub(super) struct Subject {
    pub(super) name: String,
    pub(super) header: Header,
    pub(super) set: Option<&'static RegisterSet>,
    pub(super) all: Statistics,
    pub(super) timeline: Timeline,
    pub(super) turns: Turns,
    /// Why the rest of the trace could not be read.
    pub(super) damage: Option<String>,
}
