//! A driver's interest in notifications of finished work.

use gpuvmk_chip::EngineSet;

/// The effect on a driver if work that asked for a notification ended now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InterruptInterest {
    /// Nothing: it has that interrupt masked.
    Masked,
    /// Something: a level may rise.
    #[default]
    Wake,
    /// The end of work on one of these engines would make the function send its message; on other engines it
    /// has no effect. A process that learns of it first may send the message (see
    /// [`super::EngineEvents::message_delivered`]).
    Message(EngineSet),
}
