//! A GSP whose function has a head.

use std::sync::Arc;

use super::display::DisplayEngine;
use super::effect::Effect;
use super::events;
use super::gsp::Gsp;
use super::objects::Kind;
use crate::abi::common::rpc::{NV01_EVENT_INDEX, NV2080_NOTIFIERS_HOTPLUG};
use crate::abi::values::Id;
use gpuvmk_backend::GspBackend;
use gpuvmk_chip::display::ChannelName;

/// Events that a driver is told by that a monitor is another; it has one.
const MOST_EVENTS: usize = 8;

impl Gsp {
    /// The display engine, where the function has a head. Before anything else.
    pub fn set_display(&mut self, engine: Arc<dyn DisplayEngine>) {
        self.rm.display.set_engine(engine);
    }

    /// The monitor of the display engine is another one, or none: tells the driver, which looks what is
    /// there. One that has not asked to be told yet looks when it comes.
    pub fn replugged(&mut self, back: &impl GspBackend) -> Vec<Effect> {
        let back: &dyn GspBackend = back;
        let monitor = self.rm.display.monitor();
        let connected = monitor.connected();
        let wanted = |kind: &Kind| match kind {
            Kind::Event { index } => NV01_EVENT_INDEX::NOTIFIER.get(*index) == NV2080_NOTIFIERS_HOTPLUG,
            _ => false,
        };
        let objects = self.rm.objects.iter();
        let told: Vec<Id> =
            objects.filter(|(_, object)| wanted(&object.kind)).map(|(id, _)| id).take(MOST_EVENTS).collect();
        let masks = [connected, monitor.outputs & !connected];
        told.into_iter().filter_map(|id| self.post(back, &events::hotplug(id, masks))).collect()
    }

    /// Channels of the display engine that the driver has, in order.
    pub fn display_channels(&self) -> Vec<ChannelName> {
        let objects = self.rm.objects.iter();
        let mut names: Vec<_> = objects.filter_map(|(_, object)| object.kind.display_channel()).collect();
        names.sort_unstable();
        names
    }
}
