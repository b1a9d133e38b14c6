//! Effects of a register access outside the unit models. The models return these as values; the function
//! carries them out after it has released the models' lock.

use super::boot::{BootRefusal, Request};
use super::hal::Token;
use gpuvmk_backend::FlushScope;

/// A consequence of a register write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// GSP is to boot, or something is to be done for that.
    Boot(Request),
    /// The boot flow refused something, and the driver finds the error.
    BootRefused(BootRefusal),
    /// The driver rang for its command queue.
    GspCommands,
    /// PRAMIN may show other memory.
    MovePramin,
    /// Translations must be dropped.
    Flush(FlushScope),
    /// A channel has new work. `None` if the written value is no channel's token.
    Doorbell(Option<Token>),
    /// The driver's interest in notifications of finished work may have changed.
    TellInterest,
    /// Configuration space was asked for a function-level reset.
    FunctionReset,
}
