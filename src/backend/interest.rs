//! What a driver would notice of the end of work.

use gpuvmk_chip::EngineSet;

/// What a driver would notice if work that asked for a notification ended now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InterruptInterest {
    /// Nothing: it has that interrupt masked.
    Masked,
    /// Something: a level may rise.
    #[default]
    Wake,
    /// The end of work on one of these engines would make the function send its message, and on others
    /// nothing at all. Whoever learns of it first may send the message (see
    /// [`super::EngineEvents::message_delivered`]).
    Message(EngineSet),
}
