//! The engine core: what the register face calls, and what the PBDMA threads share.
//!
//! Locks, in the order in which they may be held together: the FIFO tables; an engine; the MMU in use; the
//! tables of the MMU, of DMA, of the ledger. The FIFO's and an engine's are never held together. Events are
//! told with none of them held, so that the receiver may call back; calls that wait for PBDMAs do not wait
//! when one of them makes the call.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::Preemption;
use crate::chip::{Description, GF100};
use crate::engine::context::Patch;
use crate::engine::unit::{Owner, Switch, Unit};
use crate::fifo::Fifo;
use crate::fifo::sleepers::{Pbdmas, bit};
use crate::hardware::Hardware;
use crate::ledger::Ledger;
use crate::mmu::walker::{FermiTables, Walker};
use crate::pbdma;
use crate::vram::renewals::Renewals;
use gpuvmk_chip::gf100::ramin::{RUNLIST_ENTRY_CHANNEL, RUNLIST_ENTRY_SIZE};
use gpuvmk_chip::{Engine, EngineSet, PhysicalAddress};
use gpuvmk_jail::{self as jail, Role};
use gpuvmk_pci::dma::MAX_MAPPINGS;
use gpuvmk_pci::{DmaError, DmaMapping, SharedMemory};
use gpuvmk_units::backend::{
    Backend, Completions, EngineBackend, EngineEvents, EngineStatus, FifoState, FlushScope, NoTarget,
    VramPiece, Windows,
};

/// Entries of a runlist: the length field has 12 bits.
const MAX_RUNLIST: u32 = 0xfff;

thread_local! {
    /// True on the threads of PBDMAs.
    static ON_PBDMA: Cell<bool> = const { Cell::new(false) };
}

/// What the PBDMA threads and the register face share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) hardware: Hardware,
    fifo: Mutex<Fifo>,
    /// By PBDMA: a channel is ready for it.
    work: Vec<Condvar>,
    /// A channel has left its PBDMA.
    left: Condvar,
    units: Vec<Unit>,
    /// By PBDMA: its channel may have to leave.
    attention: Vec<AtomicBool>,
}

impl Shared {
    pub(crate) fn fifo(&self) -> MutexGuard<'_, Fifo> {
        self.fifo.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn unit(&self, engine: Engine) -> Option<&Unit> {
        self.units.iter().find(|unit| unit.engine() == engine)
    }

    /// The flag that tells a PBDMA to look whether its channel must leave.
    pub(crate) fn attention(&self, pbdma: u8) -> &AtomicBool {
        static NEVER: AtomicBool = AtomicBool::new(false);
        self.attention.get(usize::from(pbdma)).unwrap_or(&NEVER)
    }

    fn alert(&self, pbdma: u8) {
        self.attention(pbdma).store(true, Ordering::Release);
    }

    fn alert_all(&self) {
        for flag in &self.attention {
            flag.store(true, Ordering::Release);
        }
    }

    /// Wakes as many sleeping PBDMAs as there are channels ready.
    pub(crate) fn wake(&self) {
        let called = self.fifo().call(Instant::now(), 0);
        self.wake_these(called);
    }

    /// Wakes PBDMAs that the FIFO has called. Called without its lock.
    pub(crate) fn wake_these(&self, called: Pbdmas) {
        let wanted = |(pbdma, _): &(u8, &Condvar)| called & bit(*pbdma) != 0;
        (0..).zip(&self.work).filter(wanted).for_each(|(_, work)| work.notify_one());
    }

    /// A PBDMA has told all that there was to tell of a channel that it has given back.
    pub(crate) fn told(&self, channel: u16) {
        self.fifo().end_telling(channel);
        self.left.notify_all();
    }

    pub(crate) fn tell_left(&self) {
        self.left.notify_all();
    }

    /// A report was written: acquires that wait look again.
    pub(crate) fn released(&self) {
        if self.fifo().retry_semaphores(Instant::now()) {
            self.wake();
        }
    }

    /// Sleeps until it is woken, or until `until`. Called with the FIFO locked, after [`Fifo::lie_down`].
    pub(crate) fn sleep<'a>(
        &self,
        fifo: MutexGuard<'a, Fifo>,
        pbdma: u8,
        until: Option<Instant>,
    ) -> MutexGuard<'a, Fifo> {
        // Every thread of a PBDMA has one.
        let Some(work) = self.work.get(usize::from(pbdma)) else { return fifo };
        match until {
            None => work.wait(fifo).unwrap_or_else(PoisonError::into_inner),
            Some(until) => {
                let time = until.saturating_duration_since(Instant::now());
                work.wait_timeout(fifo, time).unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }

    /// Waits until no PBDMA has the channel loaded, or has yet to tell how its stay ended (without a number:
    /// until none has any channel loaded). A PBDMA that calls back from an event does not wait: two of them
    /// would wait for each other.
    fn wait_left<'a>(&self, fifo: MutexGuard<'a, Fifo>, channel: Option<u16>) -> MutexGuard<'a, Fifo> {
        if ON_PBDMA.get() {
            return fifo;
        }
        let loaded = |fifo: &mut Fifo| match channel {
            None => fifo.any_loaded(),
            Some(channel) => fifo.is_busy(channel),
        };
        self.left.wait_while(fifo, loaded).unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a channel's contexts off the engines, saved to their images or dropped.
    pub(crate) fn evict(&self, channel: u16, save: bool) {
        for unit in &self.units {
            unit.evict(&self.hardware, channel, save).tell(&self.hardware);
        }
    }

    fn read_runlist(&self, list: PhysicalAddress, count: u32) -> Result<Vec<u16>, NoTarget> {
        let mut numbers = Vec::new();
        for index in 0..u64::from(count.min(MAX_RUNLIST)) {
            let address = list.address.saturating_add(index * RUNLIST_ENTRY_SIZE);
            let entry = self.hardware.memory.read_u64(PhysicalAddress { address, ..list })?;
            let kind = u32::try_from(entry >> 32).unwrap_or(0);
            match u16::try_from(entry & 0xffff_ffff) {
                Ok(number) if number < self.hardware.chip.channels && kind == RUNLIST_ENTRY_CHANNEL => {
                    numbers.push(number);
                }
                _ => log::debug!("softgpu: runlist entry {index} names no channel: {entry:#x}"),
            }
        }
        Ok(numbers)
    }
}

/// Marks the calling thread as a PBDMA, so that calls back from its events never wait for itself.
pub(crate) fn become_pbdma() {
    ON_PBDMA.set(true);
}

/// The engine core of the software GPU. Dropping it ends its threads.
#[derive(Debug)]
pub struct Core {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    renewals: Renewals,
}

impl Core {
    /// A GF100's core with `vram` bytes of zeroed VRAM, everything in reset.
    ///
    /// # Errors
    /// The size is not a multiple of 1 MiB, or the host has not the memory or threads.
    pub fn new(vram: u64) -> std::io::Result<Self> {
        Self::of(&GF100, Arc::new(FermiTables::default()), vram)
    }

    /// The core of any chip.
    pub(crate) fn of(
        chip: &'static Description,
        walker: Arc<dyn Walker>,
        vram: u64,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            hardware: Hardware::new(chip, walker, vram)?,
            fifo: Mutex::new(Fifo::new(chip)),
            work: (0..chip.pbdmas).map(|_| Condvar::new()).collect(),
            left: Condvar::new(),
            units: chip.engines.iter().map(|engine| Unit::new(*engine, (chip.model)(*engine))).collect(),
            attention: (0..chip.pbdmas).map(|_| AtomicBool::new(false)).collect(),
        });
        let mut core = Self { shared, threads: Vec::new(), renewals: Renewals::default() };
        for pbdma in 0..chip.pbdmas {
            let shared = Arc::clone(&core.shared);
            let name = format!("pbdma{pbdma}");
            // Those started before an error end with `core`.
            core.threads.push(std::thread::Builder::new().name(name).spawn(move || {
                jail::enter(Role::Engine);
                pbdma::run(&shared, pbdma);
            })?);
        }
        Ok(core)
    }

    /// The ledger of true owners.
    pub fn ledger(&self) -> Arc<Ledger> {
        Arc::clone(&self.shared.hardware.ledger)
    }

    /// Where work leaves an engine that others want.
    pub(crate) fn set_preemption(&self, preemption: Preemption) {
        self.shared.hardware.set_preemption(preemption);
    }

    /// True while a PBDMA has the channel.
    pub(crate) fn is_loaded(&self, channel: u16) -> bool {
        self.shared.fifo().channel(channel).is_some_and(|channel| channel.loaded.is_some())
    }

    /// Takes a runlist: the channels that may run, in this order.
    pub(crate) fn set_runlist(&self, numbers: impl IntoIterator<Item = u16>) {
        let mut fifo = self.shared.fifo();
        fifo.set_runlist(numbers);
        fifo.to_leave().for_each(|pbdma| self.shared.alert(pbdma));
        let called = fifo.call(Instant::now(), 0);
        drop(fifo);
        self.shared.wake_these(called);
    }

    /// Waits until a channel that may not run has left its PBDMA, and saves its contexts: its instance block
    /// is all that there is of it then.
    pub(crate) fn settle(&self, channel: u16) {
        drop(self.shared.wait_left(self.shared.fifo(), Some(channel)));
        self.shared.evict(channel, true);
    }

    /// What all units share.
    pub(crate) fn hardware(&self) -> &Hardware {
        &self.shared.hardware
    }

    fn tell_switch(&self, switch: Result<Switch, gpuvmk_units::backend::MmuFault>) -> Vec<Patch> {
        match switch {
            Ok(switch) => {
                switch.tell(&self.shared.hardware);
                switch.patches
            }
            Err(fault) => {
                self.shared.hardware.tell(|events| events.mmu_fault(fault));
                Vec::new()
            }
        }
    }

    /// A doorbell says that there is work, not how much: the PBDMA reads GP_PUT from USERD when it takes
    /// notice. One that comes late, when a newer GP_PUT has been seen already, must not take the channel
    /// back.
    pub(crate) fn ring(&self, channel: u16) {
        let mut fifo = self.shared.fifo();
        let Some(entry) = fifo.channel_mut(channel) else { return };
        entry.rung = true;
        entry.pending = true;
        let waits = entry.loaded.is_none() && fifo.may_run(channel);
        let called = if waits { fifo.call(Instant::now(), 0) } else { 0 };
        drop(fifo);
        self.shared.wake_these(called);
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.shared.fifo().shut_down = true;
        self.shared.alert_all();
        self.shared.wake_these(Pbdmas::MAX);
        // Work that leaves its engine between methods only would hold its thread up.
        for unit in &self.shared.units {
            unit.reset();
        }
        for thread in self.threads.drain(..) {
            // A core that is dropped by a callback on one of its own threads leaves that one to end by
            // itself.
            if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
                log::error!("softgpu: a PBDMA thread ended by a panic");
            }
        }
    }
}

impl Backend for Core {
    fn vram_size(&self) -> u64 {
        self.shared.hardware.memory.vram.size()
    }

    fn read_memory(&self, address: PhysicalAddress, data: &mut [u8]) -> Result<(), NoTarget> {
        self.shared.hardware.memory.read(address, data)
    }

    fn write_memory(&self, address: PhysicalAddress, data: &[u8]) -> Result<(), NoTarget> {
        self.shared.hardware.memory.write(address, data)
    }

    fn read_tables(&self, address: PhysicalAddress, data: &mut [u8]) -> Result<(), NoTarget> {
        self.read_memory(address, data)
    }

    fn most_dma_ranges(&self) -> usize {
        MAX_MAPPINGS
    }

    fn windows(&self) -> Option<&dyn Windows> {
        None
    }

    fn completions(&self) -> Option<&dyn Completions> {
        None
    }

    fn share_vram(&self, offset: u64, size: u64) -> std::io::Result<Vec<SharedMemory>> {
        self.shared.hardware.memory.vram.share(offset, size)
    }

    fn renew_vram(&self, offset: u64, size: u64) -> std::io::Result<()> {
        self.renewals.ask(offset, size, || {
            let shared = Arc::clone(&self.shared);
            move || shared.hardware.memory.vram.renew(offset, size)
        })
    }

    fn show_vram(&self, offset: u64, size: u64, visit: &mut dyn FnMut(VramPiece<'_>)) {
        self.shared.hardware.memory.vram.show(offset, size, visit);
    }

    fn dma_map(&self, mapping: DmaMapping) -> Result<(), DmaError> {
        self.shared.hardware.memory.system.map(mapping)
    }

    fn dma_unmap(&self, iova: u64, size: u64) -> Result<(), DmaError> {
        // The DMA table itself waits for accesses under way.
        self.shared.hardware.memory.system.unmap(iova, size)
    }

    fn dma_unmap_all(&self) {
        self.shared.hardware.memory.system.unmap_all();
    }

    fn connect_events(&self, events: Arc<dyn EngineEvents>) {
        self.shared.hardware.connect(events);
    }

    fn flush_tlb(&self, scope: FlushScope) {
        self.shared.hardware.mmu.flush(scope);
    }

    fn doorbell(&self, channel: u16, _gp_put: u32) {
        self.ring(channel);
    }

    fn reset(&self) {
        self.shared.fifo().resetting = true;
        self.shared.alert_all();
        for unit in &self.shared.units {
            unit.reset();
        }
        let mut fifo = self.shared.wait_left(self.shared.fifo(), None);
        fifo.clear();
        fifo.resetting = false;
        drop(fifo);
        // Whatever was switched in between the engines' reset and now goes too.
        for unit in &self.shared.units {
            unit.reset();
        }
        self.shared.hardware.mmu.flush_all();
        self.shared.hardware.mmu.set_large_pages(false);
    }
}

impl EngineBackend for Core {
    fn set_fifo_state(&self, state: FifoState) {
        self.shared.hardware.mmu.set_large_pages(state.large_pages_64k);
        self.shared.fifo().state = state;
        self.shared.alert_all();
        self.shared.wake();
    }

    fn bind_channel(&self, channel: u16, instance: Option<PhysicalAddress>) {
        let mut fifo = self.shared.fifo();
        // First unbound, so that it leaves its PBDMA and nothing of it is saved; then bound.
        fifo.bind(channel, None);
        if let Some(pbdma) = fifo.channel(channel).and_then(|channel| channel.loaded) {
            self.shared.alert(pbdma);
        }
        drop(self.shared.wait_left(fifo, Some(channel)));
        self.shared.evict(channel, false);
        if instance.is_some() {
            self.shared.fifo().bind(channel, instance);
            self.shared.wake();
        }
    }

    fn enable_channel(&self, channel: u16, enabled: bool) {
        let mut fifo = self.shared.fifo();
        let Some(entry) = fifo.channel_mut(channel) else { return };
        entry.enabled = enabled;
        entry.pending |= enabled;
        if let (false, Some(pbdma)) = (enabled, entry.loaded) {
            self.shared.alert(pbdma);
        }
        let called = fifo.call(Instant::now(), 0);
        drop(fifo);
        self.shared.wake_these(called);
    }

    fn commit_runlist(&self, list: PhysicalAddress, count: u32) {
        let numbers = self.shared.read_runlist(list, count).unwrap_or_else(|missed| {
            log::warn!("softgpu: runlist of {count} entries cannot be read: {missed}");
            Vec::new()
        });
        self.set_runlist(numbers);
    }

    fn preempt_channel(&self, channel: u16) {
        let mut fifo = self.shared.fifo();
        let Some(entry) = fifo.channel_mut(channel) else { return };
        // Not scheduled until it is off, wherever it is now.
        entry.preempting = true;
        if let Some(pbdma) = entry.loaded {
            self.shared.alert(pbdma);
            return;
        }
        drop(fifo);
        self.shared.evict(channel, true);
        if let Some(entry) = self.shared.fifo().channel_mut(channel) {
            entry.preempting = false;
        }
        self.shared.hardware.tell(|events| events.preempted(channel));
        self.shared.wake();
    }

    fn preempt_pending(&self) -> bool {
        self.shared.fifo().channels_mut().any(|(_, channel)| channel.preempting)
    }

    fn bind_graphics_context(&self, instance: Option<PhysicalAddress>) {
        let Some(unit) = self.shared.unit(Engine::Graphics) else { return };
        let owner = instance.map(|instance| Owner { channel: None, generation: 0, instance });
        let _patches = self.tell_switch(unit.bind(&self.shared.hardware, owner));
    }

    fn save_graphics_context(&self, instance: PhysicalAddress) {
        let Some(unit) = self.shared.unit(Engine::Graphics) else { return };
        if let Err(fault) = unit.save_to(&self.shared.hardware, instance) {
            self.shared.hardware.tell(|events| events.mmu_fault(fault));
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
                // Its work is lost: it must not go on as if nothing had happened.
                channel.stopped = true;
                if let Some(pbdma) = channel.loaded {
                    self.shared.alert(pbdma);
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
