//! A copy engine, tried on a GPU that nobody uses yet: into the host's memory and back with every byte looked at, and, on request,
//! into memory that was just taken away from the GPU.
//!
//! For GPUs whose driver lends memory for channels of the host's own.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use super::scrub::commands::{Dialect, copy_words};
use super::{ChannelSpec, GpuDriver, GpuError, GpuEvent, HostMapping, HostTarget, OwnMemory, SpaceHandle};
use crate::addr::{GpuVa, HostChannel, HostVram, Iova};
use crate::chip::gf100::ramin::USERD_GP_PUT;
use crate::chip::{Engine, EngineSet};
use crate::pci::mapping::{Access, Mapping, create_memory_file};
use crate::pci::{DmaBacking, DmaMapping};

/// The GPU's own memory: USERD, ring, semaphore, commands, data.
const OWN_SIZE: u64 = 128 << 10;
const OWN_SHIFT: u8 = 17;
const RING: u64 = 0x1000;
const RING_LOG2: u8 = 6;
const SEMAPHORE: u64 = 0x1800;
const COMMANDS: u64 = 0x3000;
const DATA: u64 = 0x1_0000;
/// Bytes that are copied at a time, and the host's memory for them.
const SIZE: u64 = 64 << 10;
const RAM_NAME: &CStr = c"gpuvmk-rehearsal";
const RAM_SHIFT: u8 = 12;
/// Virtual addresses.
const OWN_VA: u64 = 0x20_0000;
const RAM_VA: u64 = 0x200_0000;
/// How long a copy may take: microseconds, if the engine works.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(1);

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Rehearsal {
    /// Which engine.
    pub engine: String,
    /// Bytes that came into the host's memory and back as they were.
    pub verified: u64,
    /// Copies that did not, in words.
    pub failures: Vec<String>,
    /// Whether a copy into memory that was taken away from the GPU left that memory as it was; absent if nobody asked.
    pub stray_dma_stopped: Option<bool>,
    /// What the GPU said of that copy.
    pub stray_reported: Option<String>,
}

/// A channel with memory on both sides.
struct Stage<'a> {
    driver: &'a mut dyn GpuDriver,
    dialect: Dialect,
    own: HostVram,
    space: SpaceHandle,
    channel: HostChannel,
    ram: Mapping,
    sequence: u32,
}

/// How a copy ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// The engine reported.
    Done,
    /// It did not; what the GPU said, if anything.
    Not(Option<String>),
}

/// Tries the first copy engine. `stray`: also whether the host's memory is safe from it. Nothing of it is left afterwards but the
/// own memory that it took.
///
/// # Errors
/// The GPU cannot be prepared, or not be left as it was.
pub fn rehearse(driver: &mut dyn GpuDriver, stray: bool) -> Result<Rehearsal, GpuError> {
    let engine = Engine::Copy(0);
    let iova = driver.info().first_iova;
    let dialect = Dialect::of(&driver.info().chip, engine).ok_or_else(|| {
        GpuError::Invalid(format!("{} has no copy engine that is known here", driver.info().chip))
    })?;
    let fd = create_memory_file(RAM_NAME, SIZE)?;
    let ram = Mapping::of_file(fd.as_fd(), 0, SIZE, Access::ReadWrite)
        .map_err(|error| GpuError::Invalid(error.to_string()))?;
    let mut stage = Stage::new(driver, dialect, engine, ram, (iova, fd))?;
    let mut found = Rehearsal {
        engine: format!("{engine:?}"),
        verified: 0,
        failures: Vec::new(),
        stray_dma_stopped: None,
        stray_reported: None,
    };
    let tried = stage.copies(&mut found);
    let tried = tried.and_then(|()| if stray { stage.stray(iova, &mut found) } else { Ok(()) });
    let left = stage.leave(iova, stray && found.stray_dma_stopped.is_some());
    tried.and(left)?;
    Ok(found)
}

impl<'a> Stage<'a> {
    fn new(
        driver: &'a mut dyn GpuDriver,
        dialect: Dialect,
        engine: Engine,
        ram: Mapping,
        (iova, fd): (Iova, OwnedFd),
    ) -> Result<Self, GpuError> {
        let own_memory = memory(driver)?;
        let own = own_memory.take(OWN_SIZE)?;
        own_memory.write(own, &vec![0; bytes(OWN_SIZE)])?;
        let backing = Some(DmaBacking { fd, offset: 0 });
        driver.dma_map(DmaMapping { iova: iova.0, size: SIZE, writable: true, backing })?;
        let space = driver.create_space()?;
        let map = |va, size: u64, page_shift: u8, target| HostMapping {
            va: GpuVa(va),
            pages: u32::try_from(size >> page_shift).unwrap_or(0),
            page_shift,
            target,
            read_only: false,
            kind: 0,
        };
        let maps = [
            map(OWN_VA, OWN_SIZE, OWN_SHIFT, HostTarget::Vram(own)),
            map(RAM_VA, SIZE, RAM_SHIFT, HostTarget::System { iova, coherent: true }),
        ];
        driver.update_space(space, &[], &maps, u64::MAX)?;
        let channel = driver.create_channel(ChannelSpec {
            space,
            gpfifo: GpuVa(OWN_VA.saturating_add(RING)),
            gpfifo_entries_log2: RING_LOG2,
            userd: own,
            engines: EngineSet::from(engine),
        })?;
        match driver.create_object(channel, dialect.class().into(), engine) {
            // Where commands bind classes by themselves, there is no object.
            Ok(()) | Err(GpuError::NoClass { .. }) => {}
            Err(error) => return Err(error),
        }
        driver.enable_channel(channel, true)?;
        driver.commit_runlist(&[channel])?;
        Ok(Self { driver, dialect, own, space, channel, ram, sequence: 0 })
    }

    fn at(&self, offset: u64) -> HostVram {
        HostVram(self.own.0.saturating_add(offset))
    }

    fn data(&mut self) -> Result<Vec<u8>, GpuError> {
        let (at, mut data) = (self.at(DATA), vec![0; bytes(SIZE)]);
        memory(self.driver)?.read(at, &mut data)?;
        Ok(data)
    }

    fn set_data(&mut self, data: &[u8]) -> Result<(), GpuError> {
        let at = self.at(DATA);
        memory(self.driver)?.write(at, data)
    }

    fn ram(&self) -> Vec<u8> {
        let mut data = vec![0; bytes(SIZE)];
        // In range: it is as large.
        let _ = self.ram.read(0, &mut data);
        data
    }

    /// Copies between two virtual addresses, and waits.
    fn copy(&mut self, from: u64, to: u64) -> Result<End, GpuError> {
        self.sequence = self.sequence.saturating_add(1);
        let report = (OWN_VA.saturating_add(SEMAPHORE), self.sequence);
        let words = copy_words(self.dialect, from, to, SIZE, report);
        let entry = OWN_VA.saturating_add(COMMANDS) | (words.len() as u64) << 42;
        let put = self.sequence % (1 << RING_LOG2);
        let place = RING.saturating_add(u64::from(self.sequence.saturating_sub(1)).saturating_mul(8));
        let commands: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let writes = [
            (COMMANDS, commands),
            (place, entry.to_le_bytes().to_vec()),
            (USERD_GP_PUT, put.to_le_bytes().to_vec()),
        ];
        for (offset, data) in writes {
            let at = self.at(offset);
            memory(self.driver)?.write(at, &data)?;
        }
        self.driver.doorbell(self.channel, put)?;
        let start = Instant::now();
        let mut events = Vec::new();
        while start.elapsed() < PATIENCE {
            let (at, mut word) = (self.at(SEMAPHORE), [0; 4]);
            memory(self.driver)?.read(at, &mut word)?;
            if u32::from_le_bytes(word) == self.sequence {
                return Ok(End::Done);
            }
            self.driver.take_events(&mut events);
            let trouble =
                events.iter().find(|event| !matches!(event, GpuEvent::NonStall(_) | GpuEvent::Preempted(_)));
            if let Some(trouble) = trouble {
                return Ok(End::Not(Some(format!("{trouble:?}"))));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(End::Not(None))
    }

    /// There and back.
    fn copies(&mut self, found: &mut Rehearsal) -> Result<(), GpuError> {
        let (there, back) = (pattern(1), pattern(2));
        self.set_data(&there)?;
        let end = self.copy(OWN_VA.saturating_add(DATA), RAM_VA)?;
        note(found, "from VRAM to the host's memory", &end, self.ram() == there);
        // In range: the pattern is as large.
        let _ = self.ram.write(0, &back);
        let end = self.copy(RAM_VA, OWN_VA.saturating_add(DATA))?;
        let same = self.data()? == back;
        note(found, "from the host's memory to VRAM", &end, same);
        Ok(())
    }

    /// Into memory that the GPU's page tables still name, and its IOMMU does not.
    fn stray(&mut self, iova: Iova, found: &mut Rehearsal) -> Result<(), GpuError> {
        let (before, other) = (self.ram(), pattern(3));
        self.set_data(&other)?;
        self.driver.dma_unmap(iova, SIZE)?;
        let end = self.copy(OWN_VA.saturating_add(DATA), RAM_VA)?;
        found.stray_dma_stopped = Some(self.ram() == before);
        found.stray_reported = match end {
            End::Done => Some("the copy ended as if it had been done".to_owned()),
            End::Not(said) => said,
        };
        Ok(())
    }

    /// Takes everything away.
    fn leave(self, iova: Iova, unmapped: bool) -> Result<(), GpuError> {
        let Self { driver, space, channel, .. } = self;
        driver.enable_channel(channel, false)?;
        driver.commit_runlist(&[])?;
        driver.destroy_channel(channel)?;
        driver.destroy_space(space)?;
        if unmapped { Ok(()) } else { driver.dma_unmap(iova, SIZE) }
    }
}

fn note(found: &mut Rehearsal, what: &str, end: &End, same: bool) {
    match (end, same) {
        (End::Done, true) => found.verified = found.verified.saturating_add(SIZE),
        (End::Done, false) => found.failures.push(format!("copy {what}: other bytes came")),
        (End::Not(Some(said)), _) => found.failures.push(format!("copy {what}: the GPU says {said}")),
        (End::Not(None), _) => {
            let time = PATIENCE.as_millis();
            found.failures.push(format!("copy {what}: not done after {time} ms"));
        }
    }
}

fn memory(driver: &mut dyn GpuDriver) -> Result<&mut dyn OwnMemory, GpuError> {
    driver.own_memory().ok_or(GpuError::Exhausted { what: "memory for the host's own channels", limit: 0 })
}

/// CAST: sizes of this file, far below 2^32.
fn bytes(size: u64) -> usize {
    usize::try_from(size).unwrap_or(0)
}

/// Bytes that depend on where they are, other ones for each `seed`.
fn pattern(seed: u32) -> Vec<u8> {
    let words = (0..bytes(SIZE) / 4).zip(1u32..);
    words.flat_map(|(_, number)| number.wrapping_mul(0x9e37_79b1).rotate_left(seed).to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::register::RegisterDriver;
    use crate::softgpu::{SoftGpu, SoftGpuConfig};

    fn gpu() -> RegisterDriver {
        RegisterDriver::new(SoftGpu::new(SoftGpuConfig::default()).unwrap()).unwrap()
    }

    #[test]
    fn software_gpu_copies_and_keeps_to_what_it_may_reach() {
        let mut driver = gpu();
        let found = rehearse(&mut driver, true).unwrap();
        assert_eq!((found.verified, &*found.failures), (2 * SIZE, &[][..]), "{found:?}");
        assert_eq!(found.stray_dma_stopped, Some(true), "{found:?}");
    }

    #[test]
    fn nothing_is_left_mapped() {
        let mut driver = gpu();
        rehearse(&mut driver, false).unwrap();
        let iova = driver.info().first_iova;
        assert!(driver.dma_unmap(iova, SIZE).is_err());
        assert_eq!(rehearse(&mut driver, false).unwrap().verified, 2 * SIZE);
    }
}
