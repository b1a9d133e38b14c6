//! The core behind the register face of a chip whose driver programs the FIFO and contexts itself.

use std::time::{Duration, Instant};

use super::Core;
use crate::engine::context::Patch;
use crate::engine::owner::Owner;
use crate::engine::unit::{Switch, Unit};
use crate::events::{Events, hardware_number};
use crate::pbdma::shared::Shared;
use gpuvmk_backend::{EngineBackend, EngineStatus, FifoState, NoTarget};
use gpuvmk_chip::addr::{GuestChannel, HostChannel};
use gpuvmk_chip::channel_event::MmuFault;
use gpuvmk_chip::gf100::ramin::{RUNLIST_ENTRY_CHANNEL, RUNLIST_ENTRY_SIZE};
use gpuvmk_chip::{Engine, EngineSet, PhysicalAddress};

/// Largest number of entries of a runlist: the length field has 12 bits.
const MAX_RUNLIST: u32 = 0xfff;

/// The channels that a runlist in memory names.
fn read_runlist(shared: &Shared, list: PhysicalAddress, count: u32) -> Result<Vec<HostChannel>, NoTarget> {
    let channels = shared.fifo().channels();
    let mut numbers = Vec::new();
    for index in 0..u64::from(count.min(MAX_RUNLIST)) {
        let address = list.address.saturating_add(index * RUNLIST_ENTRY_SIZE);
        let entry = shared.system.memory.read_u64(PhysicalAddress { address, ..list })?;
        let kind = u32::try_from(entry >> 32).unwrap_or(0);
        match u16::try_from(entry & 0xffff_ffff) {
            Ok(number) if number < channels && kind == RUNLIST_ENTRY_CHANNEL => {
                numbers.push(HostChannel(number));
            }
            _ => log::debug!("softgpu: runlist entry {index} names no channel: {entry:#x}"),
        }
    }
    Ok(numbers)
}

fn tell_switch(events: &Events, switch: Result<Switch, MmuFault>) -> Vec<Patch> {
    match switch {
        Ok(switch) => {
            switch.tell(events);
            switch.patches
        }
        Err(fault) => {
            events.fault(None, fault);
            Vec::new()
        }
    }
}

impl EngineBackend for Core {
    fn set_fifo_state(&self, state: FifoState) {
        self.shared.system.mmu.set_large_pages(state.large_pages_64k);
        self.shared.fifo().state = state;
        self.shared.alert_all();
        self.shared.wake();
    }

    fn bind_channel(&self, channel: GuestChannel, instance: Option<PhysicalAddress>) {
        let channel = hardware_number(channel);
        let mut fifo = self.shared.fifo();
        // It is unbound first: it leaves its PBDMA or engine, and nothing of it is saved. Then it is bound.
        fifo.bind(channel, None);
        if let Some(worker) = fifo.channel(channel).and_then(|channel| channel.worker) {
            self.shared.alert(worker);
        }
        drop(self.shared.wait_left(fifo, Some(channel)));
        self.shared.evict(channel, false);
        if instance.is_some() {
            self.shared.fifo().bind(channel, instance);
            self.shared.wake();
        }
    }

    fn enable_channel(&self, channel: GuestChannel, enabled: bool) {
        let mut fifo = self.shared.fifo();
        let Some(entry) = fifo.channel_mut(hardware_number(channel)) else { return };
        entry.enabled = enabled;
        entry.pending |= enabled;
        if let (false, Some(worker)) = (enabled, entry.worker) {
            self.shared.alert(worker);
        }
        let called = fifo.call(Instant::now(), 0);
        drop(fifo);
        self.shared.wake_these(called);
    }

    fn commit_runlist(&self, list: PhysicalAddress, count: u32) {
        let numbers = read_runlist(&self.shared, list, count).unwrap_or_else(|missed| {
            log::warn!("softgpu: runlist of {count} entries cannot be read: {missed}");
            Vec::new()
        });
        self.set_runlist(numbers);
    }

    fn preempt_channel(&self, channel: GuestChannel) {
        let channel = hardware_number(channel);
        let mut fifo = self.shared.fifo();
        let Some(entry) = fifo.channel_mut(channel) else { return };
        entry.preempt();
        if let Some(worker) = entry.worker {
            self.shared.alert(worker);
            return;
        }
        drop(fifo);
        self.shared.evict(channel, true);
        if let Some(entry) = self.shared.fifo().channel_mut(channel) {
            entry.preempting = false;
        }
        self.shared.events.preempted(channel);
        self.shared.wake();
    }

    fn preempt_pending(&self) -> bool {
        self.shared.fifo().channels_mut().any(|(_, channel)| channel.preempting)
    }

    fn bind_graphics_context(&self, instance: Option<PhysicalAddress>) {
        let Some(unit) = self.shared.unit(Engine::Graphics) else { return };
        let owner = instance.map(|instance| Owner { channel: None, generation: 0, instance });
        let _patches = tell_switch(&self.shared.events, unit.bind(&self.shared.system, owner));
    }

    fn save_graphics_context(&self, instance: PhysicalAddress) {
        let Some(unit) = self.shared.unit(Engine::Graphics) else { return };
        if let Err(fault) = unit.save_to(&self.shared.system, instance) {
            self.shared.events.fault(None, fault);
        }
    }

    fn reset_engines(&self, engines: EngineSet) {
        for unit in &self.shared.units {
            if !engines.contains(unit.engine().into()) {
                continue;
            }
            let mut fifo = self.shared.fifo();
            if let Some(number) = fifo.holder(unit.engine())
                && let Some(channel) = fifo.channel_mut(number)
            {
                // The channel's work is lost, so that it must not continue as if nothing had happened.
                channel.stopped = true;
                if let Some(worker) = channel.worker {
                    self.shared.alert(worker);
                }
            }
            drop(fifo);
            unit.reset();
        }
    }

    fn engine_status(&self, engine: Engine) -> EngineStatus {
        self.shared.unit(engine).map(Unit::status).unwrap_or_default()
    }

    fn engine_busy_time(&self, engine: Engine) -> Duration {
        self.shared.unit(engine).map(Unit::busy_time).unwrap_or_default()
    }

    fn block_runlist(&self, blocked: bool) {
        self.shared.fifo().blocked = blocked;
        self.shared.alert_all();
        self.shared.wake();
    }
}
