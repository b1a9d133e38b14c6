//! The channel's life: made when the driver is wrapped, given up when its engine fails or hangs, made anew
//! after a rest.

use std::time::Instant;

use super::EngineScrub;
use super::channel::{Channel, Plan, REST};
use super::commands::CommandFormat;
use super::layout::OWN_SIZE;
use super::rig::Rig;
use crate::{GpuError, GpuEvent};
use gpuvmk_chip::Engine;

impl EngineScrub {
    /// Makes the channel, or finds out that there is none to be had.
    pub(super) fn set_up(&mut self) {
        let opened = self.plan().and_then(|plan| {
            self.plan = Some(plan);
            self.open(plan).map_err(|error| error.to_string())
        });
        match opened {
            // Tenants get all channels but ours, whether it is there at the moment or not.
            Ok(()) => {
                self.info.channels = self.info.channels.saturating_sub(1);
                self.info.table_memory = self.info.table_memory.saturating_sub(OWN_SIZE.saturating_mul(2));
            }
            Err(why) => self.do_without(&why),
        }
    }

    fn do_without(&mut self, why: &str) {
        log::warn!("VRAM is zeroed by the processor, not by a copy engine: {why}");
        self.account.fallback(why.to_owned());
        self.plan = None;
        self.channel = Channel::None;
    }

    fn plan(&mut self) -> Result<Plan, String> {
        let engine = self.info.engines.engines().filter(|engine| *engine != Engine::Graphics).last();
        let engine = engine.ok_or("the GPU has none")?;
        let dialect = CommandFormat::of(self.info.chip, engine)
            .ok_or_else(|| format!("the commands of {engine:?} of {} are not known", self.info.chip))?;
        let memory = self.inner.own_memory().ok_or("its driver lends no memory for a channel")?;
        let own = memory.take(OWN_SIZE).map_err(|error| error.to_string())?;
        Ok(Plan { dialect, engine, own })
    }

    fn open(&mut self, plan: Plan) -> Result<(), GpuError> {
        let rig = Rig::new(self.inner.as_mut(), plan.dialect, plan.engine, plan.own)?;
        self.channel = Channel::Ready(rig);
        self.stopped = None;
        self.relist()
    }

    /// Makes the channel anew when it has had its rest.
    pub(super) fn wake(&mut self) {
        let (Channel::Resting(until), Some(plan)) = (&self.channel, self.plan) else { return };
        if Instant::now() < *until {
            return;
        }
        if let Err(error) = self.open(plan) {
            self.channel = Channel::Resting(Instant::now() + REST);
            self.note_fallback(&error.to_string());
        }
    }

    /// Gives the runlist to hardware, with our channel at its end.
    pub(super) fn relist(&mut self) -> Result<(), GpuError> {
        let mut list = self.listed.clone();
        if let Channel::Ready(rig) = &self.channel {
            list.push(rig.channel());
        }
        self.inner.commit_runlist(&list)
    }

    /// Destroys the channel after a failure. Its pieces are zeroed by the processor when they are asked for
    /// next.
    ///
    /// # Errors
    /// It could not be cut off from the memory that it worked at.
    pub(super) fn give_up(&mut self, why: &str) -> Result<(), GpuError> {
        self.note_fallback(why);
        let Channel::Ready(rig) =
            std::mem::replace(&mut self.channel, Channel::Resting(Instant::now() + REST))
        else {
            return Ok(());
        };
        self.stopped = None;
        if let Err(error) = rig.cut_off(self.inner.as_mut()) {
            self.channel = Channel::Stuck;
            return Err(error);
        }
        self.jobs.clear();
        // It reaches nothing any more: what goes wrong from here on costs a channel and no more.
        if let Err(error) = self.relist().and_then(|()| rig.destroy(self.inner.as_mut())) {
            log::error!("the channel that zeroes VRAM does not go: {error}");
            self.channel = Channel::None;
        }
        Ok(())
    }

    fn note_fallback(&mut self, why: &str) {
        let times = self.account.fallback(why.to_owned());
        if times.is_power_of_two() {
            log::warn!("VRAM is zeroed by the processor for {REST:?} ({times} times so far): {why}");
        }
    }

    /// True if an event is about our own channel, so that tenants must not see it.
    pub(super) fn take_own(&mut self, event: &GpuEvent) -> bool {
        let Channel::Ready(rig) = &self.channel else { return false };
        let ours = event.channel() == Some(rig.channel());
        if ours && !matches!(event, GpuEvent::Preempted(_)) {
            self.stopped = Some(format!("its channel was stopped: {event:?}"));
        }
        ours
    }
}
