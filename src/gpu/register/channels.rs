//! Host channels: instance blocks, the channel table, the runlist, preemption.

use std::collections::VecDeque;
use std::time::Duration;

use super::bus::Bus;
use super::contexts::{ChannelContexts, Contexts};
use super::memory::HostMemory;
use super::window::{Bar1, block, halves, page_number};
use crate::{ChannelSpec, GpuError, GpuEvent, SpaceHandle};
use gpuvmk_chip::addr::{HostChannel, HostVram, PAGE_SIZE};
use gpuvmk_chip::gf100::engines::SOFTWARE_NUMBER;
use gpuvmk_chip::gf100::mmu::VA_MAX;
use gpuvmk_chip::gf100::ramin::{
    INSTANCE_SIZE, PAGE_DIRECTORY_HI, PAGE_DIRECTORY_LO, RAMFC_ACQUIRE, RAMFC_CURRENT_ENGINE, RAMFC_ENGINES,
    RAMFC_GP_BASE_HI, RAMFC_GP_BASE_LO, RAMFC_PB_HEADER, RAMFC_SIGNATURE, RAMFC_USERD_HI, RAMFC_USERD_LO,
    RUNLIST_ENTRY_CHANNEL, SIGNATURE, VA_LIMIT_HI, VA_LIMIT_LO, target,
};
use gpuvmk_chip::gf100::regs::pfifo::{
    NV_PFIFO_CHAN_INST, NV_PFIFO_CHAN_STATE, NV_PFIFO_ENGINE_STATUS, NV_PFIFO_PREEMPT, NV_PFIFO_RUNLIST,
    NV_PFIFO_RUNLIST_BASE, NV_PFIFO_RUNLIST_STATUS, NV_PFIFO_SCHED_DISABLE,
};
use gpuvmk_chip::gf100::{CHANNELS, engines};
use gpuvmk_chip::{Engine, EngineSet, PhysicalAddress};
use gpuvmk_ordered::OrderedMap;

/// The first channel number that is given out.
const FIRST: u16 = 1;
/// Channels that are given out.
pub(super) const USABLE: u16 = CHANNELS - FIRST;

/// NV_PFIFO_CHAN_INST: the channel is bound.
const BOUND: u32 = NV_PFIFO_CHAN_INST::VALID.mask() | NV_PFIFO_CHAN_INST::POLL_ENABLE.mask();
/// NV_PFIFO_CHAN_STATE: all engines.
const ALL_ENGINES: u32 = NV_PFIFO_CHAN_STATE::ENGINES.mask();
/// NV_PFIFO_CHAN_STATE: the start bit.
const START: u32 = NV_PFIFO_CHAN_STATE::ENABLE.mask();
/// NV_PFIFO_RUNLIST: all engines.
const RUNLIST_ENGINES: u32 = NV_PFIFO_RUNLIST::ENGINES.mask();
/// NV_PFIFO_RUNLIST_STATUS, NV_PFIFO_PREEMPT: not complete.
const PENDING: u32 = NV_PFIFO_RUNLIST_STATUS::PENDING.mask();
/// NV_PFIFO_SCHED_DISABLE: all engines.
const SCHEDULE_NOTHING: u32 = NV_PFIFO_SCHED_DISABLE::ENGINES.mask();
/// NV_PFIFO_ENGINE_STATUS: the engine executes.
const BUSY: u32 = NV_PFIFO_ENGINE_STATUS::BUSY.mask();
/// NV_PFIFO_ENGINE_STATUS: channel number.
const CHID: u32 = NV_PFIFO_ENGINE_STATUS::CHID.mask();

/// How long a channel that is destroyed may take to leave its engine before the engine is reset, if it was
/// not preempted before. Preemption takes effect between methods; the largest method, a copy of 4 GiB, is not
/// worth waiting for.
const LEAVE_WITHIN: Duration = Duration::from_millis(20);

/// RAMFC fields that a driver sets to fixed values (nouveau `nvkm/engine/fifo/gf100.c`).
const RAMFC_FIXED: [(u64, u32); 10] = [
    (RAMFC_SIGNATURE, SIGNATURE),
    (RAMFC_ACQUIRE, 0xffff_f902),
    (0x54, 2),
    (RAMFC_PB_HEADER, 0x2040_0000),
    (0x94, 0x3000_0fff),
    (0x9c, 0x100),
    (RAMFC_CURRENT_ENGINE, SOFTWARE_NUMBER as u32),
    (0xb8, 0xf800_0000),
    (0xf8, 0x1000_3080),
    (0xfc, 0x1000_0010),
];
/// No engine in any of four subchannels.
const NO_ENGINES: u32 = u32::from_le_bytes([SOFTWARE_NUMBER; 4]);

/// Where hardware finds what is a channel's.
#[derive(Clone, Copy)]
pub(super) struct ChannelAddresses {
    pub(super) userd: PhysicalAddress,
    pub(super) directory: PhysicalAddress,
}

struct Channel {
    space: SpaceHandle,
    userd: HostVram,
    instance: u64,
    /// The page that hardware names it by.
    page: u32,
    contexts: ChannelContexts,
    enabled: bool,
}

/// All channels, by their number.
pub(super) struct Channels {
    channels: OrderedMap<HostChannel, Channel>,
    runlist: Vec<HostChannel>,
    /// Two lists in turn: hardware may still read the last one.
    lists: [u64; 2],
    turn: usize,
    /// Preemptions asked for; hardware does one at a time, the first of these.
    preemptions: VecDeque<HostChannel>,
}

impl Channels {
    pub(super) fn new(memory: &mut HostMemory) -> Result<Self, GpuError> {
        let lists = [memory.take(PAGE_SIZE, PAGE_SIZE)?, memory.take(PAGE_SIZE, PAGE_SIZE)?];
        Ok(Self {
            channels: OrderedMap::new(),
            runlist: Vec::new(),
            lists,
            turn: 0,
            preemptions: VecDeque::new(),
        })
    }

    pub(super) fn create(
        &mut self,
        bus: &Bus,
        memory: &mut HostMemory,
        bar1: &mut Bar1,
        contexts: &Contexts,
        spec: ChannelSpec,
        addresses: ChannelAddresses,
    ) -> Result<HostChannel, GpuError> {
        spec.has_own_context()?;
        let channel = (FIRST..CHANNELS)
            .map(HostChannel)
            .find(|channel| !self.channels.contains_key(channel))
            .ok_or(GpuError::Exhausted { what: "channels", limit: USABLE.into() })?;
        let instance = memory.take(INSTANCE_SIZE, PAGE_SIZE)?;
        let physical = memory.physical(instance);
        let mut images = ChannelContexts::default();
        let made = write_instance(memory, instance, &spec, addresses)
            // Of all engines: a guest may name a context while the channel runs already, and hardware may
            // start its new work before the host channel could get another context.
            .and_then(|()| contexts.provide(memory, instance, &mut images, all_engines()))
            .and_then(|()| bar1.set_userd(bus, memory, channel, Some(addresses.userd)))
            .and_then(|()| bus.write(state(channel), ALL_ENGINES))
            .and_then(|()| bus.write(inst(channel), BOUND | block(physical)?))
            .and_then(|()| page_number(physical.address));
        let page = match made {
            Ok(page) => page,
            Err(error) => {
                images.release(memory);
                memory.give_back(instance, INSTANCE_SIZE);
                return Err(error);
            }
        };
        let ChannelSpec { space, userd, .. } = spec;
        let new = Channel { space, userd, instance, page, contexts: images, enabled: false };
        self.channels.insert(channel, new);
        Ok(channel)
    }

    pub(super) fn set_engines(
        &mut self,
        memory: &mut HostMemory,
        contexts: &Contexts,
        channel: HostChannel,
        engines: EngineSet,
    ) -> Result<(), GpuError> {
        let channel = self.channels.get_mut(&channel).ok_or_else(|| no_such(channel))?;
        contexts.provide(memory, channel.instance, &mut channel.contexts, engines)
    }

    pub(super) fn check(&self, channel: HostChannel) -> Result<(), GpuError> {
        self.userd(channel).map(|_| ())
    }

    /// Where its USERD is, as who made the channel named it.
    pub(super) fn userd(&self, channel: HostChannel) -> Result<HostVram, GpuError> {
        self.channels.get(&channel).map(|known| known.userd).ok_or_else(|| no_such(channel))
    }

    pub(super) fn any_in(&self, space: SpaceHandle) -> bool {
        self.channels.values().any(|channel| channel.space == space)
    }

    /// The channel whose instance block has this page number.
    pub(super) fn by_instance(&self, page: u32) -> Option<HostChannel> {
        let found = self.channels.iter().find(|(_, channel)| channel.page == page);
        found.map(|(number, _)| *number)
    }

    pub(super) fn enable(&mut self, bus: &Bus, channel: HostChannel, enabled: bool) -> Result<(), GpuError> {
        let known = self.channels.get_mut(&channel).ok_or_else(|| no_such(channel))?;
        known.enabled = enabled;
        bus.write(state(channel), if enabled { ALL_ENGINES | START } else { ALL_ENGINES })
    }

    pub(super) fn commit_runlist(
        &mut self,
        bus: &Bus,
        memory: &HostMemory,
        channels: &[HostChannel],
    ) -> Result<(), GpuError> {
        for channel in channels {
            self.check(*channel)?;
        }
        self.turn ^= 1;
        let list = self.lists.get(self.turn).copied().unwrap_or(0);
        let mut bytes = Vec::with_capacity(channels.len().saturating_mul(8));
        for channel in channels {
            bytes.extend_from_slice(&u32::from(channel.0).to_le_bytes());
            bytes.extend_from_slice(&RUNLIST_ENTRY_CHANNEL.to_le_bytes());
        }
        memory.write(list, &bytes)?;
        let count = u32::try_from(channels.len()).unwrap_or(0);
        bus.write(NV_PFIFO_RUNLIST_BASE, block(memory.physical(list))?)?;
        bus.write(NV_PFIFO_RUNLIST, RUNLIST_ENGINES | count)?;
        bus.poll(NV_PFIFO_RUNLIST_STATUS, "a runlist", |value| value & PENDING == 0)?;
        self.runlist = channels.to_vec();
        Ok(())
    }

    pub(super) fn preempt(&mut self, bus: &Bus, channel: HostChannel) -> Result<(), GpuError> {
        self.check(channel)?;
        if self.preemptions.contains(&channel) {
            return Ok(());
        }
        self.preemptions.push_back(channel);
        if self.preemptions.len() == 1 {
            bus.write(NV_PFIFO_PREEMPT, channel.0.into())?;
        }
        Ok(())
    }

    pub(super) fn preemptions_pending(&self) -> bool {
        !self.preemptions.is_empty()
    }

    /// Reports the preemptions that are complete and starts the next one.
    pub(super) fn finish_preemptions(&mut self, bus: &Bus, events: &mut Vec<GpuEvent>) {
        while let Some(channel) = self.preemptions.front().copied() {
            match bus.read(NV_PFIFO_PREEMPT) {
                Ok(value) if value & PENDING != 0 => return,
                Ok(_) => {}
                Err(_) => {
                    events.push(GpuEvent::Lost);
                    self.preemptions.clear();
                    return;
                }
            }
            self.preemptions.pop_front();
            events.push(GpuEvent::Preempted(channel));
            if let Some(next) = self.preemptions.front()
                && bus.write(NV_PFIFO_PREEMPT, next.0.into()).is_err()
            {
                events.push(GpuEvent::Lost);
                self.preemptions.clear();
            }
        }
    }

    /// Stops a channel that is to go and takes it off the hardware. True when it did not leave.
    ///
    /// If a preemption is under way already, the channel has had its time, and there is no second wait.
    pub(super) fn evict(
        &mut self,
        bus: &Bus,
        memory: &HostMemory,
        channel: HostChannel,
    ) -> Result<bool, GpuError> {
        self.enable(bus, channel, false)?;
        if self.runlist.contains(&channel) {
            let rest: Vec<HostChannel> = self.runlist.iter().copied().filter(|c| *c != channel).collect();
            self.commit_runlist(bus, memory, &rest)?;
        }
        // Preemptions that were under way are asked for again afterwards: hardware has one register for them.
        let asked = self.preemptions.front() == Some(&channel);
        self.preemptions.retain(|waiting| *waiting != channel);
        let stays = if asked {
            bus.read(NV_PFIFO_PREEMPT)? & PENDING != 0
        } else {
            bus.write(NV_PFIFO_PREEMPT, channel.0.into())?;
            match bus.poll_for(NV_PFIFO_PREEMPT, "a preemption", LEAVE_WITHIN, |v| v & PENDING == 0) {
                Ok(_) => false,
                Err(GpuError::Timeout { .. }) => true,
                Err(error) => return Err(error),
            }
        };
        if let Some(waiting) = self.preemptions.front() {
            bus.write(NV_PFIFO_PREEMPT, waiting.0.into())?;
        }
        Ok(stays)
    }

    /// Forgets a channel that [`Self::evict`] has stopped.
    pub(super) fn destroy(
        &mut self,
        bus: &Bus,
        memory: &mut HostMemory,
        bar1: &mut Bar1,
        channel: HostChannel,
    ) -> Result<(), GpuError> {
        let gone = self.channels.remove(&channel).ok_or_else(|| no_such(channel))?;
        bus.write(inst(channel), 0)?;
        bar1.set_userd(bus, memory, channel, None)?;
        gone.contexts.release(memory);
        memory.give_back(gone.instance, INSTANCE_SIZE);
        Ok(())
    }

    pub(super) fn sample_engines(&self, bus: &Bus) -> Vec<(Engine, Option<HostChannel>)> {
        engines::ENGINES
            .iter()
            .map(|ids| {
                let status = bus.read(NV_PFIFO_ENGINE_STATUS.at(ids.number.into())).unwrap_or(0);
                (ids.engine, running(status))
            })
            .collect()
    }

    /// Blocks the scheduling of the runlist, or allows it again.
    pub(super) fn block(&self, bus: &Bus, blocked: bool) -> Result<(), GpuError> {
        bus.write(NV_PFIFO_SCHED_DISABLE, if blocked { SCHEDULE_NOTHING } else { 0 })
    }

    /// The engines that a channel works on now.
    pub(super) fn held_by(&self, bus: &Bus, channel: HostChannel) -> Result<Vec<Engine>, GpuError> {
        let mut held = Vec::new();
        for ids in engines::ENGINES {
            if running(bus.read(NV_PFIFO_ENGINE_STATUS.at(ids.number.into()))?) == Some(channel) {
                held.push(ids.engine);
            }
        }
        Ok(held)
    }
}

fn running(status: u32) -> Option<HostChannel> {
    let channel = u16::try_from(status & CHID).ok().map(HostChannel)?;
    (status & BUSY != 0).then_some(channel)
}

fn no_such(channel: HostChannel) -> GpuError {
    GpuError::NoSuch { what: "channel", id: channel.0.into() }
}

fn inst(channel: HostChannel) -> gpuvmk_chip::registers::Reg {
    NV_PFIFO_CHAN_INST.at(channel.0.into())
}

fn state(channel: HostChannel) -> gpuvmk_chip::registers::Reg {
    NV_PFIFO_CHAN_STATE.at(channel.0.into())
}

fn write_instance(
    memory: &HostMemory,
    instance: u64,
    spec: &ChannelSpec,
    addresses: ChannelAddresses,
) -> Result<(), GpuError> {
    let ring_valid = spec.gpfifo.0 <= VA_MAX && spec.gpfifo.is_aligned(8);
    if !ring_valid || spec.gpfifo_entries_log2 > 31 || !spec.userd.is_aligned(PAGE_SIZE) {
        return Err(GpuError::Invalid(format!("A channel cannot be made of {spec:?}")));
    }
    let put = |offset: u64, value: u32| memory.write_u32(instance.saturating_add(offset), value);
    for (offset, value) in RAMFC_FIXED {
        put(offset, value)?;
    }
    put(RAMFC_ENGINES, NO_ENGINES)?;
    put(RAMFC_ENGINES + 4, NO_ENGINES)?;
    let (low, high) = halves(addresses.userd.address);
    put(RAMFC_USERD_LO, low | target(addresses.userd.aperture))?;
    put(RAMFC_USERD_HI, high)?;
    let (low, high) = halves(spec.gpfifo.0);
    put(RAMFC_GP_BASE_LO, low)?;
    put(RAMFC_GP_BASE_HI, high | RAMFC_GP_BASE_HI::LIMIT2.of(spec.gpfifo_entries_log2.into()))?;
    let (low, high) = halves(addresses.directory.address);
    put(PAGE_DIRECTORY_LO, low | target(addresses.directory.aperture))?;
    put(PAGE_DIRECTORY_HI, high)?;
    let (low, high) = halves(VA_MAX);
    put(VA_LIMIT_LO, low)?;
    put(VA_LIMIT_HI, high)
}

/// Engines as a set.
pub(super) fn all_engines() -> EngineSet {
    engines::ENGINES.iter().map(|ids| EngineSet::of(ids.engine)).collect()
}
