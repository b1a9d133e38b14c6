//! The channel with which VRAM is zeroed: an address space that shows its own memory and the pieces under
//! way, and nothing else.

use std::time::Instant;

use super::commands::{CommandFormat, Piece, words};
use super::layout::{
    COMMANDS, COMMANDS_SIZE, LINE, MARK, MARKS, OWN_SIZE, OWN_VA, PIECE, RING, RING_LOG2, SEEN, SEEN_SIZE,
    SEMAPHORES, SLOTS, STRIDE, USERD, WINDOWS_VA, ZEROS,
};
use crate::own_channel::{OwnChannel, Place, memory};
use crate::{GpuDriver, GpuDriverExt as _, GpuError, HostMapping, HostRange, HostTarget, SpaceHandle};
use gpuvmk_chip::Engine;
use gpuvmk_chip::addr::{GpuVa, HostChannel, HostVram};

/// Smallest page that pieces are made of.
const SMALLEST_SHIFT: u8 = 16;

/// Marks: bytes that are not zero.
const MARKED: u8 = 0xa5;

/// Value of a place that was not read back yet; not zero.
const UNSEEN: u8 = 0xff;

/// A piece under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) start: HostVram,
    pub(super) size: u64,
    pub(super) began: Instant,
    slot: u64,
    page_shift: u8,
    sequence: u32,
}

impl Job {
    pub(super) fn overlaps(&self, start: HostVram, size: u64) -> bool {
        let end = |start: HostVram, size: u64| start.0.saturating_add(size);
        self.start.0 < end(start, size) && start.0 < end(self.start, self.size)
    }

    pub(super) const fn places(&self) -> u64 {
        self.size / STRIDE
    }

    const fn window(&self) -> u64 {
        WINDOWS_VA.saturating_add(self.slot.saturating_mul(PIECE))
    }
}

/// How far a piece is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// The engine has not reported.
    Nothing,
    /// It has, and all marked places are zero.
    Zero,
    /// It has, and they are not.
    Marks,
}

/// The channel. Its memory stays when it goes.
#[derive(Debug)]
pub(super) struct Rig {
    dialect: CommandFormat,
    own: HostVram,
    space: SpaceHandle,
    channel: OwnChannel,
    sequence: u32,
}

impl Rig {
    /// A channel on `engine`, enabled and on no runlist. `own` is [`OWN_SIZE`] bytes of the host's.
    pub(super) fn new(
        driver: &mut dyn GpuDriver,
        dialect: CommandFormat,
        engine: Engine,
        own: HostVram,
    ) -> Result<Self, GpuError> {
        let own_memory = memory(driver)?;
        own_memory.write(own, &vec![0; usize::try_from(OWN_SIZE).unwrap_or(0)])?;
        own_memory.write(at(own, MARKS), &vec![MARKED; usize::try_from(SEEN_SIZE).unwrap_or(0)])?;
        let space = driver.create_space()?;
        let made = Self::set_up(driver, dialect, engine, own, space);
        if made.is_err() {
            // No channel uses it; an error here changes nothing about the first one.
            let _ = driver.destroy_space(space);
        }
        made
    }

    fn set_up(
        driver: &mut dyn GpuDriver,
        dialect: CommandFormat,
        engine: Engine,
        own: HostVram,
        space: SpaceHandle,
    ) -> Result<Self, GpuError> {
        let page_shift = best_shift(driver, OWN_VA, own, OWN_SIZE).ok_or_else(|| {
            GpuError::Invalid(format!("{OWN_SIZE:#x} bytes at {own} are not made of pages of 64 KiB"))
        })?;
        let map = mapping(OWN_VA, own, OWN_SIZE, page_shift)?;
        driver.update_space(space, &[], &[map], u64::MAX)?;
        let place = Place { own, va: OWN_VA, userd: USERD, ring: RING, ring_log2: RING_LOG2 };
        let channel = OwnChannel::new(driver, place, space, (engine, dialect.class()))?;
        Ok(Self { dialect, own, space, channel, sequence: 0 })
    }

    /// The channel's number.
    pub(super) fn channel(&self) -> HostChannel {
        self.channel.channel()
    }

    /// A slot that none of `jobs` has.
    pub(super) fn free_slot(jobs: &[Job]) -> Option<u64> {
        (0..SLOTS).find(|slot| !jobs.iter().any(|job| job.slot == *slot))
    }

    /// True when a piece is made as the engine needs it.
    pub(super) fn fits(driver: &dyn GpuDriver, start: HostVram, size: u64) -> bool {
        size > 0
            && size <= PIECE
            && size.is_multiple_of(STRIDE)
            && best_shift(driver, WINDOWS_VA, start, size).is_some()
    }

    /// Starts a piece: maps it in the slot's window, and submits the commands.
    pub(super) fn start(
        &mut self,
        driver: &mut dyn GpuDriver,
        slot: u64,
        start: HostVram,
        size: u64,
    ) -> Result<Job, GpuError> {
        let page_shift = best_shift(driver, WINDOWS_VA, start, size)
            .ok_or_else(|| GpuError::Invalid(format!("{size:#x} bytes at {start} are no whole pages")))?;
        self.sequence = self.sequence.checked_add(1).unwrap_or(1);
        let job = Job { start, size, began: Instant::now(), slot, page_shift, sequence: self.sequence };
        driver.update_space(self.space, &[], &[mapping(job.window(), start, size, page_shift)?], u64::MAX)?;
        let seen = SEEN.saturating_add(slot.saturating_mul(SEEN_SIZE));
        let commands = COMMANDS.saturating_add(slot.saturating_mul(COMMANDS_SIZE));
        let own_va = |offset: u64| OWN_VA.saturating_add(offset);
        let words = words(
            self.dialect,
            &Piece {
                target: job.window(),
                size,
                // Anywhere in a stride, and elsewhere next time.
                place: u64::from(job.sequence.wrapping_mul(0x9e37_79b1) >> 16) & !(MARK - 1),
                zeros: own_va(ZEROS),
                marks: own_va(MARKS),
                seen: own_va(seen),
                semaphore: own_va(semaphore(slot)),
                sequence: job.sequence,
            },
        );
        if words.len() as u64 * 4 > COMMANDS_SIZE {
            return Err(GpuError::Invalid(format!("{} words of commands for a piece", words.len())));
        }
        let unseen = usize::try_from(job.places().saturating_mul(MARK)).unwrap_or(0);
        let memory = memory(driver)?;
        memory.write(at(self.own, semaphore(slot)), &[0; 4])?;
        memory.write(at(self.own, seen), &vec![UNSEEN; unseen])?;
        self.channel.submit(driver, commands, &words)?;
        Ok(job)
    }

    /// Looks how far a piece is.
    pub(super) fn look(&self, driver: &mut dyn GpuDriver, job: &Job) -> Result<Seen, GpuError> {
        let memory = memory(driver)?;
        let mut word = [0; 4];
        memory.read(at(self.own, semaphore(job.slot)), &mut word)?;
        if u32::from_le_bytes(word) != job.sequence {
            return Ok(Seen::Nothing);
        }
        let mut seen = vec![UNSEEN; usize::try_from(job.places().saturating_mul(MARK)).unwrap_or(0)];
        memory.read(at(self.own, SEEN.saturating_add(job.slot.saturating_mul(SEEN_SIZE))), &mut seen)?;
        Ok(if seen.iter().all(|byte| *byte == 0) { Seen::Zero } else { Seen::Marks })
    }

    /// Takes a piece out of its window: the engine reaches nothing of it when this returns.
    pub(super) fn hide(&self, driver: &mut dyn GpuDriver, job: &Job) -> Result<(), GpuError> {
        let pages = pages(job.size, job.page_shift)?;
        let range = HostRange { va: GpuVa(job.window()), pages, page_shift: job.page_shift };
        driver.update_space(self.space, &[range], &[], u64::MAX)
    }

    /// Empties the address space: the engine reaches nothing when this returns, its own memory included.
    pub(super) fn cut_off(&self, driver: &mut dyn GpuDriver) -> Result<(), GpuError> {
        driver.clear_space(self.space)
    }

    /// Takes the channel away.
    pub(super) fn destroy(self, driver: &mut dyn GpuDriver) -> Result<(), GpuError> {
        self.channel.destroy(driver)?;
        driver.destroy_space(self.space)
    }

    /// The line of zeros, for tests that spoil it.
    #[cfg(feature = "testing")]
    pub(super) fn zeros(&self) -> (HostVram, u64) {
        (at(self.own, ZEROS), LINE)
    }
}

const _: () = assert!(LINE.is_multiple_of(MARK) && PIECE.is_multiple_of(LINE));

fn semaphore(slot: u64) -> u64 {
    SEMAPHORES.saturating_add(slot.saturating_mul(16))
}

fn at(own: HostVram, offset: u64) -> HostVram {
    HostVram(own.0.saturating_add(offset))
}

/// The largest page that a range is made of, here and there.
fn best_shift(driver: &dyn GpuDriver, va: u64, start: HostVram, size: u64) -> Option<u8> {
    let aligned =
        |shift: u8| (va | start.0 | size).is_multiple_of(1_u64.checked_shl(shift.into()).unwrap_or(0));
    let shifts = driver.info().page_shifts.iter().copied();
    shifts.filter(|shift| (SMALLEST_SHIFT..64).contains(shift) && aligned(*shift)).max()
}

fn pages(size: u64, page_shift: u8) -> Result<u32, GpuError> {
    u32::try_from(size >> page_shift).map_err(|_| GpuError::Invalid(format!("{size:#x} bytes in one piece")))
}

fn mapping(va: u64, start: HostVram, size: u64, page_shift: u8) -> Result<HostMapping, GpuError> {
    Ok(HostMapping {
        va: GpuVa(va),
        pages: pages(size, page_shift)?,
        page_shift,
        target: HostTarget::Vram(start),
        read_only: false,
        kind: 0,
    })
}
