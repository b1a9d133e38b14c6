//! Passes reports of the physical GPU to the tenants that they concern, in their own channel numbers.
//! [`super::completions`] handles notifications of finished work, which name no channel.

use std::time::Duration;

use super::host_channels::Owner;
use super::state::Machine;
use crate::protocol::Event;
use crate::tenant::ChannelState;
use gpuvmk_chip::addr::HostChannel;
use gpuvmk_chip::channel_event::ChannelStop;
use gpuvmk_gpu::GpuEvent;

impl Machine {
    /// Takes what the physical GPU reported since the last call.
    pub fn gpu_events(&mut self, now: Duration) {
        let mut events = self.hardware.take_events();
        for event in events.drain(..) {
            self.gpu_event(event, now);
        }
        self.scheduler.notifications_handled();
        self.hardware.reuse(events);
    }

    fn gpu_event(&mut self, event: GpuEvent, now: Duration) {
        match event {
            GpuEvent::NonStall(engine) => {
                self.scheduler.work_done();
                self.notify(engine, now);
            }
            GpuEvent::Stopped(stop) => self.stopped(stop),
            GpuEvent::Fault(fault) => {
                log::warn!("the physical GPU reports a fault of no channel: {fault:?}");
            }
            GpuEvent::Preempted(host) => self.preempted(host),
            GpuEvent::Lost => self.note_lost(),
        }
    }

    /// A channel was stopped: it leaves the runlist, others go on, and its guest gets the event.
    fn stopped(&mut self, stop: ChannelStop<HostChannel>) {
        let host = stop.channel;
        self.scheduler.mark_idle(host);
        self.hangs.watchdog.forget(host);
        let Some(Owner { tenant, guest: Some(guest) }) = self.channels.owner(host) else {
            // On its way off already: hardware has let it go now.
            self.channels.note_left(host);
            return;
        };
        if let Some(owner) = self.tenants.get_mut(tenant) {
            owner.counters.faults = owner.counters.faults.saturating_add(1);
            if let Ok(channel) = owner.channel(guest)
                && channel.state != ChannelState::Dead
            {
                channel.state = ChannelState::Faulted;
            }
        }
        let off = self.hardware.driver.enable_channel(host, false);
        if let Err(error) = off {
            self.quarantine(tenant, "stopping a channel", &error);
        }
        if self.relist(tenant).is_err() {
            log::error!("a stopped channel could not be taken off the runlist");
        }
        self.outbox.event(tenant, Event::Stopped(stop.of(guest)));
    }

    fn preempted(&mut self, host: HostChannel) {
        self.hangs.watchdog.left(host);
        match self.channels.owner(host) {
            Some(Owner { guest: None, .. }) => self.channels.note_left(host),
            Some(Owner { tenant, guest: Some(guest) }) => {
                // Preemptions that the scheduler caused are not reported.
                if let Some(channel) = self.tenants.get_mut(tenant).and_then(|t| t.channel(guest).ok())
                    && channel.preempt_by.take().is_some()
                {
                    self.outbox.event(tenant, Event::Preempted(guest));
                }
            }
            None => {}
        }
    }

    /// The physical GPU is gone: every tenant gets the event, once.
    pub(super) fn note_lost(&mut self) {
        if self.hardware.set_lost() {
            log::error!("the physical GPU is lost");
            for tenant in self.tenants.iter() {
                self.outbox.event(tenant.id, Event::Lost);
            }
        }
    }
}
