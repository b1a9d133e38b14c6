//! Buffer objects: memory that the GPU reaches at one address, wherever the kernel moves it.

use std::io;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::abi::{self, CpuPrep, GemClose, GemNew};
use super::{Device, bytes};
use crate::sys::{Direction, Mapping};

/// Where a buffer lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The GPU's own memory; the CPU reaches it through BAR1.
    Vram,
    /// System memory.
    Gart,
}

impl Place {
    /// The domain bit, as ioctls take it.
    pub fn domain(self) -> u32 {
        match self {
            Self::Vram => abi::DOMAIN_VRAM,
            Self::Gart => abi::DOMAIN_GART,
        }
    }
}

/// A buffer object; closed on drop.
#[derive(Debug)]
pub struct Buffer {
    device: Device,
    handle: u32,
    address: u64,
    map_handle: u64,
    size: usize,
    place: Place,
    mapping: Option<Mapping>,
}

impl Buffer {
    /// Makes a buffer of at least `size` bytes.
    pub fn new(device: &Device, place: Place, size: usize) -> Result<Self> {
        let mut argument = GemNew {
            domain: place.domain() | abi::DOMAIN_MAPPABLE,
            size: bytes(size),
            tile_flags: abi::TILE_NONCONTIG,
            align: 4096,
            ..GemNew::default()
        };
        device.ioctl("GEM_NEW", Direction::ReadWrite, abi::GEM_NEW, &mut argument)?;
        Ok(Self {
            device: device.clone(),
            handle: argument.handle,
            address: argument.offset,
            map_handle: argument.map_handle,
            size,
            place,
            mapping: None,
        })
    }

    /// The handle, for ioctls.
    pub fn handle(&self) -> u32 {
        self.handle
    }

    /// Where the GPU sees it.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Where it lies.
    pub fn place(&self) -> Place {
        self.place
    }

    /// How large it was asked to be.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The CPU's view of it, mapped at first use.
    pub fn map(&mut self) -> Result<&mut Mapping> {
        if self.mapping.is_none() {
            let mapping = Mapping::new(self.device.file(), self.map_handle, self.size)
                .with_context(|| format!("cannot map a buffer of {} bytes", self.size))?;
            self.mapping = Some(mapping);
        }
        self.mapping.as_mut().context("the mapping is gone")
    }

    /// Writes by the CPU; to VRAM in whole words.
    pub fn write(&mut self, offset: usize, contents: &[u8]) -> Result<()> {
        let place = self.place;
        let mapping = self.map()?;
        match place {
            Place::Gart => mapping.write(offset, contents),
            Place::Vram => mapping.write_words(offset, contents),
        }
        .context("CPU write")
    }

    /// Reads by the CPU; from VRAM in whole words.
    pub fn read(&mut self, offset: usize, contents: &mut [u8]) -> Result<()> {
        let place = self.place;
        let mapping = self.map()?;
        match place {
            Place::Gart => mapping.read(offset, contents),
            Place::Vram => mapping.read_words(offset, contents),
        }
        .context("CPU read")
    }

    /// Sleeps until the GPU is done with it; the kernel is woken by the fence interrupt.
    pub fn wait(&self) -> Result<()> {
        let question = self.question();
        let Err(error) = question.prepare(abi::PREP_WRITE) else { return Ok(()) };
        let state = match (errno(&error), question.is_done()) {
            // The kernel's limit: 30 s.
            (Some(libc::EBUSY), Ok(true)) => ": its work is done, and nobody told this process",
            (Some(libc::EBUSY), Ok(false)) => ": its work is not done",
            _ => "",
        };
        Err(error).with_context(|| format!("waiting for the GPU{state}"))
    }

    /// Whether the GPU is done with it.
    pub fn is_done(&self) -> Result<bool> {
        self.question().is_done()
    }

    /// The same question for other threads, while this one sleeps. The buffer must live as long.
    pub fn question(&self) -> Question {
        Question { device: self.device.clone(), handle: self.handle }
    }

    /// Asks again and again whether the GPU is done with it, without sleeping.
    pub fn wait_awake(&self, limit: Duration) -> Result<()> {
        let start = Instant::now();
        while !self.is_done()? {
            if start.elapsed() > limit {
                bail!("the GPU is not done after {limit:?}");
            }
        }
        Ok(())
    }
}

/// Whether the GPU is done with a buffer.
#[derive(Debug, Clone)]
pub struct Question {
    device: Device,
    handle: u32,
}

impl Question {
    /// The answer. If it is yes, whoever sleeps until then is woken up.
    pub fn is_done(&self) -> Result<bool> {
        match self.prepare(abi::PREP_WRITE | abi::PREP_NOWAIT) {
            Ok(()) => Ok(true),
            Err(error) if errno(&error) == Some(libc::EBUSY) => Ok(false),
            Err(error) => Err(error).context("asking whether the GPU is done"),
        }
    }

    fn prepare(&self, flags: u32) -> Result<()> {
        let mut argument = CpuPrep { handle: self.handle, flags };
        self.device.ioctl("GEM_CPU_PREP", Direction::Write, abi::GEM_CPU_PREP, &mut argument)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut argument = GemClose { handle: self.handle, pad: 0 };
        // A failure here shows in the kernel's log, which the host reads.
        let _ = self.device.ioctl("GEM_CLOSE", Direction::Write, abi::GEM_CLOSE, &mut argument);
    }
}

/// The system's error number behind an error.
pub fn errno(error: &anyhow::Error) -> Option<i32> {
    error.chain().find_map(|cause| cause.downcast_ref::<io::Error>()?.raw_os_error())
}
