//! A server of RFB 3.8 (RFC 6143), by which people look at a head: read-only, over a socket that is given to
//! it, without security of its own. Who may open the socket may look.
//!
//! Viewers get pixels as they are or by ZRLE, in true colour of 8, 16 and 32 bits, and are told of other
//! sizes where they understand that. What they say is dropped, but for keys and the pointer where somebody
//! takes them ([`ViewerInput`]).

mod counts;
mod format;
mod input;
mod message;
mod pipe;
mod server;
mod session;
#[cfg(test)]
mod tests;
mod update;
mod viewer;
mod zrle;

pub use counts::ViewerCounts;
pub use format::{FormatError, PixelFormat};
pub use input::{NoInput, ViewerInput};
pub use message::Fault;
pub use server::{Server, Settings};
pub use session::{OUTPUT_MAX, Session};
