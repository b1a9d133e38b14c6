//! A server of RFB 3.8 (RFC 6143), by which people look at a head: read-only, over a socket that is given to
//! it, without security of its own. Who may open the socket may look.
//!
//! Viewers get pixels as they are or by ZRLE, in true colour of 8, 16 and 32 bits, and are told of other
//! sizes where they understand that. What they say is dropped, but for keys and the pointer where somebody
//! takes them ([`ViewerInput`]).

mod format;
mod message;
mod pipe;
mod server;
mod session;
#[cfg(test)]
mod tests;
mod update;
mod viewer;
mod zrle;

pub use format::{FormatError, PixelFormat};
pub use message::Fault;
pub use server::{Server, Settings};
pub use session::{OUTPUT_MAX, Session};
pub use viewer::ViewerCounts;

/// What is done with what people at viewers do. It must not wait, and is called by the server's thread.
pub trait ViewerInput: Send {
    /// A key, by its X keysym.
    fn key(&self, down: bool, key: u32);

    /// The pointer: the buttons that are down (bit 0 is the left one), and where it is.
    fn pointer(&self, buttons: u8, x: u16, y: u16);
}

/// Drops all.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoInput;

impl ViewerInput for NoInput {
    fn key(&self, _down: bool, _key: u32) {}

    fn pointer(&self, _buttons: u8, _x: u16, _y: u16) {}
}
