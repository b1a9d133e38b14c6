//! The display engine of a function that has a head: a pure model over memory and the time.
//!
//! A driver sets methods by push buffers ([`channel`]) into the assembly state of their channel
//! ([`methods`]). An UPDATE waits for the channels that it names ([`interlock`]), and for the head's next
//! blanking where the head is lit ([`timing`]); then the assembly state of all of them takes effect, and
//! what the driver waits for is written to memory ([`names`] says where that is). [`engine`] puts this
//! together, [`registers`] is what the driver sees of it, [`scan`] what somebody sees who looks.
//!
//! Nothing here reaches the physical GPU: a head is of its VM alone. All memory is the function's own,
//! through the same checks as any access by the driver.
//!
//! What a driver says is hostile. A push buffer is copied before its words are looked at, has so many words a
//! time, and a channel whose words have no meaning stops until it is made again. Refusals are counted.

mod channel;
mod engine;
mod interlock;
mod methods;
mod names;
mod registers;
mod scan;
mod state;
mod timing;

#[cfg(test)]
mod tests;

pub use channel::{Burst, ChannelState};
pub use engine::{Display, DisplayCounters};
pub use scan::HeadMemory;
pub use state::DisplayState;
