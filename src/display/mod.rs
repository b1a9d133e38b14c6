//! Pictures: the modes of a virtual monitor and its EDID, what a head shows, frames composed from it, and
//! people who look at them.
//!
//! Nothing here knows a GPU's process: whoever owns a head says what it shows (a [`Scanout`]) and reads bytes
//! of its memory ([`ReadBytes`]). All that a guest or a viewer says is hostile, and bounded before it costs
//! anything.

// They panic where the output takes no more.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod compose;
mod edid;
mod frame;
mod mode;
mod png;
pub mod rfb;
mod scanout;
mod source;
mod tiles;
mod watch;

pub use compose::{ComposeError, Composed, Composer};
pub use edid::{EDID_BYTES, Edid};
pub use frame::{Frame, PIXELS_MAX, SIDE_MAX};
pub use mode::{
    Axis, Mode, ModeError, ModeTextError, PIXEL_CLOCK_MAX, PixelClock, Polarity, Size, SizeError, Timing,
    modes,
};
pub use png::{PngError, write_png};
pub use scanout::{
    Address, Blend, Cursor, CursorFormat, CursorSide, DestinationFactor, Format, Layout, Lut, LutEncoding,
    LutEntries, LutTable, MemoryName, Point, READ_MAX, ReadBytes, ReadError, Scanout, SourceFactor, Surface,
    Viewport, WINDOWS_MAX, Window,
};
pub use source::{FrameSource, Looking, Picture, Wake};
pub use tiles::{Rectangle, TILE, Tiles};
pub use watch::{FRAME_TIME, Head, Watch, WatchCounts};
