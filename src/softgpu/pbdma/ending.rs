//! How a channel's stay on a PBDMA ends.

use crate::fifo::Departure;
use gpuvmk_chip::channel_event::{MmuFault, StopCause};

/// How a channel's stay ended, and why it was stopped if it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) departure: Departure,
    pub(crate) cause: Option<StopCause>,
}

impl From<Departure> for Ending {
    fn from(departure: Departure) -> Self {
        Self { departure, cause: None }
    }
}

impl From<StopCause> for Ending {
    fn from(cause: StopCause) -> Self {
        Self { departure: Departure::Stopped, cause: Some(cause) }
    }
}

impl From<MmuFault> for Ending {
    fn from(fault: MmuFault) -> Self {
        StopCause::from(fault).into()
    }
}
