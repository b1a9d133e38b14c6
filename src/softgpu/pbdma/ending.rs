//! How a channel's stay on a PBDMA ends.

use crate::events::Events;
use crate::fifo::Departure;
use gpuvmk_units::backend::{ChannelError, GraphicsError, HostError, MmuFault};

/// What the register face is told when a channel stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    Fault(MmuFault),
    Host(HostError),
    Graphics(GraphicsError),
    Channel(ChannelError),
}

impl Report {
    pub(crate) fn tell(self, events: &Events) {
        log::debug!("softgpu: a channel stops: {self:x?}");
        events.tell(|events| match self {
            Self::Fault(fault) => events.mmu_fault(fault),
            Self::Host(error) => events.host_error(error),
            Self::Graphics(error) => events.graphics_error(error),
            Self::Channel(error) => events.channel_error(error),
        });
    }
}

/// How a channel's stay ended, with what is to be told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) departure: Departure,
    pub(crate) report: Option<Report>,
}

impl From<Departure> for Ending {
    fn from(departure: Departure) -> Self {
        Self { departure, report: None }
    }
}

impl From<Report> for Ending {
    fn from(report: Report) -> Self {
        Self { departure: Departure::Stopped, report: Some(report) }
    }
}

impl From<MmuFault> for Ending {
    fn from(fault: MmuFault) -> Self {
        Report::Fault(fault).into()
    }
}
