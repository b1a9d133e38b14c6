//! Copies and fills of lines that do not follow each other.
#![allow(unsafe_code, reason = "libcuda's functions are unsafe to call")]

use std::ffi::{c_uint, c_void};
use std::ptr::{null, null_mut};

use anyhow::{Result, ensure};

use super::{Address, Context, DeviceMemory, Handle};

/// `CU_MEMORYTYPE_HOST` and `CU_MEMORYTYPE_DEVICE`.
const HOST: c_uint = 1;
const DEVICE: c_uint = 2;

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Debug)]
pub struct Copy {
    source: End,
    target: End,
    width: usize,
    height: usize,
}

#[repr(C)]
#[derive(Debug)]
struct End {
    x: usize,
    y: usize,
    kind: c_uint,
    host: *const c_void,
    device: Address,
    array: Handle,
    pitch: usize,
}

/// The upper left corner of a rectangle of bytes, in lines of `pitch` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corner {
    /// Bytes before it in its line.
    pub x: usize,
    /// Lines before it.
    pub y: usize,
    /// Bytes from a line to the next.
    pub pitch: usize,
}

/// Where a rectangle is.
#[derive(Debug)]
pub enum Place<'a> {
    /// In memory of the device.
    Device(&'a DeviceMemory, Corner),
    /// In ours.
    Host(&'a mut [u8], Corner),
}

impl Place<'_> {
    fn end(&mut self, width: usize, height: usize) -> Result<End> {
        let (size, corner) = match self {
            Self::Device(memory, corner) => (memory.size(), *corner),
            Self::Host(bytes, corner) => (bytes.len(), *corner),
        };
        let Corner { x, y, pitch } = corner;
        ensure!(height > 0 && x + width <= pitch, "{width} bytes at {x} of lines of {pitch}");
        ensure!((y + height - 1) * pitch + x + width <= size, "{height} lines at {y} in {size} bytes");
        let empty = End { x, y, kind: DEVICE, host: null(), device: 0, array: null_mut(), pitch };
        Ok(match self {
            Self::Device(memory, _) => End { device: memory.address(), ..empty },
            Self::Host(bytes, _) => End { kind: HOST, host: bytes.as_mut_ptr().cast(), ..empty },
        })
    }
}

impl Context {
    /// Copies a rectangle of so many bytes and lines.
    pub fn copy_plane(
        &self,
        mut from: Place<'_>,
        mut to: Place<'_>,
        (width, height): (usize, usize),
    ) -> Result<()> {
        let (source, target) = (from.end(width, height)?, to.end(width, height)?);
        let copy = Copy { source, target, width, height };
        // SAFETY: both rectangles are in their memory, which is borrowed over the call.
        let status = unsafe { (self.driver.functions.memcpy_plane)(&raw const copy) };
        self.driver.check("cuMemcpy2D", status)
    }

    /// Fills a rectangle of so many words and lines.
    pub fn fill_plane(
        &self,
        (memory, corner): (&DeviceMemory, Corner),
        word: u32,
        (width, height): (usize, usize),
    ) -> Result<()> {
        let end = Place::Device(memory, corner).end(width * 4, height)?;
        let start = end.device + (corner.y * corner.pitch + corner.x) as u64;
        // SAFETY: the rectangle is in memory of the device.
        let status =
            unsafe { (self.driver.functions.memset_plane)(start, corner.pitch, word, width, height) };
        self.driver.check("cuMemsetD2D32", status)
    }
}
