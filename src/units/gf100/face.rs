//! The register units behind their lock, shared between the function (CPU accesses) and the back (events).
//!
//! The lock is held for the time of one register access or event, and never while the back is called. Under
//! it, only the interrupt sink is called, which does not block; that keeps level changes in order. Two values
//! that fast paths need are published as atomics whenever they may have changed.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::effect::WindowId;
use super::registers::Registers;
use crate::counters::CountersChanged;
use crate::direct_windows::Watcher;
use gpuvmk_backend::EngineEvents;
use gpuvmk_chip::addr::{GpuVa, GuestChannel};
use gpuvmk_chip::channel_event::{ChannelStop, FaultUnit, MmuFault, StopCause};
use gpuvmk_chip::registers::Reg;
use gpuvmk_chip::{Engine, EngineSet};
use gpuvmk_host::clock::Clock;
use gpuvmk_mmio_trap::access::Word;
use gpuvmk_mmio_trap::aperture::WindowFault;

/// No doorbell area.
const NO_AREA: u64 = u64::MAX;

/// Units and what is published of them.
pub struct Face {
    registers: Mutex<Registers>,
    clock: Arc<dyn Clock>,
    /// Offset in BAR1 of the USERD poll area while doorbells work.
    doorbell_area: AtomicU64,
    /// Value of NV_PBUS_BAR0_WINDOW.
    bar0_window: AtomicU32,
    lost: AtomicBool,
    /// Register writes by FECS whose consequences were dropped.
    dropped_patches: AtomicU64,
    window_faults: AtomicU64,
    counters_changed: CountersChanged,
    /// The front end that has mapped windows.
    watcher: Watcher,
}

impl std::fmt::Debug for Face {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Face").field("lost", &self.lost).finish_non_exhaustive()
    }
}

/// The lock's holder: publishes when it lets go.
pub struct Guard<'a> {
    face: &'a Face,
    registers: MutexGuard<'a, Registers>,
}

impl std::ops::Deref for Guard<'_> {
    type Target = Registers;
    fn deref(&self) -> &Registers {
        &self.registers
    }
}

impl std::ops::DerefMut for Guard<'_> {
    fn deref_mut(&mut self) -> &mut Registers {
        &mut self.registers
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let area = self.registers.doorbell_area().unwrap_or(NO_AREA);
        self.face.doorbell_area.store(area, Ordering::Release);
        self.face.bar0_window.store(self.registers.bar0_window(), Ordering::Release);
        self.face.note_counters(&mut self.registers);
    }
}

impl Face {
    /// Units in their reset state.
    pub fn new(registers: Registers, clock: Arc<dyn Clock>) -> Self {
        Self {
            registers: Mutex::new(registers),
            clock,
            doorbell_area: AtomicU64::new(NO_AREA),
            bar0_window: AtomicU32::new(0),
            lost: AtomicBool::new(false),
            dropped_patches: AtomicU64::new(0),
            window_faults: AtomicU64::new(0),
            counters_changed: CountersChanged::default(),
            watcher: Watcher::default(),
        }
    }

    /// Units in a saved state.
    pub fn restored(
        registers: Registers,
        clock: Arc<dyn Clock>,
        lost: bool,
        dropped_patches: u64,
        window_faults: u64,
    ) -> Self {
        let face = Self {
            lost: AtomicBool::new(lost),
            dropped_patches: AtomicU64::new(dropped_patches),
            window_faults: AtomicU64::new(window_faults),
            ..Self::new(registers, clock)
        };
        // Publishes.
        drop(face.lock());
        face
    }

    /// The units, for reading: nothing is published afterwards.
    pub fn peek(&self) -> MutexGuard<'_, Registers> {
        // Models do not panic; if one did all the same, its state is still the best there is.
        self.registers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The units, for changing.
    pub fn lock(&self) -> Guard<'_> {
        Guard { face: self, registers: self.peek() }
    }

    /// Tells those who ask for counters of those that an access has changed.
    pub fn note_counters(&self, units: &mut Registers) {
        if units.take_counters_changed() {
            self.counters_changed.note();
        }
    }

    /// True if a counter has changed since the last call of this.
    pub fn take_counters_changed(&self) -> bool {
        self.counters_changed.take()
    }

    /// The function's clock.
    pub fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// Offset in BAR1 of the USERD poll area while doorbells work.
    pub fn doorbell_area(&self) -> Option<u64> {
        Some(self.doorbell_area.load(Ordering::Acquire)).filter(|area| *area != NO_AREA)
    }

    /// The watcher that is called when a window shows other memory.
    pub fn watcher(&self) -> &Watcher {
        &self.watcher
    }

    /// Value of NV_PBUS_BAR0_WINDOW.
    pub fn bar0_window(&self) -> u32 {
        self.bar0_window.load(Ordering::Acquire)
    }

    /// True when the back is gone.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Function reset: the back starts afresh.
    pub fn found_again(&self) {
        self.lost.store(false, Ordering::Release);
    }

    /// Register writes by FECS whose consequences were dropped.
    pub fn dropped_patches(&self) -> u64 {
        self.dropped_patches.load(Ordering::Relaxed)
    }

    /// CPU accesses through BAR1 and BAR3 that had no translation.
    pub fn window_faults(&self) -> u64 {
        self.window_faults.load(Ordering::Relaxed)
    }

    /// A CPU access through BAR1 or BAR3 had no translation.
    pub fn window_fault(&self, window: WindowId, fault: &WindowFault) {
        self.window_faults.fetch_add(1, Ordering::Relaxed);
        self.counters_changed.note();
        let unit = match window {
            WindowId::Bar1 => FaultUnit::Bar1,
            WindowId::Bar3 => FaultUnit::Bar3,
        };
        let report =
            MmuFault { unit, address: GpuVa(fault.address), access: fault.access, reason: fault.reason };
        self.event(|units| {
            let instance = units.pbus().window_instance(window);
            units.pfifo().window_fault(&report, instance);
        });
    }

    /// The back has taken a runlist.
    pub fn runlist_done(&self) {
        self.event(|units| units.pfifo().runlist_done());
    }

    /// The driver asked for a fault of an engine that serves `channel`.
    pub fn triggered_fault(&self, unit: u32, channel: Option<GuestChannel>) {
        self.event(|units| units.pfifo().triggered_fault(unit, channel));
    }

    /// The timer's time may have come.
    pub fn tick(&self) {
        self.event(|_| {});
    }

    fn event(&self, change: impl FnOnce(&mut Registers)) {
        let mut units = self.peek();
        change(&mut units);
        units.update_interrupts(self.clock());
    }
}

impl EngineEvents for Face {
    fn monitor(&self, _size: Option<(u16, u16)>) {
        // There is no head here.
    }

    fn non_stall(&self, engine: Engine) {
        self.event(|units| units.pfifo().non_stall(engine));
    }

    fn message_delivered(&self, engines: EngineSet) {
        self.event(|units| {
            units.output().message_sent();
            engines.engines().for_each(|engine| units.pfifo().non_stall(engine));
        });
    }

    fn unsent(&self) {
        self.peek().send_again();
    }

    fn stopped(&self, stop: ChannelStop<GuestChannel>) {
        let channel = stop.channel;
        self.event(|units| match stop.cause {
            StopCause::Fault(fault) => units.pfifo().mmu_fault(Some(channel), &fault),
            StopCause::Host(error) => units.pfifo().host_error(channel, error),
            StopCause::Graphics(error) => {
                let instance = units.pfifo().instance_page(channel);
                units.pgraph().raise(&error, instance);
            }
            // A GPU of this chip's kind reports faults by its registers; there is no register for this.
            StopCause::Manager(code) => {
                log::error!("Channel {} was stopped by the host, with code {code}", channel.0);
            }
            StopCause::Hang(hang) => units.pfifo().hung(channel, hang),
        });
    }

    fn fault(&self, fault: MmuFault) {
        self.event(|units| units.pfifo().mmu_fault(None, &fault));
    }

    fn preempted(&self, _channel: GuestChannel) {
        // The driver polls.
    }

    fn patch_register(&self, offset: u32, value: u32) {
        let mut effects = Vec::new();
        self.lock().write(Reg(offset & !3), Word::full(value), self.clock(), &mut effects);
        if !effects.is_empty() {
            self.dropped_patches.fetch_add(1, Ordering::Relaxed);
            self.counters_changed.note();
        }
    }

    fn lost(&self, reason: &str) {
        if !self.lost.swap(true, Ordering::AcqRel) {
            log::error!("The GPU is lost: {reason}");
            self.watcher.replaced();
        }
    }
}
