//! A GSP whose function has a head.

use std::sync::Arc;

use super::display::DisplayEngine;
use super::gsp::Gsp;
use gpuvmk_chip::display::ChannelName;

impl Gsp {
    /// The display engine, where the function has a head. Before anything else.
    pub fn set_display(&mut self, engine: Arc<dyn DisplayEngine>) {
        self.rm.display.set_engine(engine);
    }

    /// Channels of the display engine that the driver has, in order.
    pub fn display_channels(&self) -> Vec<ChannelName> {
        let objects = self.rm.objects.iter();
        let mut names: Vec<_> = objects.filter_map(|(_, object)| object.kind.display_channel()).collect();
        names.sort_unstable();
        names
    }
}
