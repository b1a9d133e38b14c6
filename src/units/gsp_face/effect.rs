//! Effects of a register access outside the unit models. The models return these as values; the function
//! carries them out after it has released the models' lock.

use gpuvmk_backend::FlushScope;
use gpuvmk_chip::gh100::regs::vfn::NV_VIRTUAL_FUNCTION_DOORBELL;

/// A doorbell of a channel as the driver names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token {
    /// Number of the runlist.
    pub runlist: u16,
    /// Channel on it.
    pub chid: u16,
}

impl From<u32> for Token {
    fn from(raw: u32) -> Self {
        let [a, b, c, d] = raw.to_le_bytes();
        Self { runlist: u16::from_le_bytes([c, d]), chid: u16::from_le_bytes([a, b]) }
    }
}

impl From<Token> for u32 {
    fn from(token: Token) -> Self {
        NV_VIRTUAL_FUNCTION_DOORBELL::RUNLIST.of(token.runlist.into())
            | NV_VIRTUAL_FUNCTION_DOORBELL::CHID.of(token.chid.into())
    }
}

/// A consequence of a register write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// FSP was asked to boot GSP, whose parameters are at this bus address. FSP owes an answer.
    BootGsp {
        /// Bus address of [`gpuvmk_chip::gh100::fsp::FmcBootParams`].
        parameters: u64,
    },
    /// FSP refused a message, and has said so to the driver.
    FspRefused(super::fsp::FspError),
    /// The driver rang for its command queue.
    GspCommands,
    /// PRAMIN may show other memory.
    MovePramin,
    /// Translations are to be dropped.
    Flush(FlushScope),
    /// A channel has new work.
    Doorbell(Token),
    /// The driver's interest in notifications of finished work may have changed.
    TellInterest,
    /// Configuration space was asked for a function-level reset.
    FunctionReset,
}
