//! What comes from viewers, for whoever takes it.

use super::counts::ViewerCounts;

/// What is done with what people at viewers do. It must not wait, and is called by the server's thread.
pub trait ViewerInput: Send {
    /// A key, by its X keysym.
    fn key(&self, down: bool, key: u32);

    /// There are so many viewers now, or one was sent away.
    fn viewers(&self, _now: usize, _counts: &ViewerCounts) {}

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
