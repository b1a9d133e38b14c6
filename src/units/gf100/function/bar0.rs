//! BAR0: register accesses, and carrying out what follows from them.

use std::sync::MutexGuard;
use std::time::Duration;

use super::super::effect::{Effect, FlushTarget, ReadResult, WindowBlock};
use super::super::idle::Activity;
use super::super::registers::Registers;
use super::config::PRAMIN;
use super::{Gf100Function, locked};
use gpuvmk_backend::{EngineBackend, EngineStatus, FlushScope};
use gpuvmk_chip::gf100::engines::ENGINES;
use gpuvmk_chip::gf100::mmu::LargePages;
use gpuvmk_chip::gf100::ramin;
use gpuvmk_chip::gf100::regs::pfifo::{NV_PFIFO_ENGINE_STATUS, NV_PFIFO_PREEMPT};
use gpuvmk_chip::gf100::regs::windows::NV_PROM;
use gpuvmk_chip::registers::Reg;
use gpuvmk_chip::{Engine, PhysicalAddress};
use gpuvmk_host::clock::Clock;
use gpuvmk_mmio_trap::PhysicalMemory;
use gpuvmk_mmio_trap::access::lanes;

/// The VBIOS window in BAR0.
const PROM: std::ops::Range<u64> = NV_PROM.range();

impl<B: EngineBackend + ?Sized> Gf100Function<B> {
    pub(super) fn read_bar0(&self, offset: u64, data: &mut [u8]) {
        if PRAMIN.contains(&offset) {
            let target = self.pramin(offset);
            if !target.is_some_and(|target| self.memory().read(target, data)) {
                data.fill(0xff);
            }
        } else if PROM.contains(&offset) {
            let start = usize::try_from(offset - PROM.start).unwrap_or(usize::MAX);
            for (byte, at) in data.iter_mut().zip(start..) {
                *byte = self.vbios.get(at).copied().unwrap_or(0xff);
            }
        } else {
            let mut rest = data;
            for lane in lanes(offset, rest.len()) {
                let (part, later) = rest.split_at_mut(lane.len().min(rest.len()));
                if Registers::shows_non_stall(lane.reg) {
                    self.interest_tracker.deliver(&*self.backend);
                }
                let (result, notice) = {
                    let mut units = self.face.peek();
                    let result = units.read(lane.reg, self.face.clock());
                    self.face.note_counters(&mut units);
                    (result, units.take_notice())
                };
                log_unlisted(notice);
                lane.store(self.resolve(result), part);
                rest = later;
            }
        }
    }

    /// The value of a register read, with what only the back knows.
    fn resolve(&self, result: ReadResult) -> u32 {
        match result {
            ReadResult::Value(value) => value,
            ReadResult::EngineStatus(engine) => engine_status(self.backend.engine_status(engine)),
            ReadResult::GraphicsBusy => {
                let status = self.backend.engine_status(Engine::Graphics);
                u32::from(status.busy || status.switching)
            }
            ReadResult::IdleStatus => ENGINES.into_iter().fold(u32::MAX, |bits, ids| {
                if self.backend.engine_status(ids.engine).busy { bits & !ids.idle.mask() } else { bits }
            }),
            ReadResult::IdleCount(counter) => {
                let activity = self.activity();
                self.face.peek().idle_count(counter, &activity)
            }
            ReadResult::PreemptStatus(channel) => {
                channel | NV_PFIFO_PREEMPT::PENDING.of(self.backend.preempt_pending().into())
            }
        }
    }

    pub(super) fn write_bar0(&self, offset: u64, data: &[u8]) {
        if PRAMIN.contains(&offset) {
            if let Some(target) = self.pramin(offset) {
                // A write without memory behind it is lost, as on the bus.
                let _ = self.memory().write(target, data);
            }
            return;
        }
        if PROM.contains(&offset) {
            return;
        }
        let order = locked(&self.order);
        let doorbells = self.face.doorbell_area();
        let mut effects = Vec::new();
        let mut rest = data;
        for lane in lanes(offset, data.len()) {
            let (part, later) = rest.split_at(lane.len().min(rest.len()));
            if Registers::steers_interrupts(lane.reg) {
                self.interest_tracker.deliver(&*self.backend);
            }
            let notice = {
                let mut units = self.face.lock();
                units.write(lane.reg, lane.word(part), self.face.clock(), &mut effects);
                units.take_notice()
            };
            log_unlisted(notice);
            for effect in effects.drain(..) {
                self.perform(effect, &order);
            }
            rest = later;
        }
        if self.face.doorbell_area() != doorbells {
            // Stores there are other things than before.
            self.face.watcher().changed(1);
        }
    }

    /// Carries out what follows from a register access.
    pub(super) fn perform(&self, effect: Effect, order: &MutexGuard<'_, ()>) {
        match effect {
            Effect::FifoState(state) => self.backend.set_fifo_state(state),
            Effect::LargePages { is_64k } => {
                let large_pages = LargePages::from_64k(is_64k);
                self.change_windows(|window| window.set_large_pages(large_pages));
            }
            Effect::Flush { target, hub_only } => self.flush(target, hub_only),
            Effect::MovePramin(start) => {
                self.show_pramin(start);
                self.face.watcher().changed(0);
            }
            Effect::BindWindow(window, block) => {
                {
                    let mut window = locked(self.window(window));
                    match block {
                        WindowBlock::Physical => window.bind_physical(),
                        WindowBlock::Instance(instance) => window.bind_instance(instance, &self.memory()),
                    }
                }
                self.tell_changed(window);
            }
            Effect::BindChannel(channel, instance) => self.backend.bind_channel(channel, instance),
            Effect::EnableChannel(channel, enabled) => self.backend.enable_channel(channel, enabled),
            Effect::CommitRunlist(list, count) => {
                self.backend.commit_runlist(list, count);
                self.face.runlist_done();
            }
            Effect::Preempt(channel) => self.backend.preempt_channel(channel),
            Effect::UpdateInterest => {
                self.interest_tracker.update(&*self.backend, || self.face.peek().interest());
            }
            Effect::BlockRunlist(blocked) => self.backend.block_runlist(blocked),
            Effect::SaveGraphics(instance) => self.backend.save_graphics_context(instance),
            Effect::BindGraphics(instance) => self.backend.bind_graphics_context(instance),
            Effect::ResetEngines(engines) => self.backend.reset_engines(engines),
            Effect::TriggerFault { engine, unit } => {
                self.face.triggered_fault(unit, self.backend.engine_status(engine).channel);
            }
            Effect::AlarmChanged => {
                let delay = self.face.peek().alarm_in(self.face.clock());
                locked(&self.alarm).set(&self.face, delay.map(Duration::from_nanos));
            }
            Effect::IdleCounter(counter, change) => {
                let activity = self.activity();
                self.face.lock().change_idle_counter(counter, change, &activity);
            }
            Effect::FunctionReset => self.reset_ordered(order),
        }
    }

    /// The engines' activity up to now.
    pub(super) fn activity(&self) -> Activity {
        Self::activity_of(&self.backend, self.face.clock())
    }

    /// The activity of a back's engines up to now.
    pub(super) fn activity_of(backend: &B, clock: &dyn Clock) -> Activity {
        let busy = ENGINES.map(|ids| backend.engine_busy_time(ids.engine));
        Activity { elapsed: Duration::from_nanos(clock.now()), busy }
    }

    fn flush(&self, target: FlushTarget, hub_only: bool) {
        match target {
            FlushTarget::Directory(directory) => {
                self.change_windows(|window| window.flush(directory));
                self.backend.flush_tlb(FlushScope { page_directory: directory, hub_only });
            }
            FlushTarget::All => {
                self.change_windows(|window| {
                    window.flush_all();
                    true
                });
                for page_directory in self.page_directories() {
                    self.backend.flush_tlb(FlushScope { page_directory, hub_only });
                }
            }
        }
    }

    /// The page directories of all bound channels, each once.
    fn page_directories(&self) -> Vec<PhysicalAddress> {
        let instances: Vec<_> = self.face.lock().pfifo().instances().collect();
        let mut directories: Vec<_> = instances
            .into_iter()
            .filter_map(|instance| {
                let address = instance.address.checked_add(ramin::PAGE_DIRECTORY_LO)?;
                let mut raw = [0; 8];
                let read = self.memory().read(PhysicalAddress { address, ..instance }, &mut raw);
                ramin::page_directory(u64::from_le_bytes(raw)).filter(|_| read)
            })
            .collect();
        directories.sort_unstable();
        directories.dedup();
        directories
    }
}

/// Logs once that a driver uses registers that no table lists.
fn log_unlisted(notice: Option<Reg>) {
    if let Some(Reg(offset)) = notice {
        log::info!(
            "The driver uses registers that no table lists, first {offset:#08x}: they are plain storage"
        );
    }
}

/// PFIFO's status register of an engine.
fn engine_status(status: EngineStatus) -> u32 {
    /// The engine executes.
    const BUSY: u32 = NV_PFIFO_ENGINE_STATUS::BUSY.mask();
    /// A context is being saved, or loaded.
    const SWITCHING: u32 = NV_PFIFO_ENGINE_STATUS::SAVE.mask() | NV_PFIFO_ENGINE_STATUS::CTXSW_SAVE.mask();
    let channel = status.channel.map_or(0, |channel| NV_PFIFO_ENGINE_STATUS::CHID.of(channel.0.into()));
    let busy = if status.busy || status.switching { BUSY } else { 0 };
    let switching = if status.switching { SWITCHING } else { 0 };
    channel | busy | switching
}
