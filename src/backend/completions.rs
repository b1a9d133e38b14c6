//! Notifications of finished work that are not needed at once.

use super::InterruptInterest;

/// A back that need not report every end of work when it happens.
///
/// The face sets the interest of the guest's driver. The back may hold back notifications that the driver
/// would not notice, until they are asked for. If the notification would be a message, the back may send it
/// by itself, once, before the face knows of its cause.
pub trait Completions: Send + Sync {
    /// Says what the driver would notice now if
    /// [`EngineEvents::non_stall`](super::EngineEvents::non_stall) were called.
    ///
    /// With [`InterruptInterest::Masked`] the back may keep such calls to itself. With any other it makes
    /// those that it kept, before this returns. With [`InterruptInterest::Message`] it may send one message
    /// by itself from now on.
    ///
    /// True when it had sent a message: then it has called
    /// [`EngineEvents::message_delivered`](super::EngineEvents::message_delivered) instead.
    fn set_completion_interest(&self, interest: InterruptInterest) -> bool;

    /// Makes the calls of [`EngineEvents::non_stall`](super::EngineEvents::non_stall) that the back has kept
    /// to itself.
    ///
    /// True when it had sent a message: then it has called
    /// [`EngineEvents::message_delivered`](super::EngineEvents::message_delivered) instead, and sends no
    /// other before [`InterruptInterest::Message`] is set again.
    fn take_completions(&self) -> bool;
}
