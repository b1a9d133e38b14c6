//! Where viewers get pictures from.

use std::sync::Arc;

use super::frame::Frame;
use super::tiles::Tiles;

/// A composed picture.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// Its pixels.
    pub frame: Frame,
    /// When each part of it changed.
    pub tiles: Tiles,
    /// Which picture it is: more than all before it, and never 0.
    pub number: u64,
}

/// What is called after each new picture, from the thread that composed it. It must not wait.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// Pictures of a head, made while somebody looks.
pub trait FrameSource: Send + Sync {
    /// Looks at the head until what comes back goes. `wake` is called at least once, as soon as there is a
    /// picture that was composed after this call, and then for each one that differs from the one before.
    fn look(&self, wake: Wake) -> Box<dyn Looking>;
}

/// Somebody who looks.
pub trait Looking: Send {
    /// The newest picture. None until one was composed since the look began.
    fn latest(&self) -> Option<Arc<Picture>>;
}
