//! A picture of a monitor, as a PNG file has it.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use png::{BitDepth, ColorType, Decoder};

/// Pixels, line by line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    /// Pixels of a line.
    pub width: usize,
    /// Lines.
    pub height: usize,
    /// Red, green and blue of each.
    pub pixels: Vec<[u8; 3]>,
}

impl Picture {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self> {
        let about = || format!("Cannot read {}", path.display());
        let file = File::open(path).with_context(about)?;
        let mut reader = Decoder::new(BufReader::new(file)).read_info().with_context(about)?;
        let mut bytes = vec![0; reader.output_buffer_size().context("The picture is too large")?];
        let info = reader.next_frame(&mut bytes).with_context(about)?;
        let kind = (info.color_type, info.bit_depth);
        ensure!(kind == (ColorType::Rgb, BitDepth::Eight), "{} is of another kind: {kind:?}", path.display());
        let (width, height) = (usize::try_from(info.width)?, usize::try_from(info.height)?);
        Ok(Self { width, height, pixels: bytes.as_chunks().0.to_vec() })
    }

    /// A pixel; black where there is none.
    pub fn pixel(&self, x: usize, y: usize) -> [u8; 3] {
        let pixel = if x < self.width { self.pixels.get(y * self.width + x) } else { None };
        pixel.copied().unwrap_or_default()
    }
}
