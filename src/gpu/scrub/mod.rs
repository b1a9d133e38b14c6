//! Zeroing VRAM with the GPU's own copy engine, over any driver that lends memory for channels of the host's own.
//!
//! A driver that wraps another: it keeps one channel back, on the last copy engine, which guests' drivers use least.
//! A piece of VRAM is mapped into that channel's address space for as long as it is zeroed and no longer, so the
//! engine reaches nothing else whatever happens. Before, one place in every 64 KiB is marked; afterwards the engine
//! copies these places out, and they must be zero. Nobody waits for it: whoever wants the memory asks again
//! ([`GpuDriver::advance_scrub`]), while the channel shares the engine with others by hardware's time slices.
//!
//! What the engine does not finish in time, or not right, the processor zeroes. After a failure the channel is made
//! anew, once it had some rest. Memory that comes from files of the host's goes back to its kernel in the end, and
//! what nobody has touched since is not zeroed again.
//!
//! Not handled: GPUs whose driver has a channel of its own for this (`rm`), which zeroes at once when asked.

mod backing;
mod commands;
mod layout;
mod report;
mod rig;

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

pub(super) use self::backing::give_back;
use self::commands::Dialect;
use self::layout::OWN_SIZE;
use self::report::Account;
pub use self::report::ScrubReport;
use self::rig::{Job, Rig, Seen};
use super::{
    ChannelSpec, GpuDriver, GpuError, GpuEvent, GpuInfo, HostMapping, HostRange, OwnMemory, Scrub,
    SpaceHandle, SpaceUsage,
};
use crate::addr::{HostChannel, HostVram, Iova};
use crate::chip::{Engine, EngineSet};
use crate::pci::{DmaMapping, SharedMemory};

/// VRAM zeroed at a time: so much that the processor does it in about a millisecond.
pub const SCRUB_PIECE: u64 = layout::PIECE;

/// How long the engine may take for a piece, its share of the time included: some hundred time slices.
const PATIENCE: Duration = Duration::from_millis(250);

/// How long the processor does the work after the engine failed.
const REST: Duration = if cfg!(test) { Duration::from_millis(50) } else { Duration::from_secs(2) };

/// How long after its start a piece counts as forgotten.
const FORGOTTEN: Duration = Duration::from_secs(2);

/// When to look again whether the engine is done.
pub const LOOK_AGAIN: Duration = Duration::from_micros(200);

/// What is left of the engine.
#[derive(Debug)]
enum Channel {
    /// There is one.
    Ready(Rig),
    /// It failed; it is made anew then.
    Resting(Instant),
    /// There is none, and will be none.
    None,
    /// It could not be cut off from memory: what it worked at is nobody's any more.
    Stuck,
}

/// How the channel is made.
#[derive(Clone, Copy, Debug)]
struct Plan {
    dialect: Dialect,
    engine: Engine,
    own: HostVram,
}

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
    /// Why our channel was stopped, if it was.
    stopped: Option<String>,
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
    /// Wraps a driver on which nobody has a channel yet.
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
            stopped: None,
        };
        if wrapped.inner.scrubs_by_engine() {
            return wrapped;
        }
        match wrapped.plan() {
            Ok(plan) => {
                wrapped.plan = Some(plan);
                match wrapped.open(plan) {
                    // Tenants get all channels but ours, whether it is there at the moment or not.
                    Ok(()) => {
                        wrapped.info.channels = wrapped.info.channels.saturating_sub(1);
                        wrapped.info.table_memory =
                            wrapped.info.table_memory.saturating_sub(OWN_SIZE.saturating_mul(2));
                    }
                    Err(error) => wrapped.do_without(&error.to_string()),
                }
            }
            Err(why) => wrapped.do_without(&why),
        }
        wrapped
    }

    fn do_without(&mut self, why: &str) {
        log::warn!("VRAM is zeroed by the processor, not by a copy engine: {why}");
        self.account.fallback(why.to_owned());
        self.plan = None;
        self.channel = Channel::None;
    }

    fn plan(&mut self) -> Result<Plan, String> {
        let engine = self.info.engines.engines().filter(|engine| *engine != Engine::Graphics).last();
        let engine = engine.ok_or("the GPU has none")?;
        let dialect = Dialect::of(&self.info.chip, engine)
            .ok_or_else(|| format!("the commands of {engine:?} of {} are not known", self.info.chip))?;
        let memory = self.inner.own_memory().ok_or("its driver lends no memory for a channel")?;
        let own = memory.take(OWN_SIZE).map_err(|error| error.to_string())?;
        Ok(Plan { dialect, engine, own })
    }

    fn open(&mut self, plan: Plan) -> Result<(), GpuError> {
        let rig = Rig::new(self.inner.as_mut(), plan.dialect, plan.engine, plan.own)?;
        self.channel = Channel::Ready(rig);
        self.stopped = None;
        self.relist()
    }

    /// Makes the channel anew when it has had its rest.
    fn wake(&mut self) {
        let (Channel::Resting(until), Some(plan)) = (&self.channel, self.plan) else { return };
        if Instant::now() < *until {
            return;
        }
        if let Err(error) = self.open(plan) {
            self.channel = Channel::Resting(Instant::now() + REST);
            self.note_fallback(&error.to_string());
        }
    }

    /// Gives the runlist to hardware, with our channel at its end.
    fn relist(&mut self) -> Result<(), GpuError> {
        let mut list = self.listed.clone();
        if let Channel::Ready(rig) = &self.channel {
            list.push(rig.channel);
        }
        self.inner.commit_runlist(&list)
    }

    /// Takes the channel away after a failure. Its pieces are for whoever asks for them next.
    ///
    /// # Errors
    /// It could not be cut off from the memory that it worked at.
    fn give_up(&mut self, why: &str) -> Result<(), GpuError> {
        self.note_fallback(why);
        let Channel::Ready(rig) =
            std::mem::replace(&mut self.channel, Channel::Resting(Instant::now() + REST))
        else {
            return Ok(());
        };
        self.stopped = None;
        if let Err(error) = rig.cut_off(self.inner.as_mut()) {
            self.channel = Channel::Stuck;
            return Err(error);
        }
        self.jobs.clear();
        // It reaches nothing any more: what goes wrong from here on costs a channel and no more.
        if let Err(error) = self.relist().and_then(|()| rig.destroy(self.inner.as_mut())) {
            log::error!("the channel that zeroes VRAM does not go: {error}");
            self.channel = Channel::None;
        }
        Ok(())
    }

    fn note_fallback(&mut self, why: &str) {
        let times = self.account.fallback(why.to_owned());
        if times.is_power_of_two() {
            log::warn!("VRAM is zeroed by the processor for {REST:?} ({times} times so far): {why}");
        }
    }

    /// Zeroes all memory of tenants, of whom there are none yet.
    ///
    /// # Errors
    /// See [`GpuDriver::scrub_vram`].
    pub fn scrub_all(&mut self) -> Result<(), GpuError> {
        let (start, size) = (self.info.tenant_vram, self.info.tenant_vram_size);
        if !matches!(self.channel, Channel::Ready(_)) {
            return self.by_processor(start, size).map(|_| ());
        }
        for (granule, bytes) in pieces(start.0, size, self.info.partition_granule) {
            if self.is_untouched(HostVram(granule), bytes) {
                continue;
            }
            for (piece, bytes) in pieces(granule, bytes, SCRUB_PIECE) {
                while self.advance_scrub(HostVram(piece), bytes)? == Scrub::Pending {
                    std::thread::sleep(LOOK_AGAIN);
                }
            }
        }
        Ok(())
    }

    fn is_untouched(&mut self, start: HostVram, size: u64) -> bool {
        let untouched = self.files(start, size).is_some_and(|(files, _)| backing::is_untouched(&files));
        if untouched {
            self.account.untouched(size);
        }
        untouched
    }

    /// Refuses memory that a channel which was not cut off worked at.
    fn check_reach(&self, start: HostVram, size: u64) -> Result<(), GpuError> {
        let stuck = matches!(self.channel, Channel::Stuck);
        if stuck && self.jobs.iter().any(|job| job.overlaps(start, size)) {
            return Err(GpuError::Timeout { what: "taking memory from the copy engine", millis: 0 });
        }
        Ok(())
    }

    fn rig(&mut self) -> Option<&mut Rig> {
        match &mut self.channel {
            Channel::Ready(rig) => Some(rig),
            Channel::Resting(_) | Channel::None | Channel::Stuck => None,
        }
    }

    fn by_processor(&mut self, start: HostVram, size: u64) -> Result<Scrub, GpuError> {
        let began = Instant::now();
        self.inner.scrub_vram(start, size)?;
        if self.inner.scrubs_by_engine() {
            self.account.engine(size, 0, began);
        } else {
            self.account.processor(size, began.elapsed());
        }
        Ok(Scrub::Done)
    }

    /// The files behind the granules that a range lies in, and where it begins in them.
    fn files(&mut self, start: HostVram, size: u64) -> Option<(Vec<SharedMemory>, u64)> {
        let granule = self.info.partition_granule.max(1);
        let first = start.0 / granule * granule;
        let end = start.0.checked_add(size)?.checked_next_multiple_of(granule)?;
        let pieces = self.inner.share_vram(HostVram(first), end.checked_sub(first)?).ok()?;
        Some((pieces, start.0.checked_sub(first)?))
    }

    /// A new piece.
    fn begin(&mut self, start: HostVram, size: u64) -> Result<Scrub, GpuError> {
        self.check_reach(start, size)?;
        self.wake();
        if let Some(why) = self.stopped.take() {
            self.give_up(&why)?;
        }
        let end = self.info.tenant_vram.checked_add(self.info.tenant_vram_size);
        let inside = start >= self.info.tenant_vram && start.checked_add(size) <= end;
        if !matches!(self.channel, Channel::Ready(_))
            || !inside
            || !Rig::fits(self.inner.as_ref(), start, size)
        {
            return self.by_processor(start, size);
        }
        if self.is_untouched(start, size) {
            return Ok(Scrub::Done);
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
                self.by_processor(start, size)
            }
        }
    }

    /// A piece under way.
    fn follow(&mut self, index: usize, job: Job) -> Result<Scrub, GpuError> {
        self.check_reach(job.start, job.size)?;
        let Self { inner, channel: Channel::Ready(rig), .. } = self else {
            return self.by_processor(job.start, job.size);
        };
        let seen = rig.look(inner.as_mut(), &job)?;
        if seen == Seen::Nothing {
            let late = job.began.elapsed() >= PATIENCE;
            let why = match self.stopped.take() {
                Some(why) => why,
                None if late => format!("the copy engine did not finish within {} ms", PATIENCE.as_millis()),
                None => return Ok(Scrub::Pending),
            };
            self.give_up(&why)?;
            return self.by_processor(job.start, job.size);
        }
        rig.hide(inner.as_mut(), &job)?;
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
            return self.by_processor(job.start, job.size);
        }
        self.account.engine(job.size, job.places(), job.began);
        // Only files have memory to give back.
        if let Some((files, from)) = self.files(job.start, job.size) {
            match give_back(files, from, from.saturating_add(job.size)) {
                Ok(()) => {}
                Err(error) => log::debug!("zeroed memory stays with this process: {error}"),
            }
        }
        Ok(Scrub::Done)
    }

    /// Whether an event is about our own channel, which is nobody else's business.
    fn take_own(&mut self, event: &GpuEvent) -> bool {
        let Channel::Ready(rig) = &self.channel else { return false };
        let own = rig.channel.0;
        let about = match event {
            GpuEvent::Fault(fault) => fault.channel,
            GpuEvent::HostError(error) => Some(error.channel),
            GpuEvent::GraphicsError(error) => Some(error.channel),
            GpuEvent::ChannelError(error) => Some(error.channel),
            GpuEvent::Preempted(channel) => Some(channel.0),
            GpuEvent::NonStall(_) | GpuEvent::Lost => None,
        };
        let ours = about == Some(own);
        if ours && !matches!(event, GpuEvent::Preempted(_)) {
            self.stopped = Some(format!("its channel was stopped: {event:?}"));
        }
        ours
    }
}

impl GpuDriver for EngineScrub {
    fn info(&self) -> &GpuInfo {
        &self.info
    }

    fn share_vram(&mut self, start: HostVram, size: u64) -> Result<Vec<SharedMemory>, GpuError> {
        self.check_reach(start, size)?;
        // Whoever gets memory that is still being zeroed would lose what it writes: it is taken from the engine.
        let Self { inner, channel, jobs, .. } = self;
        if let Channel::Ready(rig) = channel {
            for job in jobs.iter().filter(|job| job.overlaps(start, size)) {
                log::warn!("{size:#x} bytes at {start} are given out while the copy engine zeroes a part");
                rig.hide(inner.as_mut(), job)?;
            }
            jobs.retain(|job| !job.overlaps(start, size));
        }
        self.inner.share_vram(start, size)
    }

    fn is_vram_dirty(&self, start: HostVram, size: u64) -> bool {
        self.inner.is_vram_dirty(start, size)
    }

    fn scrub_vram(&mut self, start: HostVram, size: u64) -> Result<(), GpuError> {
        self.by_processor(start, size).map(|_| ())
    }

    fn advance_scrub(&mut self, start: HostVram, size: u64) -> Result<Scrub, GpuError> {
        let known = self.jobs.iter().enumerate().find(|(_, job)| job.start == start && job.size == size);
        match known.map(|(index, job)| (index, *job)) {
            Some((index, job)) => self.follow(index, job),
            None => self.begin(start, size),
        }
    }

    fn scrub_report(&self) -> Option<ScrubReport> {
        let engine = matches!(self.channel, Channel::Ready(_)) || self.inner.scrubs_by_engine();
        Some(self.account.report(if engine { "copy engine" } else { "processor" }))
    }

    fn scrubs_by_engine(&self) -> bool {
        matches!(self.channel, Channel::Ready(_)) || self.inner.scrubs_by_engine()
    }

    fn own_memory(&mut self) -> Option<&mut dyn OwnMemory> {
        self.inner.own_memory()
    }

    fn dma_map(&mut self, mapping: DmaMapping) -> Result<(), GpuError> {
        self.inner.dma_map(mapping)
    }

    fn dma_unmap(&mut self, iova: Iova, size: u64) -> Result<(), GpuError> {
        self.inner.dma_unmap(iova, size)
    }

    fn create_space(&mut self) -> Result<SpaceHandle, GpuError> {
        self.inner.create_space()
    }

    fn destroy_space(&mut self, space: SpaceHandle) -> Result<(), GpuError> {
        self.inner.destroy_space(space)
    }

    fn update_space(
        &mut self,
        space: SpaceHandle,
        unmap: &[HostRange],
        map: &[HostMapping],
        table_budget: u64,
    ) -> Result<(), GpuError> {
        self.inner.update_space(space, unmap, map, table_budget)
    }

    fn space_usage(&self, space: SpaceHandle) -> Result<SpaceUsage, GpuError> {
        self.inner.space_usage(space)
    }

    fn clear_space(&mut self, space: SpaceHandle) -> Result<(), GpuError> {
        self.inner.clear_space(space)
    }

    fn revoke_system(&mut self, space: SpaceHandle, iova: Iova, size: u64) -> Result<u64, GpuError> {
        self.inner.revoke_system(space, iova, size)
    }

    fn create_channel(&mut self, spec: ChannelSpec) -> Result<HostChannel, GpuError> {
        self.inner.create_channel(spec)
    }

    fn set_channel_engines(&mut self, channel: HostChannel, engines: EngineSet) -> Result<(), GpuError> {
        self.inner.set_channel_engines(channel, engines)
    }

    fn create_object(&mut self, channel: HostChannel, class: u32, engine: Engine) -> Result<(), GpuError> {
        self.inner.create_object(channel, class, engine)
    }

    fn destroy_channel(&mut self, channel: HostChannel) -> Result<(), GpuError> {
        self.listed.retain(|listed| *listed != channel);
        self.inner.destroy_channel(channel)
    }

    fn enable_channel(&mut self, channel: HostChannel, enabled: bool) -> Result<(), GpuError> {
        self.inner.enable_channel(channel, enabled)
    }

    fn commit_runlist(&mut self, channels: &[HostChannel]) -> Result<(), GpuError> {
        self.listed = channels.to_vec();
        self.relist()
    }

    fn preempt_channel(&mut self, channel: HostChannel) -> Result<(), GpuError> {
        self.inner.preempt_channel(channel)
    }

    fn doorbell(&mut self, channel: HostChannel, gp_put: u32) -> Result<(), GpuError> {
        self.inner.doorbell(channel, gp_put)
    }

    fn channel_progress(&mut self, channel: HostChannel) -> Result<u32, GpuError> {
        self.inner.channel_progress(channel)
    }

    fn sample_engines(&mut self) -> Vec<(Engine, Option<HostChannel>)> {
        let own = self.rig().map(|rig| rig.channel);
        let mut sample = self.inner.sample_engines();
        for (_, channel) in &mut sample {
            *channel = channel.filter(|channel| Some(*channel) != own);
        }
        sample
    }

    fn event_fd(&self) -> BorrowedFd<'_> {
        self.inner.event_fd()
    }

    fn take_events(&mut self, events: &mut Vec<GpuEvent>) {
        let mut index = events.len();
        self.inner.take_events(events);
        while let Some(event) = events.get(index).copied() {
            if self.take_own(&event) {
                events.remove(index);
            } else {
                index = index.saturating_add(1);
            }
        }
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

#[cfg(test)]
mod tests;
