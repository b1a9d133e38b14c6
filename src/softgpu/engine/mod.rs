//! Engines: graphics and copy engines, each with the context of one channel resident.
//!
//! An engine belongs to one channel at a time (the FIFO model sees to that), keeps its context until another
//! one needs the engine, and then saves it to the image that the instance block names and loads the next. The
//! graphics engine's loader applies the image's patch list.
//!
//! [`unit`] is an engine as the rest of the GPU sees it, [`model`] is what classes have to be for it, and
//! [`context`] is where it keeps channels' contexts.

pub(crate) mod context;
pub(crate) mod control;
pub(crate) mod crew;
mod kept;
pub(crate) mod model;
pub(crate) mod not_executed;
pub(crate) mod owner;
mod seat;
mod shared_image;
pub(crate) mod unit;
mod work_time;
