//! Events of a software GPU, kept for tests.

use gpuvmk_backend::*;
use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_chip::channel_event::{ChannelStop, GraphicsError, HostError, MmuFault, StopCause};
use gpuvmk_chip::{Engine, EngineSet};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// Long enough for anything on a loaded machine; only failures wait so long.
pub const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    NonStall(Engine),
    Stopped(ChannelStop<GuestChannel>),
    Fault(MmuFault),
    Patch(u32, u32),
}

/// Keeps what it is told.
#[derive(Default)]
pub struct Recorder {
    events: Mutex<Vec<Event>>,
    told: Condvar,
}

impl Recorder {
    fn push(&self, event: Event) {
        self.events.lock().unwrap().push(event);
        self.told.notify_all();
    }

    pub fn all(&self) -> Vec<Event> {
        self.events.lock().unwrap().clone()
    }

    /// The first event that `wanted` accepts, as soon as there is one.
    pub fn wait<T>(&self, wanted: impl Fn(&Event) -> Option<T>) -> T {
        let events = self.events.lock().unwrap();
        let none = |events: &mut Vec<Event>| events.iter().find_map(&wanted).is_none();
        let (events, _) = self.told.wait_timeout_while(events, PATIENCE, none).unwrap();
        events.iter().find_map(&wanted).unwrap_or_else(|| panic!("no such event among {events:?}"))
    }

    /// A refused access, and the channel that it stopped.
    pub fn wait_fault(&self) -> (Option<GuestChannel>, MmuFault) {
        self.wait(|event| match event {
            Event::Stopped(ChannelStop { channel, cause: StopCause::Fault(fault) }) => {
                Some((Some(*channel), *fault))
            }
            Event::Fault(fault) => Some((None, *fault)),
            _ => None,
        })
    }

    pub fn wait_host_error(&self) -> (GuestChannel, HostError) {
        self.wait(|event| match event {
            Event::Stopped(ChannelStop { channel, cause: StopCause::Host(error) }) => {
                Some((*channel, *error))
            }
            _ => None,
        })
    }

    pub fn wait_graphics_error(&self) -> (GuestChannel, GraphicsError) {
        self.wait(|event| match event {
            Event::Stopped(ChannelStop { channel, cause: StopCause::Graphics(error) }) => {
                Some((*channel, *error))
            }
            _ => None,
        })
    }
}

impl EngineEvents for Recorder {
    fn monitor(&self, _size: Option<(u16, u16)>) {}

    fn non_stall(&self, engine: Engine) {
        self.push(Event::NonStall(engine));
    }
    fn message_delivered(&self, engines: EngineSet) {
        engines.engines().for_each(|engine| self.non_stall(engine));
    }

    fn unsent(&self) {}

    fn stopped(&self, stop: ChannelStop<GuestChannel>) {
        self.push(Event::Stopped(stop));
    }
    fn fault(&self, fault: MmuFault) {
        self.push(Event::Fault(fault));
    }
    fn preempted(&self, _channel: GuestChannel) {
        // The tests poll.
    }
    fn patch_register(&self, offset: u32, value: u32) {
        self.push(Event::Patch(offset, value));
    }
    fn lost(&self, _reason: &str) {}
}
