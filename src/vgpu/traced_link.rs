//! Records a vGPU's requests to its aggregator, and the aggregator's events, in the vGPU's trace.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use gpuvmk_aggregator::link::{AggregatorLink, Deferred, EventHandler, LinkError};
use gpuvmk_aggregator::protocol::{Doorbell, Event, Request};
use gpuvmk_aggregator::report::Report;
use gpuvmk_backend::{EngineTime, InterruptInterest};
use gpuvmk_fifo_virt::CopiedBytes;
use gpuvmk_trace::event::ChannelChange;
use gpuvmk_trace::{Event as Traced, Tracer};
use gpuvmk_units::DriverCounters;

/// A link that is recorded while a recording is on.
pub(super) struct TracedLink {
    link: Arc<dyn AggregatorLink>,
    tracer: Tracer,
}

impl TracedLink {
    pub(super) fn new(link: Arc<dyn AggregatorLink>, tracer: Tracer) -> Self {
        Self { link, tracer }
    }
}

impl AggregatorLink for TracedLink {
    fn request(&self, request: &Request, file: Option<OwnedFd>) -> Result<(), LinkError> {
        let done = self.link.request(request, file);
        if self.tracer.is_on() {
            match &done {
                Ok(()) => event_of(request).into_iter().for_each(|event| self.tracer.event(|| event)),
                Err(LinkError::Refused { kind, .. }) => {
                    self.tracer
                        .event(|| Traced::Refusal { reason: format!("{kind:?}"), place: place(request) });
                }
                Err(LinkError::Lost(_)) => {}
            }
        }
        done
    }

    fn is_ending(&self) -> bool {
        self.link.is_ending()
    }

    fn doorbell(&self, doorbell: Doorbell) {
        let Doorbell { channel, gp_put } = doorbell;
        self.tracer.event(|| Traced::Doorbell { channel: channel.0.into(), gp_put });
        self.link.doorbell(doorbell);
    }

    fn report(&self, report: &Report) {
        self.link.report(report);
    }

    fn report_copied(&self, copied: &CopiedBytes) {
        self.link.report_copied(copied);
    }

    fn report_trapped(&self, accesses: u64) {
        self.link.report_trapped(accesses);
    }

    fn report_driver(&self, counters: &DriverCounters) {
        self.link.report_driver(counters);
    }

    fn set_notification_interest(&self, interest: InterruptInterest) -> Deferred {
        self.link.set_notification_interest(interest)
    }

    fn take_notifications(&self) -> Deferred {
        self.link.take_notifications()
    }

    fn engine_time(&self) -> EngineTime {
        self.link.engine_time()
    }

    fn connect(&self, handler: Arc<dyn EventHandler>) {
        self.link.connect(Arc::new(TracedHandler { handler, tracer: self.tracer.clone() }));
    }
}

/// The handler of a recorded link's events.
struct TracedHandler {
    handler: Arc<dyn EventHandler>,
    tracer: Tracer,
}

impl EventHandler for TracedHandler {
    fn event(&self, event: Event) {
        if self.tracer.is_on() {
            match &event {
                Event::Preempted(channel) => self.tracer.event(|| Traced::Channel {
                    channel: channel.0.into(),
                    change: ChannelChange::Preempted,
                }),
                other => self.tracer.event(|| Traced::Note(format!("{other:?}"))),
            }
        }
        self.handler.event(event);
    }

    fn lost(&self, reason: &str) {
        self.tracer.event(|| Traced::Note(format!("the aggregator is gone: {reason}")));
        self.handler.lost(reason);
    }
}

/// The trace event of a request that was carried out.
fn event_of(request: &Request) -> Option<Traced> {
    let channel = |channel: u16, change| Some(Traced::Channel { channel: channel.into(), change });
    match request {
        Request::UpdateSpace { space, unmap, map } => Some(Traced::Shadow {
            space: space.0.into(),
            mapped: u32::try_from(map.len()).unwrap_or(u32::MAX),
            unmapped: u32::try_from(unmap.len()).unwrap_or(u32::MAX),
        }),
        Request::CreateChannel { channel: number, .. } => channel(number.0, ChannelChange::Created),
        Request::DestroyChannel(number) => channel(number.0, ChannelChange::Destroyed),
        Request::EnableChannel { channel: number, enabled: true } => {
            channel(number.0, ChannelChange::Enabled)
        }
        Request::EnableChannel { channel: number, enabled: false } => {
            channel(number.0, ChannelChange::Disabled)
        }
        Request::Hello(_)
        | Request::DmaMap { .. }
        | Request::DmaUnmap { .. }
        | Request::CreateSpace(_)
        | Request::DestroySpace(_)
        | Request::SetEngines { .. }
        | Request::CreateObject { .. }
        | Request::SetRunlist(_)
        | Request::Preempt(_)
        | Request::MessageEvent { .. }
        | Request::Reset { .. } => None,
    }
}

/// The subject of a refusal: an address, a channel or a space.
fn place(request: &Request) -> u64 {
    match request {
        Request::DmaMap { gpa, .. } | Request::DmaUnmap { gpa, .. } => gpa.0,
        Request::CreateSpace(space) | Request::DestroySpace(space) | Request::UpdateSpace { space, .. } => {
            space.0.into()
        }
        Request::CreateChannel { channel, .. }
        | Request::DestroyChannel(channel)
        | Request::SetEngines { channel, .. }
        | Request::CreateObject { channel, .. }
        | Request::EnableChannel { channel, .. }
        | Request::Preempt(channel) => channel.0.into(),
        Request::Hello(_) | Request::SetRunlist(_) | Request::MessageEvent { .. } | Request::Reset { .. } => {
            0
        }
    }
}
