//! Notifications of finished work that the guest does not need at once: the aggregator holds them back, or
//! sends the message.

use super::Mediator;
use crate::control::{ChannelControl, Control};
use crate::host::Host;
use gpuvmk_aggregator::protocol::Request;
use gpuvmk_backend::{Completions, InterruptInterest};
use std::os::fd::OwnedFd;

impl<C: ChannelControl> Completions for Mediator<C> {
    fn set_completion_interest(&self, interest: InterruptInterest) -> bool {
        let connection = self.connection();
        connection.deliver_deferred(connection.link.set_notification_interest(interest))
    }

    fn take_completions(&self) -> bool {
        let connection = self.connection();
        connection.deliver_deferred(connection.link.take_notifications())
    }
}

impl<C: ChannelControl> Mediator<C> {
    /// Which eventfd sends the guest's message from now on. The aggregator may say no: messages are then sent
    /// here.
    pub(crate) fn connect_message(&self, event: Option<OwnedFd>) {
        let mut control = self.control();
        if control.message.is_none() && event.is_none() {
            return;
        }
        control.message = event;
        let connection = self.connection();
        self.announce_message(&control, &self.host(&connection));
    }

    pub(super) fn announce_message(&self, control: &Control<C>, host: &Host<'_>) {
        let copy = control.message.as_ref().map(OwnedFd::try_clone).transpose();
        let result = copy.map_err(|error| error.to_string()).and_then(|event| {
            let request = Request::MessageEvent { given: event.is_some() };
            host.request_with(&request, event).map_err(|error| error.to_string())
        });
        if let Err(error) = result {
            log::debug!("The aggregator does not send this VM's messages: {error}");
        }
    }
}
