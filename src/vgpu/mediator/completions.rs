//! Notifications of finished work that the guest does not need at once: the aggregator holds them back, or
//! sends the message.

use super::Mediator;
use crate::control::ChannelControl;
use gpuvmk_backend::{Completions, InterruptInterest};

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
