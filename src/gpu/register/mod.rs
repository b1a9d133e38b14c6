//! The driver for GPUs that are programmed by registers (GF100 now), over any [`gpuvmk_pci::PciFunction`]:
//! the software GPU in process, or a real card.
//!
//! It does the work of a vendor's driver: brings the units up, keeps page tables, instance blocks, runlists
//! and context images in its own memory, and decodes interrupts. Falcon firmware and context images are ours,
//! never a guest's. All that, and tenants' VRAM, is in the GPU's VRAM where it can be shared with processes
//! (the software GPU), and in the host's memory on a card ([`host_backed`]).
//!
//! Threads: the caller's, alone. The interrupt sink only signals an eventfd.

mod bringup;
mod bus;
mod channels;
mod contexts;
mod events;
mod host_backed;
mod idle;
mod memory;
mod reach;
mod script;
mod space;
mod tables;
mod wake;
mod window;

use std::os::fd::BorrowedFd;
use std::time::Duration;

use self::bus::Bus;
use self::channels::{ChannelAddresses, Channels};
use self::contexts::Contexts;
use self::events::Interrupts;
use self::host_backed::HostBackedVram;
use self::idle::IdleCounters;
use self::memory::HostMemory;
use self::reach::Memory;
use self::space::Space;
use self::window::Bar1;
use super::scrub::ScrubReport;
use super::{
    Budget, ChannelSpec, GpuDriver, GpuError, GpuEvent, GpuInfo, HostMapping, OwnMemory, Progress, Renewal,
    Revocation, Scrub, Scrubber, SpaceHandle, SpaceUpdate, SpaceUsage, budget, granules_that_end_in,
};
use gpuvmk_chip::addr::{HostChannel, HostVram, Iova};
use gpuvmk_chip::gf100::ramin::{USERD_GP_GET, USERD_GP_PUT, USERD_SIZE};
use gpuvmk_chip::{Aperture, Engine, EngineSet, PhysicalAddress};
use gpuvmk_ordered::OrderedMap;
use gpuvmk_pci::{CardUse, DmaMapping, SharedMemory};

/// Address spaces at once; each has a page directory of 64 KiB.
const MAX_SPACES: usize = 512;

/// Whether a GPU shares parts of its VRAM with processes ([`SharedRegions::share`]).
#[derive(Clone, Copy)]
enum Vram {
    Shared,
    Private,
}

/// The register driver.
pub struct RegisterDriver {
    info: GpuInfo,
    bus: Bus,
    memory: HostMemory,
    bar1: Bar1,
    /// None where the GPU shares VRAM.
    host_backed: Option<HostBackedVram>,
    /// VRAM for channels of the host's own, where [`Self::memory`] is none.
    lent: Option<HostMemory>,
    contexts: Contexts,
    channels: Channels,
    interrupts: Interrupts,
    /// Events of other channels that were taken while a channel was destroyed.
    kept: Vec<GpuEvent>,
    spaces: OrderedMap<SpaceHandle, Space>,
    next_space: u32,
    engine_resets: u64,
    idle: IdleCounters,
}

impl std::fmt::Debug for RegisterDriver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RegisterDriver").field("info", &self.info).finish_non_exhaustive()
    }
}

impl RegisterDriver {
    fn space(&mut self, handle: SpaceHandle) -> Result<&mut Space, GpuError> {
        self.spaces.get_mut(&handle).ok_or_else(|| no_such_space(handle))
    }

    fn check_tenant_memory(&self, start: HostVram, size: u64) -> Result<(), GpuError> {
        let end = self.info.tenant_vram.checked_add(self.info.tenant_vram_size);
        if start >= self.info.tenant_vram && start.checked_add(size) <= end {
            return Ok(());
        }
        Err(GpuError::Invalid(format!("{size:#x} bytes at {start} are not tenant memory")))
    }

    /// A word of a channel's USERD.
    fn userd(&self, channel: HostChannel, offset: u64) -> Result<u32, GpuError> {
        let userd = self.channels.userd(channel)?;
        match &self.host_backed {
            Some(host_backed) if host_backed.hold(userd) => {
                host_backed.read_u32(HostVram(userd.0.saturating_add(offset)))
            }
            _ => self.bar1.userd(&self.bus, channel, offset),
        }
    }
}

fn no_such_space(handle: SpaceHandle) -> GpuError {
    GpuError::NoSuch { what: "address space", id: handle.0.into() }
}

impl GpuDriver for RegisterDriver {
    fn info(&self) -> &GpuInfo {
        &self.info
    }

    fn share_vram(&mut self, start: HostVram, size: u64) -> Result<Vec<SharedMemory>, GpuError> {
        match &mut self.host_backed {
            Some(host_backed) => host_backed.share(start, size),
            None => self.bar1.share(&self.bus, &self.memory, start, size),
        }
    }

    fn renew_vram(&mut self, start: HostVram, size: u64) -> Result<Renewal, GpuError> {
        self.check_tenant_memory(start, size)?;
        let granule = self.info.partition_granule;
        let limit = self.info.tenant_vram.0.saturating_add(self.info.tenant_vram_size);
        let Self { host_backed, bus, bar1, memory, .. } = self;
        match host_backed {
            Some(host_backed) => {
                let mut budget = Budget::unlimited();
                // A little at a time, so that little is left to be freed when a file goes.
                if host_backed.advance_scrub(start, size, &mut budget)? != Progress::Done
                    || host_backed.advance_drop(start, size, &mut budget)? != Progress::Done
                {
                    return Ok(Renewal::Waits);
                }
            }
            None => {
                for (start, size) in granules_that_end_in(start.0, size, granule, limit) {
                    match bar1.renew(bus, memory, HostVram(start), size) {
                        Err(GpuError::Io(error)) if error.kind() == std::io::ErrorKind::WouldBlock => {
                            return Ok(Renewal::Waits);
                        }
                        renewed => renewed?,
                    }
                }
            }
        }
        Ok(Renewal::Done)
    }

    fn own_memory(&mut self) -> Option<&mut dyn OwnMemory> {
        Some(self.lent.as_mut().unwrap_or(&mut self.memory))
    }

    fn dma_map(&mut self, mapping: DmaMapping) -> Result<(), GpuError> {
        match &mut self.host_backed {
            Some(host_backed) => host_backed.reach.announce(mapping, Memory::Guest)?,
            None => self.bus.function().dma_map(mapping)?,
        }
        Ok(())
    }

    fn advance_dma_unmap(
        &mut self,
        iova: Iova,
        size: u64,
        budget: &mut Budget,
    ) -> Result<Progress, GpuError> {
        if let Some(host_backed) = &mut self.host_backed {
            return host_backed.reach.advance_withdraw(iova, size, budget);
        }
        self.bus.function().dma_unmap(iova.0, size)?;
        budget.spend(budget::CALL);
        Ok(Progress::Done)
    }

    fn create_space(&mut self) -> Result<SpaceHandle, GpuError> {
        if self.spaces.len() >= MAX_SPACES {
            return Err(GpuError::Exhausted { what: "address spaces", limit: MAX_SPACES as u64 });
        }
        let space = Space::new(&mut self.memory)?;
        let handle = SpaceHandle(self.next_space);
        self.next_space = self.next_space.wrapping_add(1);
        self.spaces.insert(handle, space);
        Ok(handle)
    }

    fn advance_destroy_space(
        &mut self,
        space: SpaceHandle,
        budget: &mut Budget,
    ) -> Result<Progress, GpuError> {
        if self.channels.any_in(space) {
            return Err(GpuError::Invalid(format!("Address space {} still has channels", space.0)));
        }
        let gone = self.spaces.remove(&space).ok_or_else(|| no_such_space(space))?;
        gone.flush(&self.bus)?;
        gone.release(&mut self.memory);
        budget.spend(budget::CALL);
        Ok(Progress::Done)
    }

    fn advance_update(
        &mut self,
        space: SpaceHandle,
        update: &mut SpaceUpdate,
        table_budget: u64,
        budget: &mut Budget,
    ) -> Result<Progress, GpuError> {
        let Self { bus, memory, host_backed, spaces, .. } = self;
        let space = spaces.get_mut(&space).ok_or_else(|| no_such_space(space))?;
        let resolve = |mapping: &HostMapping| match host_backed {
            // Memory that the card cannot reach stays a fault.
            Some(host_backed) => host_backed.resolve(mapping).map_err(GpuError::as_unmappable),
            None => Ok(Some(*mapping)),
        };
        let updated = space.advance_update(memory, update, resolve, table_budget, budget);
        // Engines must see what was done before an error, too: the caller waits for the end only.
        if !matches!(updated, Ok(Progress::More | Progress::Waits)) {
            space.flush(bus)?;
        }
        updated
    }

    fn space_usage(&self, space: SpaceHandle) -> Result<SpaceUsage, GpuError> {
        self.spaces.get(&space).map(Space::usage).ok_or_else(|| no_such_space(space))
    }

    fn advance_clear(&mut self, space: SpaceHandle, budget: &mut Budget) -> Result<Progress, GpuError> {
        let Self { bus, memory, spaces, .. } = self;
        let space = spaces.get_mut(&space).ok_or_else(|| no_such_space(space))?;
        let cleared = space.advance_clear(memory, budget);
        if !matches!(cleared, Ok(Progress::More)) {
            space.flush(bus)?;
        }
        cleared
    }

    fn advance_revoke(
        &mut self,
        space: SpaceHandle,
        revocation: &mut Revocation,
        budget: &mut Budget,
    ) -> Result<Progress, GpuError> {
        let Self { bus, memory, spaces, .. } = self;
        let space = spaces.get_mut(&space).ok_or_else(|| no_such_space(space))?;
        let revoked = space.advance_revoke(memory, revocation, budget);
        if !matches!(revoked, Ok(Progress::More)) {
            space.flush(bus)?;
        }
        revoked
    }

    fn advance_channel(&mut self, spec: ChannelSpec) -> Result<Option<HostChannel>, GpuError> {
        let directory = self.space(spec.space)?.directory();
        let Self { bus, memory, bar1, host_backed, contexts, channels, .. } = self;
        let userd = match host_backed {
            Some(host_backed) if host_backed.hold(spec.userd) => {
                let Some(Iova(address)) = host_backed.reach(spec.userd, USERD_SIZE)? else {
                    return Ok(None);
                };
                PhysicalAddress { aperture: Aperture::SystemCoherent, address }
            }
            _ => PhysicalAddress { aperture: Aperture::Vram, address: spec.userd.0 },
        };
        channels.create(bus, memory, bar1, contexts, spec, ChannelAddresses { userd, directory }).map(Some)
    }

    fn set_channel_engines(&mut self, channel: HostChannel, engines: EngineSet) -> Result<(), GpuError> {
        let Self { memory, contexts, channels, .. } = self;
        channels.set_engines(memory, contexts, channel, engines)
    }

    fn create_object(&mut self, channel: HostChannel, class: u32, engine: Engine) -> Result<(), GpuError> {
        // Commands bind classes by themselves.
        let _ = channel;
        Err(GpuError::NoClass { class, engine })
    }

    fn destroy_channel(&mut self, channel: HostChannel) -> Result<(), GpuError> {
        let Self { bus, memory, bar1, contexts, channels, engine_resets, .. } = self;
        if channels.evict(bus, memory, channel)? {
            // No other channel may get the engine between the check who holds it and the reset.
            channels.block(bus, true)?;
            let freed = channels.held_by(bus, channel).and_then(|engines| {
                for engine in engines {
                    log::debug!("host channel {} did not leave {engine:?}: resetting the engine", channel.0);
                    *engine_resets = engine_resets.saturating_add(1);
                    contexts.reset_engine(bus, engine)?;
                }
                Ok(())
            });
            channels.block(bus, false)?;
            freed?;
        }
        channels.destroy(bus, memory, bar1, channel)?;
        // Events of the channel are taken now: later they would be reported for the next channel with its
        // number.
        let Self { bus, channels, interrupts, kept, .. } = self;
        interrupts.take(bus, channels, kept);
        kept.retain(|event| event.channel() != Some(channel));
        if !kept.is_empty() {
            interrupts.look_again();
        }
        Ok(())
    }

    fn enable_channel(&mut self, channel: HostChannel, enabled: bool) -> Result<(), GpuError> {
        self.channels.enable(&self.bus, channel, enabled)
    }

    fn commit_runlist(&mut self, channels: &[HostChannel]) -> Result<(), GpuError> {
        self.channels.commit_runlist(&self.bus, &self.memory, channels)
    }

    fn preempt_channel(&mut self, channel: HostChannel) -> Result<(), GpuError> {
        self.channels.preempt(&self.bus, channel)?;
        self.interrupts.poll_soon(self.channels.preemptions_pending())
    }

    fn doorbell(&mut self, channel: HostChannel) -> Result<(), GpuError> {
        let gp_put = self.userd(channel, USERD_GP_PUT)?;
        self.bar1.doorbell(&self.bus, channel, gp_put)
    }

    fn channel_progress(&mut self, channel: HostChannel) -> Result<u32, GpuError> {
        self.userd(channel, USERD_GP_GET)
    }

    fn sample_engines(&mut self) -> Vec<(Engine, Option<HostChannel>)> {
        self.channels.sample_engines(&self.bus)
    }

    fn engine_times(&mut self) -> Vec<(Engine, Duration)> {
        self.idle.read(&self.bus)
    }

    fn engine_resets(&self) -> u64 {
        self.engine_resets
    }

    fn launches_not_executed(&self) -> Option<u64> {
        None
    }

    fn card_use(&self) -> Option<CardUse> {
        self.bus.function().card_use()
    }

    fn advance_pending(&mut self, budget: &mut Budget) -> bool {
        // Everything that ends tells so.
        let _ = budget;
        false
    }

    fn event_fd(&self) -> BorrowedFd<'_> {
        self.interrupts.fd()
    }

    fn take_events(&mut self, events: &mut Vec<GpuEvent>) {
        let Self { bus, channels, interrupts, kept, .. } = self;
        events.append(kept);
        interrupts.take(bus, channels, events);
        channels.finish_preemptions(bus, events);
        // A lost timer only delays the next look.
        if let Err(error) = interrupts.poll_soon(channels.preemptions_pending()) {
            log::warn!("{error}");
        }
    }
}

impl Scrubber for RegisterDriver {
    fn advance_scrub(&mut self, start: HostVram, size: u64) -> Result<Scrub, GpuError> {
        self.check_tenant_memory(start, size)?;
        match &mut self.host_backed {
            Some(host_backed) => match host_backed.advance_scrub(start, size, &mut Budget::unlimited())? {
                Progress::Done => {}
                Progress::More | Progress::Waits => return Ok(Scrub::Pending),
            },
            None => self.bar1.scrub(&self.bus, &self.memory, start, size, self.info.partition_granule)?,
        }
        Ok(Scrub::Done)
    }

    fn is_vram_dirty(&self, start: HostVram, size: u64) -> bool {
        // It holds what tenants left, and nothing else.
        let _ = (start, size);
        false
    }

    fn scrub_report(&self) -> Option<ScrubReport> {
        None
    }
}

#[cfg(test)]
mod tests;
