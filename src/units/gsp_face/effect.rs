//! Effects of a register access outside the unit models. The models return these as values; the function
//! carries them out after it has released the models' lock.

use super::boot::fsp::FspError;
use super::hal::Token;
use gpuvmk_backend::FlushScope;

/// A consequence of a register write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// FSP was asked to boot GSP, whose parameters are at this bus address. FSP owes an answer.
    BootGsp {
        /// Bus address of [`gpuvmk_chip::gsp::fsp::FmcBootParams`].
        parameters: u64,
    },
    /// FSP refused a message, and has reported that to the driver.
    FspRefused(FspError),
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
