//! A channel of our own: clears video memory, checks that it is clear, and measures.
//!
//! It has an address space of its own. System memory for ring, commands, semaphores and staging is one anonymous
//! file; USERD is a page of video memory. Nothing of a tenant is ever mapped there for longer than one job.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::abi::Handle;
use super::abi::calls::{MapDma, UnmapDma};
use super::abi::classes::{
    FERMI_VASPACE_A, HOPPER_COMPUTE_A, HOPPER_DMA_COPY_A, MemoryParams, NV01_MEMORY_LOCAL_USER,
    NV50_MEMORY_VIRTUAL, SpaceParams,
};
use super::abi::flags::{ENGINE_GRAPHICS, OWNER, alloc, attr, map};
use super::channel::{NewChannel, RmChannel};
use super::device::{Device, Doorbell};
use super::error::RmError;
use super::pushbuffer::Commands;
use super::vram::{Cleaner, vram_params};
use crate::gpu::GpuError;
use crate::pci::mapping::{Access, Mapping, create_memory_file};

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

const USERD_GP_GET: u64 = 0x88;
const USERD_GP_PUT: u64 = 0x8c;
const USERD_SIZE: u64 = 0x1_0000;

/// Longest wait for a job: 64 GiB at 20 GB/s take 3 s.
const PATIENCE: Duration = Duration::from_secs(20);

/// Bytes cleared with one command.
const ZERO_STEP: u64 = 1 << 30;

/// The channel.
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
    staging: u64,
    put: u32,
    sequence: u32,
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
        let mut params = vram_params(USERD_SIZE, attr::PAGE_4K, USERD_SIZE);
        let userd_object = device.client.alloc(device.device, NV01_MEMORY_LOCAL_USER, &mut params)?;
        let userd =
            device.client.cpu_mapping(device.node, device.device, userd_object, USERD_SIZE, "a USERD")?;
        userd.fill(0, 0x200, 0).map_err(internal)?;
        let engine = match work {
            Work::Copy(engine) => engine,
            Work::Compute => ENGINE_GRAPHICS,
        };
        let new = NewChannel {
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
            staging,
            put: 0,
            sequence: 0,
        };
        let mut commands = Commands::default();
        match work {
            Work::Copy(engine) => {
                worker.channel.copy_object(device, HOPPER_DMA_COPY_A, engine)?;
                commands.bind_copy(HOPPER_DMA_COPY_A.number);
            }
            Work::Compute => {
                worker.channel.graphics_object(device, HOPPER_COMPUTE_A)?;
                commands.bind_compute(HOPPER_COMPUTE_A.number);
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
        let slot = u64::from(self.put) % COMMAND_SLOTS;
        let at = COMMANDS.saturating_add(slot.saturating_mul(COMMAND_SLOT));
        let words = commands.words();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        if bytes.len() as u64 > COMMAND_SLOT {
            return Err(GpuError::Invalid(format!("{} words of commands", words.len())));
        }
        self.system.write(at, &bytes).map_err(internal)?;
        let entry = SYSTEM_VA.saturating_add(at) | (words.len() as u64) << 42;
        self.system
            .write_u64(RING.saturating_add(u64::from(self.put).saturating_mul(8)), entry)
            .map_err(internal)?;
        self.put = self.put.wrapping_add(1) % ENTRIES;
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

    fn fill_zero(&mut self, size: u64) -> Result<(), GpuError> {
        let mut at = 0;
        while at < size {
            let step = size.saturating_sub(at).min(ZERO_STEP);
            let pieces = u32::try_from(step / 16).map_err(|_| internal("the step is too large"))?;
            self.run(Commands::default().zero(VIDEO_VA.saturating_add(at), pieces))?;
            at = at.saturating_add(step);
        }
        Ok(())
    }

    /// Copies memory out piece by piece and looks at every word; the next piece is copied meanwhile.
    fn check_zero(&mut self, size: u64) -> Result<(), GpuError> {
        let half = self.staging / 2;
        let pieces: Vec<(u64, u64)> = (0..size.div_ceil(half))
            .map(|index| index.saturating_mul(half))
            .map(|at| (at, size.saturating_sub(at).min(half)))
            .collect();
        let mut running: Option<(u64, u64, u64, u32)> = None;
        for (index, (at, length)) in pieces.into_iter().enumerate() {
            let place = STAGING.saturating_add(if index % 2 == 0 { 0 } else { half });
            let sequence = self.start_copy_out(at, place, length)?;
            if let Some(done) = running.replace((at, length, place, sequence)) {
                self.look(done)?;
            }
        }
        running.map_or(Ok(()), |done| self.look(done))
    }

    fn start_copy_out(&mut self, at: u64, place: u64, length: u64) -> Result<u32, GpuError> {
        let bytes = u32::try_from(length).map_err(|_| internal("the piece is too large"))?;
        self.sequence = self.sequence.wrapping_add(1);
        let mut commands = Commands::default();
        commands.copy(VIDEO_VA.saturating_add(at), self.system_va(place), bytes).release(
            self.system_va(SEMAPHORE),
            self.sequence,
            true,
        );
        self.enqueue(&commands)?;
        self.kick();
        Ok(self.sequence)
    }

    fn look(&self, (at, length, place, sequence): (u64, u64, u64, u32)) -> Result<(), GpuError> {
        // The next copy may be done as well by now.
        let reached = |value: u32| value.wrapping_sub(sequence) < 0x8000_0000;
        let start = Instant::now();
        while !reached(self.system.read_u32(SEMAPHORE).map_err(internal)?) {
            if start.elapsed() > PATIENCE {
                let millis = u64::try_from(PATIENCE.as_millis()).unwrap_or(u64::MAX);
                return Err(GpuError::Timeout { what: "reading cleared memory back", millis });
            }
            std::hint::spin_loop();
        }
        let mut buffer = vec![0_u8; 1 << 20];
        let mut done = 0;
        while done < length {
            let step = length.saturating_sub(done).min(buffer.len() as u64);
            let length = usize::try_from(step).map_err(internal)?;
            let Some(piece) = buffer.get_mut(..length) else { break };
            self.system.read(place.saturating_add(done), piece).map_err(internal)?;
            let (words, rest) = piece.as_chunks::<8>();
            let clear =
                words.iter().all(|word| u64::from_ne_bytes(*word) == 0) && rest.iter().all(|b| *b == 0);
            if !clear {
                return Err(GpuError::Invalid(format!(
                    "video memory is not zero after it was cleared, near offset {:#x}",
                    at.saturating_add(done)
                )));
            }
            done = done.saturating_add(step);
        }
        Ok(())
    }
}

impl Cleaner for Worker {
    fn zero(&mut self, device: &Device, object: Handle, offset: u64, size: u64) -> Result<(), GpuError> {
        if size == 0 {
            return Ok(());
        }
        let large = (offset | size).is_multiple_of(2 << 20);
        self.map_video(device, object, offset, size, if large { map::PAGE_2M } else { map::PAGE_4K })?;
        let done = self.fill_zero(size).and_then(|()| self.check_zero(size));
        // Unmapped in any case: nothing of a tenant stays here.
        self.unmap_video(device, 0, size)?;
        done
    }

    fn objects(&self) -> Vec<Handle> {
        let mut objects = self.channel.objects().to_vec();
        objects.extend([self.space, self.window, self.userd_object, self.system_object]);
        objects
    }
}

fn internal(error: impl std::fmt::Display) -> GpuError {
    GpuError::Invalid(format!("memory of our own: {error}"))
}
