//! The firmware's version, for the rest of this room: nothing else in it names one.
//!
//! Drivers of other versions have other layouts and other numbers for the same calls. When a second version
//! is served, what stands here is chosen by what the driver sends, and values cross this line instead of
//! layouts.

pub(super) use gpuvmk_chip::gh100::gsp::r570_144::{boot, control, object, queue, rpc, suspend};
