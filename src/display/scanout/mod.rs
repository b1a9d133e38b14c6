//! What a head shows: values that its owner takes from the armed state of a display, and by which frames are
//! composed. Nothing here is checked: composing bounds all of it.

mod colour;
mod memory;
mod surface;

pub use colour::{Blend, DestinationFactor, Lut, LutEncoding, LutEntries, LutTable, SourceFactor};
pub use memory::{Address, MemoryName, READ_MAX, ReadBytes, ReadError};
pub use surface::{Format, Layout, Surface};

use super::mode::Size;

/// Windows of a head: further ones are not shown.
pub const WINDOWS_MAX: usize = 8;

/// A place in pixels, from the upper left corner. It may lie outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// Pixels to the right.
    pub x: i32,
    /// Lines down.
    pub y: i32,
}

/// How the composed picture lies in the raster's visible part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Viewport {
    /// Pixels that windows and the cursor are composed to.
    pub input: Size,
    /// Pixels that those fill on the screen. Another size than `input` is scaled, by the nearest pixel.
    pub output: Size,
    /// How far the output's middle is from the screen's middle.
    pub adjust: Point,
}

/// A window: a part of a surface at a place of the viewport.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// The surface.
    pub surface: Surface,
    /// The pixel of the surface that comes to the window's upper left corner.
    pub from: Point,
    /// Pixels that are shown. They are not scaled.
    pub size: Size,
    /// Where in the viewport the window's upper left corner is.
    pub to: Point,
    /// What the surface's values mean.
    pub lut: Lut,
    /// How the window lies on what is behind it.
    pub blend: Blend,
}

/// Formats of a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CursorFormat {
    /// 32 bits: alpha, red, green, blue from the top.
    Argb8888,
    /// 16 bits: one of alpha, five of each colour.
    Argb1555,
}

/// Width and height of a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CursorSide {
    /// 32 by 32 pixels.
    Pixels32,
    /// 64 by 64 pixels.
    Pixels64,
    /// 128 by 128 pixels.
    Pixels128,
    /// 256 by 256 pixels.
    Pixels256,
}

impl CursorSide {
    /// The side in pixels.
    pub const fn pixels(self) -> u16 {
        match self {
            Self::Pixels32 => 32,
            Self::Pixels64 => 64,
            Self::Pixels128 => 128,
            Self::Pixels256 => 256,
        }
    }
}

/// A cursor. Its lines follow each other without gaps.
#[derive(Clone, Debug, PartialEq)]
pub struct Cursor {
    /// Where its image begins.
    pub address: Address,
    /// Its format.
    pub format: CursorFormat,
    /// Its size.
    pub side: CursorSide,
    /// Where in the viewport its upper left corner is.
    pub to: Point,
    /// How it lies on the windows.
    pub blend: Blend,
}

/// What a head shows.
#[derive(Clone, Debug, PartialEq)]
pub struct Scanout {
    /// The raster's visible part: the size of a frame.
    pub size: Size,
    /// How the picture lies in it. Around it is black.
    pub viewport: Viewport,
    /// What is seen where no window is: red, green and blue.
    pub background: [u16; 3],
    /// Windows, those behind first.
    pub windows: Vec<Window>,
    /// The cursor, before all windows.
    pub cursor: Option<Cursor>,
    /// What becomes of the composed colours.
    pub lut: Lut,
}

impl Scanout {
    /// A head that shows black.
    pub fn black(size: Size) -> Self {
        let viewport = Viewport { input: size, output: size, adjust: Point::default() };
        Self { size, viewport, background: [0; 3], windows: Vec::new(), cursor: None, lut: Lut::Identity }
    }
}
