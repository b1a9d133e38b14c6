//! A channel of our own: clears video memory, checks that it is clear, and measures.
//!
//! It has its own address space. System memory for ring, commands, semaphores and staging is one anonymous
//! file; USERD is a page of video memory. A tenant's memory is mapped there for one job only.

mod clearing;
mod job;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::job::Job;
use super::abi::Handle;
use super::abi::calls::{MapDma, UnmapDma};
use super::abi::classes::{
    FERMI_VASPACE_A, MemoryParams, NV01_MEMORY_LOCAL_USER, NV50_MEMORY_VIRTUAL, SpaceParams,
};
use super::abi::flags::{OWNER, alloc, attr, map};
use super::channel::{NewChannel, RmChannel};
use super::device::{Device, Doorbell};
use super::error::RmError;
use super::pushbuffer::Commands;
use super::vram::vram_params;
use crate::GpuError;
use crate::scrub::SCRUB_PIECE;
use gpuvmk_chip::gh100::userd::{USERD_GP_GET, USERD_GP_PUT};
use gpuvmk_chip::stream::RingEntry;
use gpuvmk_chip::{Chip, Engine};
use gpuvmk_pci::mapping::{Access, Mapping, create_memory_file};

/// Layout of the system memory: ring, semaphores, commands, staging.
const RING: u64 = 0;
const ENTRIES: u32 = 512;
const SEMAPHORE: u64 = 0x1000;
const COMMANDS: u64 = 0x2000;
const COMMAND_SLOT: u64 = 0x400;
const COMMAND_SLOTS: u64 = 0x38;
/// First byte for data.
pub const STAGING: u64 = 0x20_0000;

/// Virtual addresses: system memory, and video memory of the job at hand.
const SYSTEM_VA: u64 = 0x2_0000_0000;
/// Where jobs map video memory.
pub const VIDEO_VA: u64 = 0x10_0000_0000;
const WINDOW: (u64, u64) = (0x1_2000_0000, 0xc0_0000_0000);

/// Bytes of the memory that holds the channel's USERD.
const USERD_ROOM: u64 = 0x1_0000;

/// Longest wait for a job: 64 GiB at 20 GB/s take 3 s.
const PATIENCE: Duration = Duration::from_secs(20);

/// Pieces that are cleared at a time.
const PLACES: usize = 8;

/// The channel that clears memory.
#[derive(Debug)]
pub struct Worker {
    doorbell: Arc<Doorbell>,
    space: Handle,
    window: Handle,
    channel: RmChannel,
    userd_object: Handle,
    userd: Mapping,
    system_object: Handle,
    system: Arc<Mapping>,
    put: u32,
    /// Pieces of commands that were put on the ring. Their slots go round apart from the ring's entries,
    /// whose number is no multiple of theirs: a slot is used again after all others.
    pieces: u64,
    sequence: u32,
    /// Pieces that are being cleared, one at each place.
    jobs: Vec<Option<Job>>,
    /// When a command for one last ended.
    progress: Instant,
}

/// Which class a worker has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Copies on a copy engine of this `NV2080_ENGINE_TYPE`.
    Copy(u32),
    /// Compute on the graphics engine.
    Compute,
}

impl Worker {
    /// A worker with `staging` bytes for data.
    ///
    /// # Errors
    /// The driver or the kernel refuses.
    pub fn new(
        device: &mut Device,
        chip: Chip,
        doorbell: Arc<Doorbell>,
        work: Work,
        staging: u64,
    ) -> Result<Self, GpuError> {
        let file: OwnedFd = create_memory_file(c"gpuvmk-rm-worker", STAGING.saturating_add(staging))?;
        let size = STAGING.saturating_add(staging);
        let system = Mapping::of_file(file.as_fd(), 0, size, Access::ReadWrite)
            .map_err(|source| RmError::Mapping { what: "memory of our own", source })?;
        let node = device.file().try_clone_to_owned()?;
        let system_object = device.client.alloc_pages(node.as_fd(), device.device, &system, 0, size)?;
        let mut params = SpaceParams { base: 0x1000, ..Default::default() };
        let space = device.client.alloc(device.device, FERMI_VASPACE_A, &mut params)?;
        let length = WINDOW.1.saturating_sub(WINDOW.0);
        let mut params = MemoryParams {
            owner: OWNER,
            flags: alloc::VIRTUAL | alloc::FIXED | alloc::LAZY,
            attr: attr::PAGE_4K,
            size: length,
            offset: WINDOW.0,
            limit: length.saturating_sub(1),
            space,
            ..Default::default()
        };
        let window = device.client.alloc(device.device, NV50_MEMORY_VIRTUAL, &mut params)?;
        device.client.map_dma(MapDma {
            device: device.device,
            dma: window,
            memory: system_object,
            length: size,
            flags: map::FIXED | map::SNOOP | map::PAGE_4K,
            va: SYSTEM_VA,
            ..Default::default()
        })?;
        let mut params = vram_params(USERD_ROOM, attr::PAGE_4K, USERD_ROOM);
        let userd_object = device.client.alloc(device.device, NV01_MEMORY_LOCAL_USER, &mut params)?;
        let userd =
            device.client.cpu_mapping(device.node, device.device, userd_object, USERD_ROOM, "a USERD")?;
        userd.fill(0, 0x200, 0).map_err(internal)?;
        let engine = match work {
            Work::Copy(engine) => engine,
            Work::Compute => Engine::Graphics.nv2080_type(),
        };
        let new = NewChannel {
            class: chip.classes.channel,
            space,
            engine,
            gpfifo: SYSTEM_VA.saturating_add(RING),
            entries: ENTRIES,
            userd: userd_object,
            userd_offset: 0,
        };
        let channel = RmChannel::new(device, &new)?;
        let mut worker = Self {
            doorbell,
            space,
            window,
            channel,
            userd_object,
            userd,
            system_object,
            system: Arc::new(system),
            put: 0,
            pieces: 0,
            sequence: 0,
            jobs: vec![None; usize::try_from(staging / SCRUB_PIECE).unwrap_or(0).min(PLACES)],
            progress: Instant::now(),
        };
        let mut commands = Commands::default();
        match work {
            Work::Copy(engine) => {
                for class in chip.classes.copy {
                    worker.channel.copy_object(device, *class, engine)?;
                    commands.bind_copy(class.number);
                }
            }
            Work::Compute => {
                worker.channel.graphics_object(device, chip.classes.compute)?;
                commands.bind_compute(chip.classes.compute.number);
            }
        }
        worker.channel.schedule(device)?;
        worker.run(&mut commands)?;
        Ok(worker)
    }

    /// Takes it away.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn destroy(mut self, device: &mut Device) -> Result<(), RmError> {
        self.channel.destroy(device)?;
        device.client.free(self.userd_object)?;
        device.client.free(self.window)?;
        device.client.free(self.space)?;
        device.client.free(self.system_object)
    }

    /// Its system memory.
    pub fn system(&self) -> &Mapping {
        &self.system
    }

    /// The virtual address of a byte of its system memory.
    pub fn system_va(&self, offset: u64) -> u64 {
        SYSTEM_VA.saturating_add(offset)
    }

    /// Where the semaphore is for measurements, in system memory.
    pub fn spare_semaphore(&self) -> u64 {
        SEMAPHORE.saturating_add(0x100)
    }

    /// How far its ring was fetched, as the GPU says in USERD.
    pub fn fetched(&self) -> u32 {
        self.userd.read_u32(USERD_GP_GET).unwrap_or(0)
    }

    /// Entries put on the ring so far, as an index into it.
    pub fn queued(&self) -> u32 {
        self.put
    }

    /// Maps video memory at [`VIDEO_VA`].
    ///
    /// # Errors
    /// The driver refuses.
    pub fn map_video(
        &self,
        device: &Device,
        object: Handle,
        offset: u64,
        length: u64,
        page_flag: u32,
    ) -> Result<(), RmError> {
        device.client.map_dma(MapDma {
            device: device.device,
            dma: self.window,
            memory: object,
            offset,
            length,
            flags: map::FIXED | page_flag,
            va: VIDEO_VA,
            ..Default::default()
        })
    }

    /// The same for a part of it, which is not mapped.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn map_video_at(
        &self,
        device: &Device,
        object: Handle,
        at: u64,
        length: u64,
        page_flag: u32,
    ) -> Result<(), RmError> {
        device.client.map_dma(MapDma {
            device: device.device,
            dma: self.window,
            memory: object,
            offset: at,
            length,
            flags: map::FIXED | page_flag,
            va: VIDEO_VA.saturating_add(at),
            ..Default::default()
        })
    }

    /// Maps our own system memory a second time, at [`VIDEO_VA`].
    ///
    /// # Errors
    /// The driver refuses.
    pub fn map_system_again(&self, device: &Device, length: u64) -> Result<(), RmError> {
        device.client.map_dma(MapDma {
            device: device.device,
            dma: self.window,
            memory: self.system_object,
            offset: STAGING,
            length,
            flags: map::FIXED | map::SNOOP | map::PAGE_4K,
            va: VIDEO_VA,
            ..Default::default()
        })
    }

    /// Unmaps what [`Self::map_video`] mapped, or a part.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn unmap_video(&self, device: &Device, at: u64, length: u64) -> Result<(), RmError> {
        device.client.unmap_dma(UnmapDma {
            device: device.device,
            dma: self.window,
            va: VIDEO_VA.saturating_add(at),
            size: length,
            ..Default::default()
        })
    }

    /// Puts commands on the ring, without a doorbell. Returns the slot's entry.
    ///
    /// # Errors
    /// They are too many.
    pub fn enqueue(&mut self, commands: &Commands) -> Result<(), GpuError> {
        let slot = self.pieces % COMMAND_SLOTS;
        let at = COMMANDS.saturating_add(slot.saturating_mul(COMMAND_SLOT));
        let words = commands.words();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        if bytes.len() as u64 > COMMAND_SLOT {
            return Err(GpuError::Invalid(format!("{} words of commands", words.len())));
        }
        self.system.write(at, &bytes).map_err(internal)?;
        let count = u32::try_from(words.len()).unwrap_or(0);
        let entry = RingEntry::segment(SYSTEM_VA.saturating_add(at), count);
        self.system
            .write_u64(RING.saturating_add(u64::from(self.put).saturating_mul(8)), entry)
            .map_err(internal)?;
        self.put = self.put.wrapping_add(1) % ENTRIES;
        self.pieces = self.pieces.wrapping_add(1);
        Ok(())
    }

    /// Tells the GPU of what is on the ring.
    pub fn kick(&self) {
        // The page is larger than the offset. The store is posted before the doorbell's: both are uncached.
        let _ = self.userd.write_u32(USERD_GP_PUT, self.put);
        if let Some(token) = self.channel.token() {
            self.doorbell.ring(token);
        }
    }

    /// Runs commands to their end.
    ///
    /// # Errors
    /// They did not end, or stopped the channel.
    pub fn run(&mut self, commands: &mut Commands) -> Result<Duration, GpuError> {
        self.sequence = self.sequence.wrapping_add(1);
        commands.release(self.system_va(SEMAPHORE), self.sequence, true);
        self.enqueue(commands)?;
        let start = Instant::now();
        self.kick();
        self.wait(SEMAPHORE, self.sequence)?;
        Ok(start.elapsed())
    }

    /// Waits until a word of system memory has a value.
    ///
    /// # Errors
    /// It does not, or the channel was stopped.
    pub fn wait(&self, at: u64, value: u32) -> Result<(), GpuError> {
        let start = Instant::now();
        let mut rounds = 0_u32;
        loop {
            if self.system.read_u32(at).map_err(internal)? == value {
                return Ok(());
            }
            rounds = rounds.wrapping_add(1);
            std::hint::spin_loop();
            if rounds.is_multiple_of(4096) {
                if let Some(code) = self.channel.error() {
                    return Err(GpuError::Invalid(format!("our own channel was stopped by error {code}")));
                }
                if start.elapsed() > PATIENCE {
                    let millis = u64::try_from(PATIENCE.as_millis()).unwrap_or(u64::MAX);
                    return Err(GpuError::Timeout { what: "work of our own", millis });
                }
                if start.elapsed() > Duration::from_millis(1) {
                    std::thread::yield_now();
                }
            }
        }
    }
}

fn internal(error: impl std::fmt::Display) -> GpuError {
    GpuError::Invalid(format!("memory of our own: {error}"))
}
