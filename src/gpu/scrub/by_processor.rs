//! Pieces that the processor zeroes, where no engine can: some bytes at a time and for as long as a turn of
//! the thread that owns the GPU lasts, so that nobody waits for a whole piece.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::EngineScrub;
use crate::budget::CALL;
use crate::{Budget, GpuDriverExt as _, GpuError, Scrub, ScrubMode};
use gpuvmk_chip::addr::HostVram;

/// How long the processor works at pieces at a time.
const TURN: Duration = Duration::from_micros(100);

/// Bytes that are zeroed between two looks at the clock: some 10 microseconds of a processor's time.
const STEP: u64 = 64 << 10;

/// The same where tenants' VRAM is the host's memory: a granule that a card's DMA is told of, which goes back
/// to the host's kernel as a whole.
const HOST_MEMORY_STEP: u64 = 2 << 20;

#[cfg(feature = "testing")]
impl EngineScrub {
    /// With another clock, which ends the processor's turns.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn gpuvmk_host::clock::Clock>) -> Self {
        self.by_hand.clock = clock;
        self
    }
}

impl EngineScrub {
    /// Goes on with a piece, for a turn, on another thread if there are files to give back.
    pub(super) fn by_processor_or_helper(&mut self, start: HostVram, size: u64) -> Result<Scrub, GpuError> {
        if self.info.scrub == ScrubMode::Files
            && self.is_of_tenants(start, size)
            && self.begin_return(start, size, Some(Instant::now()))
        {
            return self.follow_return(start, size).unwrap_or(Ok(Scrub::Pending));
        }
        self.by_processor(start, size)
    }

    /// Goes on with a piece, for a turn.
    pub(super) fn by_processor(&mut self, start: HostVram, size: u64) -> Result<Scrub, GpuError> {
        let key = (start.0, size);
        let mut piece = self.by_hand.begun.remove(&key).unwrap_or_default();
        let step = if self.info.scrub == ScrubMode::HostMemory { HOST_MEMORY_STEP } else { STEP };
        let clock = Arc::clone(&self.by_hand.clock);
        let (began, mut turn) = (clock.now(), Budget::new(&clock, TURN));
        while piece.done < size {
            let at = HostVram(start.0.saturating_add(piece.done));
            // To the next multiple, so that granules stay whole.
            let bytes = step.saturating_sub(at.0 % step).min(size.saturating_sub(piece.done));
            match self.inner.advance_scrub(at, bytes)? {
                Scrub::Done | Scrub::Untouched => piece.done = piece.done.saturating_add(bytes),
                // Another thread takes it from the card first.
                unfinished => {
                    self.by_hand.begun.insert(key, piece);
                    return Ok(unfinished);
                }
            }
            if turn.spend(CALL) {
                break;
            }
        }
        piece.took = piece.took.saturating_add(clock.now().saturating_sub(began));
        if piece.done < size {
            self.by_hand.begun.insert(key, piece);
            return Ok(Scrub::More);
        }
        self.account.processor(size, Duration::from_nanos(piece.took));
        Ok(Scrub::Done)
    }

    /// Zeroes a range of any size, as its driver does it, while there is nobody who waits.
    pub(super) fn at_once(&mut self, start: HostVram, size: u64) -> Result<(), GpuError> {
        let began = Instant::now();
        self.inner.scrub_vram(start, size)?;
        if self.info.scrub == ScrubMode::Engine {
            self.account.engine(size, 0, began);
        } else {
            self.account.processor(size, began.elapsed());
        }
        Ok(())
    }
}
