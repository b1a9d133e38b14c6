//! Frames: composed pictures in memory of their own.

use super::mode::Size;

/// Longest side of a frame.
pub const SIDE_MAX: u16 = 4096;

/// Most pixels of a frame: 16 MiB, twice what 165 MHz send 60 times a second.
pub const PIXELS_MAX: u32 = 1 << 22;

/// A picture: lines of pixels without gaps, each with red in bits 23:16, green in 15:8 and blue in 7:0. The
/// highest byte is 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    size: Size,
    pixels: Vec<u32>,
}

impl Default for Frame {
    /// A frame without pixels.
    fn default() -> Self {
        Self { size: Size::new(0, 0), pixels: Vec::new() }
    }
}

impl Frame {
    /// A black frame.
    ///
    /// # Errors
    /// The size, if it is more than a frame may have.
    pub fn black(size: Size) -> Result<Self, Size> {
        let mut frame = Self::default();
        frame.reset(size)?;
        Ok(frame)
    }

    /// Makes it black, and of another size. Memory is kept.
    ///
    /// # Errors
    /// The size, if it is more than a frame may have. The frame is as it was.
    pub fn reset(&mut self, size: Size) -> Result<(), Size> {
        self.resize(size)?;
        self.pixels.fill(0);
        Ok(())
    }

    /// Makes it of another size. What is in it then is no picture yet.
    pub(super) fn resize(&mut self, size: Size) -> Result<(), Size> {
        if size.width().max(size.height()) > SIDE_MAX || size.pixels() > PIXELS_MAX {
            return Err(size);
        }
        self.size = size;
        self.pixels.resize(usize::try_from(size.pixels()).unwrap_or(0), 0);
        Ok(())
    }

    /// Pixels of a line, and lines.
    pub fn size(&self) -> Size {
        self.size
    }

    /// All pixels, line by line.
    pub fn pixels(&self) -> &[u32] {
        &self.pixels
    }

    /// The pixels of a line; none where there is no such line.
    pub fn line(&self, y: u16) -> &[u32] {
        let width = usize::from(self.size.width());
        self.pixels.get(usize::from(y) * width..).and_then(|rest| rest.get(..width)).unwrap_or_default()
    }

    /// The same, to be written.
    pub fn line_mut(&mut self, y: u16) -> &mut [u32] {
        let width = usize::from(self.size.width());
        let rest = self.pixels.get_mut(usize::from(y) * width..);
        rest.and_then(|rest| rest.get_mut(..width)).unwrap_or_default()
    }

    /// Checksum of all pixels, by CRC-32 over their bytes with blue first.
    pub fn checksum(&self) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        let mut bytes = Vec::with_capacity(usize::from(self.size.width()) * 4);
        for y in 0..self.size.height() {
            bytes.clear();
            bytes.extend(self.line(y).iter().flat_map(|pixel| pixel.to_le_bytes()));
            hasher.update(&bytes);
        }
        hasher.finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_limits() {
        assert_eq!(Frame::black(Size::new(4097, 1)), Err(Size::new(4097, 1)));
        assert_eq!(Frame::black(Size::new(1, 4097)), Err(Size::new(1, 4097)));
        assert_eq!(Frame::black(Size::new(4096, 1025)), Err(Size::new(4096, 1025)));
        assert_eq!(Frame::black(Size::new(4096, 1024)).unwrap().pixels().len(), 1 << 22);
    }

    #[test]
    fn checksum_is_of_the_bytes_in_order() {
        let mut frame = Frame::black(Size::new(2, 1)).unwrap();
        frame.line_mut(0).copy_from_slice(&[0x0001_0203, 0x0004_0506]);
        assert_eq!(frame.checksum(), crc32fast::hash(&[3, 2, 1, 0, 6, 5, 4, 0]));
        assert!(frame.line(1).is_empty());
    }
}
