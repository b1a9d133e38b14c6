//! Zeroing VRAM with the GPU's own copy engine, over any driver that lends memory for channels of the host's
//! own.
//!
//! A driver that wraps another. It reserves one channel, on the last copy engine, which guests' drivers use
//! least. A piece of VRAM is mapped into that channel's address space only while it is zeroed, so the engine
//! reaches nothing else whatever happens. Before, one place in every 64 KiB is marked; afterwards the engine
//! copies these places out, and they must be zero. No call waits for the engine: the caller asks again
//! ([`Scrubber::advance_scrub`](super::Scrubber::advance_scrub)), while the channel shares the engine with
//! others by hardware's time slices.
//!
//! If the engine does not finish in time, or leaves other bytes than zeros, the processor zeroes the piece.
//! After a failure the channel is made anew, after a pause. Memory that comes from files of the host goes
//! back to the kernel in the end, and is not zeroed again if it stays untouched.
//!
//! Not handled: GPUs whose driver zeroes memory by itself, with its own channel (`rm`) or because tenants'
//! VRAM is the host's memory (a card through VFIO).

mod backing;
mod by_hand;
mod by_processor;
mod channel;
mod channel_life;
pub(super) mod commands;
mod driver;
mod layout;
mod report;
mod rig;
#[cfg(feature = "testing")]
pub mod testing;

use std::sync::Arc;
use std::time::{Duration, Instant};

pub(super) use self::backing::{give_back, punch};
use self::by_hand::ByHand;
pub use self::channel::REST;
use self::channel::{Channel, Plan};
use self::report::Account;
use self::rig::{Job, Rig, Seen};
use super::budget::LOOK_AGAIN;
use super::{GpuDriver, GpuError, GpuInfo, Scrub, ScrubMode, Scrubber as _};
use gpuvmk_chip::addr::{HostChannel, HostVram};
pub use gpuvmk_control_client::ScrubReport;
use gpuvmk_host::reaper::{Account as Helper, Pending};
use gpuvmk_ordered::OrderedMap;
use gpuvmk_pci::SharedMemory;

/// VRAM zeroed at a time: so much that the processor does it in about a millisecond.
pub const SCRUB_PIECE: u64 = layout::PIECE;

/// How long files stay open for the next piece.
const KEPT_OPEN: Duration = Duration::from_millis(20);

/// How long the engine may take for a piece once it is the first one, its share of the time included: some
/// hundred time slices.
const PATIENCE: Duration = Duration::from_millis(250);

/// How long after its start a piece counts as forgotten.
const FORGOTTEN: Duration = Duration::from_secs(2);

/// A driver that zeroes VRAM with a copy engine if it can.
pub struct EngineScrub {
    inner: Box<dyn GpuDriver>,
    info: GpuInfo,
    plan: Option<Plan>,
    channel: Channel,
    jobs: Vec<Job>,
    /// The runlist without our channel.
    listed: Vec<HostChannel>,
    account: Account,
    /// When a piece was last finished.
    progress: Instant,
    /// When pieces were begun that the driver zeroes by itself.
    begun: OrderedMap<(u64, u64), Instant>,
    /// Pieces that the processor has begun.
    by_hand: ByHand,
    /// Why our channel was stopped, if it was.
    stopped: Option<String>,
    shown: Option<Shown>,
    /// Pieces that go back to the host's kernel, and in whose name.
    returns: Vec<Return>,
    helper: Helper,
}

/// The files behind the granules that were asked for last. Asking costs a walk through page tables, and
/// consecutive pieces lie in one granule.
struct Shown {
    first: u64,
    end: u64,
    /// None where memory is not shared from files.
    files: Option<Arc<[SharedMemory]>>,
    /// When they were last asked for.
    used: Instant,
}

/// A piece whose pages go back to the host's kernel. A helper thread does that, because it may take as long
/// as a processor sleeps.
struct Return {
    start: HostVram,
    size: u64,
    /// When the processor began with it, if that is how it is zeroed. Else it is zero.
    zeroes: Option<Instant>,
    /// Whether that worked, once it is over.
    outcome: Pending<bool>,
}

impl std::fmt::Debug for EngineScrub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineScrub")
            .field("info", &self.info)
            .field("jobs", &self.jobs)
            .finish_non_exhaustive()
    }
}

impl EngineScrub {
    /// Wraps a driver that has no channels yet.
    pub fn new(inner: Box<dyn GpuDriver>) -> Self {
        let info = inner.info().clone();
        let mut wrapped = Self {
            inner,
            info,
            plan: None,
            channel: Channel::None,
            jobs: Vec::new(),
            listed: Vec::new(),
            account: Account::default(),
            progress: Instant::now(),
            begun: OrderedMap::new(),
            by_hand: ByHand::default(),
            stopped: None,
            shown: None,
            returns: Vec::new(),
            helper: Helper::default(),
        };
        match wrapped.info.scrub {
            ScrubMode::Engine | ScrubMode::HostMemory => {}
            ScrubMode::Processor | ScrubMode::Files => wrapped.set_up(),
        }
        wrapped
    }

    /// Zeroes all memory of tenants, of whom there are none yet.
    ///
    /// # Errors
    /// See [`Scrubber::advance_scrub`](super::Scrubber::advance_scrub).
    pub fn scrub_all(&mut self) -> Result<(), GpuError> {
        let (start, size) = (self.info.tenant_vram, self.info.tenant_vram_size);
        if !matches!(self.channel, Channel::Ready(_)) {
            return self.at_once(start, size);
        }
        for (granule, bytes) in pieces(start.0, size, self.info.partition_granule) {
            if self.is_untouched(HostVram(granule), bytes) {
                continue;
            }
            for (piece, bytes) in pieces(granule, bytes, SCRUB_PIECE) {
                loop {
                    match self.advance_scrub(HostVram(piece), bytes)? {
                        Scrub::Done | Scrub::Untouched => break,
                        Scrub::More => {}
                        Scrub::Pending => std::thread::sleep(LOOK_AGAIN),
                    }
                }
            }
        }
        Ok(())
    }

    fn is_untouched(&mut self, start: HostVram, size: u64) -> bool {
        let untouched = self.files(start, size).is_some_and(|(files, from)| {
            backing::is_untouched(&files) || backing::is_hole(&files, from, from.saturating_add(size))
        });
        if untouched {
            self.account.untouched(size);
        }
        untouched
    }

    /// True if a range is tenants' memory.
    fn is_of_tenants(&self, start: HostVram, size: u64) -> bool {
        let end = self.info.tenant_vram.checked_add(self.info.tenant_vram_size);
        start >= self.info.tenant_vram && start.checked_add(size).is_some_and(|last| Some(last) <= end)
    }

    /// Refuses memory that a channel which was not cut off worked at.
    fn check_reach(&self, start: HostVram, size: u64) -> Result<(), GpuError> {
        let stuck = matches!(self.channel, Channel::Stuck);
        if stuck && self.jobs.iter().any(|job| job.overlaps(start, size)) {
            return Err(GpuError::Timeout { what: "taking memory from the copy engine", millis: 0 });
        }
        Ok(())
    }

    /// By an engine that the driver has for that.
    fn by_its_engine(&mut self, start: HostVram, size: u64) -> Result<Scrub, GpuError> {
        let began = *self.begun.entry((start.0, size)).or_insert_with(Instant::now);
        let seen = self.inner.advance_scrub(start, size);
        if !matches!(seen, Ok(Scrub::Pending | Scrub::More)) {
            self.begun.remove(&(start.0, size));
        }
        if matches!(seen, Ok(Scrub::Done)) {
            self.account.engine(size, 0, began);
        }
        seen
    }

    /// Closes files that were not used lately.
    fn close_files(&mut self) {
        if self.shown.as_ref().is_some_and(|shown| shown.used.elapsed() > KEPT_OPEN) {
            self.shown = None;
        }
    }

    /// Cancels the return of pieces in a range that a tenant gets now.
    ///
    /// # Errors
    /// Some are going back just now: a tenant would lose what it writes.
    fn forget_returns(&mut self, start: HostVram, size: u64) -> Result<(), GpuError> {
        let (from, end) = (start.0, start.0.saturating_add(size));
        let is_inside =
            |piece: &Return| piece.start.0.saturating_add(piece.size) > from && piece.start.0 < end;
        if self.returns.iter().any(|piece| is_inside(piece) && piece.outcome.get().is_none()) {
            return Err(GpuError::Timeout { what: "giving VRAM back to the host's kernel", millis: 0 });
        }
        self.returns.retain(|piece| !is_inside(piece));
        Ok(())
    }

    /// Has a piece's pages given back to the host's kernel. False where there are no files.
    fn begin_return(&mut self, start: HostVram, size: u64, zeroes: Option<Instant>) -> bool {
        let Some((files, from)) = self.files(start, size) else { return false };
        let outcome = self.helper.later(move || {
            let given = give_back(&files, from, from.saturating_add(size));
            if let Err(error) = &given {
                log::debug!("zeroed memory stays with this process: {error}");
            }
            given.is_ok()
        });
        self.returns.push(Return { start, size, zeroes, outcome });
        true
    }

    /// How far a piece is that goes back, if it is one.
    fn follow_return(&mut self, start: HostVram, size: u64) -> Option<Result<Scrub, GpuError>> {
        let index = self.returns.iter().position(|piece| piece.start == start && piece.size == size)?;
        let (zeroes, outcome) =
            self.returns.get(index).map(|piece| (piece.zeroes, piece.outcome.get().copied()))?;
        let Some(given) = outcome else { return Some(Ok(Scrub::Pending)) };
        self.returns.swap_remove(index);
        match zeroes {
            Some(_) if !given => return Some(self.by_processor(start, size)),
            Some(began) => self.account.processor(size, began.elapsed()),
            None => {}
        }
        Some(Ok(Scrub::Done))
    }

    /// The files behind the granules that a range lies in, and where it begins in them.
    fn files(&mut self, start: HostVram, size: u64) -> Option<(Arc<[SharedMemory]>, u64)> {
        let granule = self.info.partition_granule.max(1);
        let first = start.0 / granule * granule;
        let end = start.0.checked_add(size)?.checked_next_multiple_of(granule)?;
        if self.shown.as_ref().is_none_or(|shown| (shown.first, shown.end) != (first, end)) {
            let files = match self.inner.share_vram(HostVram(first), end.checked_sub(first)?) {
                Ok(files) => Some(files.into()),
                Err(GpuError::Io(error)) if error.kind() == std::io::ErrorKind::Unsupported => None,
                // For want of descriptors, say: the next piece may have more luck.
                Err(_) => return None,
            };
            self.shown = Some(Shown { first, end, files, used: Instant::now() });
        }
        let shown = self.shown.as_mut()?;
        shown.used = Instant::now();
        let files = Arc::clone(shown.files.as_ref()?);
        Some((files, start.0.checked_sub(first)?))
    }

    /// A new piece.
    fn begin(&mut self, start: HostVram, size: u64) -> Result<Scrub, GpuError> {
        self.check_reach(start, size)?;
        self.wake();
        if let Some(why) = self.stopped.take() {
            self.give_up(&why)?;
        }
        if !matches!(self.channel, Channel::Ready(_))
            || !self.is_of_tenants(start, size)
            || !Rig::fits(self.inner.as_ref(), start, size)
        {
            return self.by_processor_or_helper(start, size);
        }
        if self.is_untouched(start, size) {
            return Ok(Scrub::Untouched);
        }
        let Some(slot) = Rig::free_slot(&self.jobs) else {
            if self.jobs.iter().any(|job| job.began.elapsed() > FORGOTTEN) {
                self.give_up("pieces of VRAM that nobody asked for again")?;
            }
            return Ok(Scrub::Pending);
        };
        let Self { inner, channel: Channel::Ready(rig), .. } = self else { return Ok(Scrub::Pending) };
        match rig.start(inner.as_mut(), slot, start, size) {
            Ok(job) => {
                self.jobs.push(job);
                Ok(Scrub::Pending)
            }
            Err(GpuError::Lost) => Err(GpuError::Lost),
            Err(error) => {
                self.give_up(&error.to_string())?;
                self.by_processor_or_helper(start, size)
            }
        }
    }

    /// A piece under way.
    fn follow(&mut self, index: usize, job: Job) -> Result<Scrub, GpuError> {
        self.check_reach(job.start, job.size)?;
        let Self { inner, channel: Channel::Ready(rig), .. } = self else {
            return self.by_processor_or_helper(job.start, job.size);
        };
        let seen = rig.look(inner.as_mut(), &job)?;
        if seen == Seen::Nothing {
            // Others may be before it: as long as they are finished, it only waits its turn.
            let late = job.began.max(self.progress).elapsed() >= PATIENCE;
            let why = match self.stopped.take() {
                Some(why) => why,
                None if late => format!("the copy engine did not finish within {} ms", PATIENCE.as_millis()),
                None => return Ok(Scrub::Pending),
            };
            self.give_up(&why)?;
            return self.by_processor_or_helper(job.start, job.size);
        }
        rig.hide(inner.as_mut(), &job)?;
        self.progress = Instant::now();
        self.jobs.swap_remove(index);
        if seen == Seen::Marks {
            // A device back end that is being reset may write meanwhile, to its own memory.
            let times = self.account.failed_check();
            if times.is_power_of_two() {
                log::warn!(
                    "{:#x} bytes at {} are not zero after the copy engine ({times} so far)",
                    job.size,
                    job.start
                );
            }
            return self.by_processor_or_helper(job.start, job.size);
        }
        self.account.engine(job.size, job.places(), job.began);
        // Only files have memory to give back.
        if self.begin_return(job.start, job.size, None) {
            return self.follow_return(job.start, job.size).unwrap_or(Ok(Scrub::Pending));
        }
        Ok(Scrub::Done)
    }
}

/// Starts and sizes of a range's pieces of at most `most` bytes.
fn pieces(start: u64, size: u64, most: u64) -> impl Iterator<Item = (u64, u64)> {
    let most = most.max(1);
    (0..size.div_ceil(most)).map(move |index| {
        let at = index.saturating_mul(most);
        (start.saturating_add(at), size.saturating_sub(at).min(most))
    })
}
