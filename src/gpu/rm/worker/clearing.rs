//! Pieces of video memory that a worker clears, several at a time: each is zeroed, read back and looked at.

use std::time::Instant;

use super::job::{Job, Phase};
use super::{PATIENCE, SEMAPHORE, STAGING, VIDEO_VA, Worker, internal};
use crate::rm::abi::Handle;
use crate::rm::abi::calls::MapDma;
use crate::rm::abi::flags::map;
use crate::rm::clearing::{Cleaner, Ticket};
use crate::rm::device::Device;
use crate::rm::error::RmError;
use crate::rm::pushbuffer::Commands;
use crate::scrub::SCRUB_PIECE;
use crate::{GpuError, Scrub};

/// Bytes that are looked at at a time.
const CHECK_STEP: u64 = 256 << 10;

impl Worker {
    /// Puts commands on the ring that end with a value in a place's semaphore, and rings the doorbell.
    fn submit(&mut self, place: usize, commands: &mut Commands) -> Result<u32, GpuError> {
        self.sequence = self.sequence.wrapping_add(1);
        commands.release(self.system_va(semaphore_of(place)), self.sequence, true);
        self.enqueue(commands)?;
        self.kick();
        Ok(self.sequence)
    }

    /// True if a place's commands have ended.
    fn has_ended(&mut self, place: usize, sequence: u32, began: Instant) -> Result<bool, GpuError> {
        if self.system.read_u32(semaphore_of(place)).map_err(internal)? == sequence {
            self.progress = Instant::now();
            return Ok(true);
        }
        if let Some(code) = self.channel.error() {
            return Err(GpuError::Invalid(format!("our own channel was stopped by error {code}")));
        }
        // Others may be before it: as long as they are finished, it only waits its turn.
        if self.progress.max(began).elapsed() > PATIENCE {
            let millis = u64::try_from(PATIENCE.as_millis()).unwrap_or(u64::MAX);
            return Err(GpuError::Timeout { what: "clearing video memory", millis });
        }
        Ok(false)
    }

    /// Looks at what was copied out, a little at a time; how much of it was looked at.
    fn check_zero(&self, place: usize, at: u64, size: u64) -> Result<u64, GpuError> {
        let step = size.saturating_sub(at).min(CHECK_STEP);
        let mut buffer = vec![0_u8; usize::try_from(step).map_err(internal)?];
        self.system.read(staging_of(place).saturating_add(at), &mut buffer).map_err(internal)?;
        let (words, rest) = buffer.as_chunks::<8>();
        let clear = words.iter().all(|word| u64::from_ne_bytes(*word) == 0) && rest.iter().all(|b| *b == 0);
        if clear {
            return Ok(at.saturating_add(step));
        }
        Err(GpuError::Invalid(format!(
            "video memory is not zero after it was cleared, in {step:#x} bytes from offset {at:#x} of a piece"
        )))
    }

    /// The next step of a place.
    fn step(&mut self, place: usize, job: Job) -> Result<(Phase, Scrub), GpuError> {
        match job.phase {
            Phase::Zeroing(sequence) => {
                if !self.has_ended(place, sequence, job.began)? {
                    return Ok((job.phase, Scrub::Pending));
                }
                let bytes = u32::try_from(job.size).map_err(internal)?;
                let (from, to) = (video_of(place), self.system_va(staging_of(place)));
                let sequence = self.submit(place, Commands::default().copy(from, to, bytes))?;
                Ok((Phase::Reading(sequence), Scrub::Pending))
            }
            Phase::Reading(sequence) if self.has_ended(place, sequence, job.began)? => {
                Ok((Phase::Checking(0), Scrub::More))
            }
            Phase::Reading(_) => Ok((job.phase, Scrub::Pending)),
            Phase::Checking(at) => {
                let seen = self.check_zero(place, at, job.size)?;
                let all = seen >= job.size;
                Ok((Phase::Checking(seen), if all { Scrub::Done } else { Scrub::More }))
            }
        }
    }

    fn unmap_place(&self, device: &Device, place: usize, size: u64) -> Result<(), RmError> {
        self.unmap_video(device, video_of(place).saturating_sub(VIDEO_VA), size)
    }
}

fn nth(place: usize, stride: u64) -> u64 {
    stride.saturating_mul(u64::try_from(place).unwrap_or(u64::MAX))
}

fn video_of(place: usize) -> u64 {
    VIDEO_VA.saturating_add(nth(place, SCRUB_PIECE))
}

fn staging_of(place: usize) -> u64 {
    STAGING.saturating_add(nth(place, SCRUB_PIECE))
}

fn semaphore_of(place: usize) -> u64 {
    SEMAPHORE.saturating_add(0x200).saturating_add(nth(place, 0x10))
}

impl Cleaner for Worker {
    fn begin(
        &mut self,
        device: &Device,
        object: Handle,
        offset: u64,
        size: u64,
    ) -> Result<Option<Ticket>, GpuError> {
        let free = self.jobs.iter().position(Option::is_none);
        let (Some(place), true) = (free, size <= SCRUB_PIECE) else { return Ok(None) };
        let large = (offset | size).is_multiple_of(2 << 20);
        let page = if large { map::PAGE_2M } else { map::PAGE_4K };
        let at = video_of(place);
        device.client.map_dma(MapDma {
            device: device.device,
            dma: self.window,
            memory: object,
            offset,
            length: size,
            flags: map::FIXED | page,
            va: at,
            ..Default::default()
        })?;
        let pieces = u32::try_from(size / 16).map_err(|_| internal("the piece is too large"))?;
        let sequence = match self.submit(place, Commands::default().zero(at, pieces)) {
            Ok(sequence) => sequence,
            Err(error) => {
                self.unmap_place(device, place, size)?;
                return Err(error);
            }
        };
        if let Some(slot) = self.jobs.get_mut(place) {
            *slot = Some(Job { size, began: Instant::now(), phase: Phase::Zeroing(sequence) });
        }
        Ok(Some(Ticket(place)))
    }

    fn look(&mut self, device: &Device, Ticket(place): Ticket) -> Result<Scrub, GpuError> {
        let Some(job) = self.jobs.get(place).copied().flatten() else {
            return Err(GpuError::NoSuch { what: "piece that is being cleared", id: nth(place, 1) });
        };
        // After a failure the engine may still use the place, so it is not used again.
        let (phase, seen) = self.step(place, job)?;
        let left = (seen != Scrub::Done).then_some(Job { phase, ..job });
        if left.is_none() {
            self.unmap_place(device, place, job.size)?;
        }
        if let Some(slot) = self.jobs.get_mut(place) {
            *slot = left;
        }
        Ok(seen)
    }

    fn objects(&self) -> Vec<Handle> {
        let mut objects = self.channel.objects().to_vec();
        objects.extend([self.space, self.window, self.userd_object, self.system_object]);
        objects
    }
}
