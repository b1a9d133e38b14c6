//! Pictures in any format and layout. The processor writes them to system memory, and the kernel has them
//! copied to VRAM when they are shown: that costs an emulated processor less than writing VRAM word by word.

use std::fs::File;

use anyhow::{Context, Result};

use super::abi::{self, GemClose, GemNew, arguments};
use super::modeset::{Mode, Screen, ioctl};
use crate::sys::{self, Direction, IoctlArgument, Mapping};

const RMFB: u64 = 0xaf;
const ADDFB2: u64 = 0xb8;
/// `ADDFB2`: the modifier counts.
const FB_MODIFIERS: u32 = 2;
/// Page kind of surfaces without a meaning of their own, since Turing.
const KIND: u32 = 6;
/// `DRM_FORMAT_MOD_NVIDIA_BLOCK_LINEAR_2D` of that kind, in a desktop's sectors, of Turing's generation; the
/// lowest four bits are the height of blocks.
const BLOCKS: u64 = 0x03 << 56 | 1 << 22 | 2 << 20 | (KIND as u64) << 12 | 0x10;
/// Bytes of a GOB's line, and lines of a GOB.
const GOB: (usize, usize) = (64, 8);

arguments! {
    /// `drm_mode_fb_cmd2`.
    AddFb2 = 104 {
        fb: u32, width: u32, height: u32, format: u32, flags: u32,
        handles: [u32; 4], pitches: [u32; 4], offsets: [u32; 4],
        pad: u32,
        modifiers: [u64; 4],
    }

    /// The argument of `RMFB`.
    RmFb = 4 { fb: u32 }
}

/// How the pixels of a surface lie in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Line by line.
    Linear,
    /// In blocks of so many GOBs, as log2.
    Blocks(u8),
}

/// A picture that can be shown; gone when this goes.
#[derive(Debug)]
pub struct Framebuffer<'a> {
    screen: &'a Screen,
    fb: u32,
    handle: u32,
}

impl Layout {
    /// Bytes of a line, of at least so many.
    fn pitch(self, least: usize) -> usize {
        match self {
            Self::Linear => least.next_multiple_of(256),
            Self::Blocks(_) => least.next_multiple_of(GOB.0),
        }
    }

    /// Lines, of at least so many.
    fn lines(self, least: usize) -> usize {
        match self {
            Self::Linear => least,
            Self::Blocks(height) => least.next_multiple_of(GOB.1 << height),
        }
    }

    /// Where a byte of a line lies.
    fn place(self, x: usize, y: usize, pitch: usize) -> usize {
        let Self::Blocks(height) = self else { return y * pitch + x };
        let lines = GOB.1 << height;
        let block = y / lines * (pitch / GOB.0) + x / GOB.0;
        let gob = y % lines / GOB.1;
        // Mesa's order for Turing: the lower two bits of the line before bit 4 of the column.
        let [bit, line] = [|x: usize, at: usize| x >> at & 1, |y: usize, at: usize| y >> at & 1];
        let inside = x & 15 | (y & 3) << 4 | bit(x, 4) << 6 | line(y, 2) << 7 | bit(x, 5) << 8;
        block * lines * GOB.0 + gob * GOB.0 * GOB.1 + inside
    }
}

impl Screen {
    /// A picture of a format, of lines that follow each other.
    pub fn framebuffer(
        &self,
        (width, height): (u16, u16),
        format: u32,
        layout: Layout,
        bytes: &[u8],
    ) -> Result<Framebuffer<'_>> {
        let (columns, lines) = (bytes.len() / usize::from(height), usize::from(height));
        let pitch = layout.pitch(columns);
        let size = pitch * layout.lines(lines);
        let (kind, mode, modifier) = match layout {
            Layout::Linear => (0, 0, 0),
            Layout::Blocks(height) => (KIND, u32::from(height) << 4, BLOCKS | u64::from(height)),
        };
        let mut made = GemNew {
            domain: abi::DOMAIN_GART | abi::DOMAIN_MAPPABLE,
            size: super::bytes(size),
            tile_mode: mode,
            tile_flags: kind << 8 | abi::TILE_NONCONTIG,
            align: 4096,
            ..GemNew::default()
        };
        ioctl(&self.file, "GEM_NEW", abi::GEM_NEW, &mut made)?;
        // From here on it goes with this value.
        let mut shown = Framebuffer { screen: self, fb: 0, handle: made.handle };
        write(&self.file, &made, size, layout, bytes.chunks_exact(columns), pitch)
            .context("cannot write a picture")?;
        let mut added = AddFb2 {
            width: width.into(),
            height: height.into(),
            format,
            flags: FB_MODIFIERS,
            handles: [made.handle, 0, 0, 0],
            pitches: [u32::try_from(pitch)?, 0, 0, 0],
            modifiers: [modifier, 0, 0, 0],
            ..AddFb2::default()
        };
        ioctl(&self.file, "ADDFB2", ADDFB2, &mut added)?;
        shown.fb = added.fb;
        Ok(shown)
    }
}

impl Framebuffer<'_> {
    /// Shows it in a mode.
    pub fn show(&self, mode: Mode) -> Result<()> {
        self.screen.show(mode, self.fb)
    }
}

impl Drop for Framebuffer<'_> {
    fn drop(&mut self) {
        // A failure here shows in the kernel's log, which the host reads.
        if self.fb != 0 {
            let _ = ioctl(&self.screen.file, "RMFB", RMFB, &mut RmFb { fb: self.fb });
        }
        let mut argument = GemClose { handle: self.handle, pad: 0 };
        let _ = sys::drm_ioctl(&self.screen.file, Direction::Write, abi::GEM_CLOSE, &mut argument);
    }
}

/// Writes lines to a buffer.
fn write<'a>(
    file: &File,
    made: &GemNew,
    size: usize,
    layout: Layout,
    lines: impl Iterator<Item = &'a [u8]>,
    pitch: usize,
) -> Result<()> {
    let mut mapping = Mapping::new(file, made.map_handle, size)?;
    for (y, line) in lines.enumerate() {
        match layout {
            Layout::Linear => mapping.write(y * pitch, line)?,
            Layout::Blocks(_) => {
                // Sixteen bytes of a line lie side by side.
                for (number, piece) in line.chunks(16).enumerate() {
                    mapping.write(layout.place(number * 16, y, pitch), piece)?;
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_a_surface_of_blocks_has_a_place_of_its_own() {
        for height in 0..=5 {
            let layout = Layout::Blocks(height);
            let (pitch, lines) = (layout.pitch(130), layout.lines(19));
            let mut taken = vec![false; pitch * lines];
            for (x, y) in (0..lines).flat_map(|y| (0..pitch).map(move |x| (x, y))) {
                let taken = &mut taken[layout.place(x, y, pitch)];
                assert!(!*taken);
                *taken = true;
            }
            assert!(taken.iter().all(|taken| *taken));
        }
    }

    #[test]
    fn blocks_stand_beside_each_other_and_gobs_on_each_other() {
        let layout = Layout::Blocks(1);
        assert_eq!(layout.place(64, 0, 192), 1024);
        assert_eq!(layout.place(0, 8, 192), 512);
        assert_eq!(layout.place(0, 16, 192), 3 * 1024);
        assert_eq!(
            [layout.place(16, 0, 192), layout.place(32, 0, 192), layout.place(0, 4, 192)],
            [64, 256, 128]
        );
    }
}
