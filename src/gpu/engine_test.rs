//! Tests the engines of an unused GPU, one by one. Each copies into the host's memory and back, and every
//! byte is checked. On request one also copies into memory that was just taken away from the GPU.
//!
//! For GPUs whose driver lends memory for channels of the host's own.

use std::ffi::CStr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::own_channel::{OwnChannel, Place, memory};
use super::scrub::commands::{CommandFormat, copy_words};
use super::{GpuDriver, GpuDriverExt as _, GpuError, GpuEvent, HostMapping, HostTarget, SpaceHandle};
use gpuvmk_chip::Engine;
use gpuvmk_chip::addr::{GpuVa, HostVram, Iova};
use gpuvmk_pci::mapping::{Access, Mapping, create_memory_file};
use gpuvmk_pci::{DmaBacking, DmaMapping};

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
/// Virtual addresses of the GPU's own memory and of the host's.
const OWN_VA: u64 = 0x20_0000;
const RAM_VA: u64 = 0x200_0000;
/// How long a copy may take: microseconds, if the engine works.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(1);

/// Results of the engines' tests.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct EngineTests {
    /// The result of each engine.
    pub tried: Vec<EngineTest>,
    /// Bytes that came into the host's memory and back as they were, by all engines.
    pub verified: u64,
    /// True if a copy into memory that was taken away from the GPU left that memory as it was; `None` if that
    /// was not tested.
    pub stray_dma_stopped: Option<bool>,
    /// The error that the GPU reported for that copy.
    pub stray_reported: Option<String>,
}

impl EngineTests {
    /// True if each engine works, and none reaches what it must not.
    pub fn passed(&self) -> bool {
        let works = !self.tried.is_empty() && self.tried.iter().all(|test| test.failures.is_empty());
        works && self.stray_dma_stopped != Some(false)
    }
}

/// Result of one engine.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct EngineTest {
    /// Name of the engine.
    pub engine: String,
    /// The class whose commands it was given.
    pub class: String,
    /// Bytes that came into the host's memory and back as they were.
    pub verified: u64,
    /// Time of the slower one of both copies, from the doorbell until its end was seen, in microseconds.
    pub slowest_us: u64,
    /// Copies that did not, in words.
    pub failures: Vec<String>,
}

/// Memory on both sides.
struct Stage<'a> {
    driver: &'a mut dyn GpuDriver,
    own: HostVram,
    ram: Mapping,
    iova: Iova,
}

/// A channel of one engine on it.
struct Actor<'s, 'a> {
    stage: &'s mut Stage<'a>,
    dialect: CommandFormat,
    space: SpaceHandle,
    channel: OwnChannel,
    sequence: u32,
}

/// How a copy ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// The engine reported, after this long.
    Done(Duration),
    /// It did not; the GPU's error, if it reported one.
    Not(Option<String>),
}

/// Tries each engine whose commands are known. `stray`: also whether the host's memory is safe from the last
/// one. Nothing of it is left afterwards but the own memory that it took.
///
/// # Errors
/// The GPU cannot be prepared, or not be restored. An engine that does not work is no error: it is found.
pub fn test_engines(driver: &mut dyn GpuDriver, stray: bool) -> Result<EngineTests, GpuError> {
    let info = driver.info();
    let known =
        info.engines.engines().filter_map(|engine| Some((engine, CommandFormat::of(info.chip, engine)?)));
    let engines: Vec<_> = known.collect();
    let Some((last, _)) = engines.last().copied() else {
        return Err(GpuError::Invalid(format!("{} has no engine that is known here", info.chip)));
    };
    let mut stage = Stage::new(driver)?;
    let mut found = EngineTests::default();
    let tried = engines
        .into_iter()
        .try_for_each(|(engine, dialect)| stage.tried(engine, dialect, stray && engine == last, &mut found));
    let left = stage.leave(found.stray_dma_stopped.is_some());
    tried.and(left)?;
    Ok(found)
}

impl<'a> Stage<'a> {
    fn new(driver: &'a mut dyn GpuDriver) -> Result<Self, GpuError> {
        let iova = driver.info().first_iova;
        let fd = create_memory_file(RAM_NAME, SIZE)?;
        let ram = Mapping::of_file(fd.as_fd(), 0, SIZE, Access::ReadWrite)
            .map_err(|error| GpuError::Invalid(error.to_string()))?;
        // A driver holds in place what is there.
        ram.populate(0, SIZE)?;
        let own = memory(driver)?.take(OWN_SIZE)?;
        let backing = Some(DmaBacking { fd, offset: 0 });
        driver.dma_map(DmaMapping { iova: iova.0, size: SIZE, writable: true, backing, owner: None })?;
        Ok(Self { driver, own, ram, iova })
    }

    /// Takes the host's memory from the GPU, unless it is `gone` already.
    fn leave(self, gone: bool) -> Result<(), GpuError> {
        if gone { Ok(()) } else { self.driver.dma_unmap(self.iova, SIZE) }
    }

    /// What one engine does. An error is one of what came before or after its work.
    fn tried(
        &mut self,
        engine: Engine,
        dialect: CommandFormat,
        stray: bool,
        found: &mut EngineTests,
    ) -> Result<(), GpuError> {
        let mut test = EngineTest {
            engine: engine.to_string(),
            class: format!("{:04x}", dialect.class()),
            verified: 0,
            slowest_us: 0,
            failures: Vec::new(),
        };
        let worked = match Actor::new(self, engine, dialect) {
            Ok(mut actor) => {
                let worked = actor.copies(&mut test);
                let worked = worked.and_then(|()| if stray { actor.stray(found) } else { Ok(()) });
                let left = actor.leave();
                worked.and(left)
            }
            Err(error) => {
                test.failures.push(format!("no channel: {error}"));
                Ok(())
            }
        };
        found.verified = found.verified.saturating_add(test.verified);
        found.tried.push(test);
        worked
    }

    fn place(&self) -> Place {
        Place { own: self.own, va: OWN_VA, userd: 0, ring: RING, ring_log2: RING_LOG2 }
    }

    fn data(&mut self) -> Result<Vec<u8>, GpuError> {
        let (at, mut data) = (self.place().at(DATA), vec![0; bytes(SIZE)]);
        memory(self.driver)?.read(at, &mut data)?;
        Ok(data)
    }

    fn set_data(&mut self, data: &[u8]) -> Result<(), GpuError> {
        let at = self.place().at(DATA);
        memory(self.driver)?.write(at, data)
    }

    fn ram(&self) -> Vec<u8> {
        let mut data = vec![0; bytes(SIZE)];
        // In range: it is as large.
        let _ = self.ram.read(0, &mut data);
        data
    }
}

impl<'s, 'a> Actor<'s, 'a> {
    fn new(stage: &'s mut Stage<'a>, engine: Engine, dialect: CommandFormat) -> Result<Self, GpuError> {
        let (place, iova) = (stage.place(), stage.iova);
        let driver = &mut *stage.driver;
        memory(driver)?.write(place.own, &vec![0; bytes(OWN_SIZE)])?;
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
            map(OWN_VA, OWN_SIZE, OWN_SHIFT, HostTarget::Vram(place.own)),
            map(RAM_VA, SIZE, RAM_SHIFT, HostTarget::System { iova, coherent: true }),
        ];
        let channel = driver
            .update_space(space, &[], &maps, u64::MAX)
            .and_then(|_| OwnChannel::new(driver, place, space, (engine, dialect.class())));
        let channel = match channel {
            Ok(channel) => channel,
            Err(error) => {
                driver.destroy_space(space)?;
                return Err(error);
            }
        };
        driver.commit_runlist(&[channel.channel()])?;
        Ok(Self { stage, dialect, space, channel, sequence: 0 })
    }

    /// Copies between two virtual addresses, and waits.
    fn copy(&mut self, from: u64, to: u64) -> Result<End, GpuError> {
        self.sequence = self.sequence.saturating_add(1);
        let place = self.stage.place();
        let report = (place.va(SEMAPHORE), self.sequence);
        let words = copy_words(self.dialect, from, to, SIZE, report);
        let start = Instant::now();
        self.channel.submit(self.stage.driver, COMMANDS, &words)?;
        let mut events = Vec::new();
        while start.elapsed() < PATIENCE {
            let mut word = [0; 4];
            memory(self.stage.driver)?.read(place.at(SEMAPHORE), &mut word)?;
            if u32::from_le_bytes(word) == self.sequence {
                return Ok(End::Done(start.elapsed()));
            }
            self.stage.driver.take_events(&mut events);
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
    fn copies(&mut self, test: &mut EngineTest) -> Result<(), GpuError> {
        let (there, back) = (pattern(1), pattern(2));
        let own = self.stage.place().va(DATA);
        self.stage.set_data(&there)?;
        let end = self.copy(own, RAM_VA)?;
        note(test, "from VRAM to the host's memory", &end, self.stage.ram() == there);
        // In range: the pattern is as large.
        let _ = self.stage.ram.write(0, &back);
        let end = self.copy(RAM_VA, own)?;
        let same = self.stage.data()? == back;
        note(test, "from the host's memory to VRAM", &end, same);
        Ok(())
    }

    /// Into memory that the GPU's page tables still name, and its IOMMU does not.
    fn stray(&mut self, found: &mut EngineTests) -> Result<(), GpuError> {
        let (before, other) = (self.stage.ram(), pattern(3));
        self.stage.set_data(&other)?;
        self.stage.driver.dma_unmap(self.stage.iova, SIZE)?;
        let end = self.copy(self.stage.place().va(DATA), RAM_VA)?;
        found.stray_dma_stopped = Some(self.stage.ram() == before);
        found.stray_reported = match end {
            End::Done(_) => Some("the copy ended as if it had been done".to_owned()),
            End::Not(said) => said,
        };
        Ok(())
    }

    /// Takes everything away.
    fn leave(self) -> Result<(), GpuError> {
        let Self { stage, space, channel, .. } = self;
        let driver = &mut *stage.driver;
        driver.enable_channel(channel.channel(), false)?;
        driver.commit_runlist(&[])?;
        channel.destroy(driver)?;
        driver.destroy_space(space)
    }
}

fn note(test: &mut EngineTest, what: &str, end: &End, same: bool) {
    match (end, same) {
        (End::Done(time), true) => {
            test.verified = test.verified.saturating_add(SIZE);
            test.slowest_us = test.slowest_us.max(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
        }
        (End::Done(_), false) => test.failures.push(format!("copy {what}: other bytes came")),
        (End::Not(Some(said)), _) => test.failures.push(format!("copy {what}: the GPU says {said}")),
        (End::Not(None), _) => {
            let time = PATIENCE.as_millis();
            test.failures.push(format!("copy {what}: not done after {time} ms"));
        }
    }
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
    use crate::register::RegisterDriver;
    use gpuvmk_softgpu::{SoftGpu, SoftGpuConfig};

    fn gpu() -> RegisterDriver {
        RegisterDriver::new(SoftGpu::new(SoftGpuConfig::default()).unwrap()).unwrap()
    }

    #[test]
    fn each_engine_of_the_software_gpu_copies_and_keeps_to_what_it_may_reach() {
        let mut driver = gpu();
        let found = test_engines(&mut driver, true).unwrap();
        let engines: Vec<_> = found.tried.iter().map(|test| (&*test.engine, &*test.class)).collect();
        assert_eq!(engines, [("graphics", "9039"), ("copy0", "90b5"), ("copy1", "90b8")], "{found:?}");
        assert!(found.passed() && found.tried.iter().all(|test| test.verified == 2 * SIZE), "{found:?}");
        assert_eq!((found.verified, found.stray_dma_stopped), (6 * SIZE, Some(true)), "{found:?}");
    }

    #[test]
    fn nothing_is_left_mapped() {
        let mut driver = gpu();
        test_engines(&mut driver, false).unwrap();
        assert_eq!(test_engines(&mut driver, false).unwrap().verified, 6 * SIZE);
    }

    #[test]
    fn gpu_of_which_nothing_was_tried_is_not_good() {
        assert!(!EngineTests::default().passed());
    }
}
