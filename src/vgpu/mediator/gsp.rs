//! The seam to a GH100's register face: what the virtual GSP asks for.

use super::Mediator;
use crate::control::Control;
use crate::gsp::GspChannels;
use crate::host::Host;
use crate::status::FailSafe;
use gpuvmk_backend::{ChannelRefusal, EngineTime, GspBackend, GspChannel, ObjectUsage};
use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_chip::{Engine, EngineSet, TextureClusters};

impl GspBackend for Mediator<GspChannels> {
    fn channels(&self) -> u16 {
        self.connection().terms.channels
    }

    fn engines(&self) -> EngineSet {
        self.connection().terms.engines
    }

    fn texture_clusters(&self) -> Option<TextureClusters> {
        self.connection().terms.texture_clusters
    }

    fn create_channel(&self, slot: GuestChannel, channel: GspChannel) -> Result<(), ChannelRefusal> {
        self.answer(|control, host| control.create_channel(slot, channel, host))
    }

    fn create_object(&self, slot: GuestChannel, class: u32, engine: Engine) -> Result<(), ChannelRefusal> {
        self.answer(|control, host| control.create_object(slot, class, engine, host))
    }

    fn schedule_channel(&self, slot: GuestChannel, scheduled: bool) -> Result<(), ChannelRefusal> {
        self.answer(|control, host| control.schedule_channel(slot, scheduled, host))
    }

    fn destroy_channel(&self, slot: GuestChannel) {
        self.serve(|control, host| control.destroy_channel(slot, host));
    }

    fn engine_time(&self) -> Option<EngineTime> {
        Some(self.connection().link.engine_time())
    }

    fn note_objects(&self, usage: ObjectUsage) {
        if self.meters.objects(usage) {
            self.report_to_operators();
        }
    }
}

impl Mediator<GspChannels> {
    /// Carries out a request whose refusal is answered to the driver.
    fn answer(
        &self,
        request: impl FnOnce(&mut Control<GspChannels>, &Host<'_>) -> Result<Result<(), ChannelRefusal>, FailSafe>,
    ) -> Result<(), ChannelRefusal> {
        let result = self.serve(request).unwrap_or(Err(ChannelRefusal::Lost));
        if result.is_err() {
            self.counters.refused_to_guest.one();
        }
        result
    }
}
